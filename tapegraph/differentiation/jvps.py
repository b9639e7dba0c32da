"""Tangent rules: how a directional derivative passes through each operation.

A row of the table is one rule, ``rule(tangents, y, *inputs, **attrs)``: the tangent of the result
``y`` from those of the inputs, where None is a zero tangent. It may return None, or a tangent that
only broadcasts to ``y``'s shape; the caller spreads it. Rules are written in the library's own
operations, so that inputs and tangents may be recorded, or duals of an outer level. Those of what
is computed element by element come from the slopes.

Where a tangent or a local derivative is zero so must be their product, even if the other is not
finite: rules multiply tangents by `mul_strong` and divide them by `div_strong`. (In reverse mode a
zero cotangent absorbs what it meets on its way; here either factor may be that zero.)
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tapegraph.differentiation.slopes import FLAT, SLOPES, Divisor, Linear, Slope
from tapegraph.ops import elementwise, fft, index, linalg, nn, reduce, shape
from tapegraph.ops.elementwise import sqrt, where
from tapegraph.ops.index import INDEX
from tapegraph.ops.linalg import (
    BATCH_MATMUL,
    EINSUM,
    MATMUL,
    adjoint,
    aligned,
    diagonal,
    matmul,
    terms_of,
)
from tapegraph.ops.nn import Pair
from tapegraph.ops.shape import concat, matrix_transpose, reshape
from tapegraph.ops.special import log_softmax
from tapegraph.recording.node import as_leaf
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply
from tapegraph.recording.scopes import recorder
from tapegraph.typed import Array

Rule = Callable[..., Any]


def per_input(*rules: Rule) -> Rule:
    """Make a row of one rule per input, ``rule(t, y, *inputs, **attrs)``; their results add up."""

    def row(tangents: tuple[Any, ...], y: Any, *inputs: Any, **attrs: Any) -> Any:
        total = None
        for rule, t in zip(rules, tangents, strict=False):
            if t is not None:
                total = added(total, rule(t, y, *inputs, **attrs))
        return total

    return row


def added(a: Any, b: Any) -> Any:
    """Return the sum of two derivatives, of which None is zero."""
    if a is None or b is None:
        return b if a is None else a
    return elementwise.add(a, b)


def _rule(slope: Slope) -> Rule:
    """Return the rule for the tangent of one input of an element-wise operation."""
    if slope is None or slope is FLAT:
        return lambda t, y, *inputs, **attrs: None
    if isinstance(slope, Linear):
        return slope.of
    if isinstance(slope, Divisor):
        of = slope.of
        return lambda t, y, *inputs, **attrs: div_strong(t, of(y, *inputs, **attrs))
    factor = slope
    return lambda t, y, *inputs, **attrs: mul_strong(t, factor(y, *inputs, **attrs))


def linear_in_first(op: Op) -> Rule:
    """Make the row of an operation that is linear in its first input: it applies to the tangent."""
    return per_input(lambda t, y, x, *rest, **attrs: apply(op, (t, *rest), attrs))


def mul_strong(t: Any, factor: Any) -> Any:
    """Multiply a tangent by a local derivative; a zero of either absorbs inf and nan."""
    out = elementwise.mul(t, factor)
    if looks_finite(out):
        return out
    return elementwise.mul(
        _without(t, _not_finite(t), _zero(factor), 0.0),
        _without(factor, _not_finite(factor), _zero(t), 0.0),
    )


def div_strong(t: Any, divisor: Any) -> Any:
    """Divide a tangent; its zeros absorb 1/0 and nan, and 1/inf absorbs its inf and nan."""
    out = elementwise.div(t, divisor)
    if looks_finite(out):
        return out
    return elementwise.div(
        _without(t, _not_finite(t), np.isinf(value(divisor)), 0.0),
        _without(divisor, _not_finite(divisor) | _zero(divisor), _zero(t), 1.0),
    )


def value(x: Any) -> Array:
    """Return the array under all dual levels: what the operation computes with.

    :raises ConcretizationError: The program that it belongs to is captured: a choice by it would be
        frozen.
    """
    x = _bottom(x)
    recorder().read(
        x, "a tangent rule", "Differentiate in reverse mode, by tg.grad or tg.gradients."
    )
    return np.asarray(getattr(x, "_array", x))


def looks_finite(x: Any) -> bool:
    """Return whether a value holds neither inf nor nan, as far as anyone can look.

    In a captured program nobody can: there 0 * inf is the NaN that it is.
    """
    return recorder().records(_bottom(x)) or bool(np.isfinite(value(x)).all())


def _bottom(x: Any) -> Any:
    while hasattr(x, "primal"):
        x = x.primal
    return x


def _not_finite(x: Any) -> Any:
    return ~np.isfinite(value(x))


def _zero(x: Any) -> Any:
    return value(x) == 0


def _without(x: Any, singular: Any, absorbed: Any, neutral: float) -> Any:
    """Put a neutral number where ``x`` is singular and is absorbed by what it meets."""
    mask = singular & absorbed
    return elementwise.where(mask, neutral, x) if mask.any() else x


def _softmax(t: Any, y: Any, x: Any, *, axis: int) -> Any:
    weighted = mul_strong(t, y)
    return weighted - mul_strong(reduce.sum(weighted, axis=axis, keepdims=True), y)


def _extreme(t: Any, y: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    data = value(x)
    chosen = (data == value(y).reshape(reduce.kept_shape(data.shape, axis))) | (data != data)
    count = chosen.sum(axis=axis, keepdims=keepdims, dtype=data.dtype)
    return reduce.sum(where(chosen, t, 0.0), axis, keepdims) / as_leaf(count)


def _prod(t: Any, y: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Multiply the elements two by two, each pair by the product rule."""
    x, t = reduce.merged(x, axis), reduce.merged(t, axis)
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        (a, b, rest), (ta, tb, t_rest) = _in_parts(x, half), _in_parts(t, half)
        x = concat([a * b, rest], -1)
        t = concat([mul_strong(ta, b) + mul_strong(tb, a), t_rest], -1)
    return reshape(t, y.shape) if x.shape[-1] else None


