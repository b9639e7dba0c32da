"""VJP rules: element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.arrays.bit_select import kept
from tapegraph.fallback.absorbing import Absorbing, plain
from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ops.elementwise import (
    GELU_CUBIC,
    GELU_FLAT,
    GELU_SCALE,
    LN2,
    LN10,
    SINC_NEAR,
    logistic,
    sinc_slope_series,
)
from tapegraph.typed import Array


def _narrow(g: Any) -> Any:
    """Return a cotangent, with length 1 on every axis where it is the same number throughout."""
    return g if any(g.strides) or g.ndim == 0 else g[(slice(0, 1),) * g.ndim]


def _pow_base(g: Any, y: Array, a: Any, b: Any) -> Any:
    # b * a**(b-1) is 0 * inf at 0**0; the power is constant there.
    if type(b) in (int, float, bool):
        if b == 2:
            return _narrow(g) * 2 * a
        return g * (b * a ** (b - 1)) if b else g * np.zeros_like(a)
    b = b.astype(y.dtype, copy=False)  # as NumPy takes integers, whose b - 1 can wrap around
    return g * np.where(b == 0, 0.0, b * a ** (b - 1))


def _pow_exponent(g: Any, y: Array, a: Any, b: Any) -> Any:
    base = float(a) if type(a) is int else a
    positive = np.asarray(base) > 0
    logarithm = np.log(np.where(positive, base, np.ones_like(base)), dtype=y.dtype)
    return g * np.where(np.asarray(base) <= 0, 0.0, y * logarithm)  # NaN stays NaN


def _gelu(g: Any, y: Array, x: Array) -> Any:
    if isinstance(g, Absorbing):  # after a NaN, which may be an infinite x^3 times zero
        x = np.clip(x, -GELU_FLAT, GELU_FLAT)
    # 0.5 (1 + t) + 0.5 x (1 - t^2) inner' = (1 + t) (0.5 + 0.5 x inner' (1 - t)), in few passes.
    slope = x * x
    t = slope * (GELU_SCALE * GELU_CUBIC)
    t += GELU_SCALE
    t *= x
    t = np.tanh(t)
    slope *= 1.5 * GELU_SCALE * GELU_CUBIC
    slope += 0.5 * GELU_SCALE
    slope *= x
    slope *= 1.0 - t
    slope += 0.5
    t += 1.0
    slope *= t
    slope *= g
    return slope


def _silu(g: Any, y: Array, x: Array) -> Any:
    s = logistic(x)
    return g * (s + y * (1.0 - s))


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


def _chosen(g: Any, mine: Any, other: Any) -> Any:
    """Gradient of an operand: all where it was chosen, half where neither was."""
    g = plain(g)
    gradient = kept(g, mine)
    neither = ~(mine | other)
    if neither.any():
        gradient = gradient + kept(0.5 * g, neither)
    return gradient


def _larger(g: Any, above: Any, below: Any) -> Any:
    return _chosen(g, np.greater(above, below), np.less(above, below))


def _not_nan(g: Any, beats: Any, mine: Any, other: Any) -> Any:
    """Gradient of an operand to which a NaN leaves the choice."""
    nan, other_nan = np.isnan(mine), np.isnan(other)
    return _chosen(
        g, beats(mine, other) | (~nan & other_nan), beats(other, mine) | (nan & ~other_nan)
    )


def _zero(g: Any, y: Array, x: Array) -> Any:
    return np.zeros_like(x)


def _where_true(g: Any, y: Array, cond: Array, a: Any, b: Any) -> Any:
    return kept(plain(g), cond)


def _where_false(g: Any, y: Array, cond: Array, a: Any, b: Any) -> Any:
    return kept(plain(g), ~cond)


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "add": (lambda g, y, a, b: g, lambda g, y, a, b: g),
    "sub": (lambda g, y, a, b: g, lambda g, y, a, b: -g),
    "mul": (lambda g, y, a, b: g * b, lambda g, y, a, b: g * a),
    "div": (lambda g, y, a, b: g / b, lambda g, y, a, b: -g * y / b),
    "pow": (_pow_base, _pow_exponent),
    "neg": (lambda g, y, x: -g,),
    "sin": (lambda g, y, x: g * np.cos(x),),
    "cos": (lambda g, y, x: -g * np.sin(x),),
    "tan": (lambda g, y, x: g * (1.0 + y * y),),
    "exp": (lambda g, y, x: g * y,),
    "log": (lambda g, y, x: g / x,),
    "sqrt": (lambda g, y, x: 0.5 * g / y,),
    "tanh": (lambda g, y, x: g * (1.0 - y * y),),
    "sigmoid": (lambda g, y, x: g * (y * (1.0 - y)),),
    "relu": (lambda g, y, x: g * (x > 0),),
    "abs": (lambda g, y, x: g * np.sign(x),),
    "gelu": (_gelu,),
    "silu": (_silu,),
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
    "maximum": (lambda g, y, a, b: _larger(g, a, b), lambda g, y, a, b: _larger(g, b, a)),
    "minimum": (lambda g, y, a, b: _larger(g, b, a), lambda g, y, a, b: _larger(g, a, b)),
    "fmax": (
        lambda g, y, a, b: _not_nan(g, np.greater, a, b),
        lambda g, y, a, b: _not_nan(g, np.greater, b, a),
    ),
    "fmin": (
        lambda g, y, a, b: _not_nan(g, np.less, a, b),
        lambda g, y, a, b: _not_nan(g, np.less, b, a),
    ),
    "sign": (_zero,),
    "floor": (_zero,),
    "ceil": (_zero,),
    "rint": (_zero,),
    "trunc": (_zero,),
    "mod": (lambda g, y, a, b: g, lambda g, y, a, b: -g * np.floor_divide(a, b)),
    "astype": (lambda g, y, x, *, dtype: g,),  # the sweep gives it the operand's dtype,
    "round": (lambda g, y, x, *, decimals: np.zeros_like(x),),
    "where": (None, _where_true, _where_false),
}
