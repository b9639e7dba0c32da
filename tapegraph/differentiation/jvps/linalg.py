"""JVP rules: products, decompositions and norms."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tapegraph.differentiation.jvps.rules import (
    Rule,
    div_strong,
    looks_finite,
    mul_strong,
    per_input,
    value,
)
from tapegraph.ops import elementwise, index, linalg, reduce, shape
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
from tapegraph.ops.shape import matrix_transpose
from tapegraph.recording.node import as_leaf
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply


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
    parts = [
        _contracted(spec, i, (*operands[:i], t, *operands[i + 1 :]))
        for i, t in enumerate(tangents)
        if t is not None
    ]
    return functools.reduce(elementwise.add, parts) if parts else None


def _contracted(spec: str, place: int, operands: tuple[Any, ...]) -> Any:
    """Contract with a tangent in one place, whose zeros add nothing."""
    out = apply(EINSUM, operands, {"spec": spec})
    if looks_finite(out) or all(map(looks_finite, operands)):
        return out
    terms, output = terms_of(spec)
    labels = output + "".join(sorted(set("".join(terms)) - set(output)))
    factors = [aligned(x, term, labels) for x, term in zip(operands, terms, strict=True)]
    product = functools.reduce(mul_strong, factors, factors.pop(place))
    return reduce.sum(product, axis=tuple(range(len(output), len(labels))))


def _column(x: Any) -> Any:
    return shape.reshape(x, (*x.shape, 1))


def _row(x: Any) -> Any:
    return shape.reshape(x, (*x.shape[:-1], 1, x.shape[-1]))


def _solve_by_matrix(t: Any, y: Any, a: Any, b: Any) -> Any:
    return -linalg.solve(a, matmul(t, y))


def _det(t: Any, y: Any, a: Any) -> Any:
    if np.all(np.linalg.matrix_rank(value(a)) == a.shape[-1]):
        slope = _column(_column(y)) * matrix_transpose(linalg.inv(a))
    else:
        slope = _cofactors(a)
    return reduce.sum(mul_strong(t, slope), axis=(-2, -1))


def _cofactors(a: Any) -> Any:
    """Return the determinants of all minors, with their signs; right for singular matrices."""
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
    return mul_strong(_column(slope), as_leaf(np.array([0.0, 1.0], a.dtype)))


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
        div_strong(_off_diagonal(inner), _gaps(values)), linalg.equal_pairs(value(values)), t
    )
    return shape.concat(
        [matmul(matrix_transpose(turned), rows), _column(diagonal(inner, 0, -2, -1))], -1
    )


def _known(terms: Any, undefined: Any, t: Any) -> Any:
    """Put NaN for undefined terms, unless their matrix stays as it is."""
    moved = (value(t) != 0).any(axis=(-2, -1))[..., None, None]
    return elementwise.where(undefined & moved, math.nan, terms)


def _off_diagonal(x: Any) -> Any:
    n = x.shape[-1]
    return mul_strong(x, as_leaf(1.0 - np.eye(n, dtype=x.dtype)))


def _gaps(values: Any) -> Any:
    """Return ``values[j] - values[i]`` at (i, j), and 1 on the diagonal."""
    n = values.shape[-1]
    return _row(values) - _column(values) + as_leaf(np.eye(n, dtype=values.dtype))


def _eig(t: Any, y: Any, a: Any) -> Any:
    n = a.shape[-1]
    rows, values = y[..., :n], y[..., n]
    v = matrix_transpose(rows)
    moved = linalg.solve(v, matmul(t * (1 + 0j), v))
    turned = div_strong(_off_diagonal(moved), _gaps(values))
    turned = _known(turned, linalg.equal_pairs(value(values)), t)
    longer = elementwise.real(diagonal(matmul(matmul(adjoint(v), v), turned), 0, -2, -1))
    dv = matmul(v, turned) - mul_strong(v, _row(longer))
    return shape.concat([matrix_transpose(dv), _column(diagonal(moved, 0, -2, -1))], -1)


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
    off, gaps = _off_diagonal(inner), _gaps(s * s)
    of_u = div_strong(mul_strong(off, _row(s)) + mul_strong(adjoint(off), _column(s)), gaps)
    of_v = div_strong(mul_strong(off, _column(s)) + mul_strong(adjoint(off), _row(s)), gaps)
    equal, zeros = linalg.equal_pairs(value(s)), linalg.zeros_among(value(s))
    if x.dtype.kind == "c":  # the phases of a pair of vectors move apart, half of it by each
        eye = as_leaf(np.eye(s.shape[-1], dtype=x.dtype) * 0.5j)
        apart = mul_strong(elementwise.imag(inner), eye) / _column(elementwise.where(zeros, 1.0, s))
        of_u, of_v = of_u + apart, of_v - apart
    du = matmul(u, _known(of_u, equal, t))
    dvh = matmul(adjoint(_known(of_v, equal, t)), vh)
    # What moves u or v out of the space that they span.
    if m > n:
        outside = div_strong(right - matmul(u, inner), _row(s))
        du = du + _known(outside, zeros[..., None, :], t)
    if n > m:
        outside = div_strong(left - matmul(inner, vh), _column(s))
        dvh = dvh + _known(outside, zeros[..., None], t)
    return shape.concat([matrix_transpose(du), _column(diagonal(inner, 0, -2, -1)), dvh], axis=-1)


def _pinv(t: Any, y: Any, a: Any, *, rcond: float) -> Any:
    tt, yt = adjoint(t), adjoint(y)
    outside_rows = tt - matmul(matmul(tt, a), y)
    outside_columns = tt - matmul(y, matmul(a, tt))
    return (
        matmul(matmul(y, yt), outside_rows)
        + matmul(outside_columns, matmul(yt, y))
        - matmul(matmul(y, t), y)
    )


def _norm(t: Any, y: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool, ord: float) -> Any:
    kept = tuple(1 if i in axis else n for i, n in enumerate(x.shape))
    slope = _slope(x, shape.reshape(y, kept), axis, ord)
    return reduce.sum(mul_strong(t, slope), axis=axis, keepdims=keepdims)


def _slope(x: Any, y: Any, axis: tuple[int, ...], ord: float) -> Any:
    """Return the gradient of a norm ``y`` by its vector ``x``; zero for a zero vector."""
    signs = np.sign(value(x))
    if ord == 1:
        return as_leaf(signs)
    if math.isinf(ord):
        ties = np.abs(value(x)) == value(y)
        return as_leaf(signs * ties / ties.sum(axis=axis, keepdims=True).astype(x.dtype))
    zero = value(y) == 0
    divisor = elementwise.where(zero, 1.0, y)
    if ord == 2:
        return x / divisor
    powers = (elementwise.abs(x) / divisor) ** (ord - 1)
    return elementwise.where(zero, x, as_leaf(signs) * powers)


JVPS: dict[str, Rule] = {
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
    "norm": per_input(_norm),
}
