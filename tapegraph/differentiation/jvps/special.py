"""JVP rules: the functions of ``tg.special``."""

from __future__ import annotations

import math
from typing import Any

from tapegraph.differentiation.jvps.rules import Rule, each, over, times, value
from tapegraph.ops.elementwise import astype, exp, log, log1p, where
from tapegraph.ops.special import BESSEL_I, BESSEL_J, bessel, digamma, erfcx, polygamma

_HALF_ROOT_PI = math.sqrt(math.pi) / 2.0


_ROOT_HALF = math.sqrt(0.5)


def _polygamma(t: Any, y: Any, x: Any, *, n: int) -> Any:
    return times(t, polygamma(n + 1, x))


def _betaln(t: Any, a: Any, b: Any) -> Any:
    return times(t, digamma(a) - digamma(a + b))


def _beta(t: Any, y: Any, a: Any, b: Any) -> Any:
    return times(t, y * (digamma(a) - digamma(a + b)))


def _log_ndtr(t: Any, y: Any, x: Any) -> Any:
    return times(t, (_ROOT_HALF / _HALF_ROOT_PI) / erfcx(x * -_ROOT_HALF))


def _by_log(t: Any, logarithm: Any, dtype: Any, x: Any, y: Any, shift: float) -> Any:
    """Tangent of ``x log(shift + y)`` through ``x``, computed in the result's dtype."""
    y = astype(y, dtype, copy=False)
    flat = (value(x) == 0) & (value(y) + shift <= 0)
    return times(t, where(flat, 0.0, logarithm(where(flat, 1.0, y))))


def _by_inner(t: Any, x: Any, inner: Any) -> Any:
    """Tangent of ``x log(inner)`` through ``inner``."""
    return over(times(t, x), inner)


def _bessel_i(t: Any, y: Any, x: Any, *, n: int) -> Any:
    if n == 0:
        return times(t, bessel(BESSEL_I, 1, x))
    return times(t, 0.5 * (bessel(BESSEL_I, n - 1, x) + bessel(BESSEL_I, n + 1, x)))


def _bessel_j(t: Any, y: Any, x: Any, *, n: int) -> Any:
    if n == 0:
        return times(-t, bessel(BESSEL_J, 1, x))
    return times(t, 0.5 * (bessel(BESSEL_J, n - 1, x) - bessel(BESSEL_J, n + 1, x)))


JVPS: dict[str, Rule] = {
    "erf": each(lambda t, y, x: times(t, exp(-x * x) / _HALF_ROOT_PI)),
    "erfc": each(lambda t, y, x: times(-t, exp(-x * x) / _HALF_ROOT_PI)),
    "erfinv": each(lambda t, y, x: times(t, _HALF_ROOT_PI * exp(y * y))),
    "gamma": each(lambda t, y, x: times(t, y * digamma(x))),
    "gammaln": each(lambda t, y, x: times(t, digamma(x))),
    "polygamma": each(_polygamma),
    "betaln": each(lambda t, y, a, b: _betaln(t, a, b), lambda t, y, a, b: _betaln(t, b, a)),
    "beta": each(lambda t, y, a, b: _beta(t, y, a, b), lambda t, y, a, b: _beta(t, y, b, a)),
    "gammasgn": each(lambda t, y, x: None),
    "erfcx": each(lambda t, y, x: times(t, 2.0 * x * y - 1.0 / _HALF_ROOT_PI)),
    "log_ndtr": each(_log_ndtr),
    "xlogy": each(
        lambda t, y, a, b: _by_log(t, log, y.dtype, a, b, 0.0),
        lambda t, y, a, b: _by_inner(t, a, b),
    ),
    "xlog1py": each(
        lambda t, y, a, b: _by_log(t, log1p, y.dtype, a, b, 1.0),
        lambda t, y, a, b: _by_inner(t, a, 1.0 + b),
    ),
    "entr": each(lambda t, y, x: times(t, -log(x) - 1.0)),
    "bessel_i": each(_bessel_i),
    "bessel_j": each(_bessel_j),
}
