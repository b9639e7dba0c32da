"""Simulations on periodic grids, written with `np.roll`: each is made in a process of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contenders import Remote, Serving, quiet
from benchmarks.processes import Process
from benchmarks.protocol import Trainer


def rolls(np: Any, x: Any) -> Any:
    """Roll a grid 50 times, by one to three places along either axis."""
    for i in range(50):
        x = np.roll(x, 1 + i % 3, i % 2)
    return np.sum(x * x)


def wave(np: Any, x: Any) -> Any:
    """Take 40 steps of the wave equation from rest, and measure what has become of it."""
    u, before = x, x
    for _ in range(40):
        around = np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1) + np.roll(u, -1, 1)
        u, before = 2 * u - before + 0.1 * (around - 4 * u), u
    return np.sum(u * u)


FUNCTIONS = {"rolls": rolls, "wave": wave}
SIDES = {"rolls": (2, 40, 100, 512), "wave": (40, 100)}
WAYS = ("eager", "compiled")


def value_and_gradient(name: str, side: int, how: str) -> Callable[[], list[Any]]:
    """Return a function's value and gradient on a square grid, to be called.

    ``eager`` and ``compiled`` are ours, natively; ``autograd`` is HIPS autograd.
    """
    start = np.random.default_rng(side).normal(size=(side, side))
    if how == "autograd":
        import autograd
        import autograd.numpy as anp

        theirs = autograd.value_and_grad(partial(FUNCTIONS[name], anp))
        return lambda: list(theirs(start))
    import tapegraph as tg

    tg.set_backend("native")
    ours = tg.value_and_grad(partial(FUNCTIONS[name], np))
    if how == "eager":
        return lambda: [np.asarray(found) for found in ours(start)]
    step = tg.compile(ours)
    return lambda: list(step(start))


def serving(*given: Any) -> Serving:
    """Make what runs again and again in this process."""
    quiet()
    run = value_and_gradient(*given)
    found: list[Any] = []

    def step() -> float:
        found[:] = run()
        return 0.0

    return Serving(" ".join(map(str, given)), partial(Trainer, step, lambda: found))


# In the process that measures


class Timed(Remote):
    """What one such process runs."""

    def __init__(self, *given: Any) -> None:
        self.name = " ".join(map(str, given))
        self._process = Process(f"{__name__}:serving", *given)
