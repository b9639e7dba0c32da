"""What the tape keeps: what derivatives read, and nothing else."""

import weakref

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.fallback.rules import VJPS
from tapegraph.recording.linearize import History
from tapegraph.recording.op import ALL, OPS
from tapegraph.recording.values import value_of
from tests.cases import CASES, COMPLEX_CASES, Case
from tests.quick import a_few_each, check_each, each_operation


@pytest.fixture(autouse=True)
def natively():
    with tg.use_backend("native"), np.errstate(all="ignore"):
        yield


def on_results(case):
    """Run a case on results that nobody holds, and return the leaves and a number of the result."""
    is_real = isinstance(case, Case)
    leaves = [tg.param(x) for x in (case.arrays() if is_real else case.inputs)]
    out = case.run(*(leaf + 0.0 for leaf in leaves), *(case.fixed() if is_real else ()))
    if out.dtype.kind == "c":
        out = out.real + out.imag
    weights = np.cos(np.arange(out.size)).reshape(out.shape)
    return leaves, tg.sum(out * weights)


def gradients(case, *, all_kept, create_graph):
    leaves, y = on_results(case)
    if all_kept:
        for entry in History([y]).entries:
            value_of(entry)
    found = tg.gradients(y, leaves, create_graph=create_graph, allow_unused=True)
    return [None if g is None else g.numpy() for g in found]


def keeps_what_its_gradients_read(case):
    for create_graph in (False, True):
        got, want = (
            gradients(case, all_kept=kept, create_graph=create_graph) for kept in (False, True)
        )
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


@each_operation((*CASES, *COMPLEX_CASES))
@pytest.mark.one_in(4)
def test_gradients_are_the_same_where_only_what_is_declared_was_kept(op, thorough):
    real = CASES if thorough else a_few_each(CASES)
    check_each(op, (*real, *COMPLEX_CASES), keeps_what_its_gradients_read)


def test_each_operation_with_a_gradient_declares_what_it_reads():
    assert [name for name in VJPS if OPS[name].reads == (ALL,)] == []


def is_computed_again(case):
    with tg.no_grad():
        want = case.run(*(tg.param(x) + 0.0 for x in case.arrays()), *case.fixed()).numpy()
    leaves = [tg.param(x) for x in case.arrays()]
    out = case.run(*(leaf + 0.0 for leaf in leaves), *case.fixed())
    if out.requires_grad:
        (entry,) = History([tg.sum(out)]).entries[:1]
        del out
        (result,) = entry._inputs
        np.testing.assert_array_equal(value_of(result), want)


@each_operation(CASES)
@pytest.mark.one_in(3, start=1)
def test_what_was_let_go_is_computed_again_with_the_same_bits(op):
    check_each(op, CASES, is_computed_again)


UNARY = {
    "sum": tg.sum,
    "mean": np.mean,
    "reshape": lambda x: x.reshape(-1),
    "transpose": np.transpose,
    "roll": lambda x: np.roll(x, 1, 0),
    "slice": lambda x: x[1:],
    "add": lambda x: x + 1.0,
    "sub": lambda x: 1.0 - x,
    "a constant factor": lambda x: x * np.ones((3, 3)),
    "a number as factor": lambda x: 2.0 * x,
    "a constant divisor": lambda x: x / np.full((3, 3), 2.0),
    "a constant matrix": lambda x: x @ np.ones((3, 3)),
    "concatenate": lambda x: np.concatenate([x, np.ones((1, 3))]),
    "where": lambda x: np.where(np.eye(3) > 0, x, 0.0),
    "exp": np.exp,
    "tanh": np.tanh,
    "fft": np.fft.fft,
}


@pytest.mark.parametrize("name", UNARY)
def test_an_operand_that_no_rule_reads_dies_with_its_tensor(name):
    x = tg.param(np.arange(9.0).reshape(3, 3))
    operand = x + 0.0
    array = weakref.ref(operand._array)
    y = tg.sum(UNARY[name](operand))
    del operand
    assert array() is None
    assert y.requires_grad


@pytest.mark.parametrize("f", [np.sin, tg.log, lambda x: x * x, lambda x: x**3])
def test_an_operand_that_a_rule_reads_stays(f):
    operand = tg.param(np.arange(1.0, 4.0)) + 0.0
    array = weakref.ref(operand._array)
    y = f(operand)
    del operand
    assert array() is not None
    del y
    assert array() is None
