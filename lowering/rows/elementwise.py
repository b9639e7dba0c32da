"""TensorFlow nodes: element by element."""

from __future__ import annotations

import math
from typing import Any

from tapegraph.lowering.rows.graph_tracer import by_slopes
from tapegraph.lowering.rows.rules import (
    Row,
    Rule,
    finfo,
    int_axes,
    ints,
    is_large,
    number_like,
    own_gradient,
    raw,
    summed_to,
    unless,
)
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.elementwise import GELU_CUBIC, GELU_SCALE, LN2, LN10


def _gelu(out: Any, x: Any) -> Any:
    # Its slope from the table would compute the forward's tanh a second time.
    def lowered(x: Any) -> Any:
        scaled = raw.Mul(x=raw.Mul(x=x, y=x), y=number_like(GELU_SCALE * GELU_CUBIC, x))
        bend = raw.Tanh(x=raw.Mul(x=raw.AddV2(x=scaled, y=number_like(GELU_SCALE, x)), y=x))
        gate = raw.AddV2(x=bend, y=number_like(1.0, x))

        def gradient(g: Any) -> Any:
            # As the native engine's, with products in which a zero absorbs an infinite x^3.
            steep = (scaled * 1.5 + 0.5 * GELU_SCALE) * x
            return g * raw.MulNoNan(x=raw.MulNoNan(x=steep, y=1.0 - bend) + 0.5, y=gate)

        return raw.Mul(x=raw.Mul(x=gate, y=number_like(0.5, x)), y=x), gradient

    return own_gradient(lowered, x)


def _exp2(out: Any, x: Any) -> Any:
    """Emit ``2**x`` with its integer part as the bits of an exponent: exact there.

    TensorFlow's node is a power of the C library, number by number.
    """
    least, most, digits, integer = _EXPONENTS[x.dtype.size]
    whole = raw.Minimum(x=raw.Floor(x=x), y=number_like(most, x))
    whole = raw.Maximum(x=whole, y=number_like(least, x))  # below it the other factor is as small
    biased = raw.Mul(x=raw.AddV2(x=whole, y=number_like(1.0 - least, x)), y=number_like(digits, x))
    power = raw.Bitcast(input=raw.Cast(x=biased, DstT=integer), type=x.dtype)
    rest = raw.Exp(x=raw.Mul(x=raw.Sub(x=x, y=whole), y=number_like(LN2, x)))
    return raw.Mul(x=rest, y=power)


# By the bytes of a float: its exponents from the least of a normal number to that of infinity, what
# the lowest bit of one counts for, and the integer of as many bits.
_EXPONENTS = {4: (-126.0, 128.0, 2.0**23, "int32"), 8: (-1022.0, 1024.0, 2.0**52, "int64")}


def _cosh(out: Any, x: Any) -> Any:
    """Emit ``exp(|x|) / 2 + exp(-|x|) / 2`` by one exponential, which overflows no sooner."""
    root = raw.Exp(x=raw.Mul(x=raw.Abs(x=x), y=number_like(0.5, x)))
    half = raw.Mul(x=raw.Mul(x=root, y=number_like(0.5, x)), y=root)
    return raw.AddV2(x=half, y=raw.RealDiv(x=number_like(0.25, x), y=half))


def _sinh(out: Any, x: Any) -> Any:
    return raw.Mul(x=raw.Tanh(x=x), y=_cosh(out, x))


def _expm1(out: Any, x: Any) -> Any:
    """Emit ``tanh(x / 2) (exp(x) + 1)``, as precise near 0 as tanh is."""
    bend = raw.Tanh(x=raw.Mul(x=x, y=number_like(0.5, x)))
    return raw.Mul(x=bend, y=raw.AddV2(x=raw.Exp(x=x), y=number_like(1.0, x)))


def _tan(out: Any, x: Any) -> Any:
    if x.dtype.size != 4:  # in float64 Sin and Cos call the C library as well
        return raw.Tan(x=x)
    return raw.RealDiv(x=raw.Sin(x=x), y=raw.Cos(x=x))


