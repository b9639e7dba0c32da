"""Gradients of ``tapegraph/ops/transcendental.py``: the table of derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ops.elementwise import logistic
from tapegraph.ops.transcendental import LN2, LN10, SINC_NEAR, sinc_slope_series
from tapegraph.typed import Array


def _sinc(g: Any, y: Array, x: Array) -> Any:
    direct = (np.cos(math.pi * x) - y) / x
    return g * np.where(np.abs(x) < SINC_NEAR, sinc_slope_series(x), direct)


def _arctan2(g: Any, across: Any, a: Any, b: Any) -> Any:
    r = np.hypot(a, b)
    return g / r * (across / r)


def _hypot(g: Any, y: Array, leg: Any) -> Any:
    return g * (leg / np.where(y == 0, 1.0, y))


def _share(g: Any, a: Any, b: Any) -> Any:
    same = (a == b) & np.isinf(a)  # inf - inf
    return g * logistic(np.where(same, 0.0, a - b))


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "cbrt": (lambda g, y, x: g / (3.0 * y * y),),
    "log1p": (lambda g, y, x: g / (1.0 + x),),
    "expm1": (lambda g, y, x: g * np.exp(x),),
    "log2": (lambda g, y, x: g / (LN2 * x),),
    "log10": (lambda g, y, x: g / (LN10 * x),),
    "exp2": (lambda g, y, x: g * (LN2 * y),),
    "sinh": (lambda g, y, x: g * np.cosh(x),),
    "cosh": (lambda g, y, x: g * np.sinh(x),),
    "arcsin": (lambda g, y, x: g / np.sqrt((1.0 - x) * (1.0 + x)),),
    "arccos": (lambda g, y, x: -g / np.sqrt((1.0 - x) * (1.0 + x)),),
    "arctan": (lambda g, y, x: g / (1.0 + x * x),),
    "arcsinh": (lambda g, y, x: g / np.hypot(x, 1.0),),
    "arccosh": (lambda g, y, x: g / (np.sqrt(x - 1.0) * np.sqrt(x + 1.0)),),
    "arctanh": (lambda g, y, x: g / ((1.0 - x) * (1.0 + x)),),
    "sinc": (_sinc,),
    "arctan2": (
        lambda g, y, a, b: _arctan2(g, b, a, b),
        lambda g, y, a, b: _arctan2(-g, a, a, b),
    ),
    "hypot": (lambda g, y, a, b: _hypot(g, y, a), lambda g, y, a, b: _hypot(g, y, b)),
    "logaddexp": (lambda g, y, a, b: _share(g, a, b), lambda g, y, a, b: _share(g, b, a)),
}
