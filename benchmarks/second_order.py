"""Derivatives of second order, to be timed: each is made in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contenders import Remote, Serving, quiet
from benchmarks.processes import Process
from benchmarks.protocol import Trainer
from benchmarks.workloads import mlp

VARIABLES = 200


# Functions, in the NumPy of a library


def rosenbrock(anp: Any) -> Callable[[Any], Any]:
    return lambda p: anp.sum(100.0 * (p[1:] - p[:-1] ** 2) ** 2 + (1 - p[:-1]) ** 2)


def network(anp: Any) -> Callable[[Any], Any]:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 8)), rng.normal(size=50)

    def loss(p):
        h = anp.tanh(anp.dot(x, p[:160].reshape(8, 20)) + p[160:180])
        return anp.mean((anp.dot(h, p[180:]) - y) ** 2)

    return loss


def likelihood(anp: Any) -> Callable[[Any], Any]:
    rng = np.random.default_rng(0)
    x, sign = rng.normal(size=(300, VARIABLES)), rng.choice([-1.0, 1.0], 300)

    def loss(p):
        return anp.sum(anp.log(1 + anp.exp(-sign * anp.dot(x, p)))) + 0.5 * anp.dot(p, p)

    return loss


FUNCTIONS = {
    "rosenbrock": rosenbrock,
    "network": network,
    "likelihood": likelihood,
}


# What is timed


def hessian(name: str, library: str) -> Callable[[], list[Any]]:
    """Return the Hessian of a function by a library, to be called."""
    point = 0.3 * np.random.default_rng(1).normal(size=VARIABLES)
    if library == "autograd":
        import autograd
        import autograd.numpy as anp

        of_autograd = autograd.hessian(FUNCTIONS[name](anp))
        return lambda: [of_autograd(point)]
    import tapegraph as tg

    tg.set_backend("native")
    ours = tg.hessian(FUNCTIONS[name](np))
    return lambda: [ours(point)]


def wave_hessian(how: str) -> Callable[[], list[Any]]:
    """Return the Hessian of a wave's energy by its start, in 64 places, after 100 steps.

    ``eager`` and ``compiled`` are calls; ``first`` is the first three of a function compiled anew.
    """
    import tapegraph as tg

    tg.set_backend("native")
    start = np.random.default_rng(1).normal(size=64)

    def energy(u):
        v = tg.tanh(0.1 * u)
        for _ in range(100):
            left, right = np.concatenate([u[-1:], u[:-1]]), np.concatenate([u[1:], u[:1]])
            v = v + 0.1 * (left - 2.0 * u + right) * (1.0 - 0.001 * u * u)
            u = u + 0.05 * v
        return tg.sum(u * u)

    eager = tg.hessian(energy)

    def first():
        step = tg.compile(eager)
        return [[step(start) for _ in range(3)][-1]]

    step = tg.compile(eager)
    ways = {"eager": lambda: [eager(start)], "compiled": lambda: [step(start)], "first": first}
    return ways[how]


def mlp_derivative(what: str, engine: str) -> Callable[[], list[Any]]:
    """Return the gradient of `mlp`, or its Hessian times a vector, to be called."""
    import tapegraph as tg

    tg.set_backend(engine)
    problem = mlp.problem()
    x, labels = problem.data
    rng = np.random.default_rng(1)
    along = tuple(rng.normal(size=w.shape).astype(w.dtype) for w in problem.weights)

    def loss(w1, b1, w2, b2, w3, b3):
        h = tg.relu(x @ w1 + b1)
        h = tg.relu(h @ w2 + b2)
        return tg.softmax_crossentropy(h @ w3 + b3, labels)

    if what == "gradient":
        gradient = tg.grad(loss, tuple(range(len(along))))
        return lambda: list(gradient(*problem.weights))
    return lambda: list(tg.hvp(loss, tuple(problem.weights), along))


def serving(make: str, *given: str) -> Serving:
    """Make what runs again and again in this process."""
    quiet()
    run = globals()[make](*given)
    found: list[Any] = []

    def step() -> float:
        found[:] = run()
        return 0.0

    return Serving(" ".join(given), partial(Trainer, step, lambda: found))


# In the process that measures


class Timed(Remote):
    """What one such process runs."""

    def __init__(self, make: str, *given: str) -> None:
        self.name = " ".join(given)
        self._process = Process(f"{__name__}:serving", make, *given)
