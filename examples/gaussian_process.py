"""Fit a Gaussian process by its marginal likelihood, and say how sure its hyperparameters are.

You learn that a whole model may be one function: `tg.optim.minimize` hands the negative evidence of
a dict of hyperparameters to SciPy, through a Cholesky factor, and `tg.hessian` at the minimum gives
their standard errors. The data are scikit-learn's 442 diabetes patients: how far the disease went
in a year, by body mass and by triglycerides; a fifth of them is kept for the test. The yardstick is
a plane through the same numbers.
"""

from __future__ import annotations

import numpy as np
from _common import arguments, extra, print_engine, progress, pyplot, save

import tapegraph as tg

with extra():
    from sklearn.datasets import load_diabetes

FEATURES = {"bmi": "body mass index", "s5": "log triglycerides"}
START = {"length": np.zeros(2), "signal": 0.0, "noise": 0.0}


def patients(rng: np.random.Generator, count: int | None):
    """Shuffle the patients and standardise what was measured; the last fifth is the test."""
    data = load_diabetes()
    columns = [data.feature_names.index(name) for name in FEATURES]
    x, y = data.data[:, columns], data.target
    order = rng.permutation(len(y))[:count]
    x, y = (x - x.mean(axis=0)) / x.std(axis=0), (y - y.mean()) / y.std()
    cut = len(order) * 4 // 5
    return (x[order[:cut]], y[order[:cut]]), (x[order[cut:]], y[order[cut:]])


def covariance(logs, a, b):
    """Squared exponential, with a length for each feature."""
    scaled = (a[:, None, :] - b[None, :, :]) / np.exp(logs["length"])
    return np.exp(2 * logs["signal"]) * np.exp(-0.5 * np.sum(scaled**2, axis=-1))


def negative_evidence(logs, x, y):
    """Minus the logarithm of the density that the process gives to ``y``."""
    K = covariance(logs, x, x) + np.exp(2 * logs["noise"]) * np.eye(len(x))
    half = np.linalg.cholesky(K)
    log_det = np.sum(np.log(np.diagonal(half)))
    return 0.5 * y @ np.linalg.solve(K, y) + log_det + 0.5 * len(y) * np.log(2 * np.pi)


def fit(x, y, iterations: int):
    """Return SciPy's result, and what the evidence was on the way."""
    found = []
    with progress(range(iterations), "minimising") as bar:

        def note(intermediate_result):
            found.append(intermediate_result.fun)
            bar.update()

        result = tg.optim.minimize(
            negative_evidence, START, args=(x, y), callback=note, maxiter=iterations
        )
    return result, found


def standard_errors(logs, x, y) -> dict:
    """By the curvature at the minimum: the roots of the inverse Hessian's diagonal."""
    blocks = tg.hessian(negative_evidence)(logs, x, y)
    sizes = {name: np.size(value) for name, value in logs.items()}
    hessian = np.block(
        [[np.reshape(blocks[a][b], (sizes[a], sizes[b])) for b in logs] for a in logs]
    )
    deviations = iter(np.sqrt(np.diagonal(np.linalg.inv(hessian))))
    return {name: [next(deviations) for _ in range(size)] for name, size in sizes.items()}


def predict(logs, x, y, points):
    """Mean and standard deviation of a new observation at each point."""
    K = covariance(logs, x, x) + np.exp(2 * logs["noise"]) * np.eye(len(x))
    across = covariance(logs, x, points)
    solved = np.linalg.solve(K, across)
    prior = np.exp(2 * logs["signal"]) + np.exp(2 * logs["noise"])
    return solved.T @ y, np.sqrt(prior - np.sum(across * solved, axis=0))


def draw(logs, x, y, evidence):
    """What the process expects along each feature, the other at its mean; and the descent."""
    figure, (*panels, right) = pyplot.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    for k, (axis, label) in enumerate(zip(panels, FEATURES.values(), strict=True)):
        line = np.linspace(x[:, k].min(), x[:, k].max(), 200)
        points = np.zeros((len(line), x.shape[1]))
        points[:, k] = line
        mean, deviation = predict(logs, x, y, points)
        axis.scatter(x[:, k], y, s=8, color="tab:gray", alpha=0.6, label="patients")
        axis.plot(line, mean, label="mean")
        axis.fill_between(
            line, mean - 2 * deviation, mean + 2 * deviation, alpha=0.2, label="two deviations"
        )
        axis.set(xlabel=f"{label}, standardised", ylabel="progress, standardised")
    panels[0].legend()
    right.plot(evidence, marker=".")
    right.set(xlabel="iteration", ylabel="minus log evidence", title="L-BFGS-B")
    right.xaxis.get_major_locator().set_params(integer=True)
    return figure


def plane_error(train_set, test_set) -> float:
    """The test error of least squares."""
    (x, y), (points, truth) = train_set, test_set
    design, test_design = (np.column_stack([p, np.ones(len(p))]) for p in (x, points))
    return np.mean((test_design @ np.linalg.lstsq(design, y)[0] - truth) ** 2)


def main() -> None:
    args = arguments(
        __doc__,
        picture="gaussian_process.png",
        compiles="changes nothing here: SciPy's minimiser takes the steps",
    )
    rng = np.random.default_rng(args.seed)
    train_set, test_set = patients(rng, 100 if args.quick else None)
    result, evidence = fit(*train_set, iterations=10 if args.quick else 100)
    errors = standard_errors(result.x, *train_set)
    mean, deviation = predict(result.x, *train_set, test_set[0])
    inside = np.mean(np.abs(mean - test_set[1]) <= 2 * deviation)

    print(f"{'logarithm of':>22} {'found':>8} {'deviation':>10}")
    names = [*(f"length, {name}" for name in FEATURES.values()), "signal", "noise"]
    logs = np.concatenate([np.ravel(value) for value in result.x.values()])
    for name, log, error in zip(names, logs, sum(errors.values(), []), strict=True):
        print(f"{name:>22} {log:8.3f} {error:10.3f}")
    save(draw(result.x, *train_set, evidence), args.out)
    print(f"evidence  {-result.fun:.2f} after {result.nit} iterations")
    print(f"mse       {np.mean((mean - test_set[1]) ** 2):.4f} of {len(mean)} test patients")
    print(f"          {plane_error(train_set, test_set):.4f} by a plane")
    print(f"          {inside:.1%} of them within two deviations")
    print_engine()


if __name__ == "__main__":
    main()
