"""Every operation case as a compiled SGD step: five calls of new numbers give the eager ones.

Once all inputs are parameters, which are assigned new numbers before each call; once the first is a
parameter and the others are arguments.
"""

from __future__ import annotations

from operator import attrgetter

import numpy as np
import pytest

import tapegraph as tg
from tests.cases import CASES, WITHOUT_GRADIENT
from tests.compiling.beside import beside
from tests.quick import a_few_each, check_each, each_operation, thinned

CALLS = 5
ID = attrgetter("id")
# Without lstsq, whose rank is a number, which raises (tests/recording/test_capture.py).
STEPS = [case for case in CASES if "lstsq" not in case.label]
SCALES = (1.0, 0.5, -1.5, 2.0, 0.25)


def numbers(case, call, dtype):
    """The case's inputs with their numbers in another order: the same kinds at other places."""
    arrays = case.arrays(dtype)
    # It stays positive definite; of equal singular values each engine chooses its vectors.
    if case.op == "cholesky" or case.label == "equal":
        return [a * (1.0 - 0.1 * call) for a in arrays]
    return [
        np.roll(a, call) if a.ndim else np.asarray(a * (1.0 - 0.01 * call), a.dtype) for a in arrays
    ]


def compare(case, dtype, fixed, engine):
    """Compare a case whose first ``fixed`` inputs are parameters."""

    def make():
        params = [tg.param(a) for a in case.arrays(dtype)[:fixed]]
        optimizer = tg.SGD(params, lr=1e-3)

        def step(scale, *rest):
            y = case.run(*params, *rest, *case.fixed())
            optimizer.zero_grad()
            tg.sum(y * scale).backward()
            optimizer.step()
            return y

        return step, params

    def assigned(step, params):
        def call(i):
            arrays = numbers(case, i, dtype)
            for p, a in zip(params, arrays, strict=False):
                p.assign(a)
            return step(np.array(SCALES[i], dtype), *arrays[fixed:])

        return call

    beside(make, [(i,) for i in range(CALLS)], engine, around=assigned)


@each_operation(STEPS)
def test_all_inputs_are_parameters(op, thorough):
    def check(case):
        compare(case, np.float64, len(case.inputs), "native")

    check_each(op, STEPS if thorough else a_few_each(STEPS, most=1), check)


SEVERAL = [c for c in STEPS if len(c.inputs) > 1 and not (c.expected and c.expected[0] is None)]


@each_operation(SEVERAL)
@pytest.mark.one_in(4)
def test_the_first_input_is_a_parameter(op, thorough):
    cases = SEVERAL if thorough else a_few_each(SEVERAL, most=1)
    check_each(op, cases, lambda case: compare(case, np.float64, 1, "native"))


@pytest.mark.parametrize("case", thinned(STEPS, 40), ids=ID)
@pytest.mark.one_in(4)
def test_in_float32(case):
    compare(case, np.float32, len(case.inputs), "native")


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:backward ran in the native engine.*(no node|up to their sign)")
@pytest.mark.parametrize("case", thinned(STEPS, 200), ids=ID)
def test_in_tensorflow(case):
    pytest.importorskip("tensorflow")
    compare(case, np.float64, len(case.inputs), "tensorflow")


@each_operation(WITHOUT_GRADIENT)
@pytest.mark.one_in(2)
def test_without_a_gradient_it_is_computed_anew(op, thorough):
    cases = WITHOUT_GRADIENT if thorough else a_few_each(WITHOUT_GRADIENT)
    check_each(op, cases, lambda case: without_a_gradient(case, "native"))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", thinned(WITHOUT_GRADIENT, 8), ids=ID)
def test_without_a_gradient_in_tensorflow(case):
    pytest.importorskip("tensorflow")
    without_a_gradient(case, "tensorflow")


def without_a_gradient(case, engine):
    def make():
        f = case.function()
        return lambda *arrays: f(*arrays), []

    beside(
        make, [tuple(map(tg.tensor, numbers(case, i, np.float64))) for i in range(CALLS)], engine
    )
