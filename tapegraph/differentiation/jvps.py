"""Tangent rules: how a directional derivative passes through each operation.

``rule(tangents, y, *inputs, **attrs)`` returns the tangent of ``y``, which may only broadcast to
its shape; None is zero. Zeros absorb what is not finite, by `mul_strong` and `div_strong`. An
operation without a row has its transposed gradient rule (`Engine.tangent_rule`).
"""

from __future__ import annotations

import math

import numpy as np

from tapegraph.differentiation.products import (
    BOTH,
    DIV_STRONG,
    MUL_STRONG,
    strong_contract,
    strong_matmul,
)
from tapegraph.differentiation.slopes import FLAT, SLOPES, Slope, rule_of
from tapegraph.ops import elementwise, fft, index, linalg, nn, reduce, shape
from tapegraph.ops.linalg import (
    BATCH_MATMUL,
    EINSUM,
    MATMUL,
    adjoint,
    diagonal,
    matmul,
)
from tapegraph.recording.node import as_leaf
from tapegraph.recording.numpy_functions import innermost, numbers
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, operand
from tapegraph.recording.scopes import recorder
from tapegraph.typed import DuckArray, Fun

Rule = Fun


def per_input(*rules: Rule) -> Rule:
    """Make a row of one rule per input, ``rule(t, y, *inputs, **attrs)``; the row adds them."""

    def row(tangents: tuple[object, ...], y: object, *inputs: object, **attrs: object) -> DuckArray:
        total = None
        for rule, t in zip(rules, tangents, strict=False):
            if t is not None:
                total = added(total, rule(t, y, *inputs, **attrs))
        return total

    return row


def added(a: DuckArray, b: DuckArray) -> DuckArray:
    if a is None or b is None:
        return b if a is None else a
    return elementwise.add(a, b)


def _rule(slope: Slope) -> Rule:
    if slope is None or slope is FLAT:
        return lambda t, y, *inputs, **attrs: None
    return rule_of(slope, mul_strong, div_strong)


def linear_in_first(op: Op) -> Rule:
    return per_input(lambda t, y, x, *rest, **attrs: apply(op, (t, *rest), attrs))


def mul_strong(t: DuckArray, factor: DuckArray) -> DuckArray:
    """Multiply a tangent by a local derivative; a zero of either absorbs inf and nan."""
    return _strong(elementwise.mul, MUL_STRONG, t, factor)


def div_strong(t: DuckArray, divisor: DuckArray) -> DuckArray:
    """Divide a tangent; its zeros absorb 1/0 and nan, and 1/inf absorbs its inf and nan."""
    return _strong(elementwise.div, DIV_STRONG, t, divisor)


def _strong(plain: Fun, strong: Op, t: DuckArray, by: DuckArray) -> DuckArray:
    """Return the plain product if it is finite; a captured program cannot look."""
    captured = recorder().records(innermost(t), innermost(by))
    if not captured or (type(by) is float and by and math.isfinite(by)):
        out = plain(t, by)
        if captured or looks_finite(out):
            return out
    by = operand(strong.name, by, "operand")  # a comparison's result may be an array
    return apply(strong, (t, by), {"absorbs": BOTH})


def looks_finite(x: object) -> bool:
    """Return True if a value is finite; in a captured step always True (values are unknown)."""
    x = innermost(x)
    return recorder().records(x) or bool(np.isfinite(numbers(x)).all())


def _softmax(t: object, y: object, x: object, *, axis: int) -> DuckArray:
    weighted = mul_strong(t, y)
    return weighted - mul_strong(reduce.sum(weighted, axis=axis, keepdims=True), y)


def _extreme(
    t: DuckArray, y: DuckArray, x: DuckArray, *, axis: tuple[int, ...], keepdims: bool
) -> DuckArray:
    data = numbers(x)
    chosen = np.logical_or(
        data == numbers(y).reshape(reduce.kept_shape(x.shape, axis)), np.isnan(data)
    )
    one, zero = np.ones((), x.dtype), np.zeros((), x.dtype)
    count = np.sum(np.where(chosen, one, zero), axis=axis, keepdims=keepdims)
    return reduce.sum(elementwise.where(chosen, t, 0.0), axis, keepdims) / count


def _bilinear(product: Fun) -> Rule:
    return per_input(
        lambda t, y, a, b, **attrs: product(t, b, **attrs),
        lambda t, y, a, b, **attrs: product(a, t, **attrs),
    )


def _product_of(op: Op) -> Rule:
    def product(a: DuckArray, b: DuckArray) -> DuckArray:
        out = apply(op, (a, b))
        return out if looks_finite(out) else strong_matmul(a, b)

    return _bilinear(product)


def _einsum(tangents: tuple[DuckArray, ...], y: object, *operands: object, spec: str) -> DuckArray:
    total = None
    for i, t in enumerate(tangents):
        if t is not None:
            given = (*operands[:i], t, *operands[i + 1 :])
            out = apply(EINSUM, given, {"spec": spec})
            total = added(total, out if looks_finite(out) else strong_contract(spec, given, i))
    return total


