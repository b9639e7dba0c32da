"""VJP rules: products, decompositions, norms, and Fourier transforms.

A transform's matrix is symmetric, and the sweep carries conjugates, so a cotangent takes the same
transform.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph.arrays import is_one_product, stacked_rows
from tapegraph.differentiation.jvps import gaps
from tapegraph.differentiation.products import strong_contract
from tapegraph.fallback.rules import (
    Gradients,
    JointVJP,
    Row,
    Rule,
    StrongZero,
    as_tensor,
    to_ndarray,
)
from tapegraph.ops.fft import SWAPPED
from tapegraph.ops.index import getitem
from tapegraph.ops.linalg import (
    EIGH,
    adjoint,
    contract,
    equal_pairs,
    flipped,
    may_cut,
    terms_of,
    zeros_among,
)
from tapegraph.recording.node import as_leaf
from tapegraph.recording.numpy_functions import numbers, peek
from tapegraph.recording.record import apply
from tapegraph.recording.scopes import recorder
from tapegraph.row_sparse import conjugated
from tapegraph.typed import Array, Cotangent


def _rising(rule: Rule) -> Rule:
    """Return the rule for the sweep's conjugates of one for cotangents ``dL/dx + i dL/dy``."""

    def conjugate(g: Cotangent, y: Array, x: Array, **attrs: object) -> Array:
        if isinstance(y, tuple):
            g = [conjugated(part) for part in _filled(g, y)]
        else:
            g = conjugated(g)
        return conjugated(rule(g, y, x, **attrs))

    return conjugate


def _filled(g: Sequence[Cotangent | None], y: Sequence[Array]) -> list[Cotangent]:
    return [np.zeros_like(x) if part is None else part for part, x in zip(g, y, strict=True)]


def _outer(x: Array, axis: int, other: Array) -> bool:
    """Return whether gradients are outer products, which take three times as long as matrices."""
    return x.ndim > 2 and other.ndim > 2 and x.shape[axis] == 1


def _left(g: Cotangent, y: Array, a: Array, b: Array) -> Array:
    if _outer(b, -1, a):
        return g * b.swapaxes(-1, -2)
    if b.ndim == 1:
        return g[..., None] * b
    if a.ndim == 1:
        # A row times a stack: one gradient per matrix of the stack, summed by the sweep.
        return np.matmul(g[..., None, :], b.swapaxes(-1, -2))[..., 0, :]
    if is_one_product(g, b):
        return np.matmul(stacked_rows(g), b.T).reshape(a.shape)
    return np.matmul(g, b.swapaxes(-1, -2))


def _right(g: Cotangent, y: Array, a: Array, b: Array) -> Array:
    if _outer(a, -2, b):
        return a.swapaxes(-1, -2) * g
    if a.ndim == 1:
        return a[:, None] * g[..., None, :] if b.ndim > 1 else g * a
    if b.ndim == 1:
        return np.matmul(a.swapaxes(-1, -2), g[..., None])[..., 0]
    if is_one_product(a, b) and g.size:
        return np.matmul(stacked_rows(a).T, stacked_rows(g))
    return np.matmul(a.swapaxes(-1, -2), g)


def _einsum(contract: Rule) -> Rule:
    """Return the rule that contracts the cotangent with the other operands to each's labels."""

    def rule(needs: list[bool], g: Cotangent, y: Array, *arrays: Array, spec: str) -> Gradients:
        terms, output = terms_of(spec)
        grads: list[Array | None] = []
        for i, (term, needed) in enumerate(zip(terms, needs, strict=True)):
            others = [*terms[:i], *terms[i + 1 :]]
            rest = [*arrays[:i], *arrays[i + 1 :]]
            back = f"{','.join([output, *others])}->{term}"
            grads.append(contract(back, g, *rest) if needed else None)
        return grads

    return rule


def _contract(spec: str, g: Cotangent, *arrays: Array) -> Array:
    out = contract(spec, np.asarray(g), *arrays)
    if not isinstance(g, StrongZero) or np.isfinite(out).all():
        return out
    return strong_contract(spec, (to_ndarray(g), *arrays), 0, (True, False))


