"""The operations of ``tapegraph/ops/transcendental.py`` as TensorFlow nodes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tapegraph.lowering.rules import Rule, number, raw
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.transcendental import LN2, LN10, SINC_NEAR, sinc_slope_series


def with_gradient(out: Any, compute: Rule, gradient: Callable[..., Any], *operands: Any) -> Any:
    """Emit nodes whose own gradient is not the one agreed, with the one that is.

    ``gradient(g, y, *operands)`` gives a full-shape gradient an operand.
    """
    tf = tensorflow()

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def lowered(*xs: Any) -> Any:
        y = compute(*xs)
        return y, lambda g: gradient(g, y, *xs)

    # At full size; broadcast_to's own gradient sums back.
    return lowered(*(tf.broadcast_to(x, out.shape) for x in operands))


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


def _hypot(out: Any, a: Any, b: Any) -> Any:
    def compute(a: Any, b: Any) -> Any:
        a, b = raw.Abs(x=a), raw.Abs(x=b)
        long, short = raw.Maximum(x=a, y=b), raw.Minimum(x=a, y=b)
        # Nothing to scale by: both zero, or infinite.
        whole = (long == 0.0) | (long == math.inf)
        ratio = raw.RealDiv(x=short, y=raw.SelectV2(condition=whole, t=number(1.0, long), e=long))
        scaled = raw.Mul(x=long, y=raw.Sqrt(x=raw.AddV2(x=ratio * ratio, y=number(1.0, a))))
        return raw.SelectV2(condition=whole, t=long, e=scaled)

    def gradient(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
        length = raw.SelectV2(condition=y == 0.0, t=number(1.0, y), e=y)
        return g * (a / length), g * (b / length)

    return with_gradient(out, compute, gradient, a, b)


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
    "arctan2": lambda out, a, b: raw.Atan2(y=a, x=b),
    "hypot": _hypot,
    "logaddexp": _logaddexp,
}
