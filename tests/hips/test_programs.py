"""Programs that are written for autograd give the same numbers on it and on the drop-in."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from tests.hips.autograd_programs import PROGRAMS, package

OF_SCIPY = ("special", "stats", "linear_algebra_of_scipy", "convolutions", "differential_equations")


def numbers(value):
    """What a structure holds, in order."""
    if isinstance(value, dict):
        return [x for key in value for x in numbers(value[key])]
    if isinstance(value, (list, tuple)):
        return [x for part in value for x in numbers(part)]
    return [value]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_same_numbers_as_autograd(program):
    pytest.importorskip("autograd")
    if program.__name__ in OF_SCIPY:
        pytest.importorskip("scipy")
    with warnings.catch_warnings():
        # autograd warns of its own r_, and of NumPy's newer names.
        warnings.simplefilter("ignore")
        expected = numbers(program(package("autograd")))
    found = numbers(program(package("tapegraph.autograd")))
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        assert isinstance(x, (np.ndarray, np.number, float, int)) or x is y
        assert np.shape(x) == np.shape(y)
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
