"""Choosing by bits gives what NumPy's own choice gives, to the last bit."""

from __future__ import annotations

import numpy as np
import pytest

from tapegraph.ops.elementwise import LEAST_BITWISE, chosen, select_bits

SPECIAL = np.array([0.0, -0.0, 1.5, -np.inf, np.inf, np.nan, 5e-324])
# Shapes of a, b and the mask; together they broadcast to many elements or to few.
SHAPES = [
    ((LEAST_BITWISE,), (LEAST_BITWISE,), (LEAST_BITWISE,)),
    ((4, LEAST_BITWISE), (LEAST_BITWISE,), (4, 1)),
    ((LEAST_BITWISE, 1), (3,), (1, 3)),
    ((), (LEAST_BITWISE,), (LEAST_BITWISE,)),
    ((LEAST_BITWISE,), (), (1,)),
    ((2, LEAST_BITWISE), (2, LEAST_BITWISE), ()),
    ((3, 2), (2,), (3, 1)),
    ((), (), ()),
    ((0, 2), (2,), (1,)),
]


@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "i4", "?"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_a_choice_is_numpys(shapes, dtype):
    rng = np.random.default_rng(0)
    a, b = (rng.choice(SPECIAL, shape) for shape in shapes[:2])
    mask = np.asarray(rng.random(shapes[2]) < 0.5)
    with np.errstate(invalid="ignore"):
        a = a.astype(dtype)
    for x, y in ((a, b), (b, a), (a, 2), (2.5, a), (a, -0.0), (np.nan, a), (a, True)):
        want, got = np.where(mask, x, y), chosen(mask, x, y)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert np.ascontiguousarray(got).tobytes() == want.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_is_kept_keeps_its_bits_and_its_order_in_memory(dtype, order):
    x = np.asarray(np.resize(SPECIAL, (6, 7)), dtype, order=order)
    mask = np.asarray(np.arange(42).reshape(6, 7) % 2 == 0, order=order)
    got = select_bits(x, mask)
    np.testing.assert_array_equal(got[mask].tobytes(), x[mask].tobytes())
    assert not got[~mask].tobytes().strip(b"\0")
    assert got.flags.c_contiguous == (order == "C")