def _in_parts(x: Any, half: int) -> tuple[Any, Any, Any]:
    return x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]


def _cumprod(t: Any, y: Any, x: Any, *, axis: int) -> Any:
    """Multiply each element by those before it, twice as many each time."""
    whole = (slice(None),) * axis
    step = 1
    while step < y.shape[axis]:
        parts = (slice(None, step), slice(step, None), slice(None, -step))
        first, after, before = ((*whole, part) for part in parts)
        t = concat(
            [t[first], mul_strong(t[after], x[before]) + mul_strong(t[before], x[after])], axis
        )
        x = concat([x[first], x[after] * x[before]], axis)
        step *= 2
    return t


def _bilinear(op: Op) -> Rule:
    return per_input(
        lambda t, y, a, b: _product(op, y, t, b),
        lambda t, y, a, b: _product(op, y, a, t),
    )


def _product(op: Op, y: Any, a: Any, b: Any) -> Any:
    """Multiply a tangent and a matrix so that a zero adds nothing, whatever it is paired with."""
    out = apply(op, (a, b))
    if looks_finite(out) or (looks_finite(a) and looks_finite(b)):
        return out
    left = a[..., :, :, None] if a.ndim > 1 else a[None, :, None]
    right = b[..., None, :, :] if b.ndim > 1 else b[None, :, None]
    return shape.reshape(reduce.sum(mul_strong(left, right), axis=-2), y.shape)


def _einsum(tangents: tuple[Any, ...], y: Any, *operands: Any, spec: str) -> Any:
    total = None
    for i, t in enumerate(tangents):
        if t is not None:
            total = added(total, _contracted(spec, i, (*operands[:i], t, *operands[i + 1 :])))
    return total