def _solve(needs: list[bool], g: Cotangent, y: Array, a: Array, b: Array) -> Gradients:
    back = np.linalg.solve(flipped(a), to_ndarray(g))
    return -np.matmul(back, flipped(y)) if needs[0] else None, back


def _det(g: Cotangent, y: Array, a: Array) -> Array:
    if a.size and np.isfinite(y).all() and np.abs(y).min() > np.finfo(y.dtype).tiny:
        inverse = np.linalg.inv(a)  # many times faster than cofactors, if none is nearly singular
        condition = np.linalg.norm(a, 1, (-2, -1)) * np.linalg.norm(inverse, 1, (-2, -1))
        if condition.max() < np.finfo(a.dtype).eps ** (-1 / 3):
            return (g * y)[..., None, None] * flipped(inverse)
    return g[..., None, None] * cofactors(a)


def cofactors(a: Array) -> Array:
    """Return ``det(a) inv(a).T``, of singular matrices too: ``det(U Vh) U diag(p) Vh``.

    ``p_i`` is the product of the singular values other than ``s_i``.
    """
    u, s, vh = np.linalg.svd(a)
    n = s.shape[-1]
    others = np.where(np.eye(n, dtype=bool), np.ones((), s.dtype), s[..., None, :])
    scaled = u * others.prod(axis=-1)[..., None, :]
    sign = np.linalg.det(np.matmul(u, vh))
    if a.dtype.kind == "c":
        return sign[..., None, None] * np.conj(np.matmul(scaled, vh))
    return sign.round()[..., None, None] * np.matmul(scaled, vh)


def _slogdet(g: list[Cotangent], y: tuple[Array, Array], a: Array) -> Array:
    """With ``w = tr(inv(a) da)`` the logarithm moves by ``Re w``, a sign ``s`` by ``i s Im w``."""
    by_sign, factor = _filled(g, y)
    if y[0].dtype.kind == "c":
        factor = factor + 1j * (by_sign * y[0]).imag
    singular = np.isinf(y[1])[..., None, None]
    inverse = np.linalg.inv(np.where(singular, np.eye(a.shape[-1], dtype=a.dtype), a))
    return factor[..., None, None] * flipped(np.where(singular, np.nan, inverse))


def _cholesky(g: Cotangent, y: Array, a: Array) -> Array:
    # With S = L^-T P(L.T G) L^-1, where P halves the diagonal of the lower triangle: (S + S.T)/2.
    n = a.shape[-1]
    lower = np.tri(n, dtype=a.dtype) - np.eye(n, dtype=a.dtype) / 2
    inner = np.matmul(adjoint(y), np.tril(to_ndarray(g))) * lower
    right = np.linalg.solve(adjoint(y), adjoint(np.linalg.solve(adjoint(y), inner)))
    return (right + adjoint(right)) / 2


def _eigvalsh(
    needs: list[bool], g: Cotangent, y: Array, a: Array, *, saved: Array | None = None
) -> tuple[Array]:
    vectors = apply(EIGH, (a,), {"uplo": "L"})[1] if saved is None else saved
    return (flipped(np.matmul(g[..., None, :] * vectors, adjoint(vectors))),)


def _eigh(g: Cotangent, y: Array, a: Array, *, uplo: str) -> Array:
    (values, vectors), (by_values, by_vectors) = y, g
    of_vectors = _antisymmetric(np.matmul(adjoint(vectors), by_vectors))
    equal = equal_pairs(_numbers(values))
    inner = _over_gaps(of_vectors, values, equal, _pairs(_has(flipped(by_vectors))))
    inner = inner + by_values[..., None] * np.eye(a.shape[-1], dtype=a.dtype)
    return np.matmul(np.matmul(vectors, inner), adjoint(vectors))


