"""TensorFlow nodes: element by element, the functions of ``tg.special`` too."""

from __future__ import annotations

import math

from tapegraph.lowering.rows import (
    NotLowered,
    Result,
    Row,
    Rule,
    WithGradient,
    by_slopes,
    cast_to,
    finfo,
    ints,
    is_large,
    number_like,
    own_gradient,
    raw,
    reduced,
    selected,
    summed_to,
    unless,
    with_gradient,
    with_own_gradient,
)
from tapegraph.lowering.runtime import GraphTensor, tf
from tapegraph.ops.elementwise import GELU_CUBIC, GELU_SCALE, LN2, LN10
from tapegraph.recording.program import Recording
from tapegraph.typed import Fun


@with_own_gradient
def _gelu(out: Result, x: GraphTensor) -> WithGradient:
    # Its slope from the table would compute the forward's tanh a second time.
    scaled = x * x * (GELU_SCALE * GELU_CUBIC)
    bend = raw.Tanh(x=(scaled + GELU_SCALE) * x)
    gate = bend + 1.0

    def gradient(g: GraphTensor) -> GraphTensor:
        # As the native engine's, with products in which a zero absorbs an infinite x^3.
        steep = (scaled * 1.5 + 0.5 * GELU_SCALE) * x
        return g * raw.MulNoNan(x=raw.MulNoNan(x=steep, y=1.0 - bend) + 0.5, y=gate)

    return gate * 0.5 * x, gradient


def _mul_strong(
    out: Result, a: GraphTensor, b: GraphTensor, *, absorbs: tuple[bool, bool]
) -> GraphTensor:
    if not absorbs[0]:
        return raw.MulNoNan(x=a, y=b)
    product = raw.MulNoNan(x=b, y=a)
    return selected(b == 0.0, 0.0, product) if absorbs[1] else product


def _div_strong(
    out: Result, a: GraphTensor, b: GraphTensor, *, absorbs: tuple[bool, bool]
) -> GraphTensor:
    quotient = raw.RealDiv(x=a, y=b)
    if absorbs[0]:
        quotient = selected(a == 0.0, 0.0, quotient)
    return selected(raw.IsInf(x=b), 0.0, quotient) if absorbs[1] else quotient


def _exp2(out: Result, x: GraphTensor) -> GraphTensor:
    """Emit ``2**x`` exactly for integers, by exponent bits; TensorFlow's node calls C's power."""
    least, most, digits, integer = _EXPONENTS[x.dtype.size]
    whole = raw.Minimum(x=raw.Floor(x=x), y=number_like(most, x))
    whole = raw.Maximum(x=whole, y=number_like(least, x))  # below it the other factor is as small
    biased = (whole + (1.0 - least)) * digits
    power = raw.Bitcast(input=raw.Cast(x=biased, DstT=integer), type=x.dtype)
    return raw.Exp(x=(x - whole) * LN2) * power


# By the bytes of a float: its exponents from the least of a normal number to that of infinity, what
# the lowest bit of one counts for, and the integer of as many bits.
_EXPONENTS = {4: (-126.0, 128.0, 2.0**23, "int32"), 8: (-1022.0, 1024.0, 2.0**52, "int64")}


def _cosh(out: Result, x: GraphTensor) -> GraphTensor:
    """Emit ``exp(|x|) / 2 + exp(-|x|) / 2`` by one exponential, without earlier overflow."""
    root = raw.Exp(x=raw.Abs(x=x) * 0.5)
    half = root * 0.5 * root
    return half + 0.25 / half


def _is_single(x: GraphTensor) -> bool:
    return bool(x.dtype.size == 4)


def _arcsin(out: Result, x: GraphTensor) -> GraphTensor:
    return raw.Asin(x=x) if _is_single(x) else raw.Atan(x=x / raw.Sqrt(x=(1.0 - x) * (1.0 + x)))


def _arccos(out: Result, x: GraphTensor) -> GraphTensor:
    return raw.Acos(x=x) if _is_single(x) else 2.0 * raw.Atan(x=raw.Sqrt(x=(1.0 - x) / (1.0 + x)))


def _cbrt(out: Result, x: GraphTensor) -> GraphTensor:
    return raw.Sign(x=x) * raw.Abs(x=x) ** (1.0 / 3.0)


