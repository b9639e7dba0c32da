"""Both engines give the same numbers: over every operation case, and over random programs.

`pytest -m parity` runs this file. The cases of one operation are differentiated as one program, and
one by one where that fails, so that the failing ones are named: one for each function that records
the operation, as a label's first word names them. ``--thorough`` also compares every case by
itself, and 2,000 random programs where 40 are compared otherwise.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from discrepancies import DISCREPANCIES
from hypothesis import assume
from programs import Program, each_program

import tapegraph as tg
from tapegraph import fallback
from tapegraph.lowering import GAPS, LOWERINGS
from tapegraph.lowering.backward import Graph, results_fed
from tapegraph.recording.linearize import linearize
from tapegraph.recording.program import Recording
from tapegraph.testing import PARITY_TOLERANCE, check_parity
from tests.cases import CASES, Case
from tests.lowering.forward import gradient
from tests.quick import a_few_each, thinned

pytestmark = [
    pytest.mark.versions,
    pytest.mark.parity,
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs TensorFlow"),
]

DTYPES = ("float64", "float32")


@pytest.fixture(autouse=True)
def few_graphs(graph_engine):
    """Hold few of the graphs, which hardly any other test here could use."""
    graph_engine.set_cache_limit(4)
    with np.errstate(all="ignore"):
        yield


# ------------------------------------------------------------------ every operation


AT_ONCE = 24  # cases a graph: few enough that TensorFlow optimises it as it does a user's


def joined(cases: list[Case], dtype: str, *, squared: bool) -> Callable[..., Any]:
    """Return one function of all inputs of the cases, which gives their results end to end.

    Their squares too, where asked: the gradient of a square reads the result itself.
    """
    functions = [case.function(dtype) for case in cases]

    def run(*tensors: Any) -> Any:
        given = iter(tensors)
        results = [
            tg.reshape(f(*itertools.islice(given, len(case.inputs))), -1)
            for case, f in zip(cases, functions, strict=True)
        ]
        return tg.concat(results + [y * y for y in results] if squared else results)

    return run


def agree(
    check: Callable[..., Any],
    cases: list[Case],
    dtype: str,
    *,
    singly: bool,
    squared: bool = False,
) -> None:
    """Check cases as one program; if that fails, or if asked to, each by itself."""
    together = None
    try:
        inputs = [array for case in cases for array in case.arrays(dtype)]
        check(joined(cases, dtype, squared=squared), *inputs)
    except Exception as error:
        together = error
    failures = []
    for case in cases if together or singly else []:
        try:
            check(case.function(dtype), *case.arrays(dtype))
        except Exception as error:
            failures.append(f"{case.id}: {error}")
    if together or failures:
        raise AssertionError("\n".join(failures) or f"only together: {together}") from together


def batches(op: str, thorough: bool, most: int | None = 1) -> Iterator[list[Case]]:
    """Yield the cases of an operation, or so many, a few at a time; those with a NaN apart.

    A NaN in a gradient makes both engines differentiate the whole program once more, with zeros
    that absorb what they meet.
    """
    groups: dict[bool, list[Case]] = {False: [], True: []}
    for case in CASES if thorough else a_few_each(CASES, most=most):
        if case.op == op:
            nan = any(w is not None and np.isnan(w).any() for w in case.expected or ())
            groups[nan].append(case)
    for group in groups.values():
        yield from (group[i : i + AT_ONCE] for i in range(0, len(group), AT_ONCE))


# Ties are among the last of their cases, and each way to index is one.
MANY_CASES = "fmax fmin maximum minimum getitem index".split()
LOWERED = sorted({case.op for case in CASES} - set(GAPS))


@pytest.mark.parametrize("op", LOWERED)
def test_cases_agree(op, thorough):
    cases_agree(op, "float64", thorough)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", thinned(LOWERED, 6))
def test_cases_agree_in_float32(op, thorough):
    cases_agree(op, "float32", thorough)


def cases_agree(op: str, dtype: str, thorough: bool) -> None:
    def check(f: Callable[..., Any], *inputs: Any) -> None:
        report = check_parity(f, *inputs)
        assert report.backend == "tensorflow", report.reason

    many = op in MANY_CASES and dtype == "float64"
    for cases in batches(op, thorough, most=None if many else 1):
        agree(check, cases, dtype, singly=thorough)


@pytest.mark.parametrize("op", GAPS)
def test_cases_of_a_gap_run_natively(op):
    for case, dtype in itertools.product(CASES, DTYPES):
        if case.op == op:
            report = check_parity(case.function(dtype), *case.arrays(dtype))
            assert report.backend == "native", case.id


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (2, 0), (2, 3)], ids=str)
def test_results_of_every_shape_can_be_differentiated(shape):
    assert check_parity(tg.sin, np.ones(shape)).backend == "tensorflow"


@pytest.mark.parametrize("record", DISCREPANCIES, ids=[r.label for r in DISCREPANCIES])
def test_known_discrepancy_is_still_there(record):
    with pytest.raises(AssertionError, match="the native engine gives .* TensorFlow gives"):
        check_parity(record.run, *record.inputs)


def native_gradients(f: Callable[..., Any], *inputs: Any) -> tuple[Recording, Any, Any]:
    recording = linearize([f(*map(tg.param, inputs))])
    (root,) = recording.seeds()
    cotangent = np.random.default_rng(0).uniform(-1.0, 1.0, root.shape).astype(root.dtype)
    return recording, [cotangent], fallback.gradients(recording, [cotangent])


def same_where_numbers(found: Any, native: Any) -> None:
    for want, got in zip(native, found, strict=True):
        want, got = np.asarray(want), np.asarray(got)
        if not np.isnan(got).any():  # else the graph with strong zeros runs
            rtol, atol = PARITY_TOLERANCE[want.dtype.name]
            np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


def fed_agrees(f: Callable[..., Any], *inputs: Any) -> None:
    """Compare with the graph that is fed every result that may be, however small."""
    recording, seeds, native = native_gradients(f, *inputs)
    graph = Graph(recording, results=results_fed(recording, least=0))
    same_where_numbers(graph(recording, seeds), native)


def agrees_with_xla(f: Callable[..., Any], *inputs: Any) -> None:
    """Compare with the graph of forward and gradient, compiled with XLA."""
    recording, seeds, native = native_gradients(f, *inputs)
    program = recording.program
    compiled = gradient(recording, program.wanted, xla=True)
    same_where_numbers(compiled([recording.values[i] for i in program.fed], seeds)[1], native)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", thinned(sorted(LOWERINGS), 10))
def test_graphs_of_cases_that_are_fed_results_agree(op, thorough):
    for cases in batches(op, thorough):
        agree(fed_agrees, cases, "float64", singly=thorough, squared=True)
        if thorough:
            agree(fed_agrees, cases, "float32", singly=thorough)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", thinned(sorted(n for n, row in LOWERINGS.items() if row.xla), 10))
def test_graphs_of_cases_with_xla_agree(op, thorough):
    for cases in batches(op, thorough):  # not squared too: XLA takes its time to compile them
        agree(agrees_with_xla, cases, "float64", singly=thorough)


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


def agree_at(f: Callable[..., Any], points: list[np.ndarray], inputs: int, every: int = 1) -> None:
    """Compare at one point in so many, also under a cotangent of zero, and at all at once."""
    for point in points[::every]:
        leaves = np.split(point, inputs)
        check_parity(f, *leaves)
        check_parity(lambda *xs: f(*xs) * 0.0, *leaves)
    check_parity(f, *np.transpose(points))


# In the quick suite float64 alone.
DTYPE = pytest.mark.parametrize("dtype", thinned(DTYPES, 2))


@DTYPE
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.one_in(4)
def test_special_values_agree(name, dtype, thorough):
    known = [r.inputs[0][0] for r in DISCREPANCIES if r.run is getattr(tg, name)]
    points = [np.array([x], dtype) for x in SPECIAL if x not in known]
    agree_at(getattr(tg, name), points, 1)


def every(thorough: bool) -> int:
    """Of how many points one is tried: a number that leaves out no value at any place."""
    return 1 if thorough else 5


@pytest.mark.one_in(2)
@DTYPE
@pytest.mark.parametrize("name", BINARY)
def test_pairs_of_special_values_agree(name, dtype, thorough):
    pairs = [np.array(pair, dtype) for pair in itertools.product(SPECIAL, SPECIAL)]
    agree_at(getattr(tg, name), pairs, 2, every(thorough))


@DTYPE
@pytest.mark.parametrize("name", ROWS)
@pytest.mark.one_in(4)
def test_rows_of_special_values_and_ties_agree(name, dtype, thorough):
    values = (*NONFINITE, 0.0, 1.0, -1000.0)
    for row in [*itertools.product(values, repeat=3)][:: every(thorough)]:
        check_parity(ROWS[name], np.array(row, dtype))
        check_parity(lambda x: ROWS[name](x) * 0.0, np.array(row, dtype))


@DTYPE
@pytest.mark.parametrize("shapes", [((2, 3), (3, 2)), ((2, 2, 3), (3, 2)), ((3,), (3, 2))])
def test_products_of_special_values_agree(shapes, dtype, thorough):
    rng = np.random.default_rng(0)
    out = np.matmul(*map(np.ones, shapes)).shape
    for _ in range(200 if thorough else 30):
        a, b = (rng.choice(SPECIAL[:6], shape).astype(dtype) for shape in shapes)
        weights = rng.choice([0.0, 0.0, 1.0, -2.0, np.inf, np.nan], out).astype(dtype)
        check_parity(lambda a, b, w: a @ b * w, a, b, weights)


# ------------------------------------------------------------------ random programs


def compare(number: int, count: int, check: Callable[[Program], None]) -> None:
    """Draw ``count`` programs that lower, always the same ones, and compare the engines."""
    compared = 0

    @each_program(count, number, shrink=True)
    def run(program: Program) -> None:
        nonlocal compared
        assume(not GAPS.keys() & {step.op for step in program.steps})
        check(program)
        compared += 1

    run()
    assert compared >= count


def agrees(program: Program, inputs: Any) -> None:
    assert check_parity(program.run, *inputs).backend == "tensorflow"


SHARD, QUICK = 125, 8  # programs a test


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "shard" in metafunc.fixturenames:
        metafunc.parametrize("shard", range(16 if metafunc.config.getoption("thorough") else 1))


@pytest.fixture
def few(thorough):
    """How many random programs of the costly kinds."""
    return 250 if thorough else 8


def test_random_programs_agree(shard, thorough):
    compare(shard, SHARD if thorough else QUICK, lambda program: agrees(program, program.inputs))


@pytest.mark.thorough
def test_random_programs_agree_in_float32(few):
    def check(program: Program) -> None:
        agrees(program, [x.astype(np.float32) for x in program.inputs])

    compare(1000, few, check)


@pytest.mark.thorough
def test_graphs_of_random_programs_that_are_fed_results_agree(few):
    def check(program: Program) -> None:
        fed_agrees(program.run, *program.inputs)
        if len(program.steps) % 4 == 1:
            fed_agrees(program.run, *(x.astype(np.float32) for x in program.inputs))

    compare(3000, few // 2, check)


def test_random_programs_agree_where_nan_and_inf_flow(few):
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

    compare(2000, few // 2, check)


def test_tensors_are_taken_by_their_numbers():
    x = tg.param([0.5, 1.0])
    report = tg.testing.check_parity(tg.tanh, x)
    np.testing.assert_allclose(report.gradients[0].shape, (2,))
    assert report.max_rel_difference < 1e-9 and x.grad is None