def _eig(g: Cotangent, y: Array, a: Array) -> Array:
    (values, v), (by_values, by_vectors) = y, g
    by_v = np.matmul(adjoint(v), by_vectors)
    eye = np.eye(a.shape[-1], dtype=v.dtype)
    # Changes of a vector's length and of its phase are left out.
    along = (by_v * eye).sum(axis=-2, keepdims=True)
    inner = (by_v - np.matmul(adjoint(v), v) * along) * (1 - eye)
    asked = _pairs(_has(flipped(by_vectors)))
    inner = _over_gaps(inner, np.conj(values), equal_pairs(_numbers(values)), asked)
    inner = inner + by_values[..., None] * eye
    return np.linalg.solve(adjoint(v), np.matmul(inner, adjoint(v)))


def _qr(g: Cotangent, y: Array, a: Array) -> Array:
    (q, r), (gq, gr) = y, g
    across = np.matmul(r, adjoint(gr)) - np.matmul(adjoint(gq), q)
    low = np.tril(across, -1)
    diagonal = across.real * np.eye(a.shape[-1], dtype=a.dtype)
    both = gq + np.matmul(q, low + adjoint(low) + diagonal)
    return adjoint(np.linalg.solve(r, adjoint(both)))


def _numbers(x: Array) -> Array:
    return numbers(as_tensor(to_ndarray(x)))


def _has(cotangents: Array) -> Array:
    return (_numbers(cotangents) != 0).any(axis=-1)


def _pairs(has: Array) -> Array:
    return has[..., None, :] | has[..., :, None]


def _antisymmetric(x: Array) -> Array:
    if x.dtype.kind != "c":
        return (x - flipped(x)) / 2
    # Changes of a vector's phase, which is arbitrary, are left out.
    return (x - adjoint(x)) / 2 * (1 - np.eye(x.shape[-1], dtype=x.dtype))


def _over_gaps(terms: Array, values: Array, equal: Array, asked: Array) -> Array:
    return _over(terms, np.where(equal, values.dtype.type(1), gaps(values)), equal, asked)


def _over(terms: Array, divisor: Array, undefined: Array, asked: Array) -> Array:
    """Divide terms: NaN where undefined and asked for, else 0 there, whose derivative is NaN."""
    undefined = np.broadcast_to(undefined, terms.shape)
    if not (recorder().records(undefined) or undefined.any()):
        return terms / divisor
    # Of sqrt(t * t) the derivative at 0 is infinity times 0.
    zeros = np.sqrt(np.where(undefined, terms * terms, terms.dtype.type(1)))
    instead = np.where(asked, terms.dtype.type(np.nan), zeros)
    return np.where(undefined, instead, terms / divisor)


def _svdvals(
    needs: list[bool], g: Cotangent, y: Array, x: Array, *, saved: tuple[Array, Array] | None = None
) -> tuple[Array]:
    u, vh = np.linalg.svd(x, full_matrices=False)[::2] if saved is None else saved
    return (conjugated(np.matmul(g[..., None, :] * u, vh)),)


def _svd(g: Cotangent, y: Array, x: Array) -> Array:
    m, n = x.shape[-2:]
    (u, s, vh), (gu, gs, gvh) = y, g
    by_u, by_v = np.matmul(adjoint(u), gu), np.matmul(vh, adjoint(gvh))
    of_u, of_v = 2 * _antisymmetric(by_u), 2 * _antisymmetric(by_v)
    inner = of_u * s[..., None, :] + of_v * s[..., :, None]
    has_u, has_v = _has(flipped(gu)), _has(gvh)
    inner = _over_gaps(inner, s * s, equal_pairs(_numbers(s)), _pairs(has_u | has_v))
    zeros = zeros_among(_numbers(s))
    divisor = np.where(zeros, s.dtype.type(1), s)
    eye = np.eye(s.shape[-1], dtype=x.dtype)
    inner = inner + gs[..., None] * eye
    if x.dtype.kind == "c":  # by how much the phases of a pair of vectors differ
        inner = inner + (by_u - by_v).imag / (2 * divisor[..., None]) * (1j * eye)
    total = np.matmul(np.matmul(u, inner), vh)
    # The part that moves u or v out of the space that they span.
    if m > n:
        outside = gu - np.matmul(u, np.matmul(adjoint(u), gu))
        terms = _over(outside, divisor[..., None, :], zeros[..., None, :], has_u[..., None, :])
        total = total + np.matmul(terms, vh)
    if n > m:
        outside = gvh - np.matmul(np.matmul(gvh, adjoint(vh)), vh)
        terms = _over(outside, divisor[..., None], zeros[..., None], has_v[..., None])
        total = total + np.matmul(u, terms)
    return total


