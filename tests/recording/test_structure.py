"""What is recorded depends on shapes, dtypes and arguments, never on the numbers in the arrays.

A graph is compiled once per structure: if a NaN in a batch recorded another operation, it would
cost another compile, and a recording that is replayed would be wrong without a word.
"""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.recording.linearize import linearize
from tests.cases import CASES
from tests.quick import a_few_each, check_each, each_operation


def mixed(array: np.ndarray) -> np.ndarray:
    """NaN, infinities, zeros, negative numbers and ties, in turn."""
    numbers = np.resize([np.nan, 0.0, -1.5, np.inf, -1.5, -0.0, 1.0, -np.inf, 1.0], array.size)
    return numbers.reshape(array.shape)


def identity(array: np.ndarray) -> np.ndarray:
    """Matrices of equal eigenvalues; ones of what is no matrix."""
    ones = np.ones_like(array)
    return ones * np.eye(*array.shape[-2:]) if array.ndim > 1 else ones


OTHER_DATA = {
    "zeros": np.zeros_like,
    "ones": np.ones_like,
    "negative": lambda array: -np.abs(array) - 0.125,
    "NaN": lambda array: np.full_like(array, np.nan),
    "infinite": lambda array: np.full_like(array, -np.inf),
    "mixed": mixed,
    "identity": identity,
}
# Which are recorded otherwise for some data: a second structure, and no more.
OTHERWISE = {
    "lstsq-lstsq-residuals": "no residuals are given of a matrix that has not its full rank",
}
OTHERWISE |= {
    case.id: "of equal numbers, the root's infinite slope is replaced by 0"
    for case in CASES
    if case.id.startswith(("sqrt-std-", "sqrt-nanstd-")) and case.label.split("-")[1] != "no"
}
# What LAPACK and NumPy refuse to compute of some of the data above.
REFUSALS = (np.linalg.LinAlgError, ZeroDivisionError)


def recorded(case, arrays):
    """Return what a graph is cached by: operations, wiring, attributes, shapes and dtypes."""
    with np.errstate(all="ignore"):
        out = case.function()(*map(tg.param, arrays))
    return linearize([out]).program.key


@each_operation(CASES)
@pytest.mark.one_in(3)
def test_other_data_record_the_same(op, thorough):
    check_each(op, CASES if thorough else a_few_each(CASES, 2), records_the_same)


def records_the_same(case):
    arrays = case.arrays()
    structure = recorded(case, arrays)
    differing = set()
    for kind, other in OTHER_DATA.items():
        try:
            if recorded(case, [other(a) for a in arrays]) != structure:
                differing.add(kind)
        except REFUSALS:
            continue
    assert bool(differing) == (case.id in OTHERWISE), differing
