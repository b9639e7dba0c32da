"""Complex numbers in TensorFlow: what has nodes agrees, and what has none falls back by name."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.lowering import LOWERINGS
from tapegraph.testing import check_parity
from tests.cases.complex_numbers import COMPLEX_CASES
from tests.optional import optional
from tests.quick import a_few_each, check_all

optional("tensorflow")

pytestmark = pytest.mark.versions

COMPLEX = {name for name, row in LOWERINGS.items() if row.complex is not None}

# What runs natively: NumPy's vectors and TensorFlow's differ by a phase, and some have no node.
NATIVE = {
    *("convolve", "cumprod", "eig", "eigh", "erf", "erfc", "lstsq", "pinv", "qr", "svd"),
    *("div_strong", "mul_strong"),  # products of gradients that are differentiated in a step
}


AT_ONCE = 20  # cases a graph: most of the time goes into making one, however small


def loss(cases):
    """Return one function of all inputs of the cases."""

    def f(*params):
        given, total = iter(params), 0.0
        for case in cases:
            y = case.run(*itertools.islice(given, len(case.inputs)))
            total = total + tg.sum(tg.abs(y) ** 2) + tg.sum(np.real(y))
        return total

    return f


def agree(cases):
    report = check_parity(loss(cases), *(x for case in cases for x in case.inputs))
    assert report.backend == "tensorflow", report.reason


WITH_NODES = [case for case in COMPLEX_CASES if case.op not in NATIVE]
# Without --thorough a few of each operation, and of one every mixture with real numbers.
QUICK = a_few_each(WITH_NODES, most=1)
QUICK += [case for case in WITH_NODES if case.op == "mul" and case not in QUICK]
REST = [case for case in WITH_NODES if case not in QUICK]
BATCHES = [
    pytest.param(cases[i : i + AT_ONCE], marks=marks, id=cases[i].id)
    for cases, marks in ((QUICK, []), (REST, [pytest.mark.thorough]))
    for i in range(0, len(cases), AT_ONCE)
]


@pytest.mark.parametrize("cases", BATCHES)
@pytest.mark.one_in(2)
def test_gradients_are_the_native_ones(cases, thorough):
    try:
        agree(cases)
    except Exception as error:
        check_all(cases, lambda case: agree([case]))
        raise AssertionError(f"only together: {error}") from error
    if thorough:
        check_all(cases, lambda case: agree([case]))


def test_what_has_no_nodes_runs_natively():
    def check(case):
        report = check_parity(loss([case]), *case.inputs)
        assert report.backend == "native"
        assert f"{case.op} has no lowering for complex numbers" == report.reason

    check_all([case for case in COMPLEX_CASES if case.op in NATIVE], check)


def test_every_operation_has_nodes_or_is_known_to_have_none():
    assert {case.op for case in COMPLEX_CASES} - NATIVE - COMPLEX == set()
    assert NATIVE & COMPLEX == set()


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_both_precisions(dtype):
    z = np.array([0.5 + 1.0j, -1.0 + 0.25j, 2.0j], dtype)

    def f(z):
        return tg.sum(tg.abs(np.fft.ifft(np.exp(1j * z) * np.conj(np.fft.fft(z)))) ** 2)

    report = check_parity(f, z)
    assert report.backend == "tensorflow" and report.gradients[0].dtype == dtype


def test_a_compiled_step_runs_in_one_graph(graph_engine):
    z = tg.param(np.array([0.5 + 1.0j, -1.0 + 0.25j]))

    @tg.compile
    def step(rate):
        z.grad = None
        value = tg.sum(tg.abs(z**2 - (1.0 + 1.0j)) ** 2)
        value.backward()
        with tg.no_grad():
            z.assign(z - rate * z.grad)
        return value

    values = [step(0.05).item() for _ in range(40)]
    assert values[-1] < 1e-6 * values[0]
    np.testing.assert_allclose(z.data**2, 1.0 + 1.0j, rtol=1e-3)
    assert "tensorflow" in str(step.explain()).lower()


def test_a_nan_beside_complex_zeros_is_swept_natively():
    z = np.array([0.0j, 1.0 + 1.0j])

    def f(z):
        return tg.sum(tg.abs(tg.where(np.array([False, True]), np.sqrt(z), 0.0)) ** 2)

    want = [0.0, (1.0 + 1.0j) / np.sqrt(2.0)]
    with tg.use_backend("tensorflow"):
        np.testing.assert_allclose(tg.grad(f)(z), want)
        assert tg.last_backward().backend in ("native", "tensorflow")


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x * 1j + 1.0,
        lambda x: np.linalg.solve(x + 2.0 * np.eye(2), 1j * np.ones((2, 2))),
        lambda x: np.concatenate([x, x * 1j]),
        lambda x: np.einsum("ij,jk->ik", x, 1j * np.eye(2)),
    ],
)
def test_real_numbers_made_complex_are_warned_of_by_nobody(f, capfd):
    with tg.use_backend("tensorflow"):
        tg.grad(lambda x: tg.sum(tg.abs(f(x)) ** 2))(np.ones((2, 2)))
        assert tg.last_backward().backend == "tensorflow"
    assert "imaginary" not in capfd.readouterr().err
