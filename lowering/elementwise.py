"""TensorFlow nodes: element by element."""

from __future__ import annotations

import math
from typing import Any

from tapegraph.lowering.rules import BOTH, FED, Row, Rule, number, raw, with_gradient
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.elementwise import (
    GELU_CUBIC,
    GELU_SCALE,
    LN2,
    LN10,
    SINC_NEAR,
    sinc_slope_series,
)


def _gelu(out: Any, x: Any) -> Any:
    tf = tensorflow()

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def lowered(x: Any) -> Any:
        scaled = raw.Mul(x=raw.Mul(x=x, y=x), y=number(GELU_SCALE * GELU_CUBIC, x))
        bend = raw.Tanh(x=raw.Mul(x=raw.AddV2(x=scaled, y=number(GELU_SCALE, x)), y=x))
        gate = raw.AddV2(x=bend, y=number(1.0, x))

        def gradient(g: Any) -> Any:
            # As the native engine's, with products in which a zero absorbs an infinite x^3.
            steep = (scaled * 1.5 + 0.5 * GELU_SCALE) * x
            return g * raw.MulNoNan(x=raw.MulNoNan(x=steep, y=1.0 - bend) + 0.5, y=gate)

        return raw.Mul(x=raw.Mul(x=gate, y=number(0.5, x)), y=x), gradient

    return lowered(x)


def _cbrt(out: Any, x: Any) -> Any:
    def compute(x: Any) -> Any:
        return raw.Mul(x=raw.Sign(x=x), y=raw.Pow(x=raw.Abs(x=x), y=number(1.0 / 3.0, x)))

    return with_gradient(out, compute, lambda g, y, x: g / (3.0 * y * y), x)


def _sinc(out: Any, x: Any) -> Any:
    def compute(x: Any) -> Any:
        angle = raw.Mul(x=x, y=number(math.pi, x))
        ratio = raw.RealDiv(x=raw.Sin(x=angle), y=angle)
        return raw.SelectV2(condition=x == 0.0, t=number(1.0, x), e=ratio)

    def gradient(g: Any, y: Any, x: Any) -> Any:
        direct = (raw.Cos(x=x * math.pi) - y) / x
        near = raw.Abs(x=x) < SINC_NEAR
        return g * raw.SelectV2(condition=near, t=sinc_slope_series(x), e=direct)

    return with_gradient(out, compute, gradient, x)


def _length(a: Any, b: Any) -> Any:
    """Return ``sqrt(a^2 + b^2)`` without overflow or underflow of the squares."""
    a, b = raw.Abs(x=a), raw.Abs(x=b)
    long, short = raw.Maximum(x=a, y=b), raw.Minimum(x=a, y=b)
    # Nothing to scale by: both zero, or infinite.
    whole = (long == 0.0) | (long == math.inf)
    ratio = raw.RealDiv(x=short, y=raw.SelectV2(condition=whole, t=number(1.0, long), e=long))
    scaled = raw.Mul(x=long, y=raw.Sqrt(x=raw.AddV2(x=ratio * ratio, y=number(1.0, a))))
    return raw.SelectV2(condition=whole, t=long, e=scaled)


