"""Random programs, and random steps of statements of every kind, by `scan` and call by call.

``--thorough`` runs 500 of each natively and 100 in TensorFlow.
"""

from __future__ import annotations

import dataclasses
import warnings

import numpy as np
import pytest
from programs import each_program

import tapegraph as tg
from tests.compiling.beside import agree, engine_of, standing, taken
from tests.compiling.random_steps import drawn
from tests.compiling.step_program import LARGEST, Raised, largest, rows
from tests.compiling.test_random_steps import steps
from tests.compiling.test_scan import rows_of

CALLS = 14  # with two or three real ones after the first two
SHARDS = 10
ENGINES = {"native": (500, 4), "tensorflow": (100, 2)}  # with --thorough, and without


def pytest_generate_tests(metafunc):
    if "shard" in metafunc.fixturenames:
        metafunc.parametrize("shard", range(SHARDS if metafunc.config.getoption("thorough") else 1))
        metafunc.parametrize("engine", list(ENGINES))


@pytest.fixture
def count(engine, thorough):
    """How many programs a shard tries."""
    if engine == "tensorflow":
        pytest.importorskip("tensorflow")
    many, few = ENGINES[engine]
    return many // SHARDS if thorough else few


@pytest.mark.one_in(2, of="tensorflow", start=1)
def test_random_programs(engine, shard, count):
    compared = 0

    @each_program(count, 100 + shard)
    def one(program):
        nonlocal compared
        make, calls = steps(program, 1 + len(program.steps) % len(program.inputs))
        calls = (calls * CALLS)[:CALLS]
        with np.errstate(all="ignore"):
            try:
                with tg.use_backend("native"):
                    step, state = make()
                    want = [taken(step(*args)) for args in calls]
            except RuntimeError as error:
                assert "does not require a gradient" in str(error)
                return
            left = standing(state)
            with tg.use_backend(engine):
                step, state = make()
                step = tg.compile(step)
                scales, *arrays = zip(*calls, strict=True)
                got = step.scan(tg.each(scales), *map(np.stack, arrays))
        for place, result in enumerate(want):
            agree(taken(rows_of(got, place)), result, engine, f"call {place}: ")
        agree(standing(state), left, engine, "state: ")
        compared += 1

    one()
    assert compared > 0.7 * count


def test_random_steps(engine, shard, count):
    compared = ran = 0
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for number in range(shard * count, (shard + 1) * count):
            step = compare(drawn(number), engine)
            compared += step is not None
            ran += step is not None and engine_of(step) == engine
    assert compared > 0.6 * count - 1 and ran > 0.4 * count - 1  # others are refused, or run away


def compare(program, engine):
    """Hold a program by scans equal to itself call by call; return its step, None if refused."""
    program = dataclasses.replace(program, changes=(), calls=program.calls[:1] * CALLS)
    code = compile(program.source(), f"<random step {program.seed}>", "exec")
    with tg.use_backend("native"), tg.compile_disabled():
        want = list(rows(code, program.seed, {}))
    if any(isinstance(row, Raised) or largest(row[:2]) > LARGEST for row in want):
        return None
    module = {"__name__": "random_step"}
    exec(code, module)
    with tg.use_backend(engine):
        tg.random.seed(program.seed)
        step, _, state = module["make"]()
        calls = [arguments() for arguments in module["calls"]]
        try:
            got = step.scan(*map(stacked, zip(*calls, strict=True)), length=len(calls))
        except (tg.ConcretizationError, ValueError) as error:
            # A gradient, say, that is None in the first call and an array in the second.
            differs = "Return the same from every call" in str(error)
            assert differs or isinstance(error, tg.ConcretizationError)
            return None
    how = engine if program.exact else "to a tolerance"
    for place, (result, _, _) in enumerate(want):
        agree(plain(rows_of(got, place)), plain(result), how, f"{program.source()}call {place}: ")
    _, left, stream = want[-1]
    agree(standing(state()), left, how, f"{program.source()}state: ")
    assert tg.random.get_state() == stream
    return step


def stacked(values):
    """Return an argument of the calls for `scan`."""
    first = values[0]
    if isinstance(first, dict):
        return {key: stacked([value[key] for value in values]) for key in first}
    if isinstance(first, (list, tuple)):
        return type(first)(stacked(parts) for parts in zip(*values, strict=True))
    if isinstance(first, np.ndarray):
        return np.stack(values)
    return tg.each(values) if type(first) is float else first


def plain(result):
    """Return a result with numbers in the place of arrays of no axes."""
    if isinstance(result, dict):
        return {key: plain(value) for key, value in result.items()}
    if isinstance(result, (list, tuple)):
        return type(result)(map(plain, result))
    if isinstance(result, tg.Value):
        return result.data
    if isinstance(result, np.ndarray) and not result.ndim:
        return result.item()
    return taken(result)
