"""Both engines give the same numbers: over every operation case, and over random programs.

`pytest -m parity` runs this file. ``TAPEGRAPH_PARITY_PROGRAMS`` sets how many random programs are
compared (5000 for a release).
"""

from __future__ import annotations

import importlib.util
import itertools
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from discrepancies import DISCREPANCIES
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from programs import Program, programs

import tapegraph as tg
from tapegraph import fallback
from tapegraph.cases import CASES, core
from tapegraph.linearise import linearise
from tapegraph.lowering import GAPS
from tapegraph.lowering.compiled import INTERCHANGEABLE, Graph, results_read
from tapegraph.signature import signature
from tapegraph.testing import PARITY_TOLERANCE, check_parity

pytestmark = [
    pytest.mark.parity,
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"),
]

PROGRAMS = int(os.environ.get("TAPEGRAPH_PARITY_PROGRAMS", "2000"))
SHARD = 250  # programs a test
DTYPES = ("float64", "float32")
ALTERNATIVES = [case for case in core.cases() if case.op in INTERCHANGEABLE]


@pytest.fixture(autouse=True)
def few_graphs(graph_engine):
    """Hold few of the graphs, which hardly any other test here could use."""
    graph_engine.set_cache_limit(4)
    with np.errstate(all="ignore"):
        yield


# ------------------------------------------------------------------ every operation


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=[case.id for case in CASES])
def test_case_agrees(case, dtype):
    report = check_parity(case.function(dtype), *case.arrays(dtype))
    assert report.backend == ("native" if case.op in GAPS else "tensorflow")


@pytest.mark.parametrize("record", DISCREPANCIES, ids=[r.label for r in DISCREPANCIES])
def test_known_discrepancy_is_still_there(record):
    with pytest.raises(AssertionError, match="the native engine gives .* TensorFlow gives"):
        check_parity(record.run, *record.inputs)


def alternatives_agree(f: Callable[..., Any], inputs: Any, *, xla: bool) -> None:
    """Compare the graphs that may run instead of the first: fed results, and XLA on top."""
    program = linearise([f(*map(tg.param, inputs))])
    root = program.values[program.root]
    cotangent = np.random.default_rng(0).uniform(-1.0, 1.0, root.shape).astype(root.dtype)
    native = fallback.gradients(program, cotangent)
    _, fed, scalars = signature(program)
    results = results_read(program, fed, [])
    for options in [{}, {"xla": True}] if xla else [{}]:
        graph = Graph(program, fed, [], results=results, **options)
        for want, got in zip(native, graph(graph.feeds(program, scalars, cotangent)), strict=True):
            want, got = np.asarray(want), np.asarray(got)
            if np.isnan(got).any():
                continue  # then the exact graph runs, which is fed no results
            rtol, atol = PARITY_TOLERANCE[want.dtype.name]
            np.testing.assert_allclose(got, want, rtol=rtol, atol=atol, err_msg=str(options))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ALTERNATIVES, ids=[case.id for case in ALTERNATIVES])
def test_alternative_graphs_of_a_case_agree(case, dtype):
    alternatives_agree(case.function(dtype), case.arrays(dtype), xla=dtype == "float64")


# ------------------------------------------------------------------ NaN, Inf, kinks and ties

NONFINITE = (np.nan, np.inf, -np.inf)
SPECIAL = (*NONFINITE, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 3.0, 710.0, -710.0, 1e8, 1e300)
UNARY = "neg sin cos tan exp log sqrt tanh sigmoid relu abs gelu silu".split()
BINARY = "add sub mul div pow".split()
ROWS = {
    "sum": tg.sum,
    "mean": tg.mean,
    "softmax": tg.softmax,
    "crossentropy-class": lambda x: tg.softmax_crossentropy(x, 1),
    "crossentropy-one-hot": lambda x: tg.softmax_crossentropy(x, [0.0, 1.0, 0.0]),
    "mse_loss": lambda x: tg.mse_loss(x, [0.0, 1.0, -2.0]),
    "crossentropy-soft": lambda x: tg.softmax_crossentropy(x, [0.2, 0.3, 0.5]),
}


