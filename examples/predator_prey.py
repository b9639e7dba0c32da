"""Fit the equations of Lotka and Volterra to lynxes and hares: an inverse problem.

You learn that a solver of differential equations is a function like others: gradients flow through
`tg.integrate.odeint` to the rates and to the first state, SciPy minimises by them, and the Jacobian
of the solution says how sure the rates are. The data are the pelts that the Hudson's Bay Company
bought from 1900 to 1920, in thousands; the yardstick is what B. Carpenter's case study for Stan
(2018) found by sampling.
"""

from __future__ import annotations

import time

import numpy as np
from _common import arguments, extra, print_engine, progress, pyplot, save

import tapegraph as tg

with extra():
    from scipy.optimize import minimize

YEARS = np.arange(1900.0, 1921.0)
HARES = [30.0, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22.0, 25.4, 27.1]
HARES += [40.3, 57.0, 76.6, 52.3, 19.5, 11.2, 7.6, 14.6, 16.2, 24.7]
LYNXES = [4.0, 6.1, 9.8, 35.2, 59.4, 41.7, 19.0, 13.0, 8.3, 9.1, 7.4]
LYNXES += [8.0, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6]
PELTS = np.stack([HARES, LYNXES], axis=1)

NAMES = ("births", "hunting", "deaths", "feeding", "first hares", "first lynxes")
STAN = {"births": 0.55, "hunting": 0.028, "deaths": 0.80, "feeding": 0.024}


def change(y, t, births, hunting, deaths, feeding):
    """What hares and lynxes gain in a year."""
    hares, lynxes = y[0], y[1]
    return np.stack([hares * (births - hunting * lynxes), lynxes * (feeding * hares - deaths)])


def pelts(logs, times=YEARS):
    """Hares and lynxes at some times, by the logarithms of the rates and of the first state."""
    numbers = np.exp(logs)
    return tg.integrate.odeint(change, numbers[4:], times, *numbers[:4], rtol=1e-7, atol=1e-7)


def loss(logs):
    """Half the sum of squares of what the logarithms of pelts are off by."""
    return 0.5 * np.sum((np.log(pelts(logs)) - np.log(PELTS)) ** 2)


def first_guess():
    """Rates at which the means of the data would stay, and the first of the data."""
    hares, lynxes = PELTS.mean(axis=0)
    return np.log([0.6, 0.6 / lynxes, 0.6, 0.6 / hares, *PELTS[0]])


def fit(value_and_slope, iterations: int):
    """Minimise the loss by SciPy's BFGS."""
    options = {"maxiter": iterations, "gtol": 1e-6}
    with progress(range(iterations), "fitting") as bar:

        def note(_):
            bar.update()

        return minimize(value_and_slope, first_guess(), jac=True, callback=note, options=options)


def covariance(logs):
    """Of the logarithms, where the errors of the pelts' are alike and independent."""
    slopes = tg.jacobian(lambda logs: np.log(pelts(logs)).reshape(-1))(logs)
    return 2 * loss(logs) / (PELTS.size - len(logs)) * np.linalg.inv(slopes.T @ slopes)


def draw(logs, spread, rng):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), layout="constrained")
    times = np.linspace(YEARS[0], YEARS[-1], 201)
    others = pelts(rng.multivariate_normal(logs, spread, size=40).T, times)  # (times, 2, 40)
    curve, guess = pelts(logs, times), pelts(first_guess(), times)
    for i, (name, color) in enumerate({"hares": "tab:blue", "lynxes": "tab:red"}.items()):
        left.plot(times, others[:, i], color=color, alpha=0.1, linewidth=0.8)
        left.plot(times, curve[:, i], color=color, label=name)
        left.plot(YEARS, PELTS[:, i], "o", color=color, markersize=4)
    left.set(xlabel="year", ylabel="pelts, thousands", ylim=(0, 100), xticks=range(1900, 1921, 5))
    left.legend(ncols=2)
    right.plot(*guess.T, color="tab:gray", linestyle="--", label="first guess")
    right.plot(*curve.T, color="tab:green", label="fit")
    right.plot(*PELTS.T, "o", color="black", markersize=3, label="data")
    right.set(xlabel="hares", ylabel="lynxes", xlim=(0, 100), ylim=(0, 75))
    right.legend()
    return figure


def main() -> None:
    args = arguments(__doc__, "predator_prey.png", "compile the loss and its gradient")
    value_and_slope = tg.value_and_grad(loss)
    if args.compile:
        value_and_slope = tg.compile(value_and_slope)
    start = time.perf_counter()
    found = fit(value_and_slope, 8 if args.quick else 100)
    seconds = time.perf_counter() - start

    spread = covariance(found.x)
    for name, log, deviation in zip(NAMES, found.x, np.sqrt(np.diag(spread)), strict=True):
        beside = f"; Stan's mean {STAN[name]}" if name in STAN else ""
        print(f"{name:13}{np.exp(log):.3g} +- {np.exp(log) * deviation:.1g}{beside}")
    print(
        f"found     {found.fun:.4f}, the loss after {found.nit} iterations and {found.nfev} calls"
    )
    print(f"loop      {1e3 * seconds / found.nfev:.1f} ms a call")
    print_engine(value_and_slope)
    save(draw(found.x, spread, np.random.default_rng(args.seed)), args.out)


if __name__ == "__main__":
    main()
