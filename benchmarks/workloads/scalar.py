"""micrograd's own demo, number by number: 2-16-16-1 on two moons.

"tapegraph Value", "tapegraph compiled" and micrograd run the same lines of code; "tapegraph vsum"
writes the same network with one node for each neuron's sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.protocol import Array, Problem, Trainer

ABOUT = "float64, micrograd's network 2-16-16-1 on 100 points, max-margin loss + L2"
SIZES = (2, 16, 16, 1)
POINTS = 100
DECAY = 1e-4

Sum = Callable[[Iterable[Any], Any], Any]


def problem() -> Problem:
    """One weight vector a neuron, its bias last; points and labels of 1 and -1."""
    rng = np.random.default_rng(0)
    weights = [
        np.append(rng.uniform(-1, 1, fan_in), 0.0)
        for fan_in, fan_out in zip(SIZES, SIZES[1:], strict=False)
        for _ in range(fan_out)
    ]
    return Problem(weights, [*moons(rng)], rate=2**-4)


def moons(rng: np.random.Generator) -> tuple[Array, Array]:
    """Return two interleaved noisy half circles, and which of them a point is on."""
    angle = np.pi * rng.random(POINTS)
    upper = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    first = np.arange(POINTS) % 2 == 0
    points = np.where(first[:, None], upper, [1.0, 0.5] - upper)
    return points + rng.normal(0, 0.1, points.shape), np.where(first, -1.0, 1.0)


def neuron(parameters: list[Any], x: list[Any], total: Sum) -> Any:
    *weights, bias = parameters
    return total((w * a for w, a in zip(weights, x, strict=True)), bias)


def trainer(problem: Problem, value: Any, total: Sum, compiled: Any = None) -> Trainer:
    """Return the training of any scalar engine, with its own way of summing.

    Points and labels are arguments of the step; ``compiled`` makes of it what is called.
    """
    neurons = [[value(float(w)) for w in weights] for weights in problem.weights]
    parameters = [p for weights in neurons for p in weights]
    hidden = neurons[: SIZES[1]], neurons[SIZES[1] : -1]
    (output,) = neurons[-1:]

    def score(x: list[Any]) -> Any:
        for layer in hidden:
            x = [neuron(weights, x, total).relu() for weights in layer]
        return neuron(output, x, total)

    def step(rows: Any, labels: Any) -> Any:
        scores = [score([value(a) for a in row]) for row in rows]
        margins = [(1 + -y * s).relu() for y, s in zip(labels, scores, strict=True)]
        loss = total(margins, 0.0) * (1.0 / POINTS)
        loss = loss + DECAY * total((p * p for p in parameters), 0.0)
        for p in parameters:
            p.grad = 0.0
        loss.backward()
        for p in parameters:
            p.data -= problem.rate * p.grad
        return loss.data

    def state() -> list[Array]:
        return [np.array([p.data for p in weights]) for weights in neurons]

    if compiled is not None:  # it takes arrays, where an eager loop is quicker with lists
        update = compiled(step)
        return Trainer(lambda: float(update(*problem.data)), state)
    rows, labels = (a.tolist() for a in problem.data)
    return Trainer(lambda: float(step(rows, labels)), state)


def with_tapegraph(problem: Problem) -> Trainer:
    import tapegraph as tg

    return trainer(problem, tg.Value, sum)


def with_vsum(problem: Problem) -> Trainer:
    import tapegraph as tg

    def one_node(terms: Iterable[Any], start: Any) -> Any:
        return tg.vsum([start, *terms])

    return trainer(problem, tg.Value, one_node)


def with_compiled(problem: Problem) -> Trainer:
    import tapegraph as tg

    return trainer(problem, tg.Value, sum, tg.compile)


def with_micrograd(problem: Problem) -> Trainer:
    from micrograd.engine import Value

    return trainer(problem, Value, sum)


CONTENDERS = {
    "tapegraph Value": with_tapegraph,
    "tapegraph vsum": with_vsum,
    "tapegraph compiled": with_compiled,
    "micrograd": with_micrograd,
}