def _pinv(g: Cotangent, y: Array, a: Array, *, rcond: float) -> Array:
    yt, gt = adjoint(y), adjoint(g)
    outside_rows = gt - np.matmul(a, np.matmul(y, gt))
    outside_columns = gt - np.matmul(gt, np.matmul(y, a))
    total = (
        np.matmul(outside_rows, np.matmul(y, yt))
        + np.matmul(yt, np.matmul(y, outside_columns))
        - np.matmul(yt, np.matmul(g, yt))
    )
    if not a.size or not may_cut(rcond, a.shape, float(np.finfo(a.dtype).eps)):
        return total
    scale, doublings = _scale(a, rcond)
    if not doublings:
        return total
    of_left = _turning(g, y, a, scale, doublings)
    return total + of_left + adjoint(_turning(gt, yt, adjoint(a), scale, doublings))


def _scale(a: Array, rcond: float) -> tuple[Array, int]:
    """Return the least singular values kept, and how often to double a sum: not, if all are."""
    s = np.linalg.svd(_numbers(a), compute_uv=False)
    zero, largest = np.zeros((), s.dtype), np.max(s, axis=-1, keepdims=True)
    kept = s > rcond * largest
    scale = np.min(np.where(kept, s, np.where(largest > 0, largest, zero + 1)), axis=-1)
    if recorder().records(s):
        return scale, 24  # enough for singular values that differ by one in 100,000
    ratio = np.max(peek(np.max(np.where(kept, zero, s), axis=-1) / scale))
    terms = math.log(np.finfo(s.dtype).eps) / math.log(min(max(float(ratio), 1e-30), 0.99999))
    # The last power is rounded off, and its derivatives are.
    return scale, 0 if np.all(peek(kept)) else 4 + math.ceil(math.log2(max(terms, 1.0)))


def _turning(g: Cotangent, y: Array, a: Array, scale: Array, doublings: int) -> Array:
    """Return what `pinv` owes to left vectors that are kept and turn towards ones that are cut.

    With the cut part ``R = a - a y a`` it is the sum over ``j`` of ``(y^H y)^j K (R^H R)^j`` for
    ``K = y^H y (y^H g + y^H y g^H R^H) R``, which has derivatives of any order.
    """
    yt, cut = adjoint(y), a - np.matmul(np.matmul(a, y), a)
    left, right = np.matmul(yt, y), np.matmul(adjoint(cut), cut)
    inner = np.matmul(yt, g) + np.matmul(left, np.matmul(adjoint(g), adjoint(cut)))
    total = np.matmul(np.matmul(left, inner), cut)
    square = (scale * scale)[..., None, None]
    left, right = left * square, right / square
    for _ in range(doublings):
        total = total + np.matmul(np.matmul(left, total), right)
        left, right = np.matmul(left, left), np.matmul(right, right)
    return total


def _lstsq(
    needs: list[bool], g: Cotangent, y: Array, a: Array, b: Array, *, rcond: float
) -> Gradients:
    inverse = np.linalg.pinv(a, rcond)
    by_inverse = np.matmul(g, b.swapaxes(-1, -2)) if needs[0] else None
    by_a = None if by_inverse is None else _rising(_pinv)(by_inverse, inverse, a, rcond=rcond)
    return by_a, np.matmul(flipped(inverse), g)


