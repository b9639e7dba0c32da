"""Grids, polynomials, interpolation, differences and statistics against NumPy's own.

Values by NumPy's name and by ours, gradients and second derivatives against finite differences,
both engines, a compiled step, float32, and what is refused.
"""

from __future__ import annotations

import numpy as np
import pytest

import tapegraph as tg
from tests.ops.test_networks import check_second

RNG = np.random.default_rng(7)
X, Y = np.array([[-0.7, 0.35], [1.6, 2.9]]), RNG.normal(size=(2, 2))
ROWS, MORE = RNG.normal(size=(3, 6)), RNG.normal(size=(2, 6))
KNOTS, VALUES = np.array([-0.5, 0.2, 1.0, 2.5]), RNG.normal(size=4)
TURNING = np.array([2.5, 0.2, -0.5, 5.0])  # in no order, one outside the period
FIELD = RNG.normal(size=(4, 5))
PLACES = np.array([0.0, 0.5, 0.7, 2.0, 2.1])
TIMES, WEIGHTS = np.array([1, 2, 0, 3, 1, 1]), np.array([0.5, 1.0, 2.0, 0.1, 0.0, 1.0])

# Calls of NumPy's functions, with the arrays that they are differentiated in.
CASES = {
    "linspace": (lambda a, b: np.linspace(a, b, 4), (X, Y)),
    "linspace, along an axis": (lambda a, b: np.linspace(a, b[0], 3, False, axis=1), (X, Y)),
    "linspace, its step": (lambda a: np.linspace(a, 2.0, 5, retstep=True)[1], (X,)),
    "meshgrid": (lambda a, b: np.meshgrid(a, b)[0] + np.meshgrid(a, b)[1], (X[0], ROWS[0])),
    "meshgrid, sparse": (
        lambda a: np.meshgrid(X[1], a, a, sparse=True, indexing="ij")[1] * 2.0,
        (ROWS[0],),
    ),
    "polyval": (lambda p, x: np.polyval(p, x), (VALUES, X)),
    "polyval of one": (lambda p, x: np.polyval(p, x) * x, (VALUES[:1], X)),
    "interp": (lambda x, xp, fp: np.interp(x, xp, fp), (X, KNOTS, VALUES)),
    "interp, outside": (lambda x, xp, fp: np.interp(x, xp, fp, -9.0, 9.0), (X, KNOTS, VALUES)),
    "interp, periodic": (
        lambda x, xp, fp: np.interp(x, xp, fp, period=3.5),
        (X, TURNING, VALUES),
    ),
    "interp of one": (lambda fp: np.interp(X, KNOTS[:1], fp), (VALUES[:1],)),
    "gradient": (lambda f: np.gradient(f, 0.5, axis=1), (FIELD,)),
    "gradient, parabolas": (lambda f: np.gradient(f, 0.5, axis=1, edge_order=2), (FIELD,)),
    "gradient at places": (
        lambda f, h: np.gradient(f, h, axis=1, edge_order=2),
        (FIELD, PLACES),
    ),
    "gradient along both axes": (
        lambda f: np.gradient(f, 2.0, PLACES)[1] + np.gradient(f, axis=(1, 0))[1],
        (FIELD,),
    ),
    "cov": (lambda m: np.cov(m), (ROWS,)),
    "cov of two, weighed": (
        lambda m, y: np.cov(m, y, fweights=TIMES, aweights=WEIGHTS),
        (ROWS, MORE),
    ),
    "cov of columns, biased": (lambda m: np.cov(m, rowvar=False, bias=True), (ROWS,)),
    "cov of one": (lambda m: np.cov(m, ddof=2, aweights=WEIGHTS), (ROWS[0],)),
    "corrcoef": (lambda x, y: np.corrcoef(x, y), (ROWS, MORE)),
    "corrcoef of one": (lambda x: np.corrcoef(x), (ROWS[0],)),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CASES)
def test_as_numpy_with_both_derivatives(name):
    f, arrays = CASES[name]
    got = f(*map(tg.param, arrays))
    assert type(got) is tg.Tensor
    np.testing.assert_allclose(got.data, f(*arrays), rtol=1e-12, atol=1e-14, strict=True)
    if name == "corrcoef of one":  # one whatever x is
        return
    tg.testing.check_gradients(f, *arrays)
    check_second(f, arrays)


