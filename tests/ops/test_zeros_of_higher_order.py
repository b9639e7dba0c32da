"""A zero cotangent contributes exactly zero at any order."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tests.ops.test_zero_stays_zero import MASKED, REAL
from tests.quick import in_one


@in_one("case", [*MASKED, *REAL])
def test_zeros_are_strong_in_a_recorded_sweep(case):
    f, point, expected = (MASKED | REAL)[case]
    tg.set_backend("native")
    x = tg.param(np.array(point, dtype=np.float64))
    with np.errstate(all="ignore"):
        (g,) = tg.gradients(tg.sum(f(x)), [x], create_graph=True)
    expected = np.array(expected)
    np.testing.assert_array_equal(g.data[expected == 0], 0.0)
    np.testing.assert_allclose(g.data, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "case", ["sqrt", "log", "reciprocal", "negative power", "root power", "exp overflow", "norm"]
)
@pytest.mark.one_in(6, of="tensorflow")
def test_masked_points_have_no_second_derivative_either(case, backend):
    f, point, _ = MASKED[case]
    x = tg.param(np.array(point, dtype=np.float64))
    with np.errstate(all="ignore"):
        (g,) = tg.gradients(tg.sum(f(x)), [x], create_graph=True)
        (second,) = tg.gradients(tg.sum(g * (x + 5.0)), [x])
        apart = [tg.param(row) for row in np.array(point)]
        # What is masked gives nothing; the rest gives what it gives alone.
        for row, got in zip(apart, second.data, strict=True):
            (alone,) = tg.gradients(tg.sum(f(tg.stack([row]))), [row], create_graph=True)
            if alone.requires_grad:
                (want,) = tg.gradients(tg.sum(alone * (row + 5.0)), [row])
                np.testing.assert_allclose(got, want.data, rtol=1e-12)
    masked = np.array(MASKED[case][2]) == 0
    np.testing.assert_array_equal(second.data[masked], 0.0)
