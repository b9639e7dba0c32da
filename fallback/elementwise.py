"""Gradients of element-wise operations: the table of derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.fallback.absorbing import Absorbing
from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ops.elementwise import GELU_CUBIC, GELU_FLAT, GELU_SCALE, logistic
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
}
