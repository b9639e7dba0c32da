"""The operations of ``tapegraph/ops/transcendental.py`` as TensorFlow nodes."""

from __future__ import annotations

import math
from typing import Any

from tapegraph.lowering.rules import Rule, number, raw, with_gradient
from tapegraph.ops.transcendental import LN2, LN10, SINC_NEAR, sinc_slope_series


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


LOWERINGS: dict[str, Rule] = {
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
}
