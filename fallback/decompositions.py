"""Gradients: inverses, determinants, factors and norms of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.fallback.absorbing import plain
from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ops.decompositions import equal_pairs, flipped, solved, zeros_among
from tapegraph.typed import Array


def _inv(g: Any, y: Array, a: Array) -> Any:
    return -np.matmul(np.matmul(flipped(y), g), flipped(y))


def _solve(needs: list[bool], g: Any, y: Array, a: Array, b: Array) -> tuple[Any, Any]:
    back = solved(flipped(a), plain(g))
    return -np.matmul(back, flipped(y)) if needs[0] else None, back


def _det(g: Any, y: Array, a: Array) -> Any:
    return g[..., None, None] * cofactors(a)


def cofactors(a: Array) -> Array:
    """Return the matrix of cofactors, ``det(a) inv(a).T``, of singular matrices too.

    With the singular value decomposition of ``a`` it is ``det(U Vh) U diag(p) Vh``, where ``p_i``
    is the product of the singular values other than ``s_i``.
    """
    u, s, vh = np.linalg.svd(a)
    n = s.shape[-1]
    others = np.where(np.eye(n, dtype=bool), np.ones((), s.dtype), s[..., None, :])
    scaled = u * others.prod(axis=-1)[..., None, :]
    sign = np.linalg.det(np.matmul(u, vh)).round()
    result: Array = sign[..., None, None] * np.matmul(scaled, vh)
    return result


def _slogdet(g: Any, y: Array, a: Array) -> Any:
    return g[..., 1][..., None, None] * flipped(_inverse(a))


def _inverse(a: Array) -> Array:
    """Invert each matrix; of a singular one nothing is known."""
    try:
        inverses: Array = np.linalg.inv(a)
    except np.linalg.LinAlgError:
        inverses = np.full_like(a, np.nan)
        for place in np.ndindex(a.shape[:-2]) if a.ndim > 2 else ():
            inverses[place] = _inverse(a[place])
    return inverses


def _cholesky(g: Any, y: Array, a: Array) -> Any:
    # With S = L^-T P(L.T G) L^-1, where P halves the diagonal of the lower triangle: (S + S.T)/2.
    inner = half_lower(np.matmul(flipped(y), np.tril(plain(g))))
    right = solved(flipped(y), flipped(solved(flipped(y), inner)))
    return (right + flipped(right)) / 2


def half_lower(x: Array) -> Array:
    """Return the lower triangle with its diagonal halved."""
    n = x.shape[-1]
    return x * (np.tri(n, dtype=x.dtype) - np.eye(n, dtype=x.dtype) / 2)


def _eigvalsh(needs: list[bool], g: Any, y: Array, a: Array, *, saved: Array) -> tuple[Any]:
    return (np.matmul(g[..., None, :] * saved, flipped(saved)),)


def _eigh(g: Any, y: Array, a: Array, *, uplo: str) -> Any:
    n = a.shape[-1]
    vectors, values = flipped(y[..., :n]), y[..., n]
    of_vectors = _antisymmetric(np.matmul(flipped(vectors), flipped(g[..., :n])))
    inner = _known(of_vectors / _gaps(values), equal_pairs(values), _pairs(_has(g[..., :n])))
    inner = inner + g[..., n][..., None] * np.eye(n, dtype=a.dtype)
    return np.matmul(np.matmul(vectors, inner), flipped(vectors))


def _has(cotangents: Any) -> Any:
    """Tell which rows of cotangents, each of one vector, are not zero."""
    return (plain(cotangents) != 0).any(axis=-1)


def _pairs(has: Array) -> Any:
    """Tell which pairs a vector with a cotangent is one of."""
    return has[..., None, :] | has[..., :, None]


def _known(terms: Any, undefined: Array, asked: Array) -> Any:
    """Put NaN for undefined terms that are asked for, and 0 for those that are not."""
    return np.where(undefined, np.where(asked, np.nan, 0.0).astype(terms.dtype), terms)


def _antisymmetric(x: Any) -> Any:
    return (x - flipped(x)) / 2


def _gaps(values: Array) -> Array:
    """Return ``values[j] - values[i]`` at (i, j), and 1 on the diagonal."""
    n = values.shape[-1]
    gaps: Array = values[..., None, :] - values[..., :, None] + np.eye(n, dtype=values.dtype)
    return gaps


def _svdvals(
    needs: list[bool], g: Any, y: Array, x: Array, *, saved: tuple[Array, Array]
) -> tuple[Any]:
    u, vh = saved
    return (np.matmul(g[..., None, :] * u, vh),)


def _svd(g: Any, y: Array, x: Array) -> Any:
    m, n = x.shape[-2:]
    u, s, vh = flipped(y[..., :m]), y[..., m], y[..., m + 1 :]
    gu, gs, gvh = flipped(g[..., :m]), g[..., m], g[..., m + 1 :]
    gaps = _gaps(s * s)
    of_u = 2 * _antisymmetric(np.matmul(flipped(u), gu)) / gaps
    of_v = 2 * _antisymmetric(np.matmul(vh, flipped(gvh))) / gaps
    inner = of_u * s[..., None, :] + of_v * s[..., :, None]
    has_u, has_v = _has(g[..., :m]), _has(gvh)
    inner = _known(inner, equal_pairs(s), _pairs(has_u | has_v))
    inner = inner + gs[..., None] * np.eye(s.shape[-1], dtype=x.dtype)
    total = np.matmul(np.matmul(u, inner), vh)
    # What moves u or v out of the space that they span.
    if m > n:
        outside = gu - np.matmul(u, np.matmul(flipped(u), gu))
        terms = outside / s[..., None, :]
        terms = _known(terms, zeros_among(s)[..., None, :], has_u[..., None, :])
        total = total + np.matmul(terms, vh)
    if n > m:
        outside = gvh - np.matmul(np.matmul(gvh, flipped(vh)), vh)
        terms = _known(outside / s[..., None], zeros_among(s)[..., None], has_v[..., None])
        total = total + np.matmul(u, terms)
    return total


def _pinv(g: Any, y: Array, a: Array, *, rcond: float) -> Any:
    yt, gt = flipped(y), flipped(g)
    outside_rows = gt - np.matmul(a, np.matmul(y, gt))
    outside_columns = gt - np.matmul(np.matmul(gt, y), a)
    return (
        np.matmul(outside_rows, np.matmul(y, yt))
        + np.matmul(np.matmul(yt, y), outside_columns)
        - np.matmul(np.matmul(yt, g), yt)
    )


def _norm(g: Any, y: Array, x: Array, *, axis: tuple[int, ...], keepdims: bool, ord: float) -> Any:
    if not keepdims:
        g, y = np.expand_dims(g, axis), np.expand_dims(y, axis)
    return g * slope(x, y, axis, ord)


def slope(x: Array, y: Array, axis: tuple[int, ...], ord: float) -> Any:
    """Return the gradient of a norm ``y`` by its vector ``x``; zero for a zero vector."""
    if ord == 1:
        return np.sign(x)
    if math.isinf(ord):
        ties = np.abs(x) == y
        return np.sign(x) * ties / ties.sum(axis=axis, keepdims=True)
    divisor = np.where(y == 0, np.ones((), y.dtype), y)
    if ord == 2:
        return x / divisor
    return np.where(y == 0, x, np.sign(x) * (np.abs(x) / divisor) ** (ord - 1))


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "inv": (_inv,),
    "solve": Joint(_solve),
    "det": (_det,),
    "slogdet": (_slogdet,),
    "cholesky": (_cholesky,),
    "eigvalsh": Joint(_eigvalsh),
    "eigh": (_eigh,),
    "svdvals": Joint(_svdvals),
    "svd": (_svd,),
    "pinv": (_pinv,),
    "norm": (_norm,),
}
