"""Give tapegraph a function of SciPy's, and fit a robust classifier with it.

You learn to register an operation of your own in ten lines: its forward comes from SciPy, its
gradient from a textbook, and from then on it is recorded, checked and differentiated like any
other, by SciPy's own name. The data are scikit-learn's 569 tumours, thirty measurements each; the
model says how likely each is to be benign. It is a probit model with Student's distribution in the
normal's place, whose heavy tails forgive a tumour that is far from its kind ("robit regression").
"""

from __future__ import annotations

import numpy as np
from _common import arguments, extra, print_engine, progress, pyplot, save

import tapegraph as tg

with extra():
    from scipy.special import beta, stdtr
    from sklearn.datasets import load_breast_cancer

LR = 1.0
PENALTY = 1e-3

FREEDOM = 4.0


def density(freedom, x):
    """Student's density, the derivative of his distribution stdtr."""
    scale = np.sqrt(freedom) * beta(0.5, freedom / 2)
    return (1 + x**2 / freedom) ** (-(freedom + 1) / 2) / scale


# Of its two arguments the degrees of freedom are a constant: they have no gradient.
tg.defop(
    stdtr,
    vjp=(None, lambda g, y, freedom, x: g * density(freedom, x)),
    jvp=lambda tangents, y, freedom, x: tangents[1] * density(freedom, x),
)


def show_the_operation() -> None:
    """What registering it bought: checked gradients, forward mode, second derivatives."""
    points = np.linspace(-8, 8, 9)
    report = tg.testing.check_gradients(lambda x: stdtr(FREEDOM, x), points)
    print(f"gradient of stdtr, largest disagreement      {report.max_abs_error:.1e}")
    exact = -15 / 16 * 2**-3.5  # -15/32 x (1 + x^2 / 4)^(-7/2), with four degrees of freedom
    curvature = tg.grad(tg.grad(lambda x: stdtr(FREEDOM, x)))(2.0)
    print(f"second derivative at 2, forward over forward {curvature:.6f} ({exact:.6f})")


def fit(x: np.ndarray, sign: np.ndarray, steps: int, compile: bool):
    """Maximise the penalised likelihood of the labels; return scores, losses and the step."""
    w, b = tg.param(np.zeros(x.shape[1]), name="w"), tg.param(0.0, name="b")
    optimizer = tg.SGD([w, b], lr=LR)

    def step(x, sign):
        loss = -np.mean(np.log(stdtr(FREEDOM, sign * (x @ w + b)))) + PENALTY * (w @ w)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    if compile:
        step = tg.compile(step)
    losses = [step(x, sign).item() for _ in progress(range(steps), "fitting")]
    return x @ w.data + b.data, losses, step


def draw(losses, score, benign):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.semilogx(range(1, len(losses) + 1), losses)
    left.set(xlabel="step", ylabel="penalised loss", title="robit regression", ylim=(0, None))
    for label, name in ((True, "benign"), (False, "malignant")):
        shown = stdtr(FREEDOM, score[benign == label])
        right.hist(shown, bins=np.linspace(0, 1, 21), alpha=0.6, label=name)
    right.set(xlabel="probability of being benign", ylabel="tumours", yscale="log")
    right.legend()
    return figure


def main() -> None:
    args = arguments(__doc__, picture="defop_scipy.png")
    show_the_operation()
    data = load_breast_cancer()
    x = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    benign = data.target == 1
    steps = 100 if args.quick else 1000
    score, losses, step = fit(x, np.where(benign, 1.0, -1.0), steps, args.compile)
    print(f"accuracy  {np.mean((score > 0) == benign):.1%}")
    save(draw(losses, score, benign), args.out)
    print_engine(step)


if __name__ == "__main__":
    main()
