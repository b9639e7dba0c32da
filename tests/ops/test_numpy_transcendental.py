"""NumPy's exponentials, logarithms, hyperbolic and inverse functions, called on tensors."""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import elementwise

UNARY = [
    np.square, np.cbrt, np.reciprocal, np.log1p, np.expm1, np.log2, np.log10, np.exp2, np.sinh,
    np.cosh, np.arcsin, np.arccos, np.arctan, np.arcsinh, np.arctanh, np.sinc, np.deg2rad,
    np.rad2deg, np.degrees, np.radians,
]  # fmt: skip
BINARY = [np.arctan2, np.hypot, np.logaddexp, np.logaddexp2]
X = np.array([[0.1, 0.5, 0.9], [0.2, 0.4, 0.7]])
Y = np.array([1.0, -2.0, 0.5])


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")


def same(got, want, dtype=np.float64):
    assert isinstance(got, tg.Tensor)
    assert got.requires_grad
    tolerance = 1e-15 if dtype == np.float64 else 1e-6
    np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance, strict=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_functions_of_one_array(function, dtype):
    x = X.astype(dtype)
    same(function(tg.param(x)), function(x), dtype)
    same(getattr(tg, function.__name__)(tg.param(x)), function(x), dtype)
    assert isinstance(getattr(tg, function.__name__)(x.tolist()), tg.Tensor)


def test_inverse_hyperbolic_cosine():
    same(np.arccosh(tg.param(1 + X)), np.arccosh(1 + X))


@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_functions_of_two_arrays(function):
    x = tg.param(X)
    for args in ((X, Y), (X, 2), (1.5, X), (X, np.array([1, 2, 3])), (Y.tolist(), X)):
        tensors = [x if a is X else a for a in args]
        same(function(*tensors), function(*args))
    low = X.astype(np.float32)
    same(function(tg.param(low), 2.5), function(low, 2.5), np.float32)
    same(function.outer(x, Y), function.outer(X, Y))


def test_float_power_takes_whole_numbers():
    x = tg.param([1.0, 2.0, 4.0])
    same(np.float_power(x, np.array([-1, 0, 2])), [1.0, 1.0, 16.0])
    same(np.float_power(np.array([1, 2, 3]), -x), np.float_power([1, 2, 3], [-1.0, -2.0, -4.0]))
    same(np.float_power(2, -x), [0.5, 0.25, 0.0625])
    assert elementwise.float_power(2, -1).item() == 0.5
    assert elementwise.float_power([2, 4], -1).data.tolist() == [0.5, 0.25]
    assert np.float_power(tg.param(np.float32([2.0])), 2).dtype == np.float32


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("point", [0.0, 1e-5, 0.0199, 0.0201, 0.8])
def test_derivatives_of_sinc_of_every_order(point, order):
    """Against the Taylor series of sin(pi x) / (pi x), differentiated term by term."""
    f = elementwise.sinc
    for _ in range(order):
        f = tg.grad(f)
    want = 0.0
    for k in range(20):
        power = 2 * k
        if power >= order:
            term = (-1.0) ** k * np.pi**power / np.prod(np.arange(1.0, power + 2))
            factor = np.prod(np.arange(power - order + 1.0, power + 1))
            want += term * factor * point ** (power - order)
    assert f(point) == pytest.approx(want, rel=1e-8, abs=1e-8)


def test_no_overflow():
    big = tg.param(np.array([1e200, -1e200, 3e-200]))
    for f, slopes in (
        (lambda x: np.hypot(x, x), np.array([1.0, -1.0, 1.0]) * np.sqrt(0.5) * 2),
        (lambda x: np.logaddexp(x, x), [1.0, 1.0, 1.0]),
        (lambda x: np.arctan2(x, 2 * x) * 1.0, [0.0, 0.0, 0.0]),
    ):
        big.grad = None
        with np.errstate(over="ignore"):
            f(big).backward()
        np.testing.assert_allclose(big.grad, slopes, atol=1e-12)


@pytest.mark.parametrize(
    ("f", "point", "slope"),
    [
        (np.cbrt, 0.0, 1 / 3),
        (np.log2, 0.0, 1 / np.log(2.0)),
        (np.log10, 0.0, 1 / np.log(10.0)),
        (lambda x: np.log1p(x - 1.0), 0.0, 1.0),
        (lambda x: np.arcsin(1.0 - x), 0.0, -np.inf),
        (lambda x: np.arccosh(1.0 + x), 0.0, 1 / np.sqrt(3.0)),
        (lambda x: np.arctanh(1.0 - x), 0.0, -np.inf),
        (lambda x: np.arctan2(x, x), 0.0, 0.0),
    ],
)
def test_a_zero_cotangent_stays_zero_at_a_singular_point(f, point, slope, backend):
    x = tg.param([point, 1.0])
    with np.errstate(all="ignore"):
        np.where(np.array([False, np.isfinite(slope)]), f(x), 0.0).backward()
    assert x.grad[0] == 0.0
    np.testing.assert_allclose(x.grad[1], slope if np.isfinite(slope) else 0.0, atol=1e-15)


@pytest.mark.parametrize("f", [np.hypot, np.arctan2, np.logaddexp], ids=lambda f: f.__name__)
def test_shapes_that_do_not_broadcast(f):
    with pytest.raises(ValueError, match=rf"{f.__name__}: .*\(2,\) and \(3,\)"):
        f(tg.param([1.0, 2.0]), [1.0, 2.0, 3.0])


@pytest.mark.parametrize("f", [np.log1p, np.square, np.hypot], ids=lambda f: f.__name__)
def test_results_are_not_written_into_arrays(f):
    with pytest.raises(TypeError, match="out="):
        f(*[tg.param([0.5])] * f.nin, out=np.empty(1))


@pytest.mark.parametrize(
    "f", [elementwise.log1p, elementwise.square, elementwise.deg2rad], ids=lambda f: f.__name__
)
def test_what_is_no_number(f):
    for wrong in ("a", None, 1j):
        with pytest.raises(TypeError):
            f(wrong)
