"""Fit a line by gradient descent, and compare it with the exact answer.

You learn that least squares needs no formula when gradients are free, and how close descent gets
to the formula. The data are scikit-learn's 442 diabetes patients: ten measurements each, and the
progress of the disease a year later.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, extra, print_engine, progress, pyplot, save

import tapegraph as tg

with extra():
    from sklearn.datasets import load_diabetes

LR = 0.2


def descend(x: np.ndarray, y: np.ndarray, steps: int, compile: bool):
    """Minimise the mean squared error; return the weights and intercept, the losses, the step."""
    w = tg.param(np.zeros(x.shape[1]), name="w")
    b = tg.param(0.0, name="b")
    optimizer = tg.SGD([w, b], lr=LR)

    def step(x, y):
        loss = tg.mean((x @ w + b - y) ** 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    if compile:
        step = tg.compile(step)
    losses = [step(x, y).item() for _ in progress(range(steps), "descending")]
    return np.append(w.data, b.data), losses, step


def draw(names, descent, exact, losses, exact_loss, predicted, y):
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(15, 4), layout="constrained")
    left.loglog(range(1, len(losses) + 1), np.array(losses) - exact_loss)
    left.set(xlabel="step", ylabel="loss above the exact minimum", title="descent")
    rows = np.arange(len(names))
    middle.barh(rows - 0.2, exact[:-1], 0.4, label="least squares")
    middle.barh(rows + 0.2, descent[:-1], 0.4, label="descent")
    middle.set_yticks(rows, names)
    middle.invert_yaxis()  # the first on top, as in the legend
    middle.set(xlabel="weight of the standardised measurement")
    middle.legend(loc="upper right")
    right.scatter(y, predicted, s=8)
    right.plot([y.min(), y.max()], [y.min(), y.max()], color="black", lw=1, label="no error")
    right.legend(loc="lower right")
    right.set(xlabel="progress measured", ylabel="progress predicted", title="442 patients")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="linear_regression.png")
    data = load_diabetes()
    x = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    y = data.target
    descent, losses, step = descend(x, y, 500 if args.quick else 4000, args.compile)

    with_intercept = np.column_stack([x, np.ones(len(x))])
    exact = np.linalg.lstsq(with_intercept, y)[0]
    exact_loss = np.mean((with_intercept @ exact - y) ** 2)
    predicted = with_intercept @ descent

    print(f"{'':>10} {'descent':>12} {'exact':>12}")
    for name, ours, theirs in zip([*data.feature_names, "intercept"], descent, exact, strict=True):
        print(f"{name:>10} {ours:12.6f} {theirs:12.6f}")
    print(f"{'mse':>10} {np.mean((predicted - y) ** 2):12.6f} {exact_loss:12.6f}")
    figure = draw(data.feature_names, descent, exact, losses, exact_loss, predicted, y)
    save(figure, args.out)
    print_engine(step)


if __name__ == "__main__":
    main()
