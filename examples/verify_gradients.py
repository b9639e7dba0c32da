"""Open the flight recorder, and check its gradients in three independent ways.

You learn what a tape records, and how far to trust a derivative. Reverse mode walks the tape
backwards; forward mode carries dual numbers along and needs no tape; finite differences only call
the function twice. The picture shows why differences are a check and not a method: a smaller step
helps until rounding takes over. Exits with status 1 if any two of the three disagree.
"""

from __future__ import annotations

import sys

import numpy as np
from _common import arguments, print_engine, progress, pyplot, save

import tapegraph as tg

CALLS = 3  # of a compiled gradient: two are recorded and compared, the third runs the program
STEP = 1e-5  # near the cube root of the machine epsilon, where the difference is best
TOLERANCE = 1e-7

IMAGE = np.linspace(-1, 1, 36).reshape(1, 1, 6, 6)
ROWS = np.array([[0.2, -0.4, 0.1], [0.5, 0.3, -0.6]])

# name, function of one array that returns one number, the point it is checked at
FUNCTIONS = [
    ("x * sin(x)", lambda x: tg.sum(x * tg.sin(x)), np.linspace(-3, 3, 7)),
    ("tanh(x * exp(-x))", lambda x: tg.sum(tg.tanh(x * tg.exp(-x))), np.linspace(-1, 2, 7)),
    ("sqrt(1 + x ** 2)", lambda x: tg.sum(tg.sqrt(1 + x**2)), np.linspace(-2, 2, 5)),
    ("mean((A @ x) ** 2)", lambda x: tg.mean((ROWS @ x) ** 2), ROWS.T + 0.3),
    ("gelu, silu", lambda x: tg.sum(tg.gelu(x) * tg.silu(x)), np.linspace(-2, 2, 5)),
    ("softmax", lambda x: tg.sum(tg.softmax(x) * np.arange(3.0)), ROWS),
    ("softmax_crossentropy", lambda x: tg.softmax_crossentropy(x, [2, 0]), ROWS),
    ("layer_norm", lambda x: tg.sum(tg.layer_norm(x, np.ones(3), np.zeros(3)) ** 3), ROWS),
    ("gather, repeated", lambda x: tg.sum(tg.gather(x, [1, 0, 1]) ** 2), ROWS),
    ("where", lambda x: tg.sum(tg.where(x > 0, tg.exp(x), x**2)), ROWS),
    ("conv2d", lambda k: tg.sum(tg.tanh(tg.conv2d(IMAGE, k, pad=1))), np.ones((1, 1, 3, 3)) / 9),
]


def by_reverse_mode(f, x, wrap):
    """The gradient, and the function that computed it."""
    leaf = tg.param(x)

    @wrap
    def gradient():
        leaf.zero_grad()
        f(leaf).backward()

    for _ in range(CALLS):
        gradient()
    return leaf.grad, gradient


def directions(x):
    """The unit arrays: one for each element of x."""
    return np.eye(x.size).reshape(x.size, *x.shape)


def by_forward_mode(f, x, wrap):
    slope = wrap(lambda v: tg.jvp(f, (x,), (v,))[1])
    return np.reshape([float(slope(v)) for v in directions(x)], x.shape)


@tg.no_grad()
def by_differences(f, x, wrap, step=STEP):
    f = wrap(f)

    def at(point):
        return f(tg.tensor(point)).item()

    slopes = [(at(x + step * v) - at(x - step * v)) / (2 * step) for v in directions(x)]
    return np.reshape(slopes, x.shape)


def disagreement(a, b) -> float:
    """The largest difference of two gradients, relative to their size where that exceeds 1."""
    return float(np.max(np.abs(a - b) / np.maximum(1, np.abs(a))))


def show_recording() -> None:
    """One small function: what was recorded, and what comes back."""
    x, y = tg.param(2.0, name="x"), tg.param(0.5, name="y")
    f = x * y + tg.sin(x)
    print("f = x * y + sin(x) at x = 2, y = 0.5 was recorded as:\n")
    print(tg.tape())
    f.backward()
    print(f"\ndf/dx = {x.grad:.6f}   (y + cos x = {0.5 + np.cos(2):.6f})")
    print(f"df/dy = {y.grad:.6f}   (x         = {2:.6f})\n")


def verify(wrap):
    """Print one line a function; return whether all agree, and a function that gave a gradient."""
    results = []
    for name, f, x in progress(FUNCTIONS, "checking"):
        reverse, gradient = by_reverse_mode(f, x, wrap)
        results.append((name, reverse, by_forward_mode(f, x, wrap), by_differences(f, x, wrap)))
    print(f"{'largest disagreement':<24} {'reverse/forward':>16} {'reverse/differences':>20}")
    good = True
    for name, reverse, forward, differences in results:
        worst = disagreement(reverse, forward), disagreement(reverse, differences)
        agree = max(worst) <= TOLERANCE
        good &= agree
        print(f"{name:<24} {worst[0]:16.1e} {worst[1]:20.1e}  {'ok' if agree else 'DISAGREE'}")
    return good, gradient


def draw(wrap):
    """The error of the two-sided difference against its step, for one function."""
    name, f, x = FUNCTIONS[1]
    exact, _ = by_reverse_mode(f, x, wrap)
    steps = np.logspace(-13, -0.5, 60)
    errors = [disagreement(exact, by_differences(f, x, wrap, step)) for step in steps]
    figure, axis = pyplot.subplots(figsize=(6.5, 4.5), layout="constrained")
    axis.loglog(steps, errors, label="finite differences")
    axis.axhline(np.finfo(float).eps, color="tab:green", label="rounding of one number")
    axis.axvline(STEP, color="gray", linestyle=":", label="step used here")
    axis.set(xlabel="step", ylabel="error of the gradient", title=f"sum({name})")
    axis.legend()
    return figure


def main() -> None:
    args = arguments(
        __doc__,
        picture="verify_gradients.png",
        compiles="run all three through tg.compile: the gradients, the slopes and the functions",
    )
    wrap = tg.compile if args.compile else lambda f: f
    show_recording()
    good, gradient = verify(wrap)
    save(draw(wrap), args.out)
    print_engine(gradient)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