def _arcsin(out: Any, x: Any) -> Any:
    if x.dtype.size == 4:
        return raw.Asin(x=x)
    below, above = raw.Sub(x=number_like(1.0, x), y=x), raw.AddV2(x=number_like(1.0, x), y=x)
    return raw.Atan(x=raw.RealDiv(x=x, y=raw.Sqrt(x=raw.Mul(x=below, y=above))))


def _arccos(out: Any, x: Any) -> Any:
    if x.dtype.size == 4:
        return raw.Acos(x=x)
    below, above = raw.Sub(x=number_like(1.0, x), y=x), raw.AddV2(x=number_like(1.0, x), y=x)
    return raw.Mul(x=number_like(2.0, x), y=raw.Atan(x=raw.Sqrt(x=raw.RealDiv(x=below, y=above))))


def _cbrt(out: Any, x: Any) -> Any:
    return raw.Mul(x=raw.Sign(x=x), y=raw.Pow(x=raw.Abs(x=x), y=number_like(1.0 / 3.0, x)))


def _sinc(out: Any, x: Any) -> Any:
    angle = raw.Mul(x=x, y=number_like(math.pi, x))
    ratio = raw.RealDiv(x=raw.Sin(x=angle), y=angle)
    return raw.SelectV2(condition=x == 0.0, t=number_like(1.0, x), e=ratio)


