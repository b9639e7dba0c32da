"""NumPy's reductions and statistics on tensors: values, signatures, and what is refused."""

from __future__ import annotations

import operator

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import reduce
from tests.quick import check_product, in_one

rng = np.random.default_rng(3)
X = rng.normal(size=(3, 4))
CUBE = rng.normal(size=(2, 3, 4))
HOLES = np.where(rng.random((4, 5)) < 0.3, np.nan, rng.normal(size=(4, 5)))
HOLES[:, 0] = 1.5  # no row is all NaN
WEIGHTS = rng.uniform(0.5, 1.5, (3, 4))
inf, nan = np.inf, np.nan

AXES = (
    {},
    {"axis": None},
    {"axis": 0},
    {"axis": -1},
    {"axis": (0, 1)},
    {"axis": (-1,)},
    {"keepdims": True},
    {"axis": 0, "keepdims": True},
    {"axis": (1, 0), "keepdims": True},
)
REDUCTIONS = [
    *(np.max, np.amax, np.min, np.amin, np.prod, np.sum, np.mean, np.ptp, np.median),
    *(np.var, np.std, np.average),
]
NAN_REDUCTIONS = [np.nansum, np.nanmean, np.nanmax, np.nanmin, np.nanvar, np.nanstd]


def check(call, *arrays):
    """Call on parameters and on their arrays, and compare: value, shape, dtype, a gradient."""
    tensors = [tg.param(a) for a in arrays]
    got, want = call(*tensors), np.asarray(call(*arrays))
    assert isinstance(got, tg.Tensor) and got.requires_grad
    tolerance = 1e-5 if want.dtype == np.float32 else 1e-13
    np.testing.assert_allclose(
        got.numpy(), want, rtol=tolerance, atol=tolerance, strict=want.ndim > 0
    )
    assert got.dtype == want.dtype
    got.backward()
    assert all(t.grad is not None for t in tensors)


@in_one("function", REDUCTIONS, ids=operator.attrgetter("__name__"))
def test_reductions(function):
    def reduces(options, dtype):
        check(lambda x: function(x, **options), X.astype(dtype))
        if "axis" in options:
            check(lambda x: function(x, options["axis"]), X.astype(dtype))

    check_product(reduces, AXES, [np.float64, np.float32])


@in_one("function", NAN_REDUCTIONS, ids=operator.attrgetter("__name__"))
def test_reductions_over_nan(function):
    check_product(lambda options, x: check(lambda x: function(x, **options), x), AXES, [HOLES, X])


@pytest.mark.parametrize("function", [np.var, np.std, np.nanvar, np.nanstd])
@pytest.mark.parametrize("ddof", [0, 1, 1.5])
def test_ddof(function, ddof):
    check(lambda x: function(x, axis=0, ddof=ddof), X)
    check(lambda x: function(x, ddof=ddof, keepdims=True), X)


def test_more_degrees_than_elements():
    one = np.ones((1, 2))
    for function in (np.var, np.std):
        with np.errstate(all="ignore"), pytest.warns(RuntimeWarning, match="Degrees"):
            want = function(one, axis=0, ddof=1)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(function(tg.param(one), axis=0, ddof=1).data, want)
    assert np.isnan(np.nanvar(tg.param(one), axis=0, ddof=1).data).all()


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("function", [np.var, np.std, np.nanvar, np.nanstd])
def test_one_element_has_no_spread_and_no_derivative(function, backend):
    x = np.array([[2.0, nan], [1.0, 4.0]]) if "nan" in function.__name__ else np.array([[2.0]])
    leaf = tg.param(x)
    with np.errstate(all="ignore"):
        function(leaf, axis=1, ddof=1).backward()
        tangent = tg.jvp(lambda x: function(x, axis=1, ddof=1), (x,), (np.ones_like(x),))[1]
    assert np.isnan(leaf.grad[0, 0]) and np.isnan(tangent[0])
    if len(x) > 1:  # the variance of two is half the square of their difference
        slope = 3.0 if function is np.nanvar else np.sqrt(0.5)
        np.testing.assert_allclose(leaf.grad[1], [-slope, slope], rtol=1e-12)
        np.testing.assert_allclose(tangent[1], 0.0, atol=1e-15)


