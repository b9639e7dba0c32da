"""Tangents of the operations of ``tapegraph/ops/transcendental.py``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.differentiation.jvps.rules import Rule, each, over, times, value
from tapegraph.ops.elementwise import cos, exp, sigmoid, sqrt
from tapegraph.ops.index import where
from tapegraph.ops.transcendental import LN2, LN10, SINC_NEAR, cosh, hypot, sinc_slope_series, sinh


def _sinc(t: Any, y: Any, x: Any) -> Any:
    near = np.abs(value(x)) < SINC_NEAR
    far = where(near, 1.0, x)
    direct = (cos(math.pi * far) - y) / far
    return times(t, where(near, sinc_slope_series(x), direct))


def _arctan2(t: Any, across: Any, a: Any, b: Any) -> Any:
    r = hypot(a, b)
    return times(over(t, r), across / r)


def _hypot(t: Any, y: Any, leg: Any) -> Any:
    return times(t, leg / where(value(y) == 0, 1.0, y))


def _share(t: Any, a: Any, b: Any) -> Any:
    """Tangent through ``a`` of ``log(exp(a) + exp(b))``: its share of the sum."""
    same = (value(a) == value(b)) & np.isinf(value(a))  # inf - inf
    return times(t, sigmoid(where(same, 0.0, a - b)))


JVPS: dict[str, Rule] = {
    "cbrt": each(lambda t, y, x: over(t, 3.0 * y * y)),
    "log1p": each(lambda t, y, x: over(t, 1.0 + x)),
    "expm1": each(lambda t, y, x: times(t, exp(x))),
    "log2": each(lambda t, y, x: over(t, LN2 * x)),
    "log10": each(lambda t, y, x: over(t, LN10 * x)),
    "exp2": each(lambda t, y, x: times(t, LN2 * y)),
    "sinh": each(lambda t, y, x: times(t, cosh(x))),
    "cosh": each(lambda t, y, x: times(t, sinh(x))),
    "arcsin": each(lambda t, y, x: over(t, sqrt((1.0 - x) * (1.0 + x)))),
    "arccos": each(lambda t, y, x: over(-t, sqrt((1.0 - x) * (1.0 + x)))),
    "arctan": each(lambda t, y, x: over(t, 1.0 + x * x)),
    "arcsinh": each(lambda t, y, x: over(t, hypot(x, 1.0))),
    "arccosh": each(lambda t, y, x: over(t, sqrt(x - 1.0) * sqrt(x + 1.0))),
    "arctanh": each(lambda t, y, x: over(t, (1.0 - x) * (1.0 + x))),
    "sinc": each(_sinc),
    "arctan2": each(
        lambda t, y, a, b: _arctan2(t, b, a, b), lambda t, y, a, b: _arctan2(-t, a, a, b)
    ),
    "hypot": each(lambda t, y, a, b: _hypot(t, y, a), lambda t, y, a, b: _hypot(t, y, b)),
    "logaddexp": each(lambda t, y, a, b: _share(t, a, b), lambda t, y, a, b: _share(t, b, a)),
}
