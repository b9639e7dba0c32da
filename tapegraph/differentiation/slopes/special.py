"""Slopes: the functions of ``tg.special``."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from tapegraph.differentiation.slopes.rules import FLAT, Slopes, converted, either
from tapegraph.ops import special
from tapegraph.ops.special import BESSEL_I, BESSEL_J, bessel, bessel_i_of, bessel_j_of, of_scipy

_HALF_ROOT_PI = math.sqrt(math.pi) / 2.0
_ROOT_HALF = math.sqrt(0.5)

_polygamma = either(special.polygamma_of, special.polygamma)
_erfcx = either(lambda x: of_scipy("erfcx")(x), special.erfcx)
_bessel_i = either(bessel_i_of, partial(bessel, BESSEL_I))
_bessel_j = either(bessel_j_of, partial(bessel, BESSEL_J))


def _beta(y: Any, a: Any, b: Any) -> Any:
    """Slope of ``log |beta(a, b)|`` by ``a``."""
    return _polygamma(0, converted(a, y)) - _polygamma(0, a + b)


def _log_ndtr(y: Any, x: Any) -> Any:
    # The density over the distribution; each of them underflows far below zero.
    return (_ROOT_HALF / _HALF_ROOT_PI) / _erfcx(x * -_ROOT_HALF)


def _by_factor(logarithm: Any, y: Any, x: Any, inner: Any, shift: float) -> Any:
    """Slope of ``x log(shift + inner)`` by ``x``."""
    inner = converted(inner, y)
    flat = (x == 0) & (inner + shift <= 0)
    return np.where(flat, 0.0, logarithm(np.where(flat, 1.0, inner)))


def _by_inner(x: Any, inner: Any) -> Any:
    """Slope of ``x log(inner)`` by ``inner``."""
    flat = (x == 0) & ((inner == 0) | np.isnan(inner))
    return x / np.where(flat, 1.0, inner)


def _of_bessel_i(y: Any, x: Any, *, n: int) -> Any:
    return _bessel_i(1, x) if n == 0 else 0.5 * (_bessel_i(n - 1, x) + _bessel_i(n + 1, x))


def _of_bessel_j(y: Any, x: Any, *, n: int) -> Any:
    return -_bessel_j(1, x) if n == 0 else 0.5 * (_bessel_j(n - 1, x) - _bessel_j(n + 1, x))


SLOPES: Slopes = {
    "erf": (lambda y, x: np.exp(-x * x) / _HALF_ROOT_PI,),
    "erfc": (lambda y, x: np.exp(-x * x) / -_HALF_ROOT_PI,),
    "erfinv": (lambda y, x: _HALF_ROOT_PI * np.exp(y * y),),
    "gamma": (lambda y, x: y * _polygamma(0, x),),
    "gammaln": (lambda y, x: _polygamma(0, x),),
    "polygamma": (lambda y, x, *, n: _polygamma(n + 1, x),),
    "betaln": (lambda y, a, b: _beta(y, a, b), lambda y, a, b: _beta(y, b, a)),
    "beta": (lambda y, a, b: y * _beta(y, a, b), lambda y, a, b: y * _beta(y, b, a)),
    "gammasgn": (FLAT,),
    "erfcx": (lambda y, x: 2.0 * x * y - 1.0 / _HALF_ROOT_PI,),
    "log_ndtr": (_log_ndtr,),
    "xlogy": (
        lambda y, a, b: _by_factor(np.log, y, a, b, 0.0),
        lambda y, a, b: _by_inner(a, b),
    ),
    "xlog1py": (
        lambda y, a, b: _by_factor(np.log1p, y, a, b, 1.0),
        lambda y, a, b: _by_inner(a, 1.0 + b),
    ),
    "entr": (lambda y, x: -np.log(x) - 1.0,),
    "bessel_i": (_of_bessel_i,),
    "bessel_j": (_of_bessel_j,),
}
