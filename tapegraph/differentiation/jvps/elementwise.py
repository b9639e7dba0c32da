"""Tangents of element-wise operations: the table of derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.differentiation.jvps.rules import Rule, each, over, times, value
from tapegraph.ops.comparison import clip
from tapegraph.ops.creation import astype
from tapegraph.ops.elementwise import (
    GELU_CUBIC,
    GELU_FLAT,
    GELU_SCALE,
    cos,
    log,
    sigmoid,
    sin,
    tanh,
)
from tapegraph.ops.index import where
from tapegraph.recording.node import constant


def _pow_base(t: Any, y: Any, a: Any, b: Any) -> Any:
    if type(b) in (int, float, bool):
        return times(t, b * a ** (b - 1)) if b else None
    if b.dtype.kind != "f":
        b = astype(b, y.dtype)  # as NumPy takes integers, whose b - 1 can wrap around
    power = a ** (b - 1.0)
    # b * a**(b-1) is 0 * inf at 0**0; the power is constant there.
    flat = (value(b) == 0) & ~np.isfinite(value(power))
    return times(t, b * where(flat, 0.0, power))


def _pow_exponent(t: Any, y: Any, a: Any, b: Any) -> Any:
    if type(a) in (int, float):
        return times(t, y * math.log(a)) if a > 0 else None
    if a.dtype.kind != "f":
        a = astype(a, y.dtype)
    positive = value(a) > 0
    slope = y * log(where(positive, a, 1.0))
    return times(t, where(value(a) <= 0, 0.0, slope))  # NaN stays NaN


def _gelu(t: Any, y: Any, x: Any) -> Any:
    x = clip(x, -GELU_FLAT, GELU_FLAT)  # so that x^3 is finite where it is multiplied by zero
    square = x * x
    inner = tanh(GELU_SCALE * x * (1.0 + GELU_CUBIC * square))
    slope = 0.5 * GELU_SCALE * x * (1.0 + 3.0 * GELU_CUBIC * square) * (1.0 - inner * inner)
    return times(t, slope + 0.5 * (1.0 + inner))


def _silu(t: Any, y: Any, x: Any) -> Any:
    s = sigmoid(x)
    return times(t, s + y * (1.0 - s))


JVPS: dict[str, Rule] = {
    "add": each(lambda t, y, a, b: t, lambda t, y, a, b: t),
    "sub": each(lambda t, y, a, b: t, lambda t, y, a, b: -t),
    "mul": each(lambda t, y, a, b: times(t, b), lambda t, y, a, b: times(t, a)),
    "div": each(lambda t, y, a, b: over(t, b), lambda t, y, a, b: -over(times(t, y), b)),
    "pow": each(_pow_base, _pow_exponent),
    "neg": each(lambda t, y, x: -t),
    "sin": each(lambda t, y, x: times(t, cos(x))),
    "cos": each(lambda t, y, x: times(-t, sin(x))),
    "tan": each(lambda t, y, x: times(t, 1.0 + y * y)),
    "exp": each(lambda t, y, x: times(t, y)),
    "log": each(lambda t, y, x: over(t, x)),
    "sqrt": each(lambda t, y, x: over(0.5 * t, y)),
    "tanh": each(lambda t, y, x: times(t, 1.0 - y * y)),
    "sigmoid": each(lambda t, y, x: times(t, y * (1.0 - y))),
    "relu": each(lambda t, y, x: where(value(x) > 0, t, 0.0)),
    "abs": each(lambda t, y, x: times(t, constant(np.sign(value(x))))),
    "gelu": each(_gelu),
    "silu": each(_silu),
}
