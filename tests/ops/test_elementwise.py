"""NumPy's functions of each element, called on tensors: values, kinks and refusals."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import elementwise
from tests.quick import in_one

# The first whose np.clip takes min and max by these names.
NUMPY_2_1 = np.lib.NumpyVersion(np.__version__) >= "2.1.0"

nan, inf = np.nan, np.inf
SPECIAL = np.array([-inf, -2.5, -2.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, inf, nan])


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")


# ------------------------------------------------------------------ smooth functions

SMOOTH = [
    np.square, np.cbrt, np.reciprocal, np.log1p, np.expm1, np.log2, np.log10, np.exp2, np.sinh,
    np.cosh, np.arcsin, np.arccos, np.arctan, np.arcsinh, np.arctanh, np.sinc, np.deg2rad,
    np.rad2deg, np.degrees, np.radians,
]  # fmt: skip
SMOOTH_OF_TWO = [np.arctan2, np.hypot, np.logaddexp, np.logaddexp2]
X = np.array([[0.1, 0.5, 0.9], [0.2, 0.4, 0.7]])
Y = np.array([1.0, -2.0, 0.5])


def close(got, want, dtype=np.float64):
    assert isinstance(got, tg.Tensor)
    assert got.requires_grad
    tolerance = 1e-15 if dtype == np.float64 else 1e-6
    np.testing.assert_allclose(got.numpy(), want, rtol=tolerance, atol=tolerance, strict=True)


@in_one("dtype", [np.float64, np.float32])
@in_one("function", SMOOTH, ids=lambda f: f.__name__)
def test_smooth_functions_of_one_array(function, dtype):
    x = X.astype(dtype)
    close(function(tg.param(x)), function(x), dtype)
    close(getattr(tg, function.__name__)(tg.param(x)), function(x), dtype)
    assert isinstance(getattr(tg, function.__name__)(x.tolist()), tg.Tensor)


def test_inverse_hyperbolic_cosine():
    close(np.arccosh(tg.param(1 + X)), np.arccosh(1 + X))


@pytest.mark.parametrize("function", SMOOTH_OF_TWO, ids=lambda f: f.__name__)
def test_smooth_functions_of_two_arrays(function):
    x = tg.param(X)
    for args in ((X, Y), (X, 2), (1.5, X), (X, np.array([1, 2, 3])), (Y.tolist(), X)):
        tensors = [x if a is X else a for a in args]
        close(function(*tensors), function(*args))
    low = X.astype(np.float32)
    close(function(tg.param(low), 2.5), function(low, 2.5), np.float32)
    close(function.outer(x, Y), function.outer(X, Y))


def test_float_power_takes_whole_numbers():
    x = tg.param([1.0, 2.0, 4.0])
    close(np.float_power(x, np.array([-1, 0, 2])), [1.0, 1.0, 16.0])
    close(np.float_power(np.array([1, 2, 3]), -x), np.float_power([1, 2, 3], [-1.0, -2.0, -4.0]))
    close(np.float_power(2, -x), [0.5, 0.25, 0.0625])
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


@pytest.mark.one_in(2, of="tensorflow", start=1)
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
def test_shapes_that_do_not_broadcast_in_a_smooth_function(f):
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
    for wrong in ("a", None):
        with pytest.raises(TypeError):
            f(wrong)


# ------------------------------------------------------------------ choosing, rounding and signs


def same(got, want, dtype=np.float64):
    """Compare to the bit, the sign of a zero too."""
    assert isinstance(got, tg.Tensor)
    assert got.requires_grad
    np.testing.assert_array_equal(got.numpy(), want.astype(dtype), strict=True)
    np.testing.assert_array_equal(
        np.signbit(got.numpy())[~np.isnan(want)], np.signbit(want)[~np.isnan(want)]
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "function",
    [np.sign, np.floor, np.ceil, np.rint, np.trunc, np.fabs, np.absolute, np.positive, np.negative],
    ids=lambda f: f.__name__,
)
def test_steps_and_signs_of_one_array(function, dtype):
    x = SPECIAL.astype(dtype)
    same(function(tg.param(x)), function(x), dtype)
    same(getattr(tg, function.__name__)(tg.param(x)), function(x), dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "function",
    [np.maximum, np.minimum, np.fmax, np.fmin, np.remainder, np.fmod, np.copysign, np.heaviside],
    ids=lambda f: f.__name__,
)
def test_choices_and_remainders_of_two_arrays(function, dtype):
    a, b = np.meshgrid(SPECIAL.astype(dtype), SPECIAL.astype(dtype))
    with np.errstate(invalid="ignore"):
        want = function(a, b)
        got = function(tg.param(a), tg.param(b))
        np.testing.assert_array_equal(got.numpy(), want, strict=True)
        if function in (np.remainder, np.fmod, np.copysign):
            real = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got.numpy())[real], np.signbit(want)[real])
        for x, y in ((a, 2), (a, 1.5), (a, np.array(2.0, dtype)), (1.5, b)):
            tensors = [tg.param(v) if v is a or v is b else v for v in (x, y)]
            np.testing.assert_array_equal(function(*tensors).numpy(), function(x, y), strict=True)


def test_clip():
    x, low, high = np.linspace(-2, 2, 9), np.linspace(-1, 0, 9), np.linspace(0.5, 1, 9)
    for args, options in (
        ((-1, 1), {}),
        ((None, 0.5), {}),
        ((0.25, None), {}),
        ((low, high), {}),
        ((low.reshape(9, 1), 1.0), {}),
        ((1.0, -1.0), {}),
        ((), {"a_min": -1.0, "a_max": high}),
        *([((), {"min": -1.0, "max": 0.0}), ((), {"max": 0.0})] if NUMPY_2_1 else []),
    ):
        same(np.clip(tg.param(x), *args, **options), np.clip(x, *args, **options))
    assert np.clip(tg.param(np.float32([3.0])), 0.0, 1).dtype == np.float32
    assert elementwise.clip([1, 5], 2, 3).data.tolist() == [2, 3]
    with np.errstate(invalid="ignore"):
        got = np.clip(tg.param(SPECIAL), tg.tensor(-1.0), nan).numpy()
    np.testing.assert_array_equal(got, np.clip(SPECIAL, -1.0, nan))


def test_clip_by_tensors_moves_the_bounds():
    x, low, high = tg.param([-3.0, 0.0, 3.0]), tg.param(-1.0), tg.param(1.0)
    np.clip(x, low, high).backward()
    assert (x.grad.tolist(), low.grad, high.grad) == ([0.0, 1.0, 0.0], 1.0, 1.0)


def test_nan_to_num():
    x = tg.param(SPECIAL)
    same(np.nan_to_num(x), np.nan_to_num(SPECIAL))
    same(np.nan_to_num(x, nan=1.0, posinf=2.0), np.nan_to_num(SPECIAL, nan=1.0, posinf=2.0))
    same(np.nan_to_num(x, True, 1.0, 2.0, 3.0), np.nan_to_num(SPECIAL, True, 1.0, 2.0, 3.0))
    low = SPECIAL.astype(np.float32)
    same(np.nan_to_num(tg.param(low)), np.nan_to_num(low), np.float32)
    with pytest.raises(TypeError, match="copy"):
        np.nan_to_num(x, copy=False)


@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_an_infinite_cotangent_stays_with_the_one_chosen(name, backend):
    a, b = tg.param([0.0, 1.0]), tg.param([-1.0, 4.0] if name == "maximum" else [1.0, -4.0])
    with np.errstate(all="ignore"):
        np.cbrt(getattr(np, name)(a, b)).backward()
    assert a.grad.tolist() == [inf, 0.0]
    assert b.grad[0] == 0.0
    assert np.isfinite(b.grad[1])


def test_a_chain_through_a_step_has_gradient_zero(backend):
    x = tg.param([-1.5, 0.2, 3.0])
    (np.floor(x) * 2.0 + np.sign(x) + np.heaviside(x, 0.5)).backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]
    assert tg.grad(lambda v: elementwise.rint(v * 3.0))(0.4) == 0.0


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_whole_divisions_go_with_the_remainder(dtype):
    a, b = np.array([7, -7, 1, 0], dtype), np.array([2, 2, -3, 5], dtype)
    for one, other in ((tg.tensor(a), tg.tensor(b)), (tg.tensor(a), b), (a, tg.tensor(b))):
        for whole, rest in (divmod(one, other), np.divmod(one, other)):
            assert isinstance(whole, tg.Tensor)
            np.testing.assert_array_equal(whole.data, a // b, strict=True)
            np.testing.assert_array_equal(rest.data, a % b, strict=True)
        np.testing.assert_array_equal((one // other).data, a // b, strict=True)


def test_whole_divisions_have_no_slope(backend):
    a, b = tg.param([7.0, 1.0]), tg.param([2.0, 0.1])
    (a // b + 3.0 * a).sum().backward()
    np.testing.assert_array_equal(a.grad, [3.0, 3.0])
    np.testing.assert_array_equal(b.grad, [0.0, 0.0])


def test_remainder_with_whole_numbers(backend):
    x = tg.param([5.5, -5.5])
    np.remainder(x, np.array([2, 3])).backward()
    np.maximum(x, np.array([2, 3])).backward()
    assert x.grad.tolist() == [2.0, 1.0]


@pytest.mark.parametrize(
    "name",
    ["maximum", "minimum", "fmax", "fmin", "remainder", "fmod", "copysign", "heaviside", "clip"],
)
def test_shapes_that_do_not_broadcast_in_a_choice(name):
    arguments = (tg.param([1.0, 2.0]), [1.0, 2.0, 3.0])
    words = {"remainder": "mod"}.get(name, name)
    with pytest.raises(ValueError, match=rf"{words}: .*\(2,\) and \(3,\)"):
        getattr(np, name)(*arguments, *([None] * (name == "clip")))


def test_refused_arguments_of_a_choice():
    x = tg.param([1.0, 2.0])
    with pytest.raises(TypeError, match="out="):
        np.clip(x, 0.0, 1.0, out=np.empty(2))
    with pytest.raises(TypeError, match="out="):
        np.maximum(x, 1.0, out=np.empty(2))
    with pytest.raises(TypeError, match="where"):
        np.maximum(x, 1.0, where=np.array([True, False]))
    with pytest.raises(TypeError, match="a_min"):
        elementwise.clip(x, 0.0, min=0.0)
    with pytest.raises(TypeError, match="clip: .*'a'"):
        np.clip(x, "a", 1.0)


# ------------------------------------------------------------------ likes, copies and conversions

ROWS = np.array([[1.5, -2.5, 0.5], [3.0, 4.49, -0.51]])


@pytest.mark.parametrize("function", [np.zeros_like, np.ones_like, np.empty_like])
@pytest.mark.parametrize(
    "options", [{}, {"dtype": np.float32}, {"dtype": int}, {"shape": (2,)}, {"shape": 3}], ids=str
)
def test_likes(function, options):
    out, want = function(tg.param(ROWS), **options), function(ROWS, **options)
    assert isinstance(out, tg.Tensor) and not out.requires_grad
    assert (out.shape, out.dtype) == (want.shape, want.dtype)
    if function is not np.empty_like:
        np.testing.assert_array_equal(out.numpy(), want)
    assert function(tg.param(ROWS.astype(np.float32))).dtype == np.float32


@pytest.mark.parametrize("fill", [2.5, 3, [1.0, 2.0, 3.0], np.float32(0.5), np.ones((2, 1))])
def test_full_like(fill):
    for options in ({}, {"dtype": np.float32}, {"dtype": int}):
        out = np.full_like(tg.param(ROWS), fill, **options)
        assert not out.requires_grad
        np.testing.assert_array_equal(out.numpy(), np.full_like(ROWS, fill, **options), strict=True)


def test_full_like_of_a_tensor_differentiates():
    fill = tg.param([1.0, 2.0, 3.0])
    np.full_like(tg.param(ROWS), fill).backward()
    assert fill.grad.tolist() == [2.0, 2.0, 2.0]
    low = np.full_like(tg.param(ROWS.astype(np.float32)), fill)
    assert low.dtype == np.float32 and low.requires_grad
    assert np.full_like(tg.param(ROWS), fill, dtype=int).data.tolist() == [[1, 2, 3]] * 2


def test_copy_is_a_result_of_its_own():
    x = tg.param(ROWS)
    y = np.copy(x)
    x.assign(0.0)
    np.testing.assert_array_equal(y.data, ROWS)
    x.assign(ROWS)
    np.copy(x).backward()
    np.testing.assert_array_equal(x.grad, 1.0)
    assert np.copy(tg.tensor([1, 2])).dtype == np.int64


def test_astype_between_floats(backend):
    x = tg.param(ROWS)
    y = elementwise.astype(x, np.float32)
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y.data, ROWS.astype(np.float32))
    (y * y).backward()
    assert tg.last_backward().backend == backend
    assert x.grad.dtype == np.float64
    np.testing.assert_array_equal(x.grad, 2.0 * ROWS.astype(np.float32))
    low = tg.param(ROWS.astype(np.float32))
    tg.sum(elementwise.astype(low, float)).backward()
    assert low.grad.dtype == np.float32 and (low.grad == 1.0).all()


def test_astype_forward_mode():
    _, t = tg.jvp(lambda x: elementwise.astype(x, "float32") * 2, (ROWS,), (ROWS,))
    assert t.dtype == np.float32
    np.testing.assert_array_equal(t, 2 * ROWS.astype(np.float32))


def test_bfloat16_keeps_eight_bits():
    pytest.importorskip("ml_dtypes")
    x = tg.param([1.0, 1.0 + 2**-8, 1.0 + 3 * 2**-8, 0.1, -np.inf])
    y = x.astype("bfloat16")  # ties go to the even neighbour
    assert y.dtype == np.float32
    np.testing.assert_array_equal(y, [1.0, 1.0, 1.0 + 2**-6, 0.10009765625, -np.inf])
    np.testing.assert_array_equal(tg.gradients(tg.sum(y), x)[0], np.ones(5))
    _, t = tg.jvp(lambda x: x.astype("bfloat16"), (np.ones(1),), (np.array([0.1]),))
    np.testing.assert_array_equal(t, np.float32([0.1]))


def test_bfloat16_needs_ml_dtypes(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match="astype: .* pip install ml_dtypes"):
        tg.tensor(1.0).astype("bfloat16")


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_rounding_in_steps_batches_and_whole_numbers(kind):
    dtype = np.float16 if kind == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    step = tg.compile(lambda x: x.astype(kind) * 3.0)
    for i in range(4):
        x = np.linspace(-1.0, 1.0, 7) / (i + 1)
        np.testing.assert_array_equal(step(x), x.astype(dtype).astype(np.float32) * np.float32(3))
    assert step.traces == 1
    rows = tg.vmap(lambda x: x.astype(kind))(np.full((2, 3), 0.1))
    np.testing.assert_array_equal(rows, np.full((2, 3), dtype(0.1), np.float32))
    counts = tg.tensor(np.array([1, 4097])).astype(kind)
    np.testing.assert_array_equal(counts, [1.0, 4096.0])


def test_astype_to_what_has_no_gradient():
    for dtype in (int, bool, np.int32, "uint8"):
        out = elementwise.astype(tg.param(abs(ROWS)), dtype)
        assert not out.requires_grad
        np.testing.assert_array_equal(out.numpy(), abs(ROWS).astype(dtype), strict=True)


def test_astype_without_a_copy():
    x = tg.param(ROWS)
    assert elementwise.astype(x, float, copy=False) is x
    assert elementwise.astype(x, float) is not x


@pytest.mark.skipif(not hasattr(np, "astype"), reason="NumPy 2.1 brought astype")
def test_numpys_astype():
    assert np.astype(tg.param(ROWS), np.float32).requires_grad


def test_real_and_imaginary_parts():
    x = tg.param(ROWS)
    assert np.real(x) is x
    np.testing.assert_array_equal(np.imag(x).numpy(), np.zeros_like(ROWS))


@pytest.mark.parametrize("function", [np.round, np.around])
@pytest.mark.parametrize("decimals", [0, 1, 2, -1])
def test_round(function, decimals, backend):
    x = tg.param(ROWS * 7)
    out = function(x, decimals)
    np.testing.assert_array_equal(out.numpy(), np.round(ROWS * 7, decimals))
    (out * x).backward()
    np.testing.assert_allclose(x.grad, out.numpy(), rtol=1e-15)
    assert tg.last_backward().backend == backend
    np.testing.assert_array_equal(function(x, decimals=decimals).numpy(), out.numpy())


def test_lists_are_constants():
    assert elementwise.round([0.5, 1.5]).data.tolist() == [0.0, 2.0]
    assert elementwise.copy([1, 2]).data.tolist() == [1, 2]
    assert elementwise.ones_like([[1, 2]]).data.tolist() == [[1, 1]]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x: elementwise.astype(x * 1j, float), TypeError, ["astype", "complex128", ".real"]),
        (lambda x: elementwise.astype(x * 1j, "float16"), TypeError, ["complex128 for float16"]),
        (lambda x: elementwise.astype(x, "O"), TypeError, ["astype", "object"]),
        (lambda x: elementwise.astype(x, "nonsense"), TypeError, ["astype", "'nonsense'"]),
        (lambda x: np.zeros_like(x, dtype="M8[D]"), TypeError, ["zeros_like", "datetime64"]),
        (lambda x: np.ones_like(x, order="F"), TypeError, ["numpy.ones_like", "order='F'"]),
        (lambda x: np.zeros_like(x, shape=1.5), TypeError, ["zeros_like", "shape", "1.5"]),
        (lambda x: np.full_like(x, [1.0, 2.0]), ValueError, ["full_like", "(2,)", "(2, 3)"]),
        (lambda x: np.full_like(x, np.ones((4, 2, 3))), ValueError, ["full_like", "(4, 2, 3)"]),
        (lambda x: np.copy(x, order="F"), TypeError, ["numpy.copy", "order='F'"]),
        (lambda x: np.round(x, 1.5), TypeError, ["round", "decimals", "1.5"]),
        (lambda x: np.round(x, (1, 2)), TypeError, ["round", "decimals"]),
        (lambda x: np.round(x, out=np.zeros((2, 3))), TypeError, ["numpy.round", "out="]),
        (lambda x: elementwise.real("a"), TypeError, ["real", "'a'"]),
        (lambda x: elementwise.imag("a"), TypeError, ["imag", "'a'"]),
    ],
)
def test_errors_of_likes_and_conversions(call, kind, words):
    x = tg.param(ROWS)
    with pytest.raises(kind) as caught:
        call(x)
    for word in words:
        assert word in str(caught.value)
