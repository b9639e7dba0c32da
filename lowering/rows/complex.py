"""TensorFlow nodes of operations on complex numbers, whose gradients are TensorFlow's own.

Those conjugate as ours do: they point where a real result rises. What is not in this table runs in
the native engine where a number is complex.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tapegraph.lowering.rows import elementwise, fft, index, linalg, reduce, shape
from tapegraph.lowering.rows.rules import (
    Row,
    Rule,
    cast_to,
    int_axes,
    number_like,
    own_gradient,
    raw,
)
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.elementwise import LN2

# Rules for real numbers whose nodes, and gradients, are those for complex ones.
_SAME: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (
        elementwise,
        (
            *("add", "sub", "mul", "div", "neg", "sin", "cos", "exp", "log", "sqrt", "tanh"),
            *("sigmoid", "log2", "log10", "where", "detach", "equal", "not_equal"),
        ),
    ),
    (shape, ("transpose", "reshape", "concat", "broadcast_to")),
    (index, ("roll", "tensor_slice", "gather", "getitem", "index", "scatter")),
    (linalg, ("matmul", "batch_matmul", "inv", "solve", "cholesky", "einsum", "svdvals")),
    (reduce, ("sum", "mean")),
    (fft, ("fft", "ifft", "rfft", "irfft")),
)


def _node(name: str) -> Rule:
    return lambda out, x: getattr(raw, name)(x=x)


def _real_type(x: Any) -> Any:
    return x.dtype.real_dtype


def _astype(out: Any, x: Any, *, dtype: str) -> Any:
    return cast_to(x, dtype)


def _sinc(out: Any, x: Any) -> Any:
    angle = raw.Mul(x=x, y=number_like(math.pi, x))
    zero = raw.Equal(x=angle, y=number_like(0.0, x), incompatible_shape_error=True)
    safe = raw.SelectV2(condition=zero, t=number_like(1.0, x), e=angle)
    ratio = raw.RealDiv(x=raw.Sin(x=safe), y=safe)
    return raw.SelectV2(condition=zero, t=number_like(1.0, x), e=ratio)


def _abs(out: Any, x: Any) -> Any:
    """Emit the size, whose gradient at 0 is 0."""

    def lowered(x: Any) -> Any:
        y = raw.ComplexAbs(x=x, Tout=_real_type(x))

        def gradient(g: Any) -> Any:
            size = raw.SelectV2(condition=y == 0.0, t=number_like(1.0, y), e=y)
            return raw.Mul(x=cast_to(raw.RealDiv(x=g, y=size), x.dtype), y=x)

        return y, gradient

    return own_gradient(lowered, x)


def _part(node: str) -> Rule:
    return lambda out, x: getattr(raw, node)(input=x, Tout=_real_type(x))


def _by_parts(of_part: Callable[..., Any]) -> Rule:
    """Return the rule of what is computed of either part, and is the same nearby."""

    def rule(out: Any, x: Any, **attrs: Any) -> Any:
        real_type = _real_type(x)
        parts = raw.Real(input=x, Tout=real_type), raw.Imag(input=x, Tout=real_type)
        real, imag = (of_part(raw.StopGradient(input=part), **attrs) for part in parts)
        return raw.Complex(real=real, imag=imag, Tout=x.dtype)

    return rule


def _round(part: Any, *, decimals: int) -> Any:
    rule: Any = elementwise.LOWERINGS["round"]
    return rule(None, part, decimals=decimals)


def _cumsum(out: Any, x: Any, *, axis: int) -> Any:
    return raw.Cumsum(x=x, axis=tensorflow().constant(axis), exclusive=False, reverse=False)


def _prod(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return raw.Prod(input=x, axis=int_axes(axis), keep_dims=keepdims)


def _det(out: Any, a: Any) -> Any:
    def lowered(a: Any) -> Any:
        def gradient(g: Any) -> Any:
            return g[..., None, None] * raw.Conj(input=linalg.cofactors(a))

        return raw.MatrixDeterminant(input=a), gradient

    return own_gradient(lowered, a)


def _slogdet(out: Any, a: Any) -> Any:
    def lowered(a: Any) -> Any:
        sign, logarithm = raw.LogMatrixDeterminant(input=a)

        def gradient(g: Any) -> Any:
            # With w = tr(inv(a) da) the logarithm moves by Re w, and the sign by i sign Im w.
            by_sign = raw.Imag(input=raw.Conj(input=g[..., 0]) * sign, Tout=_real_type(a))
            by_log = raw.Real(input=g[..., 1], Tout=_real_type(a))
            factor = raw.Complex(real=by_log, imag=-by_sign, Tout=a.dtype)
            return factor[..., None, None] * raw.MatrixInverse(input=a, adjoint=True)

        whole = raw.Real(input=logarithm, Tout=_real_type(a))
        parts = [sign, raw.Cast(x=whole, DstT=a.dtype)]
        return raw.Pack(values=parts, axis=len(out.shape) - 1), gradient

    return own_gradient(lowered, a)


def _eigvalsh(out: Any, a: Any) -> Any:
    values, _ = raw.SelfAdjointEigV2(input=a, compute_v=True)
    return raw.Real(input=values, Tout=_real_type(a))


def _same() -> dict[str, Rule]:
    found = {}
    for family, names in _SAME:
        for name in names:
            row = family.LOWERINGS[name]
            found[name] = row.rule if isinstance(row, Row) else row
    return found


COMPLEX: dict[str, Rule] = {
    **_same(),
    "pow": lambda out, a, b: raw.Pow(x=a, y=b),
    "tan": _node("Tan"),
    "log1p": _node("Log1p"),
    "expm1": _node("Expm1"),
    "exp2": lambda out, x: raw.Exp(x=raw.Mul(x=x, y=number_like(LN2, x))),
    "sinh": _node("Sinh"),
    "cosh": _node("Cosh"),
    "arcsin": _node("Asin"),
    "arccos": _node("Acos"),
    "arctan": _node("Atan"),
    "arcsinh": _node("Asinh"),
    "arccosh": _node("Acosh"),
    "arctanh": _node("Atanh"),
    "sinc": _sinc,
    "astype": _astype,
    "abs": _abs,
    "real": _part("Real"),
    "imag": _part("Imag"),
    "angle": _part("Angle"),
    "conj": lambda out, x: raw.Conj(input=x),
    "rint": _by_parts(lambda part: raw.Rint(x=part)),
    "round": _by_parts(_round),
    "cumsum": _cumsum,
    "prod": _prod,
    "det": _det,
    "slogdet": _slogdet,
    "eigvalsh": _eigvalsh,
}