@pytest.mark.parametrize("name", CASES)
def test_float32_stays_in_a_compiled_step_and_in_tensorflow(name):
    pytest.importorskip("tensorflow")
    f, arrays = CASES[name]
    given = [a.astype("float32") for a in arrays]
    expected = [tg.param(a) for a in arrays]
    with tg.use_backend("native"):
        tg.sum(tg.sin(f(*expected))).backward()
    for compiled in (False, True):
        leaves = [tg.param(a) for a in given]

        def sweep(leaves=leaves):
            out = f(*leaves)
            tg.sum(tg.sin(out)).backward()
            return out

        out = tg.compile(sweep)() if compiled else sweep()
        assert out.dtype == np.float32  # of NumPy's own some are float64
        for leaf, other in zip(leaves, expected, strict=True):
            np.testing.assert_allclose(leaf.grad, other.grad, rtol=2e-3, atol=2e-4)


def test_places_are_found_anew_in_every_run_of_a_compiled_step():
    fp = tg.param(VALUES)
    step = tg.compile(lambda x: tg.interp(x, KNOTS, fp, period=None))
    for x in (X, Y, X + 1.0):
        np.testing.assert_allclose(step(x).data, np.interp(x, KNOTS, VALUES), rtol=1e-12)
    assert step.traces == 1


FOLLOWED = {
    "linspace": lambda k: np.linspace(0.0, k, 4),
    "interp": lambda k: np.interp(k, KNOTS, VALUES),
    "polyval": lambda k: np.polyval(VALUES, k),
    "gradient": lambda k: tg.gradient(FIELD, k, axis=0),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_float_argument_of_a_compiled_step_is_not_frozen(name):
    f = FOLLOWED[name]
    step = tg.compile(lambda k: f(k) * 1.0)
    for k in (0.7, 1.3, 2.0):
        np.testing.assert_allclose(step(k).data, np.asarray(f(k)), rtol=1e-12)
    assert step.traces == 1


def test_at_the_ends_and_beyond():
    x = np.array([-np.inf, -0.5, 2.5, np.inf, np.nan])
    np.testing.assert_allclose(tg.interp(x, KNOTS, VALUES).data, np.interp(x, KNOTS, VALUES))
    assert tg.polyval([], 2.0).item() == 0.0
    assert tg.linspace(1.0, 2.0, 0).shape == (0,)
    assert tg.linspace(0, 3, 4, dtype=int).data.tolist() == [0, 1, 2, 3]


def test_counts_are_plain():
    x = tg.param(X)
    counts, edges = np.histogram(x, 3, weights=np.ones((2, 2)))
    assert type(counts) is type(edges) is np.ndarray
    np.testing.assert_array_equal(counts, np.histogram(X, 3)[0])
    np.testing.assert_array_equal(np.digitize(x, KNOTS), np.digitize(X, KNOTS))
    with pytest.raises(TypeError, match="weights that need a gradient"):
        np.histogram(X, weights=x)


REFUSED = {
    "num=-1": lambda: tg.linspace(0.0, 1.0, -1),
    "indexing='yx'": lambda: tg.meshgrid(X[0], indexing="yx"),
    r"fp of shape \(3,\)": lambda: tg.interp(X, KNOTS, VALUES[1:]),
    "period=0": lambda: tg.interp(X, KNOTS, VALUES, period=0),
    "edge_order=3": lambda: tg.gradient(FIELD, edge_order=3),
    "1 elements along axis 0": lambda: tg.gradient([1.0]),
    r"coordinates of shape \(5,\)": lambda: tg.gradient(FIELD, PLACES, axis=0),
    "1 observations with ddof=1": lambda: tg.cov([1.0]),
    r"aweights of shape \(2,\)": lambda: tg.cov(ROWS, aweights=[1.0, 2.0]),
    "at most two axes": lambda: tg.corrcoef(np.ones((2, 2, 2))),
}


@pytest.mark.parametrize("text", REFUSED)
def test_bad_input_is_refused(text):
    with pytest.raises(ValueError, match=text):
        REFUSED[text]()
    with pytest.raises(TypeError, match="3 spacings for 2 axes"):
        tg.gradient(FIELD, 1.0, 1.0, 1.0)
    with pytest.raises(TypeError, match="aweights that need a gradient"):
        tg.cov(ROWS, aweights=tg.param(WEIGHTS))


@pytest.mark.parametrize("places", [np.arange(5.0), np.arange(5.0) ** 2], ids=["even", "uneven"])
def test_gradient_at_plain_places_computes_one_formula(places):
    f = tg.param(places * 3.0)
    slopes = tg.gradient(f, places)
    assert "where" not in [entry.op for entry in tg.tape()]
    np.testing.assert_allclose(slopes.data, 3.0)