def _contracted(spec: str, place: int, operands: tuple[Any, ...]) -> Any:
    """Contract with a tangent in one place, whose zeros add nothing."""
    out = apply(EINSUM, operands, {"spec": spec})
    if looks_finite(out) or all(map(looks_finite, operands)):
        return out
    return by_elements(
        spec, operands, lambda factors: functools.reduce(mul_strong, factors, factors.pop(place))
    )


def by_elements(spec: str, operands: Iterable[Any], product: Callable[[list[Any]], Any]) -> Any:
    """Contract with a product of one's own, of factors that broadcast."""
    terms, output = terms_of(spec)
    labels = output + "".join(sorted(set("".join(terms)) - set(output)))
    factors = [aligned(x, term, labels) for x, term in zip(operands, terms, strict=True)]
    return product(factors).sum(axis=tuple(range(len(output), len(labels))))


def _solve_by_matrix(t: Any, y: Any, a: Any, b: Any) -> Any:
    return -linalg.solve(a, matmul(t, y))


def _det(t: Any, y: Any, a: Any) -> Any:
    if np.all(np.linalg.matrix_rank(value(a)) == a.shape[-1]):
        slope = y[..., None, None] * matrix_transpose(linalg.inv(a))
    else:
        slope = signed_minors(a)
    return reduce.sum(mul_strong(t, slope), axis=(-2, -1))


def signed_minors(a: Any) -> Any:
    """Return the determinants of all minors, with their signs: cofactors of singular matrices."""
    n = a.shape[-1]
    others = np.array([[j for j in range(n) if j != i] for i in range(n)], dtype=np.int64)
    minors = index.getitem(a, (Ellipsis, others[:, None, :, None], others[None, :, None, :]))
    signs = (-1.0) ** np.add.outer(np.arange(n), np.arange(n))
    return linalg.det(minors) * as_leaf(signs.astype(a.dtype))


def _slogdet(t: Any, y: Any, a: Any) -> Any:
    slope = reduce.sum(mul_strong(t, matrix_transpose(linalg.inv(a))), axis=(-2, -1))
    if slope.dtype.kind == "c":
        turned = mul_strong(y[..., 0], elementwise.imag(slope) * 1j)
        return shape.stack([turned, elementwise.real(slope) * (1 + 0j)], -1)
    # Beside the logarithm's tangent stands the sign's, which is zero.
    return mul_strong(slope[..., None], as_leaf(np.array([0.0, 1.0], a.dtype)))


def _cholesky(t: Any, y: Any, a: Any) -> Any:
    n = a.shape[-1]
    t = (t + adjoint(t)) / 2  # only symmetric matrices have a factor
    inner = linalg.solve(y, adjoint(linalg.solve(y, t)))
    halved = np.tri(n, dtype=a.dtype) - np.eye(n, dtype=a.dtype) / 2
    return matmul(y, mul_strong(inner, as_leaf(halved)))


def _eigvalsh(t: Any, y: Any, a: Any) -> Any:
    vectors = linalg.eigh(a).eigenvectors
    return reduce.sum(mul_strong(matmul(t, vectors), elementwise.conj(vectors)), axis=-2)


def _eigh(t: Any, y: Any, a: Any, *, uplo: str) -> Any:
    n = a.shape[-1]
    rows, values = y[..., :n], elementwise.real(y[..., n])
    inner = matmul(elementwise.conj(rows), matmul(t, matrix_transpose(rows)))
    # d v_i = sum over j of v_j inner[j, i] / (w_i - w_j), and the vectors are rows here.
    turned = _known(
        div_strong(_off_diagonal(inner), gaps(values)), linalg.equal_pairs(value(values)), t
    )
    return shape.concat(
        [matmul(matrix_transpose(turned), rows), diagonal(inner, 0, -2, -1)[..., None]], -1
    )


def _known(terms: Any, undefined: Any, t: Any) -> Any:
    """Put NaN for undefined terms, unless their matrix stays as it is."""
    moved = (value(t) != 0).any(axis=(-2, -1))[..., None, None]
    return elementwise.where(undefined & moved, math.nan, terms)


