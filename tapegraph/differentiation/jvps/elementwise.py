"""JVP rules: element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.differentiation.jvps.rules import Rule, each, linear, over, times, value
from tapegraph.ops import elementwise
from tapegraph.ops.elementwise import (
    GELU_CUBIC,
    GELU_FLAT,
    GELU_SCALE,
    LN2,
    LN10,
    SINC_NEAR,
    astype,
    clip,
    cos,
    cosh,
    exp,
    hypot,
    log,
    sigmoid,
    sin,
    sinc_slope_series,
    sinh,
    sqrt,
    tanh,
    where,
)
from tapegraph.recording.node import constant
from tapegraph.recording.record import apply


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


def _chosen(t: Any, mine: Any, other: Any) -> Any:
    """Tangent through an operand: all where it was chosen, half where neither was."""
    return where(mine, t, where(other, 0.0, 0.5 * t))


def _larger(t: Any, above: Any, below: Any) -> Any:
    return _chosen(t, value(above) > value(below), value(above) < value(below))


def _not_nan(t: Any, beats: Any, mine: Any, other: Any) -> Any:
    """Tangent through an operand to which a NaN leaves the choice."""
    x, y = value(mine), value(other)
    nan, other_nan = np.isnan(x), np.isnan(y)
    return _chosen(t, beats(x, y) | (~nan & other_nan), beats(y, x) | (nan & ~other_nan))


def _none(t: Any, y: Any, x: Any) -> Any:
    return None


def _whole_quotient(a: Any, b: Any) -> Any:
    return np.asarray(np.floor_divide(value(a), value(b)))


def _where(tangents: tuple[Any, ...], y: Any, cond: Any, a: Any, b: Any) -> Any:
    _, ta, tb = tangents
    return apply(elementwise.WHERE, (cond, 0.0 if ta is None else ta, 0.0 if tb is None else tb))


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
    "maximum": each(lambda t, y, a, b: _larger(t, a, b), lambda t, y, a, b: _larger(t, b, a)),
    "minimum": each(lambda t, y, a, b: _larger(t, b, a), lambda t, y, a, b: _larger(t, a, b)),
    "fmax": each(
        lambda t, y, a, b: _not_nan(t, np.greater, a, b),
        lambda t, y, a, b: _not_nan(t, np.greater, b, a),
    ),
    "fmin": each(
        lambda t, y, a, b: _not_nan(t, np.less, a, b),
        lambda t, y, a, b: _not_nan(t, np.less, b, a),
    ),
    "sign": each(_none),
    "floor": each(_none),
    "ceil": each(_none),
    "rint": each(_none),
    "trunc": each(_none),
    "mod": each(
        lambda t, y, a, b: t,
        lambda t, y, a, b: times(-t, _whole_quotient(a, b).astype(y.dtype)),
    ),
    "astype": linear(elementwise.ASTYPE),
    "round": lambda tangents, y, x, *, decimals: None,
    "where": _where,
}