def agree_at(f: Callable[..., Any], points: list[np.ndarray], inputs: int) -> None:
    """Compare at each point, also under a cotangent of zero, and at all of them at once."""
    for point in points:
        leaves = np.split(point, inputs)
        check_parity(f, *leaves)
        check_parity(lambda *xs: f(*xs) * 0.0, *leaves)
    check_parity(f, *np.transpose(points))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", UNARY)
def test_special_values_agree(name, dtype):
    known = [r.inputs[0][0] for r in DISCREPANCIES if r.run is getattr(tg, name)]
    points = [np.array([x], dtype) for x in SPECIAL if x not in known]
    agree_at(getattr(tg, name), points, 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BINARY)
def test_pairs_of_special_values_agree(name, dtype):
    points = [np.array(pair, dtype) for pair in itertools.product(SPECIAL, SPECIAL)]
    agree_at(getattr(tg, name), points, 2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ROWS)
def test_rows_of_special_values_and_ties_agree(name, dtype):
    values = (*NONFINITE, 0.0, 1.0, -1000.0)
    for row in itertools.product(values, repeat=3):
        check_parity(ROWS[name], np.array(row, dtype))
        check_parity(lambda x: ROWS[name](x) * 0.0, np.array(row, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shapes", [((2, 3), (3, 2)), ((2, 2, 3), (3, 2)), ((3,), (3, 2))])
def test_products_of_special_values_agree(shapes, dtype):
    rng = np.random.default_rng(0)
    out = np.matmul(*map(np.ones, shapes)).shape
    for _ in range(200):
        a, b = (rng.choice(SPECIAL[:6], shape).astype(dtype) for shape in shapes)
        weights = rng.choice([0.0, 0.0, 1.0, -2.0, np.inf, np.nan], out).astype(dtype)
        check_parity(lambda a, b, w: a @ b * w, a, b, weights)


# ------------------------------------------------------------------ random programs


def compare(number: int, count: int, check: Callable[[Program], None]) -> None:
    """Draw ``count`` programs that lower, always the same ones, and compare the engines."""
    compared = 0

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(programs())
    def run(program: Program) -> None:
        nonlocal compared
        assume(not GAPS.keys() & {step.op for step in program.steps})
        check(program)
        compared += 1

    run()
    assert compared >= count


def agrees(program: Program, inputs: Any) -> None:
    assert check_parity(program.run, *inputs).backend == "tensorflow"


@pytest.mark.parametrize("shard", range(-(-PROGRAMS // SHARD)))
def test_random_programs_agree(shard):
    def check(program: Program) -> None:
        agrees(program, program.inputs)

    compare(shard, min(SHARD, PROGRAMS - shard * SHARD), check)


def test_random_programs_agree_in_float32():
    def check(program: Program) -> None:
        agrees(program, [x.astype(np.float32) for x in program.inputs])

    compare(1000, -(-PROGRAMS // 8), check)


def test_alternative_graphs_of_random_programs_agree():
    def check(program: Program) -> None:
        alternatives_agree(program.run, program.inputs, xla=len(program.steps) % 4 == 0)

    compare(3000, -(-PROGRAMS // 16), check)


def test_random_programs_agree_where_nan_and_inf_flow():
    def check(program: Program) -> None:
        assume(all(step.op != "silu" for step in program.steps))  # a known discrepancy at -inf
        rng = np.random.default_rng(len(program.steps))
        for often in (0.1, 0.5):
            strike = [rng.uniform(size=x.shape) < often for x in program.inputs]
            agrees(
                program,
                [
                    np.where(hit, rng.choice(SPECIAL[:7], x.shape), x)
                    for hit, x in zip(strike, program.inputs, strict=True)
                ],
            )

    compare(2000, -(-PROGRAMS // 16), check)
