"""Train fifty networks at once, and let what they disagree on say how sure they are.

You learn that a network written for one set of weights trains as many as there are: `tg.vmap` runs
it over the weights' first axis, one compiled step and one optimizer serve them all, and none sees
the others. The data are scikit-learn's 442 diabetes patients: how far the disease went in a year,
by body mass and by triglycerides; a fifth is kept for the test. Each network draws the patients
that it learns from anew, with replacement: the bootstrap.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from _common import arguments, descend, extra, print_engine, pyplot, save, sgd_step

import tapegraph as tg
from tapegraph.optim import schedules

with extra():
    from sklearn.datasets import load_diabetes

FEATURES = {"bmi": "body mass index", "s5": "log triglycerides"}
NETWORKS = 50
WIDTH = 32


def patients(rng: np.random.Generator):
    """Shuffle the patients and standardise what was measured; the last fifth is the test."""
    data = load_diabetes()
    columns = [data.feature_names.index(name) for name in FEATURES]
    x, y = data.data[:, columns], data.target
    order = rng.permutation(len(y))
    x, y = (x - x.mean(axis=0)) / x.std(axis=0), (y - y.mean()) / y.std()
    x, y = x[order].astype(np.float32), y[order].astype(np.float32)
    cut = len(order) * 4 // 5
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def networks(rng: np.random.Generator) -> SimpleNamespace:
    """The weights of all networks, along the first axis of each parameter."""
    shapes = {"W1": (len(FEATURES), WIDTH), "b1": (WIDTH,), "W2": (WIDTH, WIDTH), "b2": (WIDTH,)}
    model = SimpleNamespace()
    for name, shape in {**shapes, "w3": (WIDTH,), "b3": ()}.items():
        scale = 1 / np.sqrt(shape[0]) if name[0] in "Ww" else 0.0
        weights = rng.normal(0, scale, (NETWORKS, *shape))
        setattr(model, name, tg.param(weights, dtype=np.float32, name=name))
    return model


def network(weights, x):
    """What one network expects of some patients."""
    h = tg.tanh(x @ weights["W1"] + weights["b1"])
    h = tg.tanh(h @ weights["W2"] + weights["b2"])
    return h @ weights["w3"] + weights["b3"]


def error(weights, x, y, often):
    """The mean square error of one network; a patient counts as often as it was drawn."""
    return tg.mean(often * (network(weights, x) - y) ** 2)


def errors(model, x, y, often):
    """The sum over the networks, by which the weights of each get the gradient of its own error."""
    return tg.sum(tg.vmap(error, in_axes=(0, None, None, 0))(vars(model), x, y, often))


def expected(model, x):
    """What every network expects of some patients: a row each."""
    with tg.no_grad():
        return tg.vmap(network, in_axes=(0, None))(vars(model), x).numpy()


def draw(model, x, y, losses):
    """What the networks expect along each feature, the other at its mean; and the descent."""
    figure, (*panels, right) = pyplot.subplots(1, 3, figsize=(15, 4.5), layout="constrained")
    for k, (axis, label) in enumerate(zip(panels, FEATURES.values(), strict=True)):
        line = np.linspace(1.5 * x[:, k].min(), 1.5 * x[:, k].max(), 200, dtype=np.float32)
        points = np.zeros((len(line), x.shape[1]), np.float32)
        points[:, k] = line
        rows = expected(model, points)
        axis.scatter(x[:, k], y, s=8, color="tab:gray", alpha=0.6, label="patients")
        axis.plot(line, rows.T, color="tab:blue", linewidth=0.5, alpha=0.4)
        axis.plot([], color="tab:blue", linewidth=0.5, label=f"each of {NETWORKS} networks")
        axis.plot(line, rows.mean(axis=0), color="tab:orange", label="their mean")
        axis.set(xlabel=f"{label}, standardised", ylabel="progress, standardised", ylim=(-3, 3))
    panels[0].legend()
    right.plot(np.array(losses) / NETWORKS)
    right.set(xlabel="step", ylabel="mean square error of a network", ylim=(0.4, 1.0))
    return figure


def main() -> None:
    args = arguments(__doc__, picture="ensemble.png", compile=True)
    steps = 60 if args.quick else 1000
    rng = np.random.default_rng(args.seed)
    (x, y), (points, truth) = patients(rng)
    model = networks(rng)
    often = rng.multinomial(len(y), np.full(len(y), 1 / len(y)), size=NETWORKS).astype(np.float32)
    step = sgd_step(errors, model, schedules.cosine(0.1, steps), compile=args.compile)
    losses = descend(step, lambda: (x, y, often), steps)
    save(draw(model, x, y, losses), args.out)

    rows = expected(model, points)
    spread = rows.std(axis=0)
    misses = (rows.mean(axis=0) - truth) ** 2
    sure = spread <= np.median(spread)
    print(f"mse       {np.mean(misses):.4f} of the mean of {NETWORKS} networks")
    print(f"          {np.mean((rows - truth) ** 2):.4f} of a network by itself")
    print(f"          {np.mean(misses[sure]):.4f} where they agree, of half the patients")
    print(f"          {np.mean(misses[~sure]):.4f} where they do not")
    print_engine(step)


if __name__ == "__main__":
    main()
