"""Random programs made into compiled steps give what the same steps give eagerly.

Random programs of many operations (`tests.programs`) with one backward each, some inputs being
parameters, others arguments with new numbers at every call; and random steps, of statements of
every kind, where anything may change between the calls (`tests.compiling.random_steps`).
``--thorough`` runs 2,000 of each natively, and 250 and 300 in TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from programs import Program, each_program

import tapegraph as tg
from tests.compiling.beside import beside, engine_of
from tests.compiling.random_steps import FEATURES, drawn, seed_feature
from tests.compiling.step_program import Change, outcome, shrunk
from tests.compiling.step_program import Program as StepProgram

CALLS = 4
SHARDS = 20
NATIVE, GRAPH = 2000, 250  # with --thorough
QUICK_NATIVE, QUICK_GRAPH = 8, 2
STEPS, GRAPH_STEPS = 2000, 300  # with --thorough
QUICK_STEPS, QUICK_GRAPH_STEPS = 24, 2


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
        if "does not require a gradient" in str(error):
            return None
        raise


def check(count: int, number: int, engine: str) -> None:
    """Draw programs, and hold each compiled step equal to the eager one."""
    tried = compared = elsewhere = 0

    @each_program(count, number)
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


def report(program: StepProgram, engine: str) -> str:
    """Return a program that fails, with all taken away that it does not need for that."""
    small = shrunk(program, lambda p: outcome(p, engine).kind == "differs")
    return f"{small.source()}\n# in {engine}, {outcome(small, engine).what}"


def check_steps(seeds: range, engine: str) -> None:
    """Hold random steps equal to eager ones, whatever changes between their calls."""
    refused = compiled = elsewhere = 0
    for seed_of_program in seeds:
        program = drawn(seed_of_program)
        found = outcome(program, engine)
        if found.kind == "differs":
            pytest.fail(f"random step {seed_of_program}:\n{report(program, engine)}")
        refused += found.kind in ("refused", "invalid")
        compiled += bool(found.engine)
        elsewhere += found.engine not in ("", engine)
    # Else little would be compared; Values, and operations without a node, run natively.
    assert refused <= 0.15 * len(seeds) + 1 and compiled >= 0.85 * len(seeds) - 1
    assert elsewhere <= 0.35 * len(seeds) + 1


def pytest_generate_tests(metafunc):
    if "shard" in metafunc.fixturenames:
        count = SHARDS if metafunc.config.getoption("thorough") else 2
        metafunc.parametrize("shard", range(count))


def seeds(shard: int, total: int, thorough: bool) -> range:
    each = total // (SHARDS if thorough else 2)
    return range(shard * each, (shard + 1) * each)


def test_random_programs_natively(shard, thorough):
    check(NATIVE // SHARDS if thorough else QUICK_NATIVE // 2, shard, "native")


def test_random_programs_in_tensorflow(shard, thorough):
    pytest.importorskip("tensorflow")
    check(-(-GRAPH // SHARDS) if thorough else QUICK_GRAPH // 2, 1000 + shard, "tensorflow")


def test_random_steps_natively(shard, thorough):
    check_steps(seeds(shard, STEPS if thorough else QUICK_STEPS, thorough), "native")


def test_random_steps_in_tensorflow(shard, thorough):
    pytest.importorskip("tensorflow")
    total = GRAPH_STEPS if thorough else QUICK_GRAPH_STEPS
    check_steps(seeds(shard, total, thorough), "tensorflow")


# ------------------------------------------------------------------ the generator itself

COUNTING = StepProgram(
    made=("w0 = tg.param([1.0, 2.0, 3.0])", "far = [[[[1.0, *range(4096)]]]]", "other = 2.0"),
    body=("v1 = w0 * x", "v2 = v1 * far[0][0][0][0]", 'out["v1"] = v1', 'out["v2"] = v2'),
    changes=(Change(2, "w0.assign([1.0, 1.0, 1.0])"), Change(4, "far[0][0][0][0] = 3.0")),
    calls=("np.ones(3)",) * 12,
    state=("w0",),
)


def test_every_feature_is_drawn_and_the_same_seed_draws_the_same():
    assert {seed_feature(i) for i in range(QUICK_STEPS)} == set(FEATURES)
    assert drawn(7) == drawn(7) != drawn(8)


def test_a_change_that_is_missed_is_found_and_shrunk_to_what_it_takes():
    """Guards do not look that deep: such a change may wait for a real call, and here it may not."""
    assert outcome(COUNTING, "native").kind == "differs"
    text = report(COUNTING, "native")
    assert "far[0][0][0][0] = 3.0" in text and 'out["v2"] = v2' in text
    for unneeded in ("assign", "other", 'out["v1"]'):
        assert unneeded not in text


def test_a_change_that_guards_cannot_see_is_found_by_a_real_call():
    changes = (Change(4, "far[0][0][0][0] = 3.0", seen=False),)
    found = outcome(dataclasses.replace(COUNTING, changes=changes), "native")
    assert found.kind == "equal" and found.what == "found in call 7"
    too_few = dataclasses.replace(COUNTING, changes=changes, calls=COUNTING.calls[:7])
    assert outcome(too_few, "native").kind == "differs"


def test_what_is_no_step_is_told_from_one_that_refuses():
    one = dataclasses.replace(COUNTING, changes=())
    branch = "if tg.sum(w0) > 0.0:\n    v1 = v1 * 2.0"
    for body, kind in ((one.body, "equal"), (("v1 = nothing",), "invalid")):
        assert outcome(dataclasses.replace(one, body=body), "native").kind == kind
    found = outcome(dataclasses.replace(one, body=(*one.body, branch)), "native")
    assert found.kind == "refused" and "ConcretizationError" in found.what
