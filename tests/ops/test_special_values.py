"""NumPy's numbers at NaN, infinities and outliers, its dtypes, and its keywords."""

from __future__ import annotations

import functools
import operator
import warnings

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.testing import check_gradients
from tests.quick import in_one
from tests.same_bits import same_bits

inf, nan = np.inf, np.nan
F = np.float32
X = np.array([[1.0, 2.0, 4.0], [3.0, 9.0, 1.5]])
MASK = np.array([[True, False, True], [False, True, True]])
KNOTS = np.array([0.0, 1.0, 2.0])


def select(conditions, choices, default):
    """NumPy's own does not look for tensors in the default."""
    ours = isinstance(default, tg.Tensor)
    return (tg.select if ours else np.select)(conditions, choices, default)


def same(call, *arrays):
    """Compare a call on parameters with the same call on arrays: bits, shape and dtype."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want, got = call(*arrays), call(*map(tg.param, arrays))
    if not isinstance(want, (tuple, list)):
        want, got = (want,), (got,)
    for ours, theirs in zip(got, want, strict=True):
        same_bits(np.asarray(getattr(ours, "data", ours)), np.asarray(theirs))


# ------------------------------------------------------------------ differences and places

FIELDS = (
    [0.0, 1e17, 1.0, 2.0, 3.0],
    [1.0, nan, 3.0, 5.0, 7.0],
    [1.0, inf, 2.0, 3.0, -inf],
    F([0.0, 1e9, 1.0, 2.0]),
    [1.0 + 2j, complex(nan, 1.0), 3.0, complex(0.0, inf)],
)


@in_one("field", FIELDS, ids=str)
def test_gradient_of_outliers_and_missing_values(field):
    f = np.array(field)
    n = len(f)
    uneven = np.array([0.0, 0.5, 2.0, 2.25, 4.0])[:n]
    for spacing in ((), (2,), (0.3,), (F(0.3),), (0.5 * np.arange(n),), (uneven,)):
        for order in (1, 2):
            same(lambda f, s=spacing, o=order: np.gradient(f, *s, edge_order=o), f)


@pytest.mark.one_in(2, of="tensorflow", start=1)
def test_gradient_has_its_derivative_by_field_spacing_and_places(backend):
    places = np.array([0.0, 0.5, 2.0, 2.25])
    for order in (1, 2):
        rise = functools.partial(tg.gradient, edge_order=order)
        check_gradients(lambda f, rise=rise: rise(f, 0.4), X[0] + 0.1)
        check_gradients(rise, X[0], np.array(0.4))
        # Of even places too, by which the formula for even ones has another derivative.
        for p in (places, np.arange(4.0)):
            f = np.array([1.0, 4.0, 2.0, 7.0])
            check_gradients(rise, f, p)


def test_gradient_wants_places_for_every_axis():
    with pytest.raises(TypeError, match="gradient: received 1 spacings for 2 axes"):
        tg.gradient(X, np.arange(3.0))


@in_one("q", (0, 1, 0.25, 0.5, 0.8, 1.0, [0.3, 0.6], F(0.3), np.float64(0.3), np.int64(1)), ids=str)
def test_quantiles_beside_infinities(q):
    for row in ([3.0, inf, 1.0, -inf], [-inf, 1.0, 2.0, 4.0, 5.0], F([-inf, 1.0, 2.0]), [1, 7, 4]):
        with np.errstate(all="ignore"):
            want = np.quantile(row, q)
            got = np.quantile(tg.tensor(row), q)
            known = ~np.isnan(want)  # where it goes no way NumPy multiplies infinity by 0
            if np.lib.NumpyVersion(np.__version__) >= "2.4.0":
                assert got.dtype == want.dtype
                np.testing.assert_array_equal(got.data[known], want[known])
            else:  # it computed in the array's precision
                np.testing.assert_allclose(got.data[known], want[known], rtol=1e-6)
            hundredth = np.percentile(tg.tensor(row), np.multiply(q, 100)).data
    assert not np.isnan(hundredth).any()


def test_quantiles_between_equal_infinities_and_at_an_element():
    x = tg.param([1.0, 2.0, inf, inf])
    y = np.quantile(x, [1 / 3, 0.9])
    y.backward()
    np.testing.assert_array_equal(y.data, [2.0, inf])
    np.testing.assert_array_equal(x.grad, [0.0, 1.0, 1.0, 0.0])


INTERPOLATED = (
    [1.0, inf, 5.0],
    [1.0, nan, 5.0],
    [inf, inf, 5.0],
    [-0.0, -0.0, -1.0],
    [1.0 + 2.0j, complex(0.0, inf), 5.0],
)


@in_one("values", INTERPOLATED, ids=str)
def test_interpolation_beside_infinities_and_missing_values(values):
    places = np.array([0.0, 1.0, 2.0, 0.5, 1.5, -1.0, 3.0, nan, -0.0, 0.1, 0.7])
    for knots in (KNOTS, np.array([-inf, 1.0, inf]), np.array([0.0, 1.0, 1.0])):
        same(lambda x, fp, k=knots: np.interp(x, k, fp), places, np.array(values))
        same(lambda xp, fp: np.interp(places, xp, fp), knots, np.array(values))


def test_interpolation_has_the_slope_to_the_right_of_a_knot(backend):
    x = tg.param([0.0, 0.5, 1.0, 2.0, 3.0])
    fp = tg.param([1.0, 3.0, inf])
    with np.errstate(all="ignore"):
        y = tg.interp(x, KNOTS, fp)
        y.backward()
    np.testing.assert_array_equal(y.data, [1.0, 2.0, 3.0, inf, inf])
    np.testing.assert_array_equal(x.grad, [2.0, 2.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(fp.grad, [1.5, 1.5, 2.0])
    check_gradients(
        lambda x, xp, fp: tg.interp(x, xp, fp),
        np.array([0.2, 1.7]),
        KNOTS,
        np.array([1.0, 3.0, 2.0]),
    )


# ------------------------------------------------------------------ single values

Z = np.array([complex(0, inf), 1e-310j, complex(inf, inf), complex(-inf, nan), 3 - 4j, 0])
CALLS = {
    "median": lambda: same(np.median, np.array([1 + 1j, nan, 3.0, 4.0])),
    "angle": lambda: same(np.angle, np.array([inf, -inf, -0.0, 0.0, nan, -2.0])),
    "angle-degrees": lambda: same(lambda x: np.angle(x, deg=True), F([inf, -0.0, -1.0])),
    "sign": lambda: same(np.sign, Z),
    "nan_to_num": lambda: same(np.nan_to_num, Z),
    "no-coefficients": lambda: same(lambda x: np.polyval([], x), np.array([inf, 1.0])),
    "coefficient": lambda: same(lambda x: np.polyval([3], x), np.array([1.0, inf])),
    "of-float64": lambda: same(lambda p: np.polyval(p, X[0]), F([2.0])),
    "of-complex": lambda: same(lambda p: np.polyval(p, X[0] * 1j), np.array([2.0, 1.0])),
    "rows": lambda: same(lambda p: np.polyval(p, 2.0), X),
    "nowhere": lambda: same(lambda x: np.linspace(x, x, 7), F(0.1)),
    "linspace": lambda: same(lambda x: np.linspace(x, 0.7, 7), np.array(0.1)),
    "open": lambda: same(lambda x: np.linspace(x, 0.7, 7, endpoint=False), np.array(0.1)),
    "subnormal": lambda: same(lambda x: np.linspace(x, 0.0, 9), np.array([5e-324, 1.0])),
    "one": lambda: same(lambda x: np.linspace(x, 3.0, 1, retstep=True), np.array([inf, 1.0])),
    "complex": lambda: same(lambda x: np.linspace(x, 1j, 4, device="cpu"), F([0.1, 0.2])),
    "select": lambda: same(lambda x: np.select([MASK, ~MASK], [x, 1.0]), F(X)),
    "select-default": lambda: same(lambda x: select([MASK], [2], x), F(X)),
    "choose": lambda: same(lambda x: np.choose([1, 0, 1], [x, 2.0]), F(X)),
    "choose-wrap": lambda: same(lambda x: np.choose([5, -1, 0], [x, 2], mode="wrap"), X),
    "choose-clip": lambda: same(lambda x: np.choose([5, -1, 0], [x, 2], mode="clip"), X),
    "average": lambda: same(lambda x: np.average(x, 1, [True, False, True], returned=True), F(X)),
    "cov": lambda: same(lambda x: np.cov(x, dtype=F), X),
    "valid": lambda: same(lambda x: np.convolve(x, [1.0, 2.0], 0), X[0]),
    "same": lambda: same(lambda x: np.convolve(x, [1.0, 2.0], 1), X[0]),
    "trace": lambda: same(lambda x: np.trace(x, dtype=F), X),
}


@in_one("name", CALLS, ids=str)
def test_single_values_are_numpys(name):
    CALLS[name]()


def test_sign_of_complex_numbers_has_its_gradient(backend):
    def turned(z):
        return tg.sum(tg.real(tg.sign(z) * (1.0 - 2.0j)))

    z = tg.param(np.array([1.0 - 2.0j, 0.3 + 0.1j]))
    turned(z).backward()
    at, unit = z.data, z.data / np.abs(z.data)
    along = np.conj(unit) * (1.0 + 2.0j)  # only what turns counts
    np.testing.assert_allclose(z.grad, unit * 1j * along.imag / np.abs(at), rtol=1e-12)


def test_linspace_is_linear_in_both_ends(backend):
    first, last = tg.param([0.0, 1.0]), tg.param([2.0, 1.0])
    tg.linspace(first, last, 5).backward(np.arange(10.0).reshape(5, 2))
    shares, seeds = np.arange(5)[:, None] / 4, np.arange(10.0).reshape(5, 2)
    np.testing.assert_allclose(last.grad, (shares * seeds).sum(0))
    np.testing.assert_allclose(first.grad, ((1 - shares) * seeds).sum(0))


# ------------------------------------------------------------------ least squares


def test_least_squares_are_as_near_as_numpys():
    powers = np.vander(np.linspace(0.0, 1.0, 30), 13)
    y = powers @ np.ones(13)
    x, residuals, rank, s = tg.lstsq(tg.param(powers), y)
    same_bits(x.data, np.linalg.lstsq(powers, y, rcond=None)[0])
    assert np.linalg.norm(powers @ x.data - y) < 1e-12
    assert residuals.item() < 1e-24
    assert rank == 13 and s.shape == (13,)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_least_squares_of_few_digits_has_the_rank_that_numpy_finds(dtype):
    # Singular values of which the second is more than float64's rounding, and less than float32's.
    a = np.array([[3.0, 8388608.0], [3.0, -1.25], [0.5, 0.5], [-1.25, 0.5]], dtype)
    b = np.arange(4.0).astype(dtype)
    x, _, rank, s = tg.lstsq(tg.param(a), b)
    want, _, _, values = np.linalg.lstsq(a, b, rcond=None)
    same_bits(x.data, want)
    assert rank == 2
    assert s.dtype == values.dtype
    np.testing.assert_allclose(s.data, values, rtol=1e-6)
    # Of b the gradient of sum(x) is that of the pseudo-inverse in float64.
    slope = tg.grad(lambda b: np.sum(np.real(tg.lstsq(a, b)[0])))(b)
    np.testing.assert_allclose(slope, np.sum(np.linalg.pinv(a.astype(complex)), 0).real, rtol=1e-5)


@pytest.mark.parametrize("rcond", [None, 0.3], ids=["full", "cut"])
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (3, 3)], ids=str)
@pytest.mark.one_in(10, of="tensorflow")
def test_gradients_of_least_squares(shape, rcond, backend):
    rng = np.random.default_rng(3)
    u, _, vh = np.linalg.svd(rng.normal(size=shape), full_matrices=False)
    a = (u * [3.0, 3.0, 0.5]) @ vh  # two singular values are equal
    if rcond:
        a = (u * [3.0, 3.0, 0.0]) @ vh
        b = rng.normal(size=(shape[0], 2))
        x, y = tg.param(a), tg.param(b)
        tg.lstsq(x, y, rcond=rcond)[0].backward()
        other, right = tg.param(a), tg.param(b)
        tg.matmul(tg.pinv(other, rcond), right).backward()
        np.testing.assert_allclose(x.grad, other.grad, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(y.grad, right.grad, rtol=1e-9, atol=1e-12)
        return
    solution = lambda a, b: tg.lstsq(a, b)[0]  # noqa: E731
    check_gradients(solution, a, rng.normal(size=(shape[0], 2)))
    primals, tangents = (
        (a, rng.normal(size=shape[0])),
        (rng.normal(size=shape), rng.normal(size=shape[0])),
    )
    by_pinv = tg.jvp(lambda a, b: tg.matmul(tg.pinv(a), b), primals, tangents)[1]
    np.testing.assert_allclose(tg.jvp(solution, primals, tangents)[1], by_pinv, rtol=1e-9)


CUTTING = {
    "pinv": lambda a, b: np.sin(np.linalg.pinv(a, rcond=0.3) @ b),
    "lstsq": lambda a, b: np.sin(np.linalg.lstsq(a, b, rcond=0.3)[0]),
}


def of_singular_values(shape, values, turned=0.0):
    rng = np.random.default_rng(3)
    a = rng.normal(size=shape) + turned * rng.normal(size=shape)
    u, _, vh = np.linalg.svd(a, full_matrices=False)
    return (u * values) @ vh, rng.normal(size=(shape[0], 2))


def by_differences(f, a, along, step=1e-5):
    return (f(a + step * along) - f(a - step * along)) / (2 * step)


@in_one("values", [(3.0, 2.0, 0.5), (2.0, 2.0, 0.5), (2.0, 0.5, 0.5), (3.0, 2.0, 1.5)], ids=str)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (3, 3)], ids=str)
@pytest.mark.parametrize("name", CUTTING)
@pytest.mark.one_in(10, of="tensorflow")
def test_gradients_where_singular_values_are_cut(name, shape, values, backend):
    f, (a, b) = CUTTING[name], of_singular_values(shape, values)
    check_gradients(f, a, b)
    check_gradients(f, of_singular_values(shape, values, 1j)[0], b, backend="native")
    along = np.random.default_rng(4).normal(size=shape)
    wanted = by_differences(lambda a: f(a, b), a, along)
    np.testing.assert_allclose(tg.jvp(lambda a: f(a, b), (a,), (along,))[1], wanted, 1e-6, 1e-8)


@pytest.mark.parametrize("name", CUTTING)
@pytest.mark.one_in(2, of="tensorflow")
def test_second_derivatives_where_singular_values_are_cut(name, engine, thorough):
    total = lambda a, b: np.sum(CUTTING[name](a, b))  # noqa: E731
    along, other = np.random.default_rng(4).normal(size=(2, 4, 4))
    first = lambda a: np.sum(tg.grad(total)(a, b) * along)  # noqa: E731
    step = tg.compile(tg.grad(first))  # one program for all
    of = [(3.0, 2.0, 0.5, 0.1), (2.0, 2.0, 0.5, 0.5), (3.0, 2.0, 0.0, 0.0), (3.0, 2.0, 1.5, 1.5)]
    for values in of if thorough else of[1:3]:
        a, b = of_singular_values((4, 4), values)
        wanted = by_differences(first, a, other)
        for slope in (tg.grad(first), step):
            np.testing.assert_allclose(np.sum(slope(a) * other), wanted, rtol=1e-6)


def test_third_derivatives_where_singular_values_are_cut():
    a, b = of_singular_values((3, 3), (2.0, 0.5, 0.0))
    along = np.random.default_rng(4).normal(size=(3, 3))
    line = lambda t: np.sum(CUTTING["pinv"](a + t * along, b))  # noqa: E731
    second = tg.grad(tg.grad(line))
    wanted = (second(1e-4) - second(-1e-4)) / 2e-4
    np.testing.assert_allclose(tg.grad(second)(0.0), wanted, rtol=1e-5)


def test_each_matrix_of_a_stack_has_its_cut(backend):
    some = [(3.0, 2.0, 0.5), (3.0, 2.0, 1.5), (3.0, 0.4, 0.5)]
    matrices = np.stack([of_singular_values((4, 3), values)[0] for values in some])
    b = of_singular_values((4, 3), some[0])[1]
    found = tg.param(matrices)
    np.sum(CUTTING["pinv"](found, b)).backward()
    each = [tg.grad(lambda a: np.sum(CUTTING["lstsq"](a, b)))(a) for a in matrices]
    np.testing.assert_allclose(found.grad, each, rtol=1e-9, atol=1e-12)


# ------------------------------------------------------------------ what NumPy refuses

REFUSED = {
    "fweights with fractions": (TypeError, lambda: tg.cov(X, fweights=[1.5, 2, 3])),
    "ddof=0.5": (ValueError, lambda: tg.cov(X, ddof=0.5)),
    "quantile: received complex": (TypeError, lambda: tg.quantile(X + 1j, 0.5)),
    "percentile: received complex": (TypeError, lambda: tg.percentile(X, 50 + 1j)),
    "interp: received complex": (TypeError, lambda: tg.interp(1j, KNOTS, KNOTS)),
    "deg2rad: received complex": (TypeError, lambda: np.radians(tg.param([1j]))),
    "rad2deg: received complex": (TypeError, lambda: tg.rad2deg(1j)),
    "num_classes=-1": (ValueError, lambda: tg.one_hot(np.zeros(0, int), -1)),
    r"rfftn: received axes \(\)": (ValueError, lambda: np.fft.rfftn(tg.param(X), axes=())),
    r"irfftn: received axes \(0, 0\)": (ValueError, lambda: tg.fft.irfftn(X, axes=(0, 0))),
    "a poly1d": (TypeError, lambda: np.polyval(tg.param([1.0, 2.0]), np.poly1d([1, 2]))),
    "0-d array for 'p'": (TypeError, lambda: tg.polyval(3.0, X)),
    "device='cuda'": (ValueError, lambda: tg.linspace(0.0, 1.0, 3, device="cuda")),
    "mode='nearest'": (ValueError, lambda: tg.choose([0], [1.0], mode="nearest")),
    "mode=3": (ValueError, lambda: tg.convolve(X[0], X[1], 3)),
    "a mask of int64.*mask != 0": (
        TypeError,
        lambda: tg.scaled_dot_product_attention(X, X, X, np.array([[1, 0], [1, 1]])),
    ),
}


@in_one("text", REFUSED, ids=str)
def test_what_numpy_refuses_is_refused_by_name(text):
    kind, call = REFUSED[text]
    with pytest.raises(kind, match=text):
        call()


# ------------------------------------------------------------------ keywords of reductions

REDUCED = (np.sum, np.prod, np.mean, np.var, np.std)
OPTIONS = ({}, {"axis": 1}, {"axis": 0, "keepdims": True}, {"axis": (1, 0)})


@in_one("function", REDUCED, ids=operator.attrgetter("__name__"))
def test_reductions_take_a_mask_a_start_and_a_dtype(function):
    for options in OPTIONS:
        reduced = {"where": MASK, **options}
        same(lambda x, o=reduced: function(x, **o), X)
        same(lambda x, o=options: function(x, dtype=F, **o), X)
        same(lambda x, o=options: function(x, dtype=np.float64, **o), F(X))
        check_gradients(lambda x, o=reduced: function(x, **o), X)
    same(lambda x: function(x, where=False), X)
    same(lambda x: function(x, 1, where=[True, False, True]), np.where(MASK, X, nan).T.copy().T)


@in_one("function", (np.sum, np.prod, np.max, np.min), ids=operator.attrgetter("__name__"))
def test_reductions_start_from_a_number(function):
    for options in OPTIONS:
        given = {"where": MASK, "initial": 2.5, **options}
        same(lambda x, o=given: function(x, **o), X)
        same(lambda x, o=given: function(x, **o), F(X))
        same(lambda x, o=given: function(x[:0], **{**o, "where": True}), X)
    check_gradients(lambda x, s: function(x, axis=1, initial=s, where=MASK), X, np.array(2.25))


@in_one("function", (np.var, np.std), ids=operator.attrgetter("__name__"))
def test_spreads_take_a_correction_and_a_mean(function):
    middle = np.array([[2.0], [3.5]])
    for ddof in (0, 1, 1.5):
        same(lambda x, d=ddof: function(x, axis=1, correction=d), X)
        same(lambda x, d=ddof: function(x, axis=1, ddof=d, where=MASK), X)
        same(lambda x, m, d=ddof: function(x, axis=1, mean=m, ddof=d), X, middle)
    check_gradients(lambda x, m: function(x, axis=1, mean=m, where=MASK), X, middle)


def test_running_sums_take_a_dtype():
    for function in (np.cumsum, np.cumprod):
        same(lambda x, f=function: f(x, axis=1, dtype=F), X)
        same(lambda x, f=function: f(x, dtype=np.complex128), X)


def test_keywords_of_reductions_in_a_compiled_step(backend):
    w = tg.param(X)

    @tg.compile
    def step(x, mask, start):
        y = tg.sum(w * x, 1, where=mask, initial=start) + tg.var(w * x, 1, where=mask)
        y = y + tg.max(w * x, 1, where=mask, initial=start)
        z = tg.sum(y * tg.quantile(w * x, 0.3, axis=1))
        w.zero_grad()
        z.backward()
        return z.detach(), w.grad

    def eager(x, mask, start):
        return step.__wrapped__(x, mask, start)

    for i in range(6):
        x, mask, start = X + 0.25 * i, np.roll(MASK, i, 1), np.array(1.0 + i)
        got = step(x, mask, start)
        want = eager(x, mask, start)
        for ours, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-12)