def _off_diagonal(x: Any) -> Any:
    n = x.shape[-1]
    return mul_strong(x, as_leaf(1.0 - np.eye(n, dtype=x.dtype)))


def gaps(values: Any) -> Any:
    """Return ``values[j] - values[i]`` at (i, j), and 1 on the diagonal."""
    return values[..., None, :] - values[..., None] + np.eye(values.shape[-1], dtype=values.dtype)


def _eig(t: Any, y: Any, a: Any) -> Any:
    n = a.shape[-1]
    rows, values = y[..., :n], y[..., n]
    v = matrix_transpose(rows)
    moved = linalg.solve(v, matmul(t * (1 + 0j), v))
    turned = div_strong(_off_diagonal(moved), gaps(values))
    turned = _known(turned, linalg.equal_pairs(value(values)), t)
    longer = elementwise.real(diagonal(matmul(matmul(adjoint(v), v), turned), 0, -2, -1))
    dv = matmul(v, turned) - mul_strong(v, longer[..., None, :])
    return shape.concat([matrix_transpose(dv), diagonal(moved, 0, -2, -1)[..., None]], -1)


def _qr(t: Any, y: Any, a: Any) -> Any:
    m, n = a.shape[-2:]
    q, r = y[..., :m, :], matrix_transpose(y[..., m:, :])
    right = matrix_transpose(linalg.solve(matrix_transpose(r), matrix_transpose(t)))
    inner = matmul(adjoint(q), right)
    eye = as_leaf(np.eye(n, dtype=a.dtype))
    low = elementwise.where(np.tri(n, k=-1, dtype=bool), inner, 0.0)
    turned = low - adjoint(low)
    if inner.dtype.kind == "c":
        turned = turned + mul_strong(elementwise.imag(inner), eye) * 1j
    dq = right - matmul(q, inner) + matmul(q, turned)
    dr = matmul(inner - turned, r)
    return shape.concat([dq, matrix_transpose(dr)], -2)


def _svdvals(t: Any, y: Any, x: Any) -> Any:
    u, _, vh = linalg.svd(x, full_matrices=False)
    return reduce.sum(mul_strong(matmul(t, adjoint(vh)), elementwise.conj(u)), axis=-2)


def _svd(t: Any, y: Any, x: Any) -> Any:
    m, n = x.shape[-2:]
    u, s, vh = linalg.parts_of_svd(y, m)
    right = matmul(t, adjoint(vh))
    left = matmul(adjoint(u), t)
    inner = matmul(adjoint(u), right)
    off, apart = _off_diagonal(inner), gaps(s * s)
    row, column = s[..., None, :], s[..., None]
    of_u = div_strong(mul_strong(off, row) + mul_strong(adjoint(off), column), apart)
    of_v = div_strong(mul_strong(off, column) + mul_strong(adjoint(off), row), apart)
    equal, zeros = linalg.equal_pairs(value(s)), linalg.zeros_among(value(s))
    if x.dtype.kind == "c":  # the phases of a pair of vectors move apart, half of it by each
        eye = as_leaf(np.eye(s.shape[-1], dtype=x.dtype) * 0.5j)
        turn = mul_strong(elementwise.imag(inner), eye)
        turn = turn / elementwise.where(zeros, 1.0, s)[..., None]
        of_u, of_v = of_u + turn, of_v - turn
    du = matmul(u, _known(of_u, equal, t))
    dvh = matmul(adjoint(_known(of_v, equal, t)), vh)
    # What moves u or v out of the space that they span.
    if m > n:
        outside = div_strong(right - matmul(u, inner), row)
        du = du + _known(outside, zeros[..., None, :], t)
    if n > m:
        outside = div_strong(left - matmul(inner, vh), column)
        dvh = dvh + _known(outside, zeros[..., None], t)
    return shape.concat([matrix_transpose(du), diagonal(inner, 0, -2, -1)[..., None], dvh], axis=-1)