def _sinc(out: Result, x: GraphTensor) -> GraphTensor:
    angle = x * math.pi
    zero = angle == 0.0
    safe = selected(zero, 1.0, angle)  # at 0 TensorFlow's gradient, of complex numbers, is finite
    return selected(zero, 1.0, raw.Sin(x=safe) / safe)


@with_own_gradient
def _complex_abs(out: Result, x: GraphTensor) -> WithGradient:
    """Emit the magnitude, whose gradient at 0 is 0."""
    y = raw.ComplexAbs(x=x, Tout=x.dtype.real_dtype)
    return y, lambda g: cast_to(g / selected(y == 0.0, 1.0, y), x.dtype) * x


def _part(node: str, x: GraphTensor) -> GraphTensor:
    return getattr(raw, node)(input=x, Tout=x.dtype.real_dtype)


def _complex(real: GraphTensor, imag: GraphTensor) -> GraphTensor:
    return raw.Complex(real=real, imag=imag, Tout="complex64" if _is_single(real) else "complex128")


def _by_parts(rule: Rule) -> Rule:
    """Return the rule of an operation applied to both parts, constant nearby."""

    def of_complex(out: Result, x: GraphTensor, **attrs: object) -> GraphTensor:
        parts = (raw.StopGradient(input=_part(node, x)) for node in ("Real", "Imag"))
        return _complex(*(rule(out, part, **attrs) for part in parts))

    return of_complex


