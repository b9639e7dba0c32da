"""`tg.special`: against SciPy, and without it."""

from __future__ import annotations

import math
import sys
import types

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import special
from tapegraph.recording.numpy_functions import COUNTERPARTS

# SciPy's ufuncs of one array, and the operation that each records.
OF_ONE = {
    "erf": "erf",
    "erfc": "erfc",
    "erfcx": "erfcx",
    "erfinv": "erfinv",
    "gamma": "gamma",
    "gammaln": "gammaln",
    "gammasgn": "gammasgn",
    "loggamma": "gammaln",
    "psi": "polygamma",
    "digamma": "polygamma",
    "expit": "sigmoid",
    "logit": "log1p",
    "log_expit": "logaddexp",
    "ndtr": "erfc",
    "log_ndtr": "log_ndtr",
    "entr": "entr",
    "i0": "bessel_i",
    "i1": "bessel_i",
    "j0": "bessel_j",
    "j1": "bessel_j",
}
OF_TWO = ("beta", "betaln", "xlogy", "xlog1py")
WITHOUT_SCIPY = (
    *("expit", "logit", "log_expit", "softplus", "log_softmax", "logsumexp", "entr"),
    *("xlogy", "xlog1py"),
)
NEEDS_SCIPY = sorted({*OF_ONE, *OF_TWO} - set(WITHOUT_SCIPY))
X = np.array([[0.1, 0.5, 0.9], [0.2, 0.4, 0.7]])
Y = np.array([0.3, 4.0, 100.0])
inf, nan = math.inf, math.nan


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")


@pytest.fixture
def scipy_special():
    return pytest.importorskip("scipy.special")


def test_log_softmax_of_small_integers_does_not_wrap():
    for dtype in (np.uint8, np.int8, np.int64):
        given = np.array([0, 5, 120], dtype)
        for function in (special.log_softmax, special.logsumexp):
            np.testing.assert_array_equal(function(given).data, function(given * 1.0).data)


def close(dtype):
    if dtype == np.float64:
        return {"rtol": 1e-14, "atol": 1e-15}
    return {"rtol": 1e-5, "atol": 1e-6}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", OF_ONE)
def test_scipys_ufunc_of_one_array_records(name, dtype, scipy_special):
    function, x = getattr(scipy_special, name), X.astype(dtype)
    leaf = tg.param(x)
    got = function(leaf)
    assert OF_ONE[name] in [entry.op for entry in tg.tape()]
    np.testing.assert_allclose(got.numpy(), function(x), strict=True, **close(dtype))
    ours = getattr(special, name)(tg.param(x))
    np.testing.assert_array_equal(ours.numpy(), got.numpy())
    got.backward()
    value, tangent = tg.jvp(function, (x,), (np.ones_like(x),))
    assert leaf.grad.dtype == tangent.dtype == value.dtype == dtype
    np.testing.assert_allclose(tangent, leaf.grad, **close(dtype))
    if dtype == np.float64:
        tg.testing.check_gradients(function, x, backend="native")


@pytest.mark.parametrize("name", OF_TWO)
def test_scipys_ufunc_of_two_arrays_records(name, scipy_special):
    function = getattr(scipy_special, name)
    for args in ((X, Y), (Y, X), (X, 2.5), (2.5, X), (X, 3), ([1.0, 2.0, 3.0], X)):
        got = function(*(tg.param(a) if a is X else a for a in args))
        np.testing.assert_allclose(got.numpy(), function(*args), rtol=1e-12, strict=True)
        assert got.requires_grad
        tg.testing.check_gradients(
            lambda x, args=args: function(*(x if a is X else a for a in args)), X, backend="native"
        )
    low = X.astype(np.float32)
    assert function(tg.param(low), 2.5).dtype == function(2, tg.param(low)).dtype == np.float32
    outer = function.outer(tg.param(X), Y)
    np.testing.assert_allclose(outer.numpy(), function.outer(X, Y), rtol=1e-12, strict=True)
    with pytest.raises(ValueError, match=rf"{name}: .*\(2,\) and \(3,\)"):
        function(tg.param([1.0, 2.0]), Y)


def test_scipys_ufuncs_nest_in_both_modes(scipy_special):
    """Against d/dx I0 = I1, and I1'' = I1 + I0'' / x ... written out at one point."""
    i0, i1 = scipy_special.i0, scipy_special.i1
    x = 1.25
    assert tg.grad(i0)(x) == pytest.approx(i1(x), rel=1e-15)
    second = i0(x) - i1(x) / x
    assert tg.grad(tg.grad(i0))(x) == pytest.approx(second, rel=1e-14)
    leaf = tg.param(x)
    tg.grad(i0)(leaf).backward()
    assert leaf.grad.item() == pytest.approx(second, rel=1e-14)


