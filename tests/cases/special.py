"""Cases: ``tg.special``; those of SciPy's functions where it is installed."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import special
from tapegraph.typed import Array
from tests.cases.case import Case, Input, anywhere, exactly, inf, positive
from tests.cases.pairs import pairs

nan = math.nan
HAS_SCIPY = importlib.util.find_spec("scipy") is not None


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    if HAS_SCIPY:
        yield from _of_scipy()
    yield from _logistic()
    yield from _logarithms()
    yield from _log_softmaxes()


def probability(*lengths: int) -> Input:
    """Sample from [0.1, 0.9)."""
    return lambda rng: rng.uniform(0.1, 0.9, lengths)


def _each(function: Callable[[float], float]) -> Callable[..., Any]:
    """Run one of `math`'s functions on every element."""
    return lambda x: np.vectorize(function, otypes=[np.float64])(x)


def _trigamma(x: Array) -> Any:
    """Sum the series of the trigamma function, and its tail by Euler and Maclaurin."""
    k = np.arange(1000.0).reshape(-1, *([1] * x.ndim))
    end = x + 1000.0
    tail = 1.0 / end + 0.5 / end**2 + 1.0 / (6.0 * end**3)
    return np.sum(1.0 / (x + k) ** 2, axis=0) + tail


def _digamma(x: Array) -> Any:
    """Climb to large arguments, and take the asymptotic series there."""
    k = np.arange(50.0).reshape(-1, *([1] * x.ndim))
    end = x + 50.0
    series = 1 / (12 * end**2) - 1 / (120 * end**4) + 1 / (252 * end**6)
    return np.log(end) - 0.5 / end - series - np.sum(1.0 / (x + k), axis=0)


def _series(term: Callable[[float, int], float]) -> Callable[..., Any]:
    """Sum a power series at every element."""
    return _each(lambda x: math.fsum(term(x, k) for k in range(40)))


def _bessel(n: int, sign: float) -> Callable[..., Any]:
    """Sum the series of a Bessel function, whose terms alternate or not."""
    return _series(
        lambda x, k: sign**k * (x / 2) ** (2 * k + n) / (math.factorial(k) * math.factorial(k + n))
    )


def _mills(x: float) -> float:
    """Return the density of the normal over its distribution far below zero, by its series."""
    term, total = 1.0, 0.0
    for k in range(1, 12):
        total += term
        term *= -(2 * k - 1) / (x * x)
    return -x / total


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def _of_scipy() -> Iterator[Case]:
    for op, function, reference, domain in (
        ("erf", special.erf, _each(math.erf), anywhere),
        ("erfc", special.erfc, _each(math.erfc), anywhere),
        ("erfc", special.ndtr, _each(_normal), anywhere),
        ("erfcx", special.erfcx, _each(lambda x: math.exp(x * x) * math.erfc(x)), anywhere),
        ("log_ndtr", special.log_ndtr, _each(lambda x: math.log(_normal(x))), anywhere),
        ("gamma", special.gamma, _each(math.gamma), positive),
        ("gammaln", special.gammaln, _each(math.lgamma), positive),
        ("gammaln", special.loggamma, _each(math.lgamma), positive),
        (
            "gammasgn",
            special.gammasgn,
            _each(lambda x: math.copysign(1.0, math.gamma(x))),
            positive,
        ),
        ("polygamma", special.digamma, _digamma, positive),
        ("polygamma", partial(special.polygamma, 1), _trigamma, positive),
        ("erf", lambda x: special.erf(special.erfinv(x)), lambda x: x, probability),
        ("erfinv", lambda x: special.erfinv(special.erf(x)), lambda x: x, probability),
        ("bessel_i", special.i0, _bessel(0, 1.0), anywhere),
        ("bessel_i", special.i1, _bessel(1, 1.0), anywhere),
        ("bessel_j", special.j0, _bessel(0, -1.0), anywhere),
        ("bessel_j", special.j1, _bessel(1, -1.0), anywhere),
    ):
        name = getattr(function, "__name__", "trigamma").strip("<>")
        for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
            yield Case(op, f"{name}-{label}", function, (domain(*lengths),), reference=reference)
    yield from pairs("betaln", special.betaln, lambda a, b: np.log(_beta(a, b)), positive, positive)
    yield from pairs("beta", special.beta, _beta, positive, positive)
    below = exactly([-0.5, -1.5, -2.25, 170.0])
    few = exactly([-0.5, -1.5, -2.25, 8.0])
    for function, point, reference in (
        (special.gammaln, below, _each(math.lgamma)),
        (special.gamma, few, _each(math.gamma)),
        (special.gammasgn, few, lambda x: np.array([-1.0, 1.0, -1.0, 1.0], x.dtype)),
    ):
        yield Case(function.__name__, "below-zero", function, (point,), reference=reference)
    yield Case(
        "beta",
        "below-zero",
        special.beta,
        (exactly([-0.5, -1.3]), exactly([0.25, 2.5])),
        reference=_beta,
    )
    for op, label, function, numbers, slopes in (
        ("erfinv", "ends", special.erfinv, [-1.0, 1.0], [inf, inf]),
        ("erf", "far", special.erf, [-100.0, 100.0], [0.0, 0.0]),
        (
            "log_ndtr",
            "far",
            special.log_ndtr,
            [-40.0, -1e4, 40.0],
            [_mills(-40.0), _mills(-1e4), 0.0],
        ),
        ("gammaln", "zero", special.gammaln, [0.0, 1.0], [-inf, -np.euler_gamma]),
        ("gammaln", "loggamma-below-zero", special.loggamma, [-0.5, 1.0], [nan, -np.euler_gamma]),
        ("gamma", "zero", special.gamma, [0.0, 1.0], [-inf, -np.euler_gamma]),
        ("polygamma", "digamma-zero", special.digamma, [0.0, 1.0], [inf, math.pi**2 / 6]),
        ("beta", "zero", lambda x: special.beta(x, 1.0), [0.0, 2.0], [-inf, -0.25]),
        ("bessel_i", "i0-zero-and-far", special.i0, [0.0, -800.0, 800.0], [0.0, -inf, inf]),
        ("bessel_i", "i1-zero-and-far", special.i1, [0.0, -800.0, 800.0], [0.5, inf, inf]),
        ("bessel_j", "j0-zero", special.j0, [0.0, -0.0], [0.0, 0.0]),
        ("bessel_j", "j1-zero", special.j1, [0.0, -0.0, 1e-30], [0.5, 0.5, 0.5]),
    ):
        yield Case(op, label, function, (exactly(numbers),), expected=(slopes,))