def test_nothing_but_nan():
    x = tg.param([[nan, nan], [1.0, nan]])
    with np.errstate(all="ignore"):
        for function in (np.nanmax, np.nanmin, np.nanmean, np.nanvar, np.nanstd):
            out = function(x, axis=1)
            assert np.isnan(out.data[0]) and not np.isnan(out.data[1])
            x.zero_grad()
            out[1].backward()
            np.testing.assert_array_equal(x.grad[0], 0.0)
    assert np.nansum(x, axis=1).data.tolist() == [0.0, 1.0]


@pytest.mark.parametrize("function", [np.sum, np.prod, np.cumsum, np.cumprod])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.bool_, np.float32])
def test_a_dtype_holds_for_small_integers(function, dtype):
    counts = np.array([[100, 200, 3]], np.uint8)
    expected = function(counts, axis=1, dtype=dtype)
    got = function(tg.tensor(counts), axis=1, dtype=dtype)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("function", [np.cumsum, np.cumprod])
def test_running(function):
    check(function, X)
    check(function, np.array(2.0))
    for axis in (0, 1, -1, None):
        check(lambda x, axis=axis: function(x, axis=axis), X)
        check(lambda x, axis=axis: function(x, axis), X.astype(np.float32))


def test_reducing_a_single_number_gives_it_back():
    for ufunc in (np.add, np.multiply, np.maximum, np.minimum):
        x = tg.param(2.5)
        y = ufunc.reduce(x)
        y.backward()
        assert (y.shape, y.item(), x.grad.item()) == ((), 2.5, 1.0)
        assert tg.jvp(ufunc.reduce, (2.5,), (3.0,)) == (2.5, 3.0)


def test_methods_of_ufuncs():
    for ufunc in (np.maximum, np.minimum, np.multiply, np.add):
        check(ufunc.reduce, X)
        check(lambda x, ufunc=ufunc: ufunc.reduce(x, axis=None), X)
        check(lambda x, ufunc=ufunc: ufunc.reduce(x, axis=1, keepdims=True), X)
    for ufunc in (np.multiply, np.add):
        check(ufunc.accumulate, X)
        check(lambda x, ufunc=ufunc: ufunc.accumulate(x, axis=1), X)


def test_average():
    check(lambda x, w: np.average(x, weights=w), X, WEIGHTS)
    check(lambda x, w: np.average(x, 1, w), X, WEIGHTS)
    check(lambda x, w: np.average(x, axis=1, weights=w, keepdims=True), X, WEIGHTS[0])
    check(lambda x, w: np.average(x, axis=0, weights=w), X, WEIGHTS[:, 0])
    check(lambda x, w: np.average(x, axis=(2, 1), weights=w), CUBE, WEIGHTS.T)
    check(lambda x: np.average(x, axis=1, weights=[1, 2, 3, 4]), X)
    check(lambda w: np.average(X, weights=w), WEIGHTS)
    for options in ({}, {"axis": 0}, {"axis": 1, "weights": WEIGHTS[0]}, {"weights": WEIGHTS}):
        got = np.average(tg.param(X), returned=True, **options)
        want = np.average(X, returned=True, **options)
        assert isinstance(got, tuple)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(g.numpy(), w)
            assert g.shape == np.shape(w)


@pytest.mark.parametrize("n", [1, 2, 5, 6])
def test_median(n):
    check(np.median, rng.normal(size=n))
    check(lambda x: np.median(x, axis=(0, 2)), rng.normal(size=(n, 2, 3)))
    check(lambda x: np.median(x, axis=1, keepdims=True), rng.normal(size=(2, n)))
    check(np.median, np.append(rng.normal(size=n), nan))
    check(np.median, np.append(rng.normal(size=n), inf))


def test_median_of_nothing():
    with pytest.warns(RuntimeWarning, match="invalid value encountered"):
        assert np.isnan(np.median(tg.param(np.zeros(0))).data)


@pytest.mark.parametrize("function, whole", [(np.quantile, 1.0), (np.percentile, 100.0)])
def test_quantiles(function, whole):
    # Before 2.4 NumPy divided a float32 percentage in the precision of the array.
    single = [np.float32(0.4)] if np.lib.NumpyVersion(np.__version__) >= "2.4.0" else []
    for q in (0, 0.3, 1.0, [0.2, 0.5], np.array([[0.1], [0.9]]), *single):
        q = np.multiply(q, whole) if isinstance(q, (list, np.ndarray)) else type(q)(q * whole)
        for options in ({}, {"axis": 0}, {"axis": (0, 1)}, {"axis": 1, "keepdims": True}):
            check(lambda x, q=q, options=options: function(x, q, **options), X)
    check(lambda x: function(x, 0.5 * whole), X.astype(np.float32))
    check(lambda x: function(x, [0.5 * whole], axis=0, method="linear"), X.astype(np.float32))
    check(lambda x: function(x, 0.5 * whole), np.array([1.0, nan, 3.0]))


