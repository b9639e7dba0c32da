"""Element-wise functions of the largest, the smallest and infinite numbers, in both engines."""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np
import pytest

import tapegraph as tg
from tests.quick import check_product

inf, nan = math.inf, math.nan


@pytest.fixture(params=[np.float32, np.float64])
def dtype(request):
    return request.param


def gradients(f, *points):
    """Return the gradients of f's sum; whatever NumPy warns of is an error."""
    leaves = [tg.param(p) for p in points]
    f(*leaves).backward()
    assert tg.last_backward().backend == tg.get_backend()
    return [leaf.grad for leaf in leaves]


# ------------------------------------------------------------------ sigmoid, silu


def test_sigmoid_reaches_zero_far_below(dtype, backend):
    x = np.array([-np.finfo(dtype).max, -1000.0, -inf, 1000.0, inf], dtype)
    np.testing.assert_array_equal(tg.sigmoid(x).numpy(), np.array([0, 0, 0, 1, 1], dtype))
    np.testing.assert_array_equal(gradients(tg.sigmoid, x)[0], np.zeros(5, dtype))
    assert tg.sigmoid(-1000.0).item() == 0.0


def test_sigmoid_keeps_its_digits_down_to_the_smallest_normal_number():
    x = np.array([-40.0, -300.0, -708.0])
    np.testing.assert_allclose(tg.sigmoid(x).numpy(), [math.exp(v) for v in x], rtol=1e-13)


@pytest.mark.parametrize("data", [np.array([3, 200], np.uint8), [True, False], [[-2], [3]]])
def test_sigmoid_and_silu_of_integers_and_bools(data):
    x = np.asarray(data).astype(float)
    np.testing.assert_allclose(tg.sigmoid(data).numpy(), 1 / (1 + np.exp(-x)), rtol=1e-15)
    np.testing.assert_allclose(tg.silu(data).numpy(), x / (1 + np.exp(-x)), rtol=1e-15)


def test_silu_of_the_largest_numbers(dtype, backend):
    largest = np.finfo(dtype).max
    x = np.array([-largest, -1000.0, 1000.0, largest], dtype)
    y = tg.silu(x).numpy()
    np.testing.assert_array_equal(y, np.array([0, 0, 1000, largest], dtype))
    assert np.signbit(y[:2]).all()
    slopes = [0.0, 0.0, 1.0, 1.0]
    np.testing.assert_array_equal(gradients(tg.silu, x)[0], slopes)
    np.testing.assert_array_equal(tg.jvp(tg.silu, (x,), (np.ones_like(x),))[1], slopes)


def test_silu_of_minus_infinity_is_nan(dtype, backend):
    x = np.array([-inf], dtype)
    with np.errstate(invalid="ignore"):
        assert np.isnan(tg.silu(x).numpy())
        assert np.isnan(gradients(tg.silu, x)[0])


# ------------------------------------------------------------------ gelu

FAR = (10.0, 1e3, 1e13, 1e20)  # 1e13 is where x^3 leaves float32, and 1e20 where x^2 does


def test_gelu_of_the_largest_numbers(dtype, backend):
    sizes = np.array([*FAR, np.finfo(dtype).max], dtype)
    for x, y, slope in ((sizes, sizes, 1.0), (-sizes, 0.0 * sizes, 0.0)):
        np.testing.assert_array_equal(tg.gelu(x).numpy(), y)
        slopes = np.full_like(x, slope)
        np.testing.assert_array_equal(gradients(tg.gelu, x)[0], slopes)
        np.testing.assert_array_equal(tg.jvp(tg.gelu, (x,), (np.ones_like(x),))[1], slopes)


def test_second_derivative_of_gelu_far_out_is_zero():
    for x in FAR:
        assert tg.grad(tg.grad(tg.gelu))(x) == tg.grad(tg.grad(tg.gelu))(-x) == 0.0