def test_what_scipys_ufuncs_cannot_do_with_tensors(scipy_special):
    x = tg.param(X)
    for call, message in (
        (lambda: scipy_special.erf(x, out=np.empty_like(X)), r"scipy\.special\.erf: .*out="),
        (lambda: scipy_special.erf(x, where=X > 0.3), r"scipy\.special\.erf: .*where="),
        (lambda: scipy_special.struve(0, x), r"scipy\.special\.struve: .*no gradient.*tg\.defop"),
        (lambda: scipy_special.polygamma(1, x), r"tg\.special\.polygamma"),
    ):
        with pytest.raises(TypeError, match=message):
            call()


def test_a_namesake_from_elsewhere_is_not_taken_for_scipys(monkeypatch):
    erf = pytest.importorskip("scipy.special").erf
    monkeypatch.delitem(COUNTERPARTS, erf, raising=False)
    monkeypatch.setitem(sys.modules, "scipy.special", types.ModuleType("scipy.special"))
    with pytest.raises(TypeError, match="erf: .*no gradient"):
        erf(tg.param(X))


def test_a_users_own_rule_goes_before_ours(scipy_special, monkeypatch):
    monkeypatch.delitem(COUNTERPARTS, scipy_special.entr, raising=False)
    monkeypatch.setattr("tapegraph.recording.op.DEFINED", {})
    tg.defop(scipy_special.entr, name="own_entr", vjp=lambda g, y, x: g * 42.0)
    x = tg.param(X)
    scipy_special.entr(x).backward()
    np.testing.assert_array_equal(x.grad, np.full_like(X, 42.0))
    del COUNTERPARTS[scipy_special.entr]


@pytest.mark.parametrize("name", ["beta", "betaln"])
def test_beta(name, scipy_special):
    a, b = np.array([[0.5], [2.0], [-1.5]]), Y
    got, want = getattr(special, name)(tg.param(a), b), getattr(scipy_special, name)(a, b)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


def test_polygamma(scipy_special):
    for n in range(4):
        got = special.polygamma(n, tg.param(X))
        np.testing.assert_allclose(got.numpy(), scipy_special.polygamma(n, X), rtol=1e-13)
    assert special.polygamma(1, tg.param(X.astype(np.float32))).dtype == np.float32
    with pytest.raises(TypeError, match=r"polygamma: .*1\.5"):
        special.polygamma(1.5, X)
    with pytest.raises(ValueError, match="n=-1"):
        special.polygamma(-1, X)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1)])
def test_sums_of_exponentials(axis, scipy_special):
    for name in ("log_softmax", "logsumexp"):
        for shift in (0.0, 1000.0, -1000.0):
            got = getattr(special, name)(tg.param(X + shift), axis=axis)
            want = getattr(scipy_special, name)(X + shift, axis=axis)
            np.testing.assert_allclose(got.numpy(), want, rtol=1e-13)
    with pytest.raises(ValueError, match="log_softmax: .*axis 2"):
        special.log_softmax(tg.param(X), axis=2)


def test_softplus_is_linear_far_out():
    x = tg.param([-1000.0, 0.0, 1000.0])
    y = special.softplus(x)
    y.backward()
    np.testing.assert_allclose(y.numpy(), [0.0, np.log(2.0), 1000.0])
    np.testing.assert_allclose(x.grad, [0.0, 0.5, 1.0], atol=1e-300)


def test_masked_logits_of_minus_infinity(backend):
    x = tg.param([1.0, 2.0, -np.inf])
    np.where(np.array([True, True, False]), special.log_softmax(x), 0.0).backward()
    p = np.exp([1.0, 2.0]) / np.exp([1.0, 2.0]).sum()
    np.testing.assert_allclose(x.grad, [*(1.0 - 2.0 * p), 0.0], rtol=1e-12, atol=1e-15)


# ------------------------------------------------------------------ far out, at 0 and at ends


def mills_ratio(x):
    """Sum the density over the distribution of the normal far below zero, by its series."""
    term, total = 1.0, 0.0
    for k in range(1, 10):
        total, term = total + term, -term * (2 * k - 1) / (x * x)
    return -x / total