def _hypot(out: Any, a: Any, b: Any) -> Any:
    if not is_large(a):
        return _scaled_hypot(a, b)
    plain = raw.Sqrt(x=raw.AddV2(x=raw.Mul(x=a, y=a), y=raw.Mul(x=b, y=b)))
    every, limits = ints(range(a.shape.rank)), finfo(a)
    # Nothing has overflowed, and no square that counts has lost digits: nor is there a NaN.
    least = math.sqrt(float(limits.tiny)) * 2.0 ** (limits.nmant // 2 + 2)
    right = raw.IsFinite(x=raw.Sum(input=plain, axis=every)) & (
        raw.Min(input=plain, axis=every) > least
    )
    return unless(right, plain, lambda: _scaled_hypot(a, b))


def _scaled_hypot(a: Any, b: Any) -> Any:
    """Emit ``sqrt(a^2 + b^2)`` without overflow or underflow of the squares."""
    a, b = raw.Abs(x=a), raw.Abs(x=b)
    long, short = raw.Maximum(x=a, y=b), raw.Minimum(x=a, y=b)
    long = raw.SelectV2(
        condition=(a == math.inf) | (b == math.inf), t=number_like(math.inf, a), e=long
    )
    # Nothing to scale by: both zero, or infinite, even beside a NaN.
    whole = (long == 0.0) | (long == math.inf)
    ratio = raw.RealDiv(x=short, y=raw.SelectV2(condition=whole, t=number_like(1.0, long), e=long))
    scaled = raw.Mul(x=long, y=raw.Sqrt(x=raw.AddV2(x=ratio * ratio, y=number_like(1.0, a))))
    return raw.SelectV2(condition=whole, t=long, e=scaled)


def _logaddexp(out: Any, a: Any, b: Any) -> Any:
    if not is_large(a):
        return _careful_logaddexp(a, b)
    tail = raw.Log1p(x=raw.Exp(x=raw.Neg(x=raw.Abs(x=raw.Sub(x=a, y=b)))))
    y = raw.AddV2(x=raw.Maximum(x=a, y=b), y=tail)
    total = raw.Sum(input=y, axis=int_axes(range(a.shape.rank)))  # NaN after inf - inf
    return unless(total == total, y, lambda: _careful_logaddexp(a, b))


def _careful_logaddexp(a: Any, b: Any) -> Any:
    same = (a == b) & (raw.Abs(x=a) == math.inf)  # inf - inf
    gap = raw.SelectV2(condition=same, t=number_like(0.0, a), e=a - b)
    tail = raw.Log1p(x=raw.Exp(x=-raw.Abs(x=gap)))
    return raw.AddV2(x=raw.Maximum(x=a, y=b), y=tail)


def _mod(out: Any, a: Any, b: Any) -> Any:
    """Emit C's remainder, with the divisor added where its sign is another, as FloorMod gives it.

    That node takes up to twice as long.
    """
    if not a.dtype.is_floating:
        return raw.FloorMod(x=a, y=b)
    rest = raw.Mod(x=a, y=b)
    across = raw.Less(x=raw.Mul(x=rest, y=raw.Sign(x=b)), y=number_like(0.0, a))
    return raw.SelectV2(condition=across, t=raw.AddV2(x=rest, y=b), e=rest)


def _floor_divide(out: Any, a: Any, b: Any) -> Any:
    """Emit NumPy's whole part, which goes with the remainder: that of 1.0 // 0.1 is 9."""
    if not a.dtype.is_floating:
        return raw.FloorDiv(x=a, y=b)
    ratio, rest = raw.RealDiv(x=a, y=b), raw.Mod(x=a, y=b)
    across = raw.Less(x=raw.Mul(x=rest, y=raw.Sign(x=b)), y=number_like(0.0, a))
    parts = raw.RealDiv(x=raw.Sub(x=a, y=rest), y=b) - raw.Cast(x=across, DstT=a.dtype)
    low = raw.Floor(x=parts)
    rounded_up = raw.Greater(x=raw.Sub(x=parts, y=low), y=number_like(0.5, a))
    whole = raw.AddV2(x=low, y=raw.Cast(x=rounded_up, DstT=a.dtype))
    y = raw.SelectV2(condition=raw.Equal(x=b, y=number_like(0.0, b)), t=ratio, e=whole)
    return raw.StopGradient(input=y)


def _pow(out: Any, a: Any, b: Any) -> Any:
    if not (is_large(a) and is_large(b)):
        return raw.Pow(x=a, y=b)

    def lowered(a: Any, b: Any) -> Any:
        y = raw.Pow(x=a, y=b)

        def gradient(g: Any) -> list[Any]:
            sizes, every = raw.Abs(x=y), ints(range(y.shape.rank))
            limits = finfo(y)
            right = (
                raw.IsFinite(x=raw.Sum(input=sizes, axis=every))
                & (raw.Min(input=sizes, axis=every) > float(limits.tiny / limits.eps))
                & (raw.Min(input=raw.Abs(x=a), axis=int_axes(range(a.shape.rank))) > 0.0)
            )
            # One more power would take as long as the first.
            power = unless(right, raw.RealDiv(x=y, y=a), lambda: raw.Pow(x=a, y=b - 1.0))
            above = a > 0.0
            known = raw.SelectV2(condition=above, t=a, e=number_like(1.0, a))
            rate = raw.SelectV2(condition=above, t=raw.Log(x=known), e=number_like(0.0, a))
            return [summed_to(g * b * power, a), summed_to(g * y * rate, b)]

        return y, gradient

    return own_gradient(lowered, a, b)


def _maximum(out: Any, a: Any, b: Any) -> Any:
    return _halving_ties("Maximum", raw.Greater, raw.Less, a, b)


def _minimum(out: Any, a: Any, b: Any) -> Any:
    return _halving_ties("Minimum", raw.Less, raw.Greater, a, b)


def _halving_ties(node: str, first: Any, second: Any, a: Any, b: Any) -> Any:
    """Emit a node whose gradient gives each operand half of a tie: TensorFlow gives one all."""

    def lowered(a: Any, b: Any) -> Any:
        y = getattr(raw, node)(x=a, y=b)

        def gradient(g: Any) -> list[Any]:
            won = raw.Cast(x=first(x=a, y=b), DstT=g.dtype)
            lost = raw.Cast(x=second(x=a, y=b), DstT=g.dtype)
            share = raw.Mul(x=raw.Sub(x=won, y=lost), y=number_like(0.5, g))
            half = number_like(0.5, g)
            return [
                summed_to(raw.MulNoNan(x=g, y=raw.AddV2(x=half, y=share)), a),
                summed_to(raw.MulNoNan(x=g, y=raw.Sub(x=half, y=share)), b),
            ]

        return y, gradient

    return own_gradient(lowered, a, b)


def _fmax(out: Any, a: Any, b: Any) -> Any:
    return _unless_nan(raw.GreaterEqual, a, b)


def _fmin(out: Any, a: Any, b: Any) -> Any:
    return _unless_nan(raw.LessEqual, a, b)


def _unless_nan(wins: Any, a: Any, b: Any) -> Any:
    """Emit the operand that wins or is beside a NaN; its gradient halves ties, two NaN too."""

    def lowered(a: Any, b: Any) -> Any:
        first = raw.LogicalOr(x=wins(x=a, y=b), y=raw.IsNan(x=b))
        y = raw.SelectV2(condition=first, t=a, e=b)

        def gradient(g: Any) -> list[Any]:
            same = raw.Equal(x=a, y=b, incompatible_shape_error=True)
            tie = raw.Cast(x=raw.LogicalOr(x=same, y=raw.IsNan(x=y)), DstT=g.dtype)
            half = raw.Mul(x=tie, y=number_like(0.5, g))
            share = raw.Sub(x=raw.Cast(x=first, DstT=g.dtype), y=half)
            rest = raw.Sub(x=number_like(1.0, g), y=share)
            return [
                summed_to(raw.MulNoNan(x=g, y=share), a),
                summed_to(raw.MulNoNan(x=g, y=rest), b),
            ]

        return y, gradient

    return own_gradient(lowered, a, b)


def _trunc(out: Any, x: Any) -> Any:
    return raw.Mul(x=raw.Sign(x=x), y=raw.Floor(x=raw.Abs(x=x)))


def _astype(out: Any, x: Any, *, dtype: str) -> Any:
    return raw.Cast(x=x, DstT=dtype)


def _round(out: Any, x: Any, *, decimals: int) -> Any:
    if decimals == 0:
        return raw.Round(x=x)
    scale = number_like(10.0 ** abs(decimals), x)
    if decimals > 0:
        return raw.RealDiv(x=raw.Round(x=raw.Mul(x=x, y=scale)), y=scale)
    return raw.Mul(x=raw.Round(x=raw.RealDiv(x=x, y=scale)), y=scale)


def _where(out: Any, cond: Any, a: Any, b: Any) -> Any:
    return raw.SelectV2(condition=raw.Cast(x=cond, DstT=tensorflow().bool), t=a, e=b)


def _signbit(out: Any, x: Any) -> Any:
    if not x.dtype.is_floating:
        return raw.Less(x=x, y=number_like(0, x))
    bits = raw.Bitcast(input=x, type="int32" if x.dtype.size == 4 else "int64")
    return raw.Less(x=bits, y=number_like(0, bits))


def _of_floats(node: str, otherwise: bool) -> Rule:
    """Return the rule of a predicate that has one answer for what is no float."""

    def rule(out: Any, x: Any) -> Any:
        if x.dtype.is_floating:
            return getattr(raw, node)(x=x)
        return raw.Fill(dims=ints(out.shape), value=tensorflow().constant(otherwise))

    return rule


def _true(x: Any) -> Any:
    """Return where a number is not zero, as of a NaN: a cast takes longer."""
    if x.dtype.is_floating:
        return raw.NotEqual(x=x, y=number_like(0.0, x), incompatible_shape_error=True)
    return raw.Cast(x=x, DstT=tensorflow().bool)


def _not(out: Any, x: Any) -> Any:
    # Not by LogicalNot: Grappler makes `a >= b` of `not a < b`, and a NaN tells them apart.
    if x.dtype.is_floating:
        return raw.Equal(x=x, y=number_like(0.0, x), incompatible_shape_error=True)
    return raw.Equal(x=_true(x), y=tensorflow().constant(False), incompatible_shape_error=True)


def _xor(out: Any, a: Any, b: Any) -> Any:
    a, b = _true(a), _true(b)
    both = raw.LogicalAnd(x=a, y=b)
    # A tenth of the time of NotEqual, which compares bools one by one.
    return raw.LogicalAnd(x=raw.LogicalOr(x=a, y=b), y=raw.LogicalNot(x=both))


LOWERINGS: dict[str, Row | Rule] = {
    "add": Row(lambda out, a, b: raw.AddV2(x=a, y=b), xla=True),
    "sub": Row(lambda out, a, b: raw.Sub(x=a, y=b), xla=True),
    "mul": Row(lambda out, a, b: raw.Mul(x=a, y=b), xla=True),
    # XLA turns the gradient with respect to b, a / b / b, into a / (b * b), which overflows.
    "div": Row(lambda out, a, b: raw.RealDiv(x=a, y=b)),
    "pow": Row(_pow, xla=True),
    "neg": Row(lambda out, x: raw.Neg(x=x), xla=True),
    "sin": Row(lambda out, x: raw.Sin(x=x), xla=True),
    "cos": Row(lambda out, x: raw.Cos(x=x), xla=True),
    "tan": Row(by_slopes("tan", _tan), xla=True),
    "exp": Row(lambda out, x: raw.Exp(x=x), xla=True),
    "log": Row(lambda out, x: raw.Log(x=x), xla=True),
    "sqrt": Row(lambda out, x: raw.Sqrt(x=x), xla=True),
    "tanh": Row(lambda out, x: raw.Tanh(x=x), xla=True),
    "sigmoid": Row(lambda out, x: raw.Sigmoid(x=x), xla=True),
    "relu": Row(lambda out, x: raw.Relu(features=x), xla=True),
    "abs": Row(lambda out, x: raw.Abs(x=x), xla=True),
    "gelu": Row(_gelu, xla=True),
    "silu": Row(lambda out, x: raw.Mul(x=x, y=raw.Sigmoid(x=x)), xla=True),
    "cbrt": by_slopes("cbrt", _cbrt),
    "log1p": lambda out, x: raw.Log1p(x=x),
    "expm1": by_slopes("expm1", _expm1),
    "log2": lambda out, x: raw.RealDiv(x=raw.Log(x=x), y=number_like(LN2, x)),
    "log10": lambda out, x: raw.RealDiv(x=raw.Log(x=x), y=number_like(LN10, x)),
    "exp2": by_slopes("exp2", _exp2),
    "sinh": by_slopes("sinh", _sinh),
    "cosh": by_slopes("cosh", _cosh),
    "arcsin": by_slopes("arcsin", _arcsin),
    "arccos": by_slopes("arccos", _arccos),
    "arctan": lambda out, x: raw.Atan(x=x),
    "arcsinh": lambda out, x: raw.Asinh(x=x),
    "arccosh": by_slopes("arccosh", lambda out, x: raw.Acosh(x=x)),
    "arctanh": lambda out, x: raw.Atanh(x=x),
    "sinc": by_slopes("sinc", _sinc),
    "arctan2": by_slopes("arctan2", lambda out, a, b: raw.Atan2(y=a, x=b)),
    "hypot": by_slopes("hypot", _hypot),
    "logaddexp": by_slopes("logaddexp", _logaddexp),
    "maximum": _maximum,
    "minimum": _minimum,
    "fmax": _fmax,
    "fmin": _fmin,
    "sign": lambda out, x: raw.Sign(x=x),
    "floor": lambda out, x: raw.Floor(x=x),
    "ceil": lambda out, x: raw.Ceil(x=x),
    "rint": lambda out, x: raw.Rint(x=x),
    "trunc": _trunc,
    "mod": by_slopes("mod", _mod),
    "floor_divide": _floor_divide,
    "astype": _astype,
    "round": _round,
    "where": Row(_where, xla=True),
    "detach": lambda out, x: raw.StopGradient(input=x),
    "equal": lambda out, a, b: raw.Equal(x=a, y=b, incompatible_shape_error=True),
    "not_equal": lambda out, a, b: raw.NotEqual(x=a, y=b, incompatible_shape_error=True),
    "less": lambda out, a, b: raw.Less(x=a, y=b),
    "less_equal": lambda out, a, b: raw.LessEqual(x=a, y=b),
    "greater": lambda out, a, b: raw.Greater(x=a, y=b),
    "greater_equal": lambda out, a, b: raw.GreaterEqual(x=a, y=b),
    "logical_and": lambda out, a, b: raw.LogicalAnd(x=_true(a), y=_true(b)),
    "logical_or": lambda out, a, b: raw.LogicalOr(x=_true(a), y=_true(b)),
    "logical_xor": _xor,
    "logical_not": _not,
    "isnan": _of_floats("IsNan", False),
    "isinf": _of_floats("IsInf", False),
    "isfinite": _of_floats("IsFinite", True),
    "signbit": _signbit,
}