def test_gelu_between(dtype, backend):
    x = np.linspace(-9.5, 9.5, 39)
    scale = math.sqrt(2.0 / math.pi)
    t = np.tanh(scale * (x + 0.044715 * x**3))
    slopes = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * scale * (1 + 3 * 0.044715 * x**2)
    close = {"rtol": 1e-5, "atol": 1e-5} if dtype is np.float32 else {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(tg.gelu(x.astype(dtype)).numpy(), 0.5 * x * (1 + t), **close)
    np.testing.assert_allclose(gradients(tg.gelu, x.astype(dtype))[0], slopes, **close)


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("f", [tg.gelu, tg.silu, tg.sigmoid], ids=lambda f: f.__name__)
def test_a_nan_beside_large_numbers_stays_alone(f, dtype, backend):
    x = np.array([nan, np.finfo(dtype).max, -np.finfo(dtype).max], dtype)
    np.testing.assert_array_equal(np.isnan(gradients(f, x)[0]), [True, False, False])


# ------------------------------------------------------------------ arctan2


def slopes_of_arctan2(a, b):
    """Divide exactly: (b, -a) / (a^2 + b^2)."""
    square = Fraction(float(a)) ** 2 + Fraction(float(b)) ** 2
    return float(Fraction(float(b)) / square), float(-Fraction(float(a)) / square)


def test_slopes_of_arctan2_at_any_distance(dtype, backend):
    pairs = [(3, 4), (-1, 2), (5, 1), (0, 1), (1, 0), (-2, -2)]
    check = functools.partial(slopes_are_those_of_arctan2, dtype)
    check_product(check, pairs, [1.0, 1e-30, 1e30, 1e-160, 1e-300, 1e300])


def slopes_are_those_of_arctan2(dtype, pair, scale):
    if dtype is np.float32:
        scale **= 0.1  # 1e30 in place of 1e300
    a, b = (np.array([scale * x], dtype) for x in pair)
    want = slopes_of_arctan2(a[0], b[0])
    rtol = 1e-5 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(np.ravel(gradients(tg.arctan2, a, b)), want, rtol=rtol)
    for side, slope in enumerate(want):
        t = np.zeros((2, 1), dtype)
        t[side] = 1.0
        tangent = tg.jvp(tg.arctan2, (a, b), tuple(t))[1]
        np.testing.assert_allclose(tangent, [slope], rtol=rtol)


def test_slopes_of_arctan2_beside_infinity_are_zero(dtype, backend):
    a = np.array([1.0, inf, inf, -inf, 0.0, 2.0], dtype)
    b = np.array([inf, 1.0, inf, inf, -inf, -inf], dtype)
    np.testing.assert_array_equal(gradients(tg.arctan2, a, b), np.zeros((2, 6)))


# ------------------------------------------------------------------ powers

EXPONENTS = (
    np.array([-128, -3, 0, 1, 127], np.int8),
    np.array([0, 1, 2, 3, 128], np.uint8),
    np.array([-(2**15), -1, 0, 2, 5], np.int16),
    np.array([0, 1, 2, 3, 60000], np.uint16),
    np.array([-7, -1, 0, 1, 9], np.int64),
    np.array([False, True, False, True, True]),
)
BASES = np.array([1.001, -2.0, 0.0, 3.0, 1.0])


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("exponents", EXPONENTS, ids=lambda e: e.dtype.name)
def test_slopes_of_powers_with_integer_exponents(exponents, dtype, backend):
    bases = BASES.astype(dtype)
    want = [
        float(b) * float(a) ** (float(b) - 1.0) if b else 0.0
        for a, b in zip(bases.astype(float), exponents.tolist(), strict=True)
    ]
    x = tg.param(bases)
    y = x**exponents
    y.backward()
    assert tg.last_backward().backend == backend
    np.testing.assert_allclose(x.grad, want, rtol=2e-3 if dtype is np.float32 else 1e-10)
    value, tangent = tg.jvp(lambda x: x**exponents, (bases,), (np.ones_like(bases),))
    assert tangent.dtype == value.dtype == y.dtype
    np.testing.assert_allclose(tangent, want, rtol=2e-3 if dtype is np.float32 else 1e-10)


def test_powers_with_a_bool(backend):
    x = tg.param([2.0, -3.0])
    (x**True + x**False).backward()
    np.testing.assert_array_equal(x.grad, [1.0, 1.0])
    assert tg.jvp(lambda x: x**True, (2.0,), (1.0,)) == (2.0, 1.0)


def test_numbers_beyond_64_bits(backend):
    x = tg.param([0.5, 1.0])
    ((2**64) ** x).backward()
    np.testing.assert_allclose(x.grad, 64 * math.log(2.0) * np.array([2.0**32, 2.0**64]))
    x.grad = None
    (x * 2**70 + -(2**65) * x).backward()
    np.testing.assert_allclose(x.grad, [2.0**70 - 2.0**65] * 2)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("mul", lambda x: 10**400 * x),
        ("mul", lambda x: x * -(10**400)),
        ("pow", lambda x: (10**400) ** x),
        ("add", lambda x: x + 10**400),
    ],
)
def test_numbers_beyond_float64_are_refused_by_the_operation(name, call):
    with pytest.raises(OverflowError, match=rf"^{name}: .*beyond the range of float64"):
        call(tg.param([1.0]))
