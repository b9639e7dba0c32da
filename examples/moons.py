"""Separate two moons with a network made of single numbers.

You learn that a neural network is nothing but arithmetic on scalars: every weight is a `tg.Value`,
every neuron a sum of products, and `backward()` fills in 337 derivatives. It is micrograd's
demonstration: a 2-16-16-1 network, a max-margin loss and an L2 penalty, on scikit-learn's moons.
Scalars have one engine, their own, whatever `--backend` says; compiled, they run as vectors.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from _common import arguments, extra, print_engine, progress, pyplot, save

import tapegraph as tg
from tapegraph import Value
from tapegraph.optim import schedules

with extra():
    from sklearn.datasets import make_moons

WIDTHS = [2, 16, 16, 1]
PENALTY = 1e-4


def new_layers(rng: np.random.Generator):
    """One list of neurons a layer; one list of weights, the bias last, a neuron."""
    return [
        [[*map(Value, rng.uniform(-1, 1, n)), Value(0.0)] for _ in range(m)]
        for n, m in pairwise(WIDTHS)
    ]


def neuron(weights, inputs):
    *slopes, bias = weights
    return tg.vsum([*(w * x for w, x in zip(slopes, inputs, strict=True)), bias])


def score(layers, inputs):
    """Positive for one moon, negative for the other."""
    *hidden, [last] = layers
    for layer in hidden:
        inputs = [neuron(weights, inputs).relu() for weights in layer]
    return neuron(last, inputs)


def objective(layers, parameters, points, signs):
    """Return the loss, and the scores it was made from."""
    scores = [score(layers, point) for point in points]
    margins = [(1 - sign * s).relu() for s, sign in zip(scores, signs, strict=True)]
    loss = tg.vsum(margins) * (1 / len(margins))
    return loss + PENALTY * tg.vsum([p * p for p in parameters]), scores


def train(layers, points, signs, steps: int, compile: bool):
    """Return the loss of every step, and the step."""
    parameters = [p for layer in layers for neuron in layer for p in neuron]
    optimizer = tg.SGD(parameters, schedules.linear(1.0, 0.1, steps))

    def step():
        loss, scores = objective(layers, parameters, points, signs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss, scores

    if compile:
        step = tg.compile(step)
    losses = []
    for _ in (bar := progress(range(steps), "training")):
        loss, scores = step()
        losses.append(loss.data)
        hits = sum((s.data > 0) == (sign > 0) for s, sign in zip(scores, signs, strict=True))
        bar.set_postfix(loss=f"{loss.data:.4f}", accuracy=f"{hits / len(signs):.0%}")
    return losses, step


@tg.no_grad()
def score_all(layers, points) -> np.ndarray:
    return np.array([score(layers, point).data for point in points])


def draw(layers, points, signs, losses, across):
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    left.semilogy(losses)
    left.set(xlabel="step", ylabel="loss", title="max-margin loss + L2 penalty")
    xs, ys = (np.linspace(p.min() - 0.5, p.max() + 0.5, across) for p in points.T)
    grid = np.stack(np.meshgrid(xs, ys), axis=-1)
    heights = score_all(layers, grid.reshape(-1, 2).tolist()).reshape(grid.shape[:2])
    limit = np.abs(heights).max()
    levels = np.linspace(-limit, limit, 22)
    shades = right.contourf(xs, ys, heights, levels, cmap="RdBu", alpha=0.8)
    figure.colorbar(shades, label="score", ticks=pyplot.MaxNLocator(5))
    right.contour(xs, ys, heights, levels=[0], colors="black")
    right.scatter(*points.T, c=signs, cmap="RdBu", edgecolors="black")
    right.set(xlabel="first coordinate", ylabel="second coordinate")
    right.set_title("the network's score, and where it is zero")
    return figure


def main() -> None:
    args = arguments(__doc__, picture="moons.png")
    points, classes = make_moons(n_samples=100, noise=0.1, random_state=args.seed)
    signs = [1 if c else -1 for c in classes]
    layers = new_layers(np.random.default_rng(args.seed))
    steps = 5 if args.quick else 100
    losses, step = train(layers, points.tolist(), signs, steps, args.compile)
    accuracy = np.mean((score_all(layers, points.tolist()) > 0) == (classes == 1))
    across = 15 if args.quick else 60  # points of the picture: each is one eager run
    save(draw(layers, points, signs, losses, across), args.out)
    print(f"accuracy  {accuracy:.0%} of {len(points)} points")
    print(f"loss      {losses[0]:.4f} -> {losses[-1]:.4f}")
    if args.compile:
        print_engine(step)


if __name__ == "__main__":
    main()