def _arctan2(out: Any, a: Any, b: Any) -> Any:
    def gradient(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
        # TensorFlow's own divides by a^2 + b^2.
        r = _length(a, b)
        share = g / r  # 0 beside an infinity, where the other factor is NaN
        return raw.MulNoNan(x=b / r, y=share), raw.MulNoNan(x=-a / r, y=share)

    return with_gradient(out, lambda a, b: raw.Atan2(y=a, x=b), gradient, a, b)


def _hypot(out: Any, a: Any, b: Any) -> Any:
    def gradient(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
        length = raw.SelectV2(condition=y == 0.0, t=number(1.0, y), e=y)
        return g * (a / length), g * (b / length)

    return with_gradient(out, _length, gradient, a, b)


def _logaddexp(out: Any, a: Any, b: Any) -> Any:
    def gap(a: Any, b: Any) -> Any:
        same = (a == b) & (raw.Abs(x=a) == math.inf)  # inf - inf
        return raw.SelectV2(condition=same, t=number(0.0, a), e=a - b)

    def compute(a: Any, b: Any) -> Any:
        tail = raw.Log1p(x=raw.Exp(x=-raw.Abs(x=gap(a, b))))
        return raw.AddV2(x=raw.Maximum(x=a, y=b), y=tail)

    def gradient(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
        return g * raw.Sigmoid(x=gap(a, b)), g * raw.Sigmoid(x=gap(b, a))

    return with_gradient(out, compute, gradient, a, b)


def _maximum(out: Any, a: Any, b: Any) -> Any:
    # TensorFlow gives the first operand all of a tie: half of each order is half a tie each.
    return _halves(raw.Maximum(x=a, y=b), raw.Maximum(x=b, y=a))


def _minimum(out: Any, a: Any, b: Any) -> Any:
    return _halves(raw.Minimum(x=a, y=b), raw.Minimum(x=b, y=a))


def _without_nan(rule: Rule) -> Rule:
    """Return a rule that is given the other operand where one is NaN."""

    def lowered(out: Any, a: Any, b: Any) -> Any:
        one = raw.SelectV2(condition=raw.IsNan(x=a), t=b, e=a)
        other = raw.SelectV2(condition=raw.IsNan(x=b), t=a, e=b)
        return rule(out, one, other)

    return lowered


def _halves(one: Any, other: Any) -> Any:
    half = number(0.5, one)
    return raw.AddV2(x=raw.Mul(x=one, y=half), y=raw.Mul(x=other, y=half))


def _trunc(out: Any, x: Any) -> Any:
    return raw.Mul(x=raw.Sign(x=x), y=raw.Floor(x=raw.Abs(x=x)))


def _mod(out: Any, a: Any, b: Any) -> Any:
    def gradient(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
        # FloorDiv rounds a / b first, and can be one too many.
        return g, -g * raw.Rint(x=raw.RealDiv(x=a - y, y=b))

    return with_gradient(out, lambda a, b: raw.FloorMod(x=a, y=b), gradient, a, b)


def _astype(out: Any, x: Any, *, dtype: str) -> Any:
    return raw.Cast(x=x, DstT=dtype)


def _round(out: Any, x: Any, *, decimals: int) -> Any:
    if decimals == 0:
        return raw.Round(x=x)
    scale = number(10.0 ** abs(decimals), x)
    if decimals > 0:
        return raw.RealDiv(x=raw.Round(x=raw.Mul(x=x, y=scale)), y=scale)
    return raw.Mul(x=raw.Round(x=raw.RealDiv(x=x, y=scale)), y=scale)


def _where(out: Any, cond: Any, a: Any, b: Any) -> Any:
    return raw.SelectV2(condition=raw.Cast(x=cond, DstT=tensorflow().bool), t=a, e=b)


LOWERINGS: dict[str, Row | Rule] = {
    "add": Row(lambda out, a, b: raw.AddV2(x=a, y=b), BOTH, cheap=True),
    "sub": Row(lambda out, a, b: raw.Sub(x=a, y=b), BOTH, cheap=True),
    "mul": Row(lambda out, a, b: raw.Mul(x=a, y=b), BOTH, cheap=True),
    # XLA turns the gradient with respect to b, a / b / b, into a / (b * b), which overflows.
    "div": Row(lambda out, a, b: raw.RealDiv(x=a, y=b), frozenset((FED,)), cheap=True),
    "pow": Row(lambda out, a, b: raw.Pow(x=a, y=b), BOTH),
    "neg": Row(lambda out, x: raw.Neg(x=x), BOTH, cheap=True),
    "sin": Row(lambda out, x: raw.Sin(x=x), BOTH),
    "cos": Row(lambda out, x: raw.Cos(x=x), BOTH),
    "tan": Row(lambda out, x: raw.Tan(x=x), BOTH),
    "exp": Row(lambda out, x: raw.Exp(x=x), BOTH),
    "log": Row(lambda out, x: raw.Log(x=x), BOTH),
    "sqrt": Row(lambda out, x: raw.Sqrt(x=x), BOTH),
    "tanh": Row(lambda out, x: raw.Tanh(x=x), BOTH),
    "sigmoid": Row(lambda out, x: raw.Sigmoid(x=x), BOTH),
    "relu": Row(lambda out, x: raw.Relu(features=x), BOTH),
    "abs": Row(lambda out, x: raw.Abs(x=x), BOTH),
    "gelu": Row(_gelu, BOTH),
    "silu": Row(lambda out, x: raw.Mul(x=x, y=raw.Sigmoid(x=x)), BOTH),
    "cbrt": _cbrt,
    "log1p": lambda out, x: raw.Log1p(x=x),
    "expm1": lambda out, x: raw.Expm1(x=x),
    "log2": lambda out, x: raw.RealDiv(x=raw.Log(x=x), y=number(LN2, x)),
    "log10": lambda out, x: raw.RealDiv(x=raw.Log(x=x), y=number(LN10, x)),
    "exp2": lambda out, x: raw.Pow(x=number(2.0, x), y=x),
    "sinh": lambda out, x: raw.Sinh(x=x),
    "cosh": lambda out, x: raw.Cosh(x=x),
    "arcsin": lambda out, x: raw.Asin(x=x),
    "arccos": lambda out, x: raw.Acos(x=x),
    "arctan": lambda out, x: raw.Atan(x=x),
    "arcsinh": lambda out, x: raw.Asinh(x=x),
    "arccosh": lambda out, x: raw.Acosh(x=x),
    "arctanh": lambda out, x: raw.Atanh(x=x),
    "sinc": _sinc,
    "arctan2": _arctan2,
    "hypot": _hypot,
    "logaddexp": _logaddexp,
    "maximum": _maximum,
    "minimum": _minimum,
    "fmax": _without_nan(_maximum),
    "fmin": _without_nan(_minimum),
    "sign": lambda out, x: raw.Sign(x=x),
    "floor": lambda out, x: raw.Floor(x=x),
    "ceil": lambda out, x: raw.Ceil(x=x),
    "rint": lambda out, x: raw.Rint(x=x),
    "trunc": _trunc,
    "mod": _mod,
    "astype": _astype,
    "round": _round,
    "where": Row(_where, BOTH, cheap=True),
}
