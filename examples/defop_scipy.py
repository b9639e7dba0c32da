"""Give tapegraph a function of SciPy's, and fit a probit model with it.

You learn to register an operation of your own in ten lines: its forward comes from SciPy, its
gradient from a textbook, and from then on it is recorded, checked and differentiated like any
other, by SciPy's own name. The data are scikit-learn's 569 tumours, thirty measurements each; the
model says how likely each is to be benign.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, extra, print_engine, progress, pyplot, save

import tapegraph as tg

with extra():
    from scipy.special import log_ndtr, ndtr
    from sklearn.datasets import load_breast_cancer

LR = 1.0
PENALTY = 1e-3

# log_ndtr is the logarithm of the normal distribution, log P(Z < x); its derivative is the density
# over the distribution, exp(-x^2 / 2) / sqrt(2 pi) / exp(log_ndtr(x)).
tg.defop(
    log_ndtr,
    vjp=lambda g, y, x: g * np.exp(-(x**2) / 2 - y) / np.sqrt(2 * np.pi),
    jvp=lambda tangents, y, x: tangents[0] * np.exp(-(x**2) / 2 - y) / np.sqrt(2 * np.pi),
)


def show_the_operation() -> None:
    """What registering it bought: checked gradients, forward mode, second derivatives."""
    points = np.linspace(-8, 8, 9)
    report = tg.testing.check_gradients(log_ndtr, points)
    print(f"gradient of log_ndtr, largest disagreement   {report.max_abs_error:.1e}")
    curvature = tg.grad(tg.grad(log_ndtr))(0.0)
    print(f"second derivative at 0, forward over forward {curvature:.6f} (-2/pi {-2 / np.pi:.6f})")


def fit(x: np.ndarray, sign: np.ndarray, steps: int):
    """Maximise the penalised likelihood of the labels by gradient descent."""
    w, b = tg.param(np.zeros(x.shape[1]), name="w"), tg.param(0.0, name="b")
    optimizer = tg.SGD([w, b], lr=LR)
    losses = []
    for _ in progress(range(steps), "fitting"):
        loss = -np.mean(log_ndtr(sign * (x @ w + b))) + PENALTY * (w @ w)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return x @ w.data + b.data, losses


def draw(losses, score, benign):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.loglog(losses)
    left.set(xlabel="step", ylabel="penalised loss", title="probit regression")
    for label, name in ((True, "benign"), (False, "malignant")):
        right.hist(ndtr(score[benign == label]), bins=np.linspace(0, 1, 21), alpha=0.6, label=name)
    right.set(xlabel="probability of being benign", ylabel="tumours", yscale="log")
    right.legend()
    return figure


def main() -> None:
    args = arguments(__doc__, picture="defop_scipy.png")
    show_the_operation()
    data = load_breast_cancer()
    x = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    benign = data.target == 1
    score, losses = fit(x, np.where(benign, 1.0, -1.0), 100 if args.quick else 1000)
    print(f"accuracy  {np.mean((score > 0) == benign):.1%}")
    save(draw(losses, score, benign), args.out)
    print_engine()


if __name__ == "__main__":
    main()