def _pinv(t: Any, y: Any, a: Any, *, rcond: float) -> Any:
    tt, yt = adjoint(t), adjoint(y)
    outside_rows = tt - matmul(matmul(tt, a), y)
    outside_columns = tt - matmul(y, matmul(a, tt))
    return (
        matmul(matmul(y, yt), outside_rows)
        + matmul(outside_columns, matmul(yt, y))
        - matmul(matmul(y, t), y)
    )


def _lstsq_by_matrix(t: Any, y: Any, a: Any, b: Any, *, rcond: float) -> Any:
    inverse, adjoint_of_t = linalg.pinv(a, rcond), adjoint(t)
    missed = matmul(adjoint_of_t, b - matmul(a, y))
    outside = matmul(adjoint_of_t, matmul(adjoint(inverse), y))
    return (
        matmul(inverse, matmul(adjoint(inverse), missed))
        + outside
        - matmul(inverse, matmul(a, outside))
        - matmul(inverse, matmul(t, y))
    )


def _norm(t: Any, y: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool, ord: float) -> Any:
    kept = tuple(1 if i in axis else n for i, n in enumerate(x.shape))
    slope = norm_slope(x, shape.reshape(y, kept), axis, ord)
    return reduce.sum(mul_strong(t, slope), axis=axis, keepdims=keepdims)


def norm_slope(x: Any, y: Any, axis: tuple[int, ...], ord: float) -> Any:
    """Return the gradient of a norm ``y`` by its vector ``x``; zero for a zero vector."""
    if ord == 1:
        return np.sign(x)
    if math.isinf(ord):
        ties = np.abs(x) == y
        return np.sign(x) * ties / ties.sum(axis=axis, keepdims=True).astype(x.dtype)
    divisor = np.where(y == 0, np.ones((), y.dtype), y)
    if ord == 2:
        return x / divisor
    return np.where(y == 0, x, np.sign(x) * (np.abs(x) / divisor) ** (ord - 1))


def _layer_norm(
    tangents: tuple[Any, ...], y: Any, x: Any, gamma: Any, beta: Any, *, eps: float
) -> Any:
    tx, tgamma, tbeta = tangents
    centred = x - _row_mean(x)
    inverse = 1.0 / sqrt(_row_mean(centred * centred) + eps)
    normal = centred * inverse
    total = tbeta
    if tgamma is not None:
        total = added(total, mul_strong(tgamma, normal))
    if tx is not None:
        moved = tx - _row_mean(tx)
        along = _row_mean(mul_strong(moved, normal))
        moved = mul_strong(moved - mul_strong(along, normal), inverse)
        total = added(total, mul_strong(moved, gamma))
    return total


def _row_mean(x: Any) -> Any:
    return reduce.mean(x, axis=-1, keepdims=True)


def _max_pool2d(t: Any, y: Any, x: Any, *, ksize: Pair, stride: Pair, pad: Pair) -> Any:
    array = value(x)
    hits = nn.firsts(array, value(y), ksize, stride, pad)
    first = np.argmax(np.stack(list(hits)), axis=0)
    n, c, row, column = np.indices(first.shape)
    row = row * stride[0] - pad[0] + first // ksize[1]
    column = column * stride[1] - pad[1] + first % ksize[1]
    return apply(INDEX, (t, *map(as_leaf, (n, c, row, column))), {"plan": ("array",) * 4})


def _softmax_crossentropy(tangents: tuple[Any, ...], y: Any, logits: Any, targets: Any) -> Any:
    tlogits, ttargets = tangents
    rows = max(1, math.prod(logits.shape[:-1]))
    by_logits = by_targets = None
    if tlogits is not None:
        if targets.ndim < logits.ndim:
            one, zero = np.ones((), logits.dtype), np.zeros((), logits.dtype)
            chosen = np.expand_dims(targets, -1) == np.arange(logits.shape[-1])
            targets = where(chosen, one, zero)
        weight = reduce.sum(targets, axis=-1, keepdims=True)
        by_logits = mul_strong(tlogits, reduce.softmax(logits) * weight - targets)
    if ttargets is not None:
        by_targets = mul_strong(ttargets, -log_softmax(logits, -1))
    return reduce.sum(added(by_logits, by_targets)) / rows