def _eigh(t: DuckArray, y: DuckArray, a: DuckArray, *, uplo: str) -> DuckArray:
    values, vectors = y
    inner = matmul(adjoint(vectors), matmul(t, vectors))
    # d v_i = sum over j of v_j inner[j, i] / (w_i - w_j)
    turned = _known(
        div_strong(_off_diagonal(inner), gaps(values)), linalg.equal_pairs(numbers(values)), t
    )
    return elementwise.real(diagonal(inner, 0, -2, -1)), matmul(vectors, turned)


def _known(terms: DuckArray, undefined: DuckArray, t: object) -> DuckArray:
    """Put NaN for undefined terms, unless their matrix stays constant."""
    moved = (numbers(t) != 0).any(axis=(-2, -1))[..., None, None]
    return elementwise.where(undefined & moved, math.nan, terms)


def _off_diagonal(x: DuckArray) -> DuckArray:
    n = x.shape[-1]
    return mul_strong(x, as_leaf(1.0 - np.eye(n, dtype=x.dtype)))


def gaps(values: DuckArray) -> DuckArray:
    """Return ``values[j] - values[i]`` at (i, j), and 1 on the diagonal."""
    return values[..., None, :] - values[..., None] + np.eye(values.shape[-1], dtype=values.dtype)


def _eig(t: DuckArray, y: DuckArray, a: DuckArray) -> DuckArray:
    values, v = y
    moved = linalg.solve(v, matmul(t * (1 + 0j), v))
    turned = div_strong(_off_diagonal(moved), gaps(values))
    turned = _known(turned, linalg.equal_pairs(numbers(values)), t)
    longer = elementwise.real(diagonal(matmul(matmul(adjoint(v), v), turned), 0, -2, -1))
    dv = matmul(v, turned) - mul_strong(v, longer[..., None, :])
    return diagonal(moved, 0, -2, -1), dv


def _svd(t: DuckArray, y: DuckArray, x: DuckArray) -> DuckArray:
    m, n = x.shape[-2:]
    u, s, vh = y
    right = matmul(t, adjoint(vh))
    left = matmul(adjoint(u), t)
    inner = matmul(adjoint(u), right)
    off, apart = _off_diagonal(inner), gaps(s * s)
    row, column = s[..., None, :], s[..., None]
    of_u = div_strong(mul_strong(off, row) + mul_strong(adjoint(off), column), apart)
    of_v = div_strong(mul_strong(off, column) + mul_strong(adjoint(off), row), apart)
    equal, zeros = linalg.equal_pairs(numbers(s)), linalg.zeros_among(numbers(s))
    if x.dtype.kind == "c":  # the phases of a pair of vectors move apart, half of it by each
        eye = as_leaf(np.eye(s.shape[-1], dtype=x.dtype) * 0.5j)
        turn = mul_strong(elementwise.imag(inner), eye)
        turn = turn / elementwise.where(zeros, 1.0, s)[..., None]
        of_u, of_v = of_u + turn, of_v - turn
    du = matmul(u, _known(of_u, equal, t))
    dvh = matmul(adjoint(_known(of_v, equal, t)), vh)
    # The component of the change of u or v outside their span.
    if m > n:
        outside = div_strong(right - matmul(u, inner), row)
        du = du + _known(outside, zeros[..., None, :], t)
    if n > m:
        outside = div_strong(left - matmul(inner, vh), column)
        dvh = dvh + _known(outside, zeros[..., None], t)
    return du, elementwise.real(diagonal(inner, 0, -2, -1)), dvh


def _concat(tangents: tuple[object, ...], y: DuckArray, *arrays: DuckArray, axis: int) -> DuckArray:
    parts = [
        as_leaf(np.zeros(x.shape, x.dtype)) if t is None else t
        for t, x in zip(tangents, arrays, strict=True)
    ]
    return apply(shape.CONCAT, tuple(parts), {"axis": axis})


# Linear in the first input; none in the others.
_LINEAR = (
    *(reduce.SUM, reduce.MEAN, reduce.CUMSUM, nn.AVG_POOL2D),
    *(shape.TRANSPOSE, shape.RESHAPE, shape.BROADCAST_TO),
    *(index.TENSOR_SLICE, index.GATHER, index.GETITEM, index.ROLL, index.INDEX, index.SCATTER),
    *(fft.FFT, fft.IFFT, fft.RFFT, fft.IRFFT),
)
JVPS: dict[str, Rule] = {
    **{name: per_input(*map(_rule, row)) for name, row in SLOPES.items()},
    **{op.name: linear_in_first(op) for op in _LINEAR},
    "softmax": per_input(_softmax),
    "max": per_input(_extreme),
    "min": per_input(_extreme),
    "matmul": _product_of(MATMUL),
    "batch_matmul": _product_of(BATCH_MATMUL),
    "einsum": _einsum,
    "convolve": _bilinear(linalg.convolve),
    "inv": per_input(lambda t, y, a: -matmul(matmul(y, t), y)),
    "solve": per_input(
        lambda t, y, a, b: -linalg.solve(a, matmul(t, y)),
        lambda t, y, a, b: linalg.solve(a, t),
    ),
    "eigh": per_input(_eigh),
    "eig": per_input(_eig),
    "svd": per_input(_svd),
    "conv2d": _bilinear(lambda x, k, **attrs: apply(nn.CONV2D, (x, k), attrs)),
    "concat": _concat,
}