def _norm(
    g: Cotangent, y: Array, x: Array, *, axis: tuple[int, ...], keepdims: bool, ord: float
) -> Array:
    if not keepdims:
        g, y = np.expand_dims(g, axis), np.expand_dims(y, axis)
    # The gradient of a norm with respect to its vector; zero at zero.
    if ord == 1:
        return g * np.sign(x)
    if math.isinf(ord):
        ties = np.abs(x) == y
        return g * (np.sign(x) * ties / ties.sum(axis=axis, keepdims=True).astype(x.dtype))
    divisor = np.where(y == 0, np.ones((), y.dtype), y)
    if ord == 2:
        return g * (x / divisor)
    return g * np.where(y == 0, x, np.sign(x) * (np.abs(x) / divisor) ** (ord - 1))


def _rfft(g: Cotangent, y: Array, x: Array, *, axis: int, norm: Any) -> Array:
    # Of which the real part counts.
    return np.fft.fft(to_ndarray(g), n=x.shape[axis], axis=axis, norm=norm)


def _irfft(g: Cotangent, y: Array, x: Array, *, n: int, axis: int, norm: Any) -> Array:
    """All frequencies but the first, and an even length's last, count twice."""
    twice = np.full(n // 2 + 1, 2.0, y.dtype)
    twice[0] = 1.0
    if n % 2 == 0:
        twice[-1] = 1.0
    weights = twice.reshape((-1,) + (1,) * (y.ndim - 1 - axis))
    return np.conj(np.fft.rfft(to_ndarray(g), axis=axis, norm=SWAPPED[norm])) * weights


# On Tensors


def _det_recorded(g: Cotangent, y: Array, a: Array) -> Array:
    # Without elements NumPy 2.0 knows no rank, and in a capture nobody knows it of later runs.
    regular = not a.size or (
        not recorder().records(a) and np.all(np.linalg.matrix_rank(numbers(a)) == a.shape[-1])
    )
    if regular:
        return (g * y)[..., None, None] * flipped(np.linalg.inv(a))
    n = a.shape[-1]
    others = np.array([[j for j in range(n) if j != i] for i in range(n)], dtype=np.int64)
    minors: Any = getitem(a, (Ellipsis, others[:, None, :, None], others[None, :, None, :]))
    signs = (-1.0) ** np.add.outer(np.arange(n), np.arange(n))
    return g[..., None, None] * (np.linalg.det(minors) * as_leaf(signs.astype(a.dtype)))


VJPS: dict[str, Row] = {
    "matmul": (_left, _right),
    "batch_matmul": (_left, _right),
    "einsum": JointVJP(_einsum(_contract)),
    "convolve": (
        lambda g, y, a, v: np.convolve(to_ndarray(g), np.flip(v), mode="valid"),
        lambda g, y, a, v: np.convolve(to_ndarray(g), np.flip(a), mode="valid"),
    ),
    "inv": (lambda g, y, a: -np.matmul(np.matmul(flipped(y), g), flipped(y)),),
    "solve": JointVJP(_solve),
    "det": (_det,),
    "slogdet": (_slogdet,),
    "cholesky": (_rising(_cholesky),),
    "eigvalsh": JointVJP(_eigvalsh),
    "eigh": (_rising(_eigh),),
    "eig": (_rising(_eig),),
    "qr": (_rising(_qr),),
    "svdvals": JointVJP(_svdvals),
    "svd": (_rising(_svd),),
    "pinv": (_rising(_pinv),),
    "lstsq": JointVJP(_lstsq),
    "norm": (_norm,),
    "fft": (lambda g, y, x, *, axes, norm: np.fft.fftn(to_ndarray(g), axes=axes, norm=norm),),
    "ifft": (lambda g, y, x, *, axes, norm: np.fft.ifftn(to_ndarray(g), axes=axes, norm=norm),),
    "rfft": (_rfft,),
    "irfft": (_irfft,),
}

RECORDED: dict[str, Row] = {"einsum": JointVJP(_einsum(np.einsum)), "det": (_det_recorded,)}
