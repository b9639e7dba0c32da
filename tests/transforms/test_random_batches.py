"""Random programs under random axes and nestings of `tg.vmap` equal the loops that they replace.

A program of many operations (`tests.programs`) is differentiated or not, batched once or twice over
random axes, and the whole differentiated again or not; in its place the loop stacks what each
example gives. ``--thorough`` runs 2,000 eagerly, and 300 compiled in each engine.
"""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from programs import Program, each_program, programs

import tapegraph as tg

SHARDS = 20
EAGER, COMPILED = 2000, 300  # with --thorough
QUICK_EAGER, QUICK_COMPILED = 40, 4
CALLS = 3


def flat(y) -> list[Any]:
    return [x for part in y for x in flat(part)] if isinstance(y, (tuple, list)) else [y]


def weighted(y):
    """The sum of the numbers of a result, each with a weight of its own."""
    parts = [x * np.cos(np.arange(np.size(x))).reshape(np.shape(x)) for x in flat(y)]
    return sum(map(tg.sum, parts))


def scalar(f):
    return lambda *xs: weighted(f(*xs))


def turned(xs):
    return tuple(np.sin(3.0 * x) for x in xs)


def pulled_back(y, pullback):
    return tg.vmap(pullback)(np.eye(*y.shape)[:2])


# What is done to a function, by its argument ``i``.
TRANSFORMS = {
    "nothing": lambda f, i: f,
    "grad": lambda f, i: tg.grad(scalar(f), i),
    "value_and_grad": lambda f, i: tg.value_and_grad(scalar(f), i),
    "vjp": lambda f, i: lambda *xs: tg.vjp(scalar(f), *xs)[1](1.5),
    "jvp": lambda f, i: lambda *xs: tg.jvp(scalar(f), xs, turned(xs)),
    "forward": lambda f, i: tg.jacobian(f, i, "forward"),
    "reverse": lambda f, i: tg.jacobian(f, i, "reverse"),
    "hvp": lambda f, i: lambda *xs: tg.hvp(scalar(f), xs, turned(xs)),
    "grad of grad": lambda f, i: tg.grad(scalar(tg.grad(scalar(f), i)), i),
    "jvp of grad": lambda f, i: lambda *xs: tg.jvp(tg.grad(scalar(f), i), xs, turned(xs)),
    "checkpoint": lambda f, i: tg.grad(scalar(tg.checkpoint(f)), i),
    "linearize": lambda f, i: lambda *xs: tg.linearize(f, *xs)[1](*turned(xs)),
    "pullbacks": lambda f, i: lambda *xs: pulled_back(*tg.vjp(f, *xs)),
}
INSIDE = ["nothing", "grad", *TRANSFORMS]
OUTSIDE = ["nothing", "nothing", "grad", "value_and_grad", "jvp", "forward", "reverse"]


def loop(f, axes, out, size):
    """Return what ``tg.vmap(f, axes, out)`` stands for."""

    def run(*xs):
        rows = [[x if a is None else at(x, a, i) for x, a in zip(xs, axes)] for i in range(size)]  # noqa: B905
        found = [f(*row) for row in rows]
        parts = [tg.stack(part, out) for part in zip(*map(flat, found), strict=True)]
        return parts if isinstance(found[0], (tuple, list)) else parts[0]

    return run


def at(x, axis, i):
    return x[(slice(None),) * (axis % x.ndim) + (i,)]


class Drawn:
    """A program with the transforms around it: as it is, and by loops.

    :ivar title: The transforms, from the inside.
    """

    def __init__(self, program: Program, number: int) -> None:
        rng = random.Random(number)
        self.program = program
        self.inputs = list(program.inputs)
        inside, outside = rng.choice(INSIDE), rng.choice(OUTSIDE)
        titles = [inside]
        i = rng.randrange(len(self.inputs))
        self.batched = self.looped = TRANSFORMS[inside](program.run, i)
        for size in (2, 3)[: rng.choice([1, 1, 2])]:
            axes = [rng.choice([None, *range(-x.ndim - 1, x.ndim + 1)]) for x in self.inputs]
            if not any(axis is not None for axis in axes):
                axes[i] = 0
            out = rng.choice([0, -1])
            self.inputs = [
                x if a is None else np.stack([(1.0 + 0.01 * k) * x for k in range(size)], a)
                for x, a in zip(self.inputs, axes, strict=True)
            ]
            chunk = rng.choice([None, None, 1, 2])
            self.batched = tg.vmap(self.batched, tuple(axes), out, chunk_size=chunk)
            self.looped = loop(self.looped, axes, out, size)
            titles.append(f"vmap {axes} to {out}, chunk_size={chunk}")
        self.batched, self.looped = (TRANSFORMS[outside](f, i) for f in (self.batched, self.looped))
        self.title = " | ".join([*titles, outside])

    def check(self, run, inputs, engine: str) -> None:
        with tg.use_backend("native"):
            want = self.looped(*inputs)
        with tg.use_backend(engine), warnings.catch_warnings():
            warnings.simplefilter("error", tg.SlowBatchingWarning)
            got = run(*inputs)
        for a, b in zip(*(map(array, flat(y)) for y in (got, want)), strict=True):
            assert a.shape == b.shape, self.title
            close = 1e-9 * max(1.0, np.abs(b).max(initial=0.0))
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=close, err_msg=self.title)


def array(x):
    return np.asarray(getattr(x, "_array", x))


def check(count: int, number: int, engine: str, *, compiled: bool) -> None:
    """Draw programs, and hold `vmap` equal to the loop."""
    tried = 0

    @each_program(count, number, programs(most=12), st.integers(0, 10**6))
    def one(program, drawn):
        nonlocal tried
        tried += 1
        case = Drawn(program, drawn)
        run = tg.compile(case.batched) if compiled else case.batched
        for call in range(CALLS if compiled else 1):
            case.check(run, [(1.0 - 0.01 * call) * x for x in case.inputs], engine)

    one()
    assert tried >= count


def pytest_generate_tests(metafunc):
    if "shard" in metafunc.fixturenames:
        few = 1 if "engine" in metafunc.fixturenames else 2
        count = SHARDS if metafunc.config.getoption("thorough") else few
        metafunc.parametrize("shard", range(count))


def test_random_batches(shard, thorough):
    check(EAGER // SHARDS if thorough else QUICK_EAGER // 2, shard, "native", compiled=False)


@pytest.mark.parametrize("engine", ["native", "tensorflow"])
def test_random_compiled_batches(shard, engine, thorough):
    if engine == "tensorflow":
        pytest.importorskip("tensorflow")
    few = QUICK_COMPILED if engine == "native" else QUICK_COMPILED // 2
    check(COMPILED // SHARDS if thorough else few, shard, engine, compiled=True)