def test_diff():
    for options in (
        *({}, {"n": 0}, {"n": 2}, {"n": 7}, {"axis": 0}, {"axis": 0, "n": 2}),
        *({"prepend": 0.0}, {"append": 2}, {"prepend": X[:, :2], "append": X}),
    ):
        check(lambda x, options=options: np.diff(x, **options), X)
    check(lambda x: np.diff(x, 1, 0), X)
    check(lambda x, a: np.diff(x, prepend=a), X, X[:, :2])
    check(lambda x: np.diff(x, prepend=0), X.astype(np.float32))


def test_trapezoid():
    check(np.trapezoid, X)
    check(lambda y: np.trapezoid(y, dx=0.25, axis=0), X)
    check(lambda y, x: np.trapezoid(y, x), X, np.array([0.0, 1.0, 3.0, 3.5]))
    check(lambda y, x: np.trapezoid(y, x, axis=0), X, np.array([0.0, 1.0, 3.0]))
    check(lambda y, x: np.trapezoid(y, x, axis=1), CUBE, np.array([0.0, 1.0, 3.0]))
    check(lambda y, x: np.trapezoid(y, x), X, WEIGHTS)
    check(lambda x: np.trapezoid(X, x), WEIGHTS)
    check(lambda y: np.trapezoid(y, [0, 1, 2, 4]), X)


def test_logsumexp():
    special = pytest.importorskip("scipy.special")
    for options in AXES:
        got = reduce.logsumexp(tg.param(X), **options)
        np.testing.assert_allclose(got.numpy(), special.logsumexp(X, **options), rtol=1e-14)
    got = reduce.logsumexp(tg.param(X), axis=1, b=WEIGHTS)
    np.testing.assert_allclose(got.numpy(), special.logsumexp(X, axis=1, b=WEIGHTS), rtol=1e-14)


def test_logsumexp_does_not_overflow():
    assert reduce.logsumexp(tg.param([1e4, 1e4])).item() == 1e4 + np.log(2.0)
    assert reduce.logsumexp(tg.param([-inf, -inf])).item() == -inf
    assert reduce.logsumexp(tg.param(np.zeros((0,)))).item() == -inf
    assert reduce.logsumexp([1, 1]).item() == 1.0 + np.log(2.0)
    x = tg.param([[-inf, 0.0], [800.0, 800.0]])
    reduce.logsumexp(x, axis=1).backward()
    np.testing.assert_array_equal(x.grad, [[0.0, 1.0], [0.5, 0.5]])


def test_lists_arrays_and_integers_are_constants():
    for function in (
        reduce.max,
        reduce.prod,
        reduce.var,
        reduce.median,
        reduce.nanmean,
        reduce.ptp,
        reduce.nanmax,
    ):
        for given in ([[1, 2], [3, 5]], np.array([[1.0, 2.0], [3.0, 5.0]])):
            out = function(given, axis=0)
            assert isinstance(out, tg.Tensor) and not out.requires_grad
            want = getattr(np, function.__name__)(np.asarray(given), axis=0)
            np.testing.assert_allclose(out.numpy(), want, strict=True)


def test_a_median_of_many_axes_follows_the_chosen_element():
    x = tg.param([[[3.0, 1.0], [2.0, 9.0]], [[5.0, 5.0], [5.0, 4.0]]])
    np.median(x, axis=(1, 2)).backward()
    assert x.grad.sum(axis=(1, 2)).tolist() == [1.0, 1.0]
    assert x.grad[0].tolist() == [[0.5, 0.0], [0.5, 0.0]]


def test_the_graph_does_not_depend_on_the_data():
    for function in (np.std, np.nanstd, np.nanmax, np.median, np.max, np.prod, reduce.logsumexp):
        recorded = []
        for data in (X, np.zeros_like(X), np.where(X < 0, nan, X), np.full_like(X, nan)):
            tg.tape_reset()
            with np.errstate(all="ignore"):
                function(tg.param(data), axis=0)
            recorded.append([(entry.op, entry.inputs, dict(entry.attrs)) for entry in tg.tape()])
        assert all(ops == recorded[0] for ops in recorded)


