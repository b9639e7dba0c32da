"""Random programs made into compiled steps give what the same steps give eagerly.

Some inputs are parameters, others are arguments with new numbers at every call. ``--thorough`` runs
2,000 programs natively and 250 in TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from programs import Program, programs

import tapegraph as tg
from tests.compiling.beside import beside, engine_of

CALLS = 4
SHARDS = 20
NATIVE, GRAPH = 2000, 250  # with --thorough
QUICK_NATIVE, QUICK_GRAPH = 60, 10


def steps(program: Program, fixed: int) -> tuple[Callable, list]:
    """Return the maker of a step and its calls; every input past the first few is an argument."""
    rng = np.random.default_rng(len(program.steps))
    params, arguments = program.inputs[:fixed], program.inputs[fixed:]

    def make():
        leaves = [tg.param(x) for x in params]
        optimizer = tg.SGD(leaves, lr=0.01, momentum=0.5)

        def step(scale, *rest):
            y = program.run(*leaves, *rest)
            optimizer.zero_grad()
            tg.sum(y * scale).backward()
            optimizer.step()
            return y, [p.grad for p in leaves]

        return step, [*leaves, optimizer]

    # Near the program's own numbers it stays away from kinks and poles.
    calls = [
        (
            1.0 / (i + 1),
            *(x * (1.0 + 0.01 * i) + 1e-3 * rng.normal(size=x.shape) for x in arguments),
        )
        for i in range(CALLS)
    ]
    # Two like calls are recorded: comparing them finds nothing that was frozen.
    return make, [calls[0], *calls]


def beside_eager(program, engine):
    """Hold a compiled step of a program equal to the eager one, and return it.

    None where no parameter is read: neither step has a gradient.
    """
    make, calls = steps(program, 1 + len(program.steps) % len(program.inputs))
    try:
        return beside(make, calls, engine)
    except RuntimeError as error:
        if "needs no gradient" in str(error):
            return None
        raise


def check(count: int, number: int, engine: str) -> None:
    """Draw programs, and hold each compiled step equal to the eager one."""
    tried = compared = elsewhere = 0

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def one(program):
        nonlocal tried, compared, elsewhere
        tried += 1
        compiled = beside_eager(program, engine)
        if compiled is None:
            return
        ran = engine_of(compiled)
        assert ran in ("native", engine) and compiled.traces == 1, compiled.explain()
        compared += 1
        elsewhere += ran != engine  # a gradient held a NaN

    one()
    assert tried >= count and compared > 0.75 * count and elsewhere <= 0.1 * count


def pytest_generate_tests(metafunc):
    if "shard" in metafunc.fixturenames:
        count = SHARDS if metafunc.config.getoption("thorough") else 2
        metafunc.parametrize("shard", range(count))


def test_random_programs_natively(shard, thorough):
    check(NATIVE // SHARDS if thorough else QUICK_NATIVE // 2, shard, "native")


def test_random_programs_in_tensorflow(shard, thorough):
    pytest.importorskip("tensorflow")
    check(-(-GRAPH // SHARDS) if thorough else QUICK_GRAPH // 2, 1000 + shard, "tensorflow")
