"""VJP rules: element by element and ``tg.special``, from their slopes."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.differentiation.slopes import SLOPES
from tapegraph.fallback.rules import Rule, StrongZero, rows_of, to_ndarray
from tapegraph.ops.elementwise import GELU_CUBIC, GELU_FLAT, GELU_SCALE, select_bits
from tapegraph.typed import Array, Cotangent

# Of fewer numbers a pass over all takes less than a slice of them; a plan slices but once.
_MANY = 4096


def _pow_base(g: Cotangent, y: Array, a: Array, b: Any) -> Array:
    if type(b) in (int, float, bool):
        if b == 2:
            if g.ndim and not any(g.strides) and (a.size >= _MANY or type(g) is not np.ndarray):
                g = g[(slice(0, 1),) * g.ndim]  # the same number throughout
            return (g + g) * a  # a number would take as long as two arrays
        return g * (b * a ** (b - 1)) if b else g * np.zeros_like(a)
    b = b.astype(y.dtype, copy=False)
    return g * np.where(b == 0, 0.0, b * a ** (b - 1))


def _gelu(g: Cotangent, y: Array, x: Array) -> Array:
    if isinstance(g, StrongZero):  # after a NaN, which may be an infinite x^3 times zero
        x = np.clip(x, -GELU_FLAT, GELU_FLAT)
    # 0.5 (1 + t) + 0.5 x (1 - t^2) inner' = u (0.5 + 0.5 x inner' (2 - u)) where u = 1 + t.
    # u is computed as the forward does, and so once in a plan; x^2 is not, or it would be kept.
    u = x * (GELU_SCALE * GELU_CUBIC) * x
    u += GELU_SCALE
    u *= x
    u = np.tanh(u)
    u += 1.0
    slope = x * x
    slope *= 1.5 * GELU_SCALE * GELU_CUBIC
    slope += 0.5 * GELU_SCALE
    slope *= x
    slope *= 2.0 - u
    slope += 0.5
    slope *= u
    return g * slope


def _arctan2(g: Cotangent, y: Array, across: Array, a: Array, b: Array) -> Array:
    square = np.square(a, dtype=y.dtype) + np.square(b, dtype=y.dtype)
    limits = np.finfo(square.dtype)
    # Where no square overflows or loses digits: a hypotenuse takes several times as long.
    if square.size and limits.tiny / limits.eps < square.min() and square.max() < np.inf:
        return g * (across / square)
    r = np.hypot(a, b)
    return g / r * (across / r)


def _chosen(g: Cotangent, mine: Array, other: Array) -> Array:
    g = to_ndarray(g)
    gradient = select_bits(g, mine)
    neither = ~(mine | other)
    if type(neither) is not np.ndarray or neither.any():  # in a plan there may be some
        gradient = np.where(neither, 0.5 * g, gradient)
    return gradient


def _larger(g: Cotangent, above: Array, below: Array) -> Array:
    return _chosen(g, np.greater(above, below), np.less(above, below))


RECORDED = rows_of(SLOPES)

# For arrays alone, in fewer calls and passes: a test holds each equal to the rule from its slope.
FAST: dict[str, tuple[Rule | None, ...]] = {
    "pow": (_pow_base, RECORDED["pow"][1]),
    "gelu": (_gelu,),
    "arctan2": (
        lambda g, y, a, b: _arctan2(g, y, b, a, b),
        lambda g, y, a, b: _arctan2(-g, y, a, a, b),
    ),
    "maximum": (lambda g, y, a, b: _larger(g, a, b), lambda g, y, a, b: _larger(g, b, a)),
    "minimum": (lambda g, y, a, b: _larger(g, b, a), lambda g, y, a, b: _larger(g, a, b)),
    "where": (
        None,
        lambda g, y, cond, a, b: select_bits(to_ndarray(g), cond),
        lambda g, y, cond, a, b: select_bits(to_ndarray(g), ~cond),
    ),
}

VJPS = RECORDED | FAST