def _hypot(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    if not is_large(a):
        return _scaled_hypot(a, b)
    plain, limits = raw.Sqrt(x=a * a + b * b), finfo(a)
    # Nothing has overflowed, and no square that counts has lost digits: nor is there a NaN.
    least = math.sqrt(float(limits.tiny)) * 2.0 ** (limits.nmant // 2 + 2)
    right = raw.IsFinite(x=reduced("Sum", plain)) & (reduced("Min", plain) > least)
    return unless(right, plain, lambda: _scaled_hypot(a, b))


def _scaled_hypot(a: GraphTensor, b: GraphTensor) -> GraphTensor:
    """Emit ``sqrt(a^2 + b^2)`` without overflow or underflow of the squares."""
    a, b = raw.Abs(x=a), raw.Abs(x=b)
    infinite = (a == math.inf) | (b == math.inf)
    long, short = selected(infinite, math.inf, raw.Maximum(x=a, y=b)), raw.Minimum(x=a, y=b)
    # Nothing to scale by: both zero, or infinite, even beside a NaN.
    whole = (long == 0.0) | infinite
    ratio = short / selected(whole, 1.0, long)
    return raw.SelectV2(condition=whole, t=long, e=long * raw.Sqrt(x=ratio * ratio + 1.0))


def _logaddexp(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    same = (a == b) & (raw.Abs(x=a) == math.inf)  # inf - inf
    gap = selected(same, 0.0, a - b)
    return raw.Maximum(x=a, y=b) + raw.Log1p(x=raw.Exp(x=-raw.Abs(x=gap)))


def _mod(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    """Emit FloorMod by C's remainder, plus the divisor if the signs differ, in half the time."""
    if not a.dtype.is_floating:
        return raw.FloorMod(x=a, y=b)
    rest = raw.Mod(x=a, y=b)
    return raw.SelectV2(condition=rest * raw.Sign(x=b) < 0.0, t=rest + b, e=rest)


def _floor_divide(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    """Emit NumPy's quotient, consistent with the remainder: 1.0 // 0.1 is 9."""
    if not a.dtype.is_floating:
        return raw.FloorDiv(x=a, y=b)
    rest = raw.Mod(x=a, y=b)
    across = raw.Cast(x=rest * raw.Sign(x=b) < 0.0, DstT=a.dtype)
    parts = (a - rest) / b - across
    low = raw.Floor(x=parts)
    whole = low + raw.Cast(x=parts - low > 0.5, DstT=a.dtype)
    return raw.StopGradient(input=raw.SelectV2(condition=b == 0.0, t=a / b, e=whole))


def _square_or_power(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    """Emit a power; a square, as NumPy does, takes a hundredth of the time."""
    exponent = tf.get_static_value(b)
    is_two = exponent is not None and exponent.ndim == 0 and exponent == 2
    return raw.Square(x=a) if is_two else _pow(out, a, b)


def _pow(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    if a.dtype.is_complex or not (is_large(a) and is_large(b)):
        return raw.Pow(x=a, y=b)

    def lowered(a: GraphTensor, b: GraphTensor) -> WithGradient:
        y = raw.Pow(x=a, y=b)

        def gradient(g: GraphTensor) -> list[GraphTensor]:
            sizes, limits = raw.Abs(x=y), finfo(y)
            right = (
                raw.IsFinite(x=reduced("Sum", sizes))
                & (reduced("Min", sizes) > float(limits.tiny / limits.eps))
                & (reduced("Min", raw.Abs(x=a)) > 0.0)
            )
            # One more power would take as long as the first.
            power = unless(right, y / a, lambda: raw.Pow(x=a, y=b - 1.0))
            above = a > 0.0
            rate = selected(above, raw.Log(x=selected(above, a, 1.0)), 0.0)
            return [summed_to(g * b * power, a), summed_to(g * y * rate, b)]

        return y, gradient

    return own_gradient(lowered, a, b)


def _choice(compute: Fun) -> Rule:
    """Return the rule of a choice of ``a`` or ``b`` that splits the gradient of a tie in halves."""

    def gradient(
        g: GraphTensor, y: GraphTensor, a: GraphTensor, b: GraphTensor
    ) -> list[GraphTensor]:
        same = (raw.Equal(x=x, y=y, incompatible_shape_error=True) for x in (a, b))
        mine, other = (raw.Cast(x=x, DstT=g.dtype) for x in same)
        lead = (mine - other) * 0.5
        return [raw.MulNoNan(x=g, y=0.5 + lead), raw.MulNoNan(x=g, y=0.5 - lead)]

    return lambda out, a, b: with_gradient(compute, gradient, a, b)


def _clip(out: Result, x: GraphTensor, low: GraphTensor, high: GraphTensor) -> GraphTensor:
    if not x.dtype.is_floating:
        return raw.Minimum(x=raw.Maximum(x=x, y=low), y=high)
    # By comparisons, in which XLA loses no NaN.
    raised = raw.SelectV2(condition=(x > low) | raw.IsNan(x=x), t=x, e=low)
    return raw.SelectV2(condition=(raised < high) | raw.IsNan(x=raised), t=raised, e=high)


def _round(out: Result, x: GraphTensor, *, decimals: int) -> GraphTensor:
    scale = 10.0 ** abs(decimals)
    if decimals > 0:
        return raw.Round(x=x * scale) / scale
    return raw.Round(x=x / scale) * scale if decimals else raw.Round(x=x)


def _round_to(out: Result, x: GraphTensor, *, dtype: str) -> GraphTensor:
    def rounded(x: GraphTensor) -> GraphTensor:
        single = cast_to(x, "float32")
        if dtype == "float16" and x.dtype == "float64":
            # TensorFlow rounds to float32 first. Rounded there towards zero, and to an odd last bit
            # where that is not exact, it is rounded to float16 as NumPy does it, once.
            back = cast_to(single, x.dtype)
            bits = raw.Bitcast(input=single, type="int32")
            bits -= cast_to(raw.Abs(x=back) > raw.Abs(x=x), "int32")
            bits = raw.BitwiseOr(x=bits, y=cast_to(back != x, "int32"))
            single = raw.Bitcast(input=bits, type="float32")
        return cast_to(cast_to(single, dtype), "float32")

    return with_gradient(rounded, lambda g, y, x: [cast_to(g, x.dtype)], x)


def _where(out: Result, cond: GraphTensor, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    return raw.SelectV2(condition=raw.Cast(x=cond, DstT=tf.bool), t=a, e=b)


def _of_floats(node: str, otherwise: bool) -> Rule:
    """Return the rule of a predicate that has one answer for all dtypes but floats."""

    def rule(out: Result, x: GraphTensor) -> GraphTensor:
        if x.dtype.is_floating:
            return getattr(raw, node)(x=x)
        return raw.Fill(dims=ints(out.shape), value=tf.constant(otherwise))

    return rule


def _true(x: GraphTensor) -> GraphTensor:
    """Return where a number is not zero, as a NaN: a cast takes longer."""
    return x != 0.0 if x.dtype.is_floating else raw.Cast(x=x, DstT=tf.bool)


def _polygamma(out: Result, x: GraphTensor, *, n: int) -> GraphTensor:
    if n:
        return raw.Polygamma(a=number_like(n, x), x=x)
    return selected(x == 0.0, -1.0 / x, raw.Digamma(x=x))  # TensorFlow's node is NaN at 0


def _gammasgn(out: Result, x: GraphTensor) -> GraphTensor:
    """Return -1 from each odd number below zero to the next, and NaN at the poles there."""
    floor = raw.Floor(x=x)
    odd = raw.FloorMod(x=floor, y=number_like(2.0, x)) == 1.0
    sign = selected(odd & (x < 0.0), -1.0, raw.OnesLike(x=x))
    return selected(((floor == x) & (x < 0.0)) | raw.IsNan(x=x), math.nan, sign)


def _betaln(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    return raw.Lgamma(x=a) + raw.Lgamma(x=b) - raw.Lgamma(x=a + b)


def _beta(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    size = raw.Exp(x=_betaln(out, a, b))
    return size * _gammasgn(out, a) * (_gammasgn(out, b) * _gammasgn(out, a + b))


def _xlogy(out: Result, x: GraphTensor, y: GraphTensor) -> GraphTensor:
    return raw.SelectV2(condition=raw.IsNan(x=y), t=y, e=raw.Xlogy(x=x, y=y))


def _xlog1py(out: Result, x: GraphTensor, y: GraphTensor) -> GraphTensor:
    return raw.SelectV2(condition=raw.IsNan(x=y), t=y, e=raw.Xlog1py(x=x, y=y))


def _bessel(kind: str, side: float) -> Row:
    """Return the row of Bessel functions of a kind, of order 0 and 1.

    TensorFlow's slope of I1 at 0 is 1, and the table's needs order 2, which has no node. ``side``
    is the sign of the slope of order 0, by order 1.
    """

    def rule(out: Result, x: GraphTensor, *, n: int) -> GraphTensor:
        if n > 1:
            raise NotLowered(f"a Bessel function of order {n} has no node in TensorFlow")
        nodes = [getattr(raw, f"Bessel{kind}{order}") for order in (0, 1)]

        def gradient(g: GraphTensor, y: GraphTensor, x: GraphTensor) -> list[GraphTensor]:
            if n == 0:
                return [raw.MulNoNan(x=side * nodes[1](x=x), y=g)]
            ratio = selected(x == 0.0, 0.5, y / x)
            # Where both have overflowed the larger one is left.
            return [raw.MulNoNan(x=nodes[0](x=x) - selected(raw.IsInf(x=y), 0.0, ratio), y=g)]

        return with_gradient(lambda x: nodes[n](x=x), gradient, x)

    return Row(rule, strong_zero=rule)


# ------------------------------------------------------------------ with XLA


def _by_a_number(recording: Recording, slot: int) -> bool:
    # XLA divides by products of the divisor, which overflow.
    below = recording.program.inputs[slot][1]
    number = recording.values[below] if below in recording.program.scalars else 0.0
    return bool(2.0**-32 < abs(number) < 2.0**32)


def _is_a_product(recording: Recording, slot: int) -> bool:
    # XLA multiplies these powers out, as NumPy does, and joins others.
    exponent = recording.program.inputs[slot][1]
    return exponent in recording.program.scalars and recording.values[exponent] in (1, 2, 3)


# Which eager kernels compute too.
KERNELS: dict[str, Row | Rule] = {
    "add": Row(lambda out, a, b: raw.AddV2(x=a, y=b), xla=True, complex=True),
    "sub": Row(lambda out, a, b: raw.Sub(x=a, y=b), xla=True, complex=True),
    "mul": Row(lambda out, a, b: raw.Mul(x=a, y=b), xla=True, complex=True),
    # XLA turns the gradient with respect to b, a / b / b, into a / (b * b), which overflows.
    "div": Row(lambda out, a, b: raw.RealDiv(x=a, y=b), xla=_by_a_number, complex=True),
    "mul_strong": Row(by_slopes("mul_strong", _mul_strong), xla=True),
    "div_strong": Row(by_slopes("div_strong", _div_strong)),
    "pow": Row(_pow, xla=_is_a_product, complex=True, whole=_square_or_power),
    "neg": Row(lambda out, x: raw.Neg(x=x), xla=True, complex=True),
    "sin": Row(lambda out, x: raw.Sin(x=x), xla=True, complex=True),
    "cos": Row(lambda out, x: raw.Cos(x=x), xla=True, complex=True),
    "tan": Row(
        # In float64 Sin and Cos call the C library, as Tan does.
        by_slopes(
            "tan", lambda out, x: raw.Sin(x=x) / raw.Cos(x=x) if _is_single(x) else raw.Tan(x=x)
        ),
        xla=True,
        complex=lambda out, x: raw.Tan(x=x),
    ),
    # XLA adds the exponents of products, and takes those of logarithms as they are.
    "exp": Row(lambda out, x: raw.Exp(x=x), complex=True),
    "log": Row(lambda out, x: raw.Log(x=x), complex=True),
    # XLA makes an absolute value of the root of a square.
    "sqrt": Row(lambda out, x: raw.Sqrt(x=x), complex=True),
    "tanh": Row(lambda out, x: raw.Tanh(x=x), xla=True, complex=True),
    "sigmoid": Row(lambda out, x: raw.Sigmoid(x=x), xla=True, complex=True),
    "relu": Row(lambda out, x: raw.Relu(features=x), xla=True),
    "abs": Row(lambda out, x: raw.Abs(x=x), xla=True, complex=_complex_abs),
    "gelu": Row(_gelu, xla=True),
    "silu": Row(lambda out, x: x * raw.Sigmoid(x=x), xla=True),
    "cbrt": by_slopes("cbrt", _cbrt),
    "log1p": Row(lambda out, x: raw.Log1p(x=x), complex=True),
    "expm1": Row(  # as precise near 0 as tanh is
        by_slopes("expm1", lambda out, x: raw.Tanh(x=x * 0.5) * (raw.Exp(x=x) + 1.0)),
        xla=True,
        complex=lambda out, x: raw.Expm1(x=x),
    ),
    "log2": Row(lambda out, x: raw.Log(x=x) / LN2, complex=True),
    "log10": Row(lambda out, x: raw.Log(x=x) / LN10, complex=True),
    "exp2": Row(by_slopes("exp2", _exp2), complex=lambda out, x: raw.Exp(x=x * LN2)),
    "sinh": Row(
        by_slopes("sinh", lambda out, x: raw.Tanh(x=x) * _cosh(out, x)),
        complex=lambda out, x: raw.Sinh(x=x),
    ),
    "cosh": Row(by_slopes("cosh", _cosh), complex=lambda out, x: raw.Cosh(x=x)),
    "arcsin": Row(by_slopes("arcsin", _arcsin), complex=lambda out, x: raw.Asin(x=x)),
    "arccos": Row(by_slopes("arccos", _arccos), xla=True, complex=lambda out, x: raw.Acos(x=x)),
    "arctan": Row(lambda out, x: raw.Atan(x=x), xla=True, complex=True),
    "arcsinh": Row(lambda out, x: raw.Asinh(x=x), xla=True, complex=True),
    "arccosh": Row(
        by_slopes("arccosh", lambda out, x: raw.Acosh(x=x)),
        xla=True,
        complex=lambda out, x: raw.Acosh(x=x),
    ),
    "arctanh": Row(lambda out, x: raw.Atanh(x=x), xla=True, complex=True),
    "sinc": Row(by_slopes("sinc", _sinc), complex=_sinc),
    "arctan2": by_slopes("arctan2", lambda out, a, b: raw.Atan2(y=a, x=b)),
    "hypot": by_slopes("hypot", _hypot),
    "logaddexp": by_slopes("logaddexp", _logaddexp),
    "maximum": _choice(lambda a, b: raw.Maximum(x=a, y=b)),
    "minimum": _choice(lambda a, b: raw.Minimum(x=a, y=b)),
    "fmax": _choice(lambda a, b: raw.SelectV2(condition=(a >= b) | raw.IsNan(x=b), t=a, e=b)),
    "fmin": _choice(lambda a, b: raw.SelectV2(condition=(a <= b) | raw.IsNan(x=b), t=a, e=b)),
    "clip": Row(by_slopes("clip", _clip), xla=True),
    "sign": Row(lambda out, x: raw.Sign(x=x), xla=True),
    "floor": Row(lambda out, x: raw.Floor(x=x), xla=True),
    "ceil": Row(lambda out, x: raw.Ceil(x=x), xla=True),
    "rint": Row(
        lambda out, x: raw.Rint(x=x), xla=True, complex=_by_parts(lambda out, x: raw.Rint(x=x))
    ),
    "trunc": Row(lambda out, x: raw.Sign(x=x) * raw.Floor(x=raw.Abs(x=x)), xla=True),
    "mod": by_slopes("mod", _mod),
    "floor_divide": _floor_divide,
    "astype": Row(
        lambda out, x, *, dtype: cast_to(x, dtype),
        xla=lambda recording, slot: recording.program.dtypes[slot].kind == "f",
        complex=True,
    ),
    "round": Row(_round, complex=_by_parts(_round)),
    "round_to": _round_to,
    "where": Row(_where, xla=True, complex=True),
    "detach": Row(lambda out, x: raw.StopGradient(input=x), xla=True, complex=True),
    "real": Row(lambda out, x: _part("Real", x), complex=True),
    "imag": Row(lambda out, x: _part("Imag", x), complex=True),
    "angle": Row(lambda out, x: _part("Angle", x), complex=True),
    # NumPy's result is complex, and so are its operands here.
    "from_parts": Row(lambda out, a, b: _complex(_part("Real", a), _part("Real", b)), complex=True),
    "conj": Row(lambda out, x: raw.Conj(input=x), complex=True),
    "equal": Row(lambda out, a, b: raw.Equal(x=a, y=b), xla=True, complex=True),
    "not_equal": Row(lambda out, a, b: raw.NotEqual(x=a, y=b), xla=True, complex=True),
    "less": Row(lambda out, a, b: raw.Less(x=a, y=b), xla=True),
    "less_equal": Row(lambda out, a, b: raw.LessEqual(x=a, y=b), xla=True),
    "greater": Row(lambda out, a, b: raw.Greater(x=a, y=b), xla=True),
    "greater_equal": Row(lambda out, a, b: raw.GreaterEqual(x=a, y=b), xla=True),
    "logical_and": Row(lambda out, a, b: raw.LogicalAnd(x=_true(a), y=_true(b)), xla=True),
    "logical_or": Row(lambda out, a, b: raw.LogicalOr(x=_true(a), y=_true(b)), xla=True),
    # A tenth of the time of NotEqual, which compares bools one by one.
    "logical_xor": Row(lambda out, a, b: (_true(a) | _true(b)) & ~(_true(a) & _true(b)), xla=True),
    # Not by LogicalNot: Grappler makes `a >= b` of `not a < b`, and a NaN tells them apart.
    "logical_not": Row(
        lambda out, x: x == 0.0 if x.dtype.is_floating else _true(x) == tf.constant(False),
        xla=True,
    ),
    "isnan": Row(_of_floats("IsNan", False), xla=True),
    "isinf": Row(_of_floats("IsInf", False), xla=True),
    "isfinite": Row(_of_floats("IsFinite", True), xla=True),
    "signbit": lambda out, x: (
        raw.Bitcast(input=x, type="int32" if _is_single(x) else "int64") < 0
        if x.dtype.is_floating
        else x < 0
    ),
}

_SPECIAL: dict[str, Row | Rule] = {
    "erf": lambda out, x: raw.Erf(x=x),
    "erfc": Row(lambda out, x: raw.Erfc(x=x), xla=True),
    "erfinv": lambda out, x: raw.Erfinv(x=x),
    "gamma": by_slopes("gamma", lambda out, x: raw.Exp(x=raw.Lgamma(x=x)) * _gammasgn(out, x)),
    "gammaln": by_slopes("gammaln", lambda out, x: raw.Lgamma(x=x)),
    "polygamma": by_slopes("polygamma", _polygamma),
    "betaln": by_slopes("betaln", _betaln),
    "beta": by_slopes("beta", _beta),
    "gammasgn": _gammasgn,
    "xlogy": by_slopes("xlogy", _xlogy),
    "xlog1py": by_slopes("xlog1py", _xlog1py),
    "entr": by_slopes("entr", lambda out, x: selected(x < 0.0, -math.inf, -raw.Xlogy(x=x, y=x))),
    "bessel_i": _bessel("I", 1.0),
    "bessel_j": _bessel("J", -1.0),
}

LOWERINGS = KERNELS | _SPECIAL
