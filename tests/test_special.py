"""`tg.special`: against SciPy, and without it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tapegraph as tg
from tapegraph.ops import special

NEEDS_SCIPY = ["erf", "erfc", "erfinv", "gamma", "gammaln", "digamma", "beta", "betaln", "ndtr"]
X = np.array([[0.1, 0.5, 0.9], [0.2, 0.4, 0.7]])


@pytest.fixture(autouse=True)
def native_engine():
    tg.set_backend("native")


@pytest.fixture
def scipy_special():
    return pytest.importorskip("scipy.special")


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "name",
    ["erf", "erfc", "erfinv", "gamma", "gammaln", "digamma", "psi", "expit", "logit", "ndtr"],
)
def test_functions_of_one_array(name, dtype, scipy_special):
    x = X.astype(dtype)
    got, want = getattr(special, name)(tg.param(x)), getattr(scipy_special, name)(x)
    close = {"rtol": 1e-14, "atol": 1e-15} if dtype == np.float64 else {"rtol": 1e-5, "atol": 1e-6}
    np.testing.assert_allclose(got.numpy(), want, strict=True, **close)
    assert got.requires_grad


@pytest.mark.parametrize("name", ["beta", "betaln"])
def test_beta(name, scipy_special):
    a, b = np.array([[0.5], [2.0], [-1.5]]), np.array([0.3, 4.0, 100.0])
    got, want = getattr(special, name)(tg.param(a), b), getattr(scipy_special, name)(a, b)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)
    with pytest.raises(ValueError, match=r"betaln: .*\(2,\) and \(3,\)"):
        getattr(special, name)(tg.param([1.0, 2.0]), b)


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


@pytest.mark.parametrize("name", NEEDS_SCIPY)
def test_without_scipy_the_message_says_what_to_install(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    arguments = (X, X) if name.startswith("beta") else (X,)
    with pytest.raises(ImportError, match=r"special\.\w+: .*pip install scipy"):
        getattr(special, name)(*map(tg.param, arguments))


@pytest.mark.parametrize("name", ["expit", "logit", "softplus", "log_softmax", "logsumexp"])
def test_what_needs_no_scipy(name, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    getattr(special, name)(tg.param(X)).backward()


def test_scipys_own_ufuncs_are_known(scipy_special):
    for name in ("erf", "erfinv", "gammaln", "beta", "expit", "ndtr"):
        assert special.recording(getattr(scipy_special, name)) is getattr(special, name)
    assert special.recording(scipy_special.digamma) is special.digamma
    assert special.recording(scipy_special.j0) is None
    assert special.recording(np.exp) is None