def test_log_ndtr_far_in_the_tails(scipy_special):
    x = np.array([-1e8, -1e4, -300.0, -40.0])
    leaf = tg.param(x)
    y = special.log_ndtr(leaf)
    y.backward()
    np.testing.assert_allclose(leaf.grad, list(map(mills_ratio, x)), rtol=1e-14)
    # The distribution is the density over that ratio.
    ratios = np.log(list(map(mills_ratio, x)))
    np.testing.assert_allclose(y.data, -x * x / 2 - math.log(2 * math.pi) / 2 - ratios, rtol=1e-14)
    above = tg.param([8.0, 40.0])
    special.log_ndtr(above).backward()
    density = np.exp(-(above.data**2) / 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(above.grad, density, rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "series"),
    [
        # The derivatives at 0 of every order, from the series of each.
        ("i0", [1.0, 0.0, 1 / 2, 0.0, 3 / 8, 0.0]),
        ("i1", [0.0, 1 / 2, 0.0, 3 / 8, 0.0, 5 / 16]),
        ("j0", [1.0, 0.0, -1 / 2, 0.0, 3 / 8, 0.0]),
        ("j1", [0.0, 1 / 2, 0.0, -3 / 8, 0.0, 5 / 16]),
    ],
)
def test_bessel_functions_at_zero_to_any_order(name, series, scipy_special):
    f = getattr(special, name)
    for want in series:
        assert tg.jvp(f, (0.0,), (0.0,))[0] == pytest.approx(want)
        f = tg.grad(f)


def test_log_expit_keeps_its_digits_on_both_sides(backend):
    x = tg.param([-1000.0, -30.0, 30.0, 1000.0])
    y = special.log_expit(x)
    y.backward()
    tail = math.exp(-30.0)
    np.testing.assert_allclose(y.data, [-1000.0, -30.0 - tail, -math.log1p(tail), 0.0], rtol=1e-15)
    np.testing.assert_allclose(x.grad, [1.0, 1 / (1 + tail), tail / (1 + tail), 0.0], rtol=1e-14)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_nothing_times_its_logarithm(name, backend):
    """A probability of 0 under a model that gives it 0 costs nothing, and pulls at nothing."""
    shift = 1.0 if name == "xlog1py" else 0.0
    p, q = tg.param([0.0, 0.25, 0.75]), tg.param(np.array([0.0, 0.5, 0.5]) - shift)
    loss = -np.sum(getattr(special, name)(p, q))
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2.0))
    np.testing.assert_allclose(p.grad, [0.0, math.log(2.0), math.log(2.0)])
    np.testing.assert_allclose(q.grad, [0.0, -0.5, -1.5])


@pytest.mark.one_in(2, of="tensorflow")
@pytest.mark.parametrize(
    ("f", "point", "slope"),
    [
        (lambda x: special.entr(x), 0.0, -math.log(0.5) - 1.0),
        (lambda x: special.xlogy(1.0, x), 0.0, 2.0),
        (lambda x: special.xlog1py(1.0, x - 1.0), 0.0, 2.0),
        (lambda x: special.xlogy(x, 0.0 * x), 1.0, -inf),
        (lambda x: special.logit(x), 0.0, 4.0),
    ],
)
def test_a_zero_cotangent_stays_zero_at_a_singular_point(f, point, slope, backend):
    x = tg.param([point, 0.5])
    with np.errstate(all="ignore"):
        np.where(np.array([False, np.isfinite(slope)]), f(x), 0.0).backward()
    np.testing.assert_allclose(x.grad, [0.0, slope if np.isfinite(slope) else 0.0])


# ------------------------------------------------------------------ without SciPy


@pytest.mark.parametrize("name", NEEDS_SCIPY)
def test_without_scipy_the_message_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    arguments = (X, X) if name in OF_TWO else (X,)
    with pytest.raises(ImportError, match=r"special\.\w+: .*pip install scipy"):
        getattr(special, name)(*map(tg.param, arguments))


def test_what_needs_no_scipy_does_not_import_it(run_python):
    """Values and slopes at 1/4 (of log_softmax and logsumexp those of one element)."""
    done = run_python(
        f"""
        import math, sys
        import tapegraph as tg

        found = {{}}
        for name in {WITHOUT_SCIPY}:
            x = tg.param([0.25])
            others = ([0.5],) if name.startswith("xlog") else ()
            y = getattr(tg.special, name)(x, *others)
            tg.sum(y).backward()
            found[name] = float(tg.sum(y).data), x.grad[0]
        s = 1 / (1 + math.exp(-0.25))
        expected = {{
            "expit": (s, s * (1 - s)),
            "logit": (math.log(1 / 3), 16 / 3),
            "log_expit": (math.log(s), 1 - s),
            "softplus": (-math.log(1 - s), s),
            "log_softmax": (0.0, 0.0),
            "logsumexp": (0.25, 1.0),
            "entr": (-0.25 * math.log(0.25), -math.log(0.25) - 1),
            "xlogy": (0.25 * math.log(0.5), math.log(0.5)),
            "xlog1py": (0.25 * math.log(1.5), math.log(1.5)),
        }}
        for name, pair in found.items():
            for got, want in zip(pair, expected[name], strict=True):
                assert abs(got - want) < 1e-15, (name, got, want)
        print(len(found), [m for m in sys.modules if m.split(".")[0] == "scipy"])
        """
    )
    assert done.stdout.split() == ["9", "[]"], done.stderr
