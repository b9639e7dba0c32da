"""VJP rules: the functions of ``tg.special``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ops.special import bessel_i_of, bessel_j_of, of_scipy, polygamma_of
from tapegraph.typed import Array

_HALF_ROOT_PI = math.sqrt(math.pi) / 2.0


_ROOT_HALF = math.sqrt(0.5)


def _polygamma(g: Any, y: Array, x: Array, *, n: int) -> Any:
    return g * polygamma_of(n + 1, x)


def _betaln(g: Any, a: Any, b: Any) -> Any:
    return g * (polygamma_of(0, a) - polygamma_of(0, a + b))


def _beta(g: Any, y: Array, a: Any, b: Any) -> Any:
    return g * (y * (polygamma_of(0, a) - polygamma_of(0, a + b)))


def _log_ndtr(g: Any, y: Array, x: Array) -> Any:
    # The density over the distribution; each of them underflows far below zero.
    return g * ((_ROOT_HALF / _HALF_ROOT_PI) / of_scipy("erfcx")(x * -_ROOT_HALF))


def _by_log(g: Any, logarithm: Any, dtype: Any, x: Any, y: Any, shift: float) -> Any:
    """Gradient of ``x log(shift + y)`` by ``x``, computed in the result's dtype."""
    flat = (x == 0) & (shift + y <= 0)
    inner = np.where(flat, 1, np.asarray(y, dtype))
    return g * np.where(flat, 0, logarithm(inner))


def _by_inner(g: Any, x: Any, inner: Any) -> Any:
    """Gradient of ``x log(inner)`` by ``inner``."""
    return g * (x / np.where(x == 0, 1.0, inner))


def _bessel_i(g: Any, y: Array, x: Array, *, n: int) -> Any:
    return g * (
        bessel_i_of(1, x) if n == 0 else 0.5 * (bessel_i_of(n - 1, x) + bessel_i_of(n + 1, x))
    )


def _bessel_j(g: Any, y: Array, x: Array, *, n: int) -> Any:
    return g * (
        -bessel_j_of(1, x) if n == 0 else 0.5 * (bessel_j_of(n - 1, x) - bessel_j_of(n + 1, x))
    )


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "erf": (lambda g, y, x: g * np.exp(-x * x) / _HALF_ROOT_PI,),
    "erfc": (lambda g, y, x: -g * np.exp(-x * x) / _HALF_ROOT_PI,),
    "erfinv": (lambda g, y, x: g * (_HALF_ROOT_PI * np.exp(y * y)),),
    "gamma": (lambda g, y, x: g * (y * polygamma_of(0, x)),),
    "gammaln": (lambda g, y, x: g * polygamma_of(0, x),),
    "polygamma": (_polygamma,),
    "betaln": (lambda g, y, a, b: _betaln(g, a, b), lambda g, y, a, b: _betaln(g, b, a)),
    "beta": (lambda g, y, a, b: _beta(g, y, a, b), lambda g, y, a, b: _beta(g, y, b, a)),
    "gammasgn": (lambda g, y, x: np.zeros_like(x),),
    "erfcx": (lambda g, y, x: g * (2.0 * x * y - 1.0 / _HALF_ROOT_PI),),
    "log_ndtr": (_log_ndtr,),
    "xlogy": (
        lambda g, y, a, b: _by_log(g, np.log, y.dtype, a, b, 0.0),
        lambda g, y, a, b: _by_inner(g, a, b),
    ),
    "xlog1py": (
        lambda g, y, a, b: _by_log(g, np.log1p, y.dtype, a, b, 1.0),
        lambda g, y, a, b: _by_inner(g, a, 1.0 + b),
    ),
    "entr": (lambda g, y, x: g * (-np.log(x) - 1.0),),
    "bessel_i": (_bessel_i,),
    "bessel_j": (_bessel_j,),
}
