"""Each run of a plan whose calls are records gives the bits of the same plan in Python alone.

Over the operation cases, random programs and random steps; ``--thorough`` tries every case, 1,000
programs and 500 steps.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from programs import programs
from same_bits import same_bits

import tapegraph as tg
from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.capture.sgd_updates import RowUpdate
from tapegraph.fallback.plan import Plan, records
from tapegraph.numpy_warnings import quietly
from tests.compiling.random_steps import drawn
from tests.compiling.step_program import outcome
from tests.compiling.test_case_steps import STEPS, compare
from tests.compiling.test_random_steps import beside_eager
from tests.quick import a_few_each, check_each, each_operation

pytestmark = pytest.mark.skipif(
    bool(records.missing), reason="python setup.py build_ext --inplace has not run here"
)
PROGRAMS, RANDOM_STEPS = (20, 1000), (20, 500)  # few, and with --thorough


@pytest.fixture(autouse=True)
def ran(monkeypatch):
    """Run each plan that has records in Python too, and compare; note each run."""
    monkeypatch.delenv("TAPEGRAPH_RECORDS", raising=False)
    run, found = Plan.run, []

    def twice(plan, values, changes=None):
        got = run(plan, values, changes)
        if plan.source != plan._plain:
            names, long = dict(plan._names), plan._plain_is_long
            in_python = plan._made(plan._plain, "<a plan in Python alone>", names, long)
            want = quietly(in_python, *map(np.asarray, values, *plan._types))
            for ours, theirs in zip(got, want, strict=True):
                for one, two in zip(ours, theirs, strict=True):
                    same_bits(numbers(one), numbers(two))
            found.append(plan)
        return got

    monkeypatch.setattr(Plan, "run", twice)
    return found


def numbers(x):
    if isinstance(x, RowUpdate):
        return x.rows.dense() * x.scale
    return x.dense() if isinstance(x, RowSparse) else np.asarray(x)


@each_operation(STEPS)
def test_operation_cases(op, thorough):
    def check(case):
        for dtype in (np.float64, np.float32) if thorough else (np.float64,):
            compare(case, dtype, len(case.inputs), "native")

    check_each(op, STEPS if thorough else a_few_each(STEPS, most=1), check)


def test_random_programs(ran, thorough):
    count = PROGRAMS[thorough]

    @seed(11)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def one(program):
        beside_eager(program, "native")

    one()
    assert len(ran) > count


def test_random_steps(ran, thorough):
    count = RANDOM_STEPS[thorough]
    with tg.use_backend("native"):
        for number in range(7000, 7000 + count):
            assert outcome(drawn(number), "native").kind != "differs", number
    assert len(ran) > count