def _beta(a: Array, b: Array) -> Any:
    gamma = _each(math.gamma)
    return gamma(a) * gamma(b) / gamma(a + b)


def _logistic() -> Iterator[Case]:
    for op, function, reference, domain in (
        ("sigmoid", special.expit, lambda x: 1 / (1 + np.exp(-x)), anywhere),
        ("log1p", special.logit, lambda x: np.log(x / (1 - x)), probability),
        ("logaddexp", special.softplus, lambda x: np.log(1 + np.exp(x)), anywhere),
        ("logaddexp", special.log_expit, lambda x: -np.log(1 + np.exp(-x)), anywhere),
    ):
        for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
            label = f"{function.__name__}-{label}"
            yield Case(op, label, function, (domain(*lengths),), reference=reference)
    yield Case("log", "logit-ends", special.logit, (exactly([0.0, 1.0]),), expected=([inf, inf],))
    yield Case(
        "logaddexp",
        "softplus-far",
        special.softplus,
        (exactly([-1000.0, 0.0, 1000.0]),),
        expected=([0.0, 0.5, 1.0],),
    )


def _logarithms() -> Iterator[Case]:
    yield from pairs("xlogy", special.xlogy, lambda x, y: x * np.log(y), anywhere, positive)
    yield from pairs("xlog1py", special.xlog1py, lambda x, y: x * np.log(1 + y), anywhere, positive)
    factors = [0.0, -0.0, 1.0, 0.0, 2.0]
    ln2 = math.log(2.0)
    for function, y in (
        (special.xlogy, [0.0, 2.0, 1.0, -1.0, 0.5]),
        (special.xlog1py, [-1.0, 1.0, 0.0, -2.0, -0.5]),
    ):
        slopes = [0.0, ln2, 0.0, 0.0, -ln2], [0.0, 0.0, 1.0, 0.0, 4.0]
        inputs = exactly(factors), exactly(y)
        yield Case(
            function.__name__,
            "zeros",
            function,
            inputs,
            reference=lambda x, y: np.array([0.0, 0.0, 0.0, 0.0, -2.0 * ln2]),
            expected=slopes,
        )
    for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
        yield Case(
            "entr",
            label,
            special.entr,
            (positive(*lengths),),
            reference=lambda x: -x * np.log(x),
        )
    yield Case(
        "entr",
        "ends",
        special.entr,
        (exactly([0.0, 1.0, -1.0, 2.0]),),
        reference=lambda x: np.array([0.0, 0.0, -inf, -2.0 * ln2]),
        expected=([inf, -1.0, nan, -1.0 - ln2],),
    )


def _log_softmaxes() -> Iterator[Case]:
    for label, lengths, axis in (
        ("all", (2, 3), None),
        ("0d", (), None),
        ("first", (2, 3), 0),
        ("last", (2, 3, 2), -1),
        ("two", (2, 3, 2), (0, 2)),
        ("no-rows", (0, 3), -1),
    ):
        yield Case(
            "exp",
            f"log_softmax-{label}",
            partial(special.log_softmax, axis=axis),
            (anywhere(*lengths),),
            reference=partial(_log_softmax, axis=axis),
        )
    yield Case(
        "exp",
        "log_softmax-far",
        lambda x: special.log_softmax(x)[1:],
        (exactly([-inf, 1000.0, 1000.0]),),
        expected=([0.0, 0.0, 0.0],),
    )


def _log_softmax(x: Array, axis: Any) -> Any:
    return x - np.log(np.sum(np.exp(x), axis=axis, keepdims=True))