# -- a zero cotangent contributes exactly zero -------------------------------------------------

MASKED = {
    "max": (lambda x: reduce.max(x, axis=1), [[inf, nan], [1.0, 2.0]], [0.0, 1.0]),
    "prod": (lambda x: reduce.prod(x, axis=1), [[inf, 0.0], [2.0, 3.0]], [3.0, 2.0]),
    "prod of nan": (lambda x: reduce.prod(x, axis=1), [[nan, 0.0], [2.0, 3.0]], [3.0, 2.0]),
    "cumprod": (lambda x: reduce.cumprod(x, axis=1), [[inf, nan], [2.0, 3.0]], [4.0, 2.0]),
    "std": (lambda x: reduce.std(x, axis=1), [[inf, nan], [1.0, 3.0]], [-0.5, 0.5]),
    "logsumexp": (lambda x: reduce.logsumexp(x, axis=1), [[-inf, -inf], [0.0, 0.0]], [0.5, 0.5]),
    "median": (lambda x: reduce.median(x, axis=1), [[nan, inf], [1.0, 3.0]], [0.5, 0.5]),
}


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", MASKED)
def test_zero_stays_zero(case, dtype, backend):
    f, point, second = MASKED[case]
    x = tg.param(np.array(point, dtype=dtype))
    with np.errstate(all="ignore"):
        tg.sum(f(x)[1]).backward()
    assert tg.last_backward().backend == backend
    np.testing.assert_array_equal(x.grad[0], 0.0)
    np.testing.assert_allclose(x.grad[1], second, rtol=1e-6)


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize("length", [1, 2, 3, 31, 32, 33])
def test_running_products_with_zeros_of_any_length(length, backend):
    data = rng.normal(size=(length, 2))
    data[:: max(2, length // 3), 0] = 0.0
    x, seed = tg.param(data), rng.normal(size=(length, 2))
    reduce.cumprod(x, axis=0).backward(seed)
    want = np.zeros_like(data)
    for k in range(length):
        for i in range(k + 1):
            others = np.delete(data[: k + 1], i, axis=0)
            want[i] += seed[k] * others.prod(axis=0)
    np.testing.assert_allclose(x.grad, want, rtol=1e-10, atol=1e-13)


# -- refused -----------------------------------------------------------------------------------


@in_one(
    ("call", "kind", "words"),
    [
        (lambda x: np.max(x, axis=2), ValueError, ["max", "axis 2"]),
        (lambda x: np.prod(x, axis=(0, -2)), ValueError, ["prod", "at most once"]),
        (lambda x: np.std(x, axis=5), ValueError, ["std", "axis 5"]),
        (lambda x: np.var(x, axis=1.5), TypeError, ["var", "axis", "1.5"]),
        (lambda x: np.var(x, ddof="a"), TypeError, ["var", "ddof", "'a'"]),
        (lambda x: np.cumsum(x, axis=2), ValueError, ["cumsum", "axis 2"]),
        (lambda x: np.max(x[:0]), ValueError, ["max", "(0, 4)", "at least one element"]),
        (lambda x: np.min(x[:, :0], axis=1), ValueError, ["min", "(3, 0)"]),
        (lambda x: np.ptp(x[:0]), ValueError, ["(0, 4)"]),
        (lambda x: np.max(x, where=X > 0), ValueError, ["max", "where=", "initial="]),
        (lambda x: np.sum(x, where=X), TypeError, ["sum", "float64", "'where'", "bools"]),
        (lambda x: np.sum(x, where=[[True]] * 4), ValueError, ["sum", "'where'", "(4, 1)"]),
        (lambda x: np.sum(x, initial=[1.0, 2.0]), ValueError, ["sum", "'initial'", "(2,)"]),
        (lambda x: np.var(x, ddof=1, correction=1), ValueError, ["var", "ddof=1", "correction=1"]),
        (lambda x: np.std(x, mean=np.zeros((2, 2))), ValueError, ["std", "'mean'", "(2, 2)"]),
        (lambda x: np.sum(x, axis=True), TypeError, ["sum", "axis=True"]),
        (lambda x: np.nanprod(x, dtype=np.float32), TypeError, ["numpy.nanprod"]),
        (lambda x: np.nansum(x, dtype=np.float32), TypeError, ["numpy.nansum", "dtype="]),
        (lambda x: np.max(x, out=np.zeros(())), TypeError, ["numpy.max", "out="]),
        (lambda x: np.cumsum(x, out=np.zeros(12)), TypeError, ["numpy.cumsum", "out="]),
        (lambda x: np.median(x, overwrite_input=True), TypeError, ["overwrite_input=True"]),
        (lambda x: np.quantile(x, 0.5, method="lower"), TypeError, ["method='lower'"]),
        (lambda x: np.quantile(x, 1.5), ValueError, ["quantile", "1.5", "0 to 1"]),
        (lambda x: np.percentile(x, [5, 101]), ValueError, ["percentile", "0 to 100"]),
        (lambda x: np.quantile(x, np.nan), ValueError, ["quantile", "nan"]),
        (lambda x: np.quantile(x[:0], 0.5), ValueError, ["quantile", "(0, 4)"]),
        (lambda x: np.quantile(x, x[0, 0]), TypeError, ["quantile", "'q'", "detach"]),
        (lambda x: np.diff(x[0, 0]), ValueError, ["diff", "0-d"]),
        (lambda x: np.diff(x, n=-1), ValueError, ["diff", "n=-1"]),
        (lambda x: np.diff(x, n=1.5), TypeError, ["diff", "'n'"]),
        (lambda x: np.diff(x, prepend=[1.0]), ValueError, ["diff", "prepend", "(1,)", "(3, 4)"]),
        (lambda x: np.average(x, weights=[1.0]), TypeError, ["average", "(1,)", "axis="]),
        (lambda x: np.average(x, 0, [1.0]), ValueError, ["average", "(1,)", "(3,)"]),
        (lambda x: np.average(x, 0, [1.0, -1.0, 0.0]), ZeroDivisionError, ["average", "zero"]),
        (
            lambda x: reduce.logsumexp(x, b=np.ones((2, 3, 4))),
            ValueError,
            ["logsumexp", "(2, 3, 4)"],
        ),
        (lambda x: reduce.logsumexp(x, b=np.ones(3)), ValueError, ["(3,)", "(3, 4)"]),
        (lambda x: reduce.max("a"), TypeError, ["max", "'a'"]),
        (lambda x: reduce.median(None), TypeError, ["median", "None"]),
        (lambda x: reduce.prod(tg.Value(1.0)), TypeError, ["prod", "Value"]),
    ],
)
def test_errors(call, kind, words):
    x = tg.param(X)
    with pytest.raises(kind) as caught:
        call(x)
    for word in words:
        assert word in str(caught.value)


def test_running_products_side_by_side_have_the_gradient_of_each():
    values = rng.uniform(-1.5, 1.5, (6, 500))
    values[rng.random(values.shape) < 0.2] = 0.0
    seed = rng.normal(size=values.shape)
    together = tg.param(values)
    tg.cumprod(together, 0).backward(seed)
    for column in (0, 1, 250, 499):
        alone = tg.param(values[:, column])  # which takes the other way through
        tg.cumprod(alone, 0).backward(seed[:, column])
        np.testing.assert_allclose(together.grad[:, column], alone.grad, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("row", [[1e-200, 1e-120, 1e200], [1e200, 1e200, 1e-300], [0.5, -2.0, 3.0]])
def test_the_gradient_of_a_product_is_that_of_the_others(row):
    x = tg.param(row)
    with np.errstate(all="ignore"):
        tg.prod(x).backward()
        a, b, c = row
        expected = [b * c, a * c, a * b]
    np.testing.assert_allclose(x.grad, expected, rtol=1e-15)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("length", range(1, 8))
def test_sums_of_many_short_rows_have_the_bits_of_numpy(length, dtype):
    x = np.random.default_rng(length).normal(size=(70, 40, length)).astype(dtype)
    x[3], x[4, 5] = -0.0, np.inf
    for given in (x, np.asfortranarray(x), x[::2, ::-1], -x.swapaxes(0, 1)):
        for keepdims in (False, True):
            got = tg.sum(given, axis=-1, keepdims=keepdims).data
            want = np.sum(given, axis=-1, keepdims=keepdims)
            np.testing.assert_array_equal(
                got.view(np.uint8), np.ascontiguousarray(want).view(np.uint8)
            )
