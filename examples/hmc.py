"""Draw from a posterior by Hamiltonian Monte Carlo, and compare its moments with exact ones.

You learn a sampler as a compiled step: `tg.grad` of a log density gives the force, six leapfrogs
make a trajectory of four chains at once, and `step.scan` runs thousands of steps in one call. The
data are scikit-learn's 569 breast tumours: a logistic regression says by the radius of its nuclei
how likely a tumour is malignant. It has two parameters, so that a grid gives its moments exactly.
"""

from __future__ import annotations

import contextlib
import time

import numpy as np
from _common import arguments, extra, print_engine, pyplot, save

import tapegraph as tg

with extra():
    from sklearn.datasets import load_breast_cancer

CHAINS, LEAPFROGS = 4, 6
PRIOR = 2.5  # the standard deviation of both parameters, for a feature of standard deviation 1
DATA = load_breast_cancer()
RADIUS, MALIGNANT = DATA.data[:, 0], 1.0 - DATA.target
X = (RADIUS - RADIUS.mean()) / RADIUS.std()


def log_density(q):
    """The log posterior, up to a constant, of each row (intercept, slope)."""
    z = q[:, :1] + q[:, 1:] * X
    return np.sum(MALIGNANT * z - tg.softplus(z), axis=1) - 0.5 * np.sum((q / PRIOR) ** 2, axis=1)


force = tg.grad(lambda q: np.sum(log_density(q)))


def new_leap():
    """Make the step that moves each chain along a trajectory, and takes its end or refuses it."""
    q = tg.tensor(np.zeros((CHAINS, 2)))

    @tg.compile
    def leap(size):
        # Trajectories of one length may all be a whole turn, and end where they began.
        size = size * tg.random.uniform(0.5, 1.5, size=())
        here, p = q, tg.random.normal(size=q.shape)
        before = log_density(here) - 0.5 * np.sum(p * p, axis=1)
        p = p + 0.5 * size * force(here)
        for i in range(LEAPFROGS):
            here = here + size * p
            p = p + (size if i < LEAPFROGS - 1 else 0.5 * size) * force(here)
        after = log_density(here) - 0.5 * np.sum(p * p, axis=1)
        accepted = np.log(tg.random.uniform(size=CHAINS)) < after - before
        q.assign(np.where(accepted[:, None], here, q))
        return q, accepted

    return leap


def tuned(leap, rounds: int) -> float:
    """Find a size of the leapfrogs at which four of five trajectories are accepted."""
    sizes = [0.05]
    for _ in range(rounds):
        _, accepted = leap.scan(sizes[-1], length=25)
        sizes.append(sizes[-1] * (1.15 if np.mean(accepted) > 0.8 else 0.85))
    return np.exp(np.mean(np.log(sizes[rounds // 2 :]))).item()


def on_a_grid(points: int = 200):
    """The density on a grid, scaled to a sum of one, and the posterior's means and deviations."""
    axes = [np.linspace(*ends, points) for ends in ((-2.0, 0.6), (2.0, 6.5))]
    grid = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 2)
    logs = np.concatenate([log_density(part) for part in np.split(grid, 100)])
    chances = np.exp(logs - logs.max())
    chances /= chances.sum()
    means = chances @ grid
    return axes, chances.reshape(points, points), means, np.sqrt(chances @ (grid - means) ** 2)


def independent(draws: np.ndarray) -> float:
    """The number of independent draws that tell as much of a mean: Geyer's (1992), least of both.

    `draws` has the shape (steps, chains, parameters).
    """
    count = len(draws)
    waves = np.fft.rfft(draws - draws.mean(axis=(0, 1)), 2 * count, axis=0)
    lagged = np.fft.irfft(np.abs(waves) ** 2, axis=0)[:count].mean(axis=1)
    pairs = (lagged[:-1:2] + lagged[1::2]) / lagged[0]
    positive = np.minimum.accumulate(pairs > 0, axis=0)
    return draws[..., 0].size / (2 * np.sum(pairs * positive, axis=0) - 1).max()


def r_hat(draws: np.ndarray) -> float:
    """How much wider all chains together are than each by itself (Gelman and Rubin, 1992)."""
    within = draws.var(axis=0, ddof=1).mean(axis=0)
    between = draws.mean(axis=0).var(axis=0, ddof=1)
    return np.sqrt((len(draws) - 1) / len(draws) + between / within).max()


def draw(draws, axes, chances):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    left.plot(*draws.reshape(-1, 2)[::4].T, ".", markersize=2, alpha=0.4, label="draws")
    # Where 50, 90 and 99 of 100 draws belong: the smallest regions that hold so much.
    ordered = np.sort(chances.ravel())[::-1]
    levels = [ordered[np.searchsorted(ordered.cumsum(), share)] for share in (0.99, 0.9, 0.5)]
    left.contour(*axes, chances, levels, colors="black", linewidths=1)
    left.plot([], [], color="black", linewidth=1, label="50, 90, 99 % by a grid")
    left.set(xlabel="intercept", ylabel="slope", title="the posterior")
    left.set(xlim=(-1.25, -0.05), ylim=(2.2, 5.1))
    left.legend()

    line = np.linspace(RADIUS.min(), RADIUS.max(), 200)
    z = draws.reshape(-1, 2)[::20] @ [np.ones(200), (line - RADIUS.mean()) / RADIUS.std()]
    curves = 100 / (1 + np.exp(-z))
    low, high = np.percentile(curves, [2.5, 97.5], axis=0)
    right.fill_between(line, low, high, alpha=0.4, label="95 of 100 curves")
    right.plot(line, curves.mean(axis=0), label="their mean")
    bins = np.quantile(RADIUS, np.linspace(0, 1, 13))
    places = np.clip(np.digitize(RADIUS, bins) - 1, 0, 11)
    shares = [100 * MALIGNANT[places == i].mean() for i in range(12)]
    centres = [RADIUS[places == i].mean() for i in range(12)]
    right.plot(centres, shares, "o", color="black", markersize=4, label="tumours, by twelfths")
    right.set(
        xlabel="mean radius of the nuclei", ylabel="malignant, %", title="what it says of a tumour"
    )
    right.legend()
    return figure


def main() -> None:
    args = arguments(__doc__, "hmc.png", "compile the sampler", compile=True)
    tg.random.seed(args.seed)
    leap = new_leap()
    with contextlib.nullcontext() if args.compile else tg.compile_disabled():
        size = tuned(leap, 16 if args.quick else 40)
        start = time.perf_counter()
        moved, accepted = leap.scan(size, length=500 if args.quick else 1500)
        seconds = time.perf_counter() - start
    draws = moved.numpy()

    axes, chances, means, deviations = on_a_grid()
    found = draws.mean(axis=(0, 1)), draws.std(axis=(0, 1))
    for name, both in {"draws": found, "grid": (means, deviations)}.items():
        numbers = [f"{mean:.3f} +- {width:.3f}" for mean, width in zip(*both, strict=True)]
        print(f"{name:9} intercept {numbers[0]}, slope {numbers[1]}")
    count = independent(draws)
    print(f"error     {np.abs((found[0] - means) / deviations).max():.4f} deviations in a mean")
    print(f"expected  {1 / np.sqrt(count):.4f}, of {count:.0f} independent draws")
    print(f"r-hat     {r_hat(draws):.4f}, {100 * float(np.mean(accepted)):.0f} % accepted")
    print(f"scan      {draws[..., 0].size} trajectories in {seconds:.2f} s")
    print_engine(leap if args.compile else None)
    save(draw(draws, axes, chances), args.out)


if __name__ == "__main__":
    main()