def _mse_loss(tangents: tuple[Any, ...], y: Any, prediction: Any, target: Any) -> Any:
    moved, shifted = tangents
    approach = moved if shifted is None else -shifted if moved is None else moved - shifted
    slope = (prediction - target) * (2.0 / max(1, prediction.size))
    return reduce.sum(mul_strong(approach, slope))


def _concat(tangents: tuple[Any, ...], y: Any, *arrays: Any, axis: int) -> Any:
    parts = [
        as_leaf(np.zeros(x.shape, x.dtype)) if t is None else t
        for t, x in zip(tangents, arrays, strict=True)
    ]
    return apply(shape.CONCAT, tuple(parts), {"axis": axis})


JVPS: dict[str, Rule] = {
    **{name: per_input(*map(_rule, row)) for name, row in SLOPES.items()},
    "sum": linear_in_first(reduce.SUM),
    "mean": linear_in_first(reduce.MEAN),
    "softmax": per_input(_softmax),
    "max": per_input(_extreme),
    "min": per_input(_extreme),
    "prod": per_input(_prod),
    "cumsum": linear_in_first(reduce.CUMSUM),
    "cumprod": per_input(_cumprod),
    "matmul": _bilinear(MATMUL),
    "batch_matmul": _bilinear(BATCH_MATMUL),
    "einsum": _einsum,
    "convolve": per_input(
        lambda t, y, a, v: linalg.convolve(t, v),
        lambda t, y, a, v: linalg.convolve(a, t),
    ),
    "inv": per_input(lambda t, y, a: -matmul(matmul(y, t), y)),
    "solve": per_input(_solve_by_matrix, lambda t, y, a, b: linalg.solve(a, t)),
    "det": per_input(_det),
    "slogdet": per_input(_slogdet),
    "cholesky": per_input(_cholesky),
    "eigvalsh": per_input(_eigvalsh),
    "eigh": per_input(_eigh),
    "eig": per_input(_eig),
    "qr": per_input(_qr),
    "svdvals": per_input(_svdvals),
    "svd": per_input(_svd),
    "pinv": per_input(_pinv),
    "lstsq": per_input(
        _lstsq_by_matrix,
        lambda t, y, a, b, **attrs: apply(linalg.LSTSQ, (a, t), attrs),
    ),
    "norm": per_input(_norm),
    "layer_norm": _layer_norm,
    "conv2d": per_input(
        lambda t, y, x, k, **attrs: apply(nn.CONV2D, (t, k), attrs),
        lambda t, y, x, k, **attrs: apply(nn.CONV2D, (x, t), attrs),
    ),
    "max_pool2d": per_input(_max_pool2d),
    "avg_pool2d": linear_in_first(nn.AVG_POOL2D),
    "softmax_crossentropy": _softmax_crossentropy,
    "mse_loss": _mse_loss,
    "transpose": linear_in_first(shape.TRANSPOSE),
    "reshape": linear_in_first(shape.RESHAPE),
    "concat": _concat,
    "broadcast_to": linear_in_first(shape.BROADCAST_TO),
    "tensor_slice": linear_in_first(index.TENSOR_SLICE),
    "gather": linear_in_first(index.GATHER),
    "getitem": linear_in_first(index.GETITEM),
    "roll": linear_in_first(index.ROLL),
    "index": linear_in_first(index.INDEX),
    "scatter": linear_in_first(index.SCATTER),
    "fft": linear_in_first(fft.FFT),
    "ifft": linear_in_first(fft.IFFT),
    "rfft": linear_in_first(fft.RFFT),
    "irfft": linear_in_first(fft.IRFFT),
}
