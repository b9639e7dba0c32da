"""Inverses, determinants, factors and norms of matrices and of stacks of them.

A decomposition of several parts is one operation that gives them side by side in one array, so
that it is computed once, forwards and backwards; the parts are slices of it.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Literal, NamedTuple

import numpy as np

from tapegraph import typed
from tapegraph.arrays.axes import integers, one_axis, some_axes
from tapegraph.errors import explain
from tapegraph.numpy_warnings import watched
from tapegraph.ops import elementwise, index, reduce, shape
from tapegraph.ops.arrange import matrix_transpose
from tapegraph.ops.linalg import matmul
from tapegraph.ops.products import axes_last
from tapegraph.recording.node import constant, real
from tapegraph.recording.numpy_functions import implements, plain
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, tensor_like
from tapegraph.typed import Array, Axes, of_array, of_two, seen_as


class SlogdetResult(NamedTuple):
    """What `slogdet` returns."""

    sign: Any
    logabsdet: Any


class EighResult(NamedTuple):
    """What `eigh` returns."""

    eigenvalues: Any
    eigenvectors: Any


class SVDResult(NamedTuple):
    """What `svd` returns."""

    U: Any
    S: Any
    Vh: Any


# Forward


def flipped(x: Any) -> Any:
    """Transpose each matrix of a stack of arrays."""
    return x.swapaxes(-1, -2)


def solved(a: Array, b: Array) -> Any:
    """Solve for a matrix or a stack of them, whose leading axes broadcast with those of ``a``."""
    return np.linalg.solve(a, b)


def equal_pairs(values: Array) -> Array:
    """Tell which eigenvalues or singular values, (..., n, n), differ by no more than rounding.

    Their vectors are any basis of one space: those have no derivative.
    """
    gaps = np.abs(values[..., None, :] - values[..., :, None])
    equal: Array = gaps <= _rounding(values)[..., None]
    return equal & ~np.eye(values.shape[-1], dtype=bool)


def zeros_among(values: Array) -> Array:
    """Tell which singular values are zero but for rounding."""
    zeros: Array = values <= _rounding(values)
    return zeros


def _rounding(values: Array) -> Array:
    """Return how far off the values of a matrix may be, (..., 1)."""
    largest = np.abs(values).max(axis=-1, keepdims=True, initial=0.0)
    bound: Array = largest * (np.finfo(values.dtype).eps * values.shape[-1])
    return bound


def _det(x: Array) -> Any:
    return watched("det", np.linalg.det, x)


def _slogdet(x: Array) -> Any:
    return np.stack(np.linalg.slogdet(x), axis=-1)


def _eigvalsh(x: Array) -> Any:
    return np.linalg.eigh(x)


def _eigh(x: Array, *, uplo: Literal["L", "U"]) -> Any:
    # The triangles are equal, but LAPACK's choice of the vectors' signs depends on which it reads.
    values, vectors = np.linalg.eigh(x, uplo)
    return np.concatenate([flipped(vectors), values[..., None]], axis=-1)


def _svdvals(x: Array) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    return s, (u, vh)


def _svd(x: Array) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    return np.concatenate([flipped(u), s[..., None], vh], axis=-1)


def _pinv(x: Array, *, rcond: float) -> Any:
    return watched("pinv", np.linalg.pinv, x, rcond)


def _norm(x: Array, *, axis: tuple[int, ...], keepdims: bool, ord: float) -> Any:
    sizes = np.abs(x)
    if ord == math.inf:
        return sizes.max(axis=axis, keepdims=keepdims)
    if ord == -math.inf:
        return sizes.min(axis=axis, keepdims=keepdims)
    if ord == 1:
        return reduce.add_up(sizes, axis=axis, keepdims=keepdims)
    if ord == 2:
        return np.sqrt(reduce.add_up(x * x, axis=axis, keepdims=keepdims))
    return reduce.add_up(sizes**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


INV = Op("inv", np.linalg.inv)
SOLVE = Op("solve", solved)
DET = Op("det", _det)
SLOGDET = Op("slogdet", _slogdet)
CHOLESKY = Op("cholesky", np.linalg.cholesky)
EIGVALSH = Op("eigvalsh", _eigvalsh, saves=True)
EIGH = Op("eigh", _eigh)
SVDVALS = Op("svdvals", _svdvals, saves=True)
SVD = Op("svd", _svd)
PINV = Op("pinv", _pinv)
NORM = Op("norm", _norm)


# Systems of equations


@implements(np.linalg.inv)
@of_array
def inv(a: Any) -> Any:
    """Inverse of a square matrix; its derivative is ``-inv(a) da inv(a)``.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n, n)
        A matrix or a stack of them.

    Returns
    -------
    Tensor
        Of ``a``'s shape.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is singular or not square.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.inv([[2.0, 0.0], [0.0, 4.0]]).data
    array([[0.5 , 0.  ],
           [0.  , 0.25]])
    """
    return _decomposed(INV, _square("inv", a), "an invertible matrix")


@implements(np.linalg.solve)
@of_two
def solve(a: Any, b: Any) -> Any:
    """Solution ``x`` of ``a @ x = b``.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n, n)
        A matrix or a stack of them.
    b : Tensor or array_like, shape (n,) or (..., n, k)
        A vector, or matrices whose leading axes broadcast with those of ``a``.

    Returns
    -------
    Tensor
        Of shape (..., n) where ``b`` is a vector, and (..., n, k) otherwise.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is singular or not square.
    ValueError
        The shapes do not fit.

    Notes
    -----
    With ``g`` the gradient of the solution, that of ``b`` is ``solve(a.T, g)``, and that of ``a``
    is ``-solve(a.T, g) @ x.T``.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0]).data
    array([1. , 0.5])
    """
    a, b = _square("solve", a), tensor_like("solve", b, "b")
    vector = b.ndim == 1
    right = shape.reshape(b, (*b.shape, 1)) if vector else b
    if right.ndim < 2 or a.shape[-1] != right.shape[-2]:
        raise ValueError(
            explain(
                "solve",
                f"shapes {a.shape} and {b.shape}",
                f"b of shape ({a.shape[-1]},) or (..., {a.shape[-1]}, k)",
            )
        )
    out = _decomposed(SOLVE, a, "an invertible matrix", right)
    return shape.reshape(out, out.shape[:-1]) if vector else out


@implements(np.linalg.pinv)
@of_array
def pinv(a: Any, rcond: float | None = None) -> Any:
    """Pseudo-inverse of a matrix (Moore and Penrose).

    Its derivative holds where the rank does not change (Golub and Pereyra, 1973).

    Parameters
    ----------
    a : Tensor or array_like, shape (..., m, n)
        A matrix or a stack of them.
    rcond : float, optional
        Singular values below ``rcond`` times the largest count as zero; 1e-15 where not given.

    Returns
    -------
    Tensor
        Of shape (..., n, m).

    Raises
    ------
    numpy.linalg.LinAlgError
        ``a`` has fewer than two axes.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.pinv([[2.0], [0.0]]).data
    array([[0.5, 0. ]])
    """
    limit = 1e-15 if rcond is None else real(rcond, "pinv", "rcond")
    return apply(PINV, (_matrices("pinv", a),), {"rcond": limit})


@implements(np.linalg.lstsq)
@seen_as(typed.Lstsq, "tuple[Tensor, Tensor, int, Tensor]")
def lstsq(a: Any, b: Any, rcond: float | None = None) -> Any:
    """Solution ``x`` of least length that minimises ``|a @ x - b|``.

    Parameters
    ----------
    a : Tensor or array_like, shape (m, n)
    b : Tensor or array_like, shape (m,) or (m, k)
    rcond : float, optional
        Singular values below ``rcond`` times the largest count as zero; the dtype's precision
        times ``max(m, n)`` where not given.

    Returns
    -------
    tuple
        The solution ``pinv(a) @ b``; the sums of squared residuals, empty where ``a`` has not
        full column rank or ``m <= n``; the rank, an int; and the singular values of ``a``.

    Raises
    ------
    numpy.linalg.LinAlgError
        The shapes do not fit.

    Examples
    --------
    >>> import tapegraph as tg
    >>> x, residuals, rank, s = tg.lstsq([[1.0], [1.0]], [1.0, 3.0])
    >>> x.data, residuals.data, rank
    (array([2.]), array([2.]), 1)
    """
    a, b = tensor_like("lstsq", a, "a"), tensor_like("lstsq", b, "b")
    if a.ndim != 2 or b.ndim not in (1, 2) or a.shape[0] != b.shape[0]:
        raise np.linalg.LinAlgError(
            explain("lstsq", f"shapes {a.shape} and {b.shape}", "(m, n), and (m,) or (m, k)")
        )
    m, n = a.shape
    floating = a.dtype if a.dtype.kind == "f" else np.dtype(np.float64)
    limit = np.finfo(floating).eps * max(m, n) if rcond is None else real(rcond, "lstsq", "rcond")
    solution = matmul(pinv(a, float(limit)), b)
    s = svdvals(a)
    sizes = plain(s)
    rank = int((sizes > limit * sizes.max(initial=0.0)).sum())
    if rank < n or m <= n:
        residuals = constant(np.empty(0, solution.dtype))
    else:
        missed = matmul(a, solution) - b
        residuals = reduce.sum(missed * missed, axis=0, keepdims=b.ndim == 1)
    return solution, residuals, rank, s


@implements(np.linalg.matrix_power)
@of_array
def matrix_power(a: Any, n: int) -> Any:
    """Product of ``n`` times the same square matrix; of its inverse where ``n`` is negative.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., m, m)
        A matrix or a stack of them.
    n : int
        The power; 0 gives the identity.

    Returns
    -------
    Tensor
        Of ``a``'s shape.

    Raises
    ------
    TypeError
        ``n`` is not an integer.
    numpy.linalg.LinAlgError
        A matrix is not square, or is singular and ``n`` negative.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.matrix_power([[1.0, 1.0], [0.0, 1.0]], 3).data
    array([[1., 3.],
           [0., 1.]])
    """
    a = _square("matrix_power", a)
    try:
        power = operator.index(n)
    except TypeError:
        raise TypeError(explain("matrix_power", f"n={n!r}", "an integer")) from None
    if power == 0:
        return constant(np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape).copy())
    square = inv(a) if power < 0 else a
    power = -power if power < 0 else power
    result = None
    while power:
        if power & 1:
            result = square if result is None else matmul(result, square)
        power >>= 1
        if power:
            square = matmul(square, square)
    return result


# Determinants


@implements(np.linalg.det)
@of_array
def det(a: Any) -> Any:
    """Compute the determinant of a square matrix.

    Its gradient is the matrix of cofactors, which is right for singular matrices too.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n, n)
        A matrix or a stack of them.

    Returns
    -------
    Tensor
        Of shape (...).

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not square.

    Examples
    --------
    >>> import tapegraph as tg
    >>> x = tg.param([[3.0, 0.0], [0.0, 0.0]])
    >>> tg.det(x).backward()
    >>> x.grad
    array([[0., 0.],
           [0., 3.]])
    """
    return apply(DET, (_square("det", a),))


@implements(np.linalg.slogdet)
@seen_as(typed.Slogdet, "SlogdetResult")
def slogdet(a: Any) -> Any:
    """Sign and natural logarithm of the absolute value of the determinant.

    The gradient of the logarithm is ``inv(a).T``; that of the sign is zero.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n, n)
        A matrix or a stack of them.

    Returns
    -------
    SlogdetResult
        ``sign`` and ``logabsdet``, each of shape (...); 0 and -inf for a singular matrix.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not square.

    Examples
    --------
    >>> import tapegraph as tg
    >>> sign, logabsdet = tg.slogdet([[0.0, 1.0], [1.0, 0.0]])
    >>> sign.item(), logabsdet.item()
    (-1.0, 0.0)
    """
    both = apply(SLOGDET, (_square("slogdet", a),))
    return SlogdetResult(both[..., 0], both[..., 1])


# Factors


@implements(np.linalg.cholesky)
@of_array
def cholesky(a: Any, upper: bool = False) -> Any:
    """Lower triangular ``L`` with ``a = L @ L.T``.

    As NumPy does it reads one triangle of ``a``, so the gradient is zero in the other.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n, n)
        Symmetric positive-definite; a matrix or a stack of them.
    upper : bool
        Read the upper triangle and return ``L.T``.

    Returns
    -------
    Tensor
        Of ``a``'s shape.

    Raises
    ------
    numpy.linalg.LinAlgError
        A matrix is not positive-definite or not square.

    Notes
    -----
    The gradient is that of Murray, "Differentiation of the Cholesky decomposition" (2016).

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.cholesky([[4.0, 2.0], [2.0, 5.0]]).data
    array([[2., 0.],
           [1., 2.]])
    """
    read = _one_triangle("cholesky", a, lower=not upper)
    out = _decomposed(CHOLESKY, read, "a positive-definite matrix")
    return matrix_transpose(out) if upper else out


@implements(np.linalg.eigvalsh)
@of_array
def eigvalsh(a: Any, UPLO: Literal["L", "U"] = "L") -> Any:
    """Eigenvalues of a symmetric matrix, in ascending order.

    As NumPy does it reads one triangle of ``a``, so the gradient is zero in the other.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n, n)
        Symmetric; a matrix or a stack of them.
    UPLO : {"L", "U"}
        The triangle to read, lower or upper.

    Returns
    -------
    Tensor
        Of shape (..., n).

    Raises
    ------
    ValueError
        ``UPLO`` is something else.
    numpy.linalg.LinAlgError
        A matrix is not square.

    Notes
    -----
    ``dw_i = v_i . da v_i`` for the eigenvector ``v_i``; equal eigenvalues have no gradient of
    their own, only their sum has.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.eigvalsh([[2.0, 0.0], [0.0, 1.0]]).data
    array([1., 2.])
    """
    return apply(EIGVALSH, (_one_triangle("eigvalsh", a, lower=_is_lower("eigvalsh", UPLO)),))


@implements(np.linalg.eigh)
@seen_as(typed.Eigh, "EighResult")
def eigh(a: Any, UPLO: Literal["L", "U"] = "L") -> Any:
    """Eigenvalues in ascending order, and eigenvectors, of a symmetric matrix.

    As NumPy does it reads one triangle of ``a``, so the gradient is zero in the other.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n, n)
        Symmetric; a matrix or a stack of them.
    UPLO : {"L", "U"}
        The triangle to read, lower or upper.

    Returns
    -------
    EighResult
        ``eigenvalues`` of shape (..., n), and ``eigenvectors`` of shape (..., n, n), one per
        column.

    Raises
    ------
    ValueError
        ``UPLO`` is something else.
    numpy.linalg.LinAlgError
        A matrix is not square.

    Notes
    -----
    ``dw_i = v_i . da v_i`` and ``dv_i = sum over j != i of v_j (v_j . da v_i) / (w_i - w_j)``:
    eigenvectors have a gradient where the eigenvalues are distinct. It is NaN through a vector
    whose eigenvalue another one equals, up to rounding.

    Examples
    --------
    >>> import tapegraph as tg
    >>> w, v = tg.eigh([[2.0, 0.0], [0.0, 1.0]])
    >>> w.data, tg.abs(v).data
    (array([1., 2.]), array([[0., 1.],
           [1., 0.]]))
    """
    lower = _is_lower("eigh", UPLO)
    read = _one_triangle("eigh", a, lower=lower)
    both = apply(EIGH, (read,), {"uplo": "L" if lower else "U"})
    n = both.shape[-2]
    return EighResult(both[..., n], matrix_transpose(both[..., :n]))


@implements(np.linalg.svdvals)
@of_array
def svdvals(x: Any) -> Any:
    """Singular values of a matrix, in descending order.

    Parameters
    ----------
    x : Tensor or array_like, shape (..., m, n)
        A matrix or a stack of them.

    Returns
    -------
    Tensor
        Of shape (..., min(m, n)).

    Raises
    ------
    numpy.linalg.LinAlgError
        ``x`` has fewer than two axes.

    Notes
    -----
    ``ds_i = u_i . dx v_i``.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.svdvals([[3.0, 0.0], [0.0, 4.0]]).data
    array([4., 3.])
    """
    return apply(SVDVALS, (_matrices("svdvals", x),))


@implements(np.linalg.svd)
@seen_as(typed.SVD, "SVDResult | Tensor")
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Singular value decomposition ``a = (U * S) @ Vh``.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., m, n)
        A matrix or a stack of them.
    full_matrices : bool
        Must be False where a matrix is not square: the columns that complete ``U`` or ``Vh`` are
        arbitrary and have no gradient.
    compute_uv : bool
        Return ``U`` and ``Vh`` too, not ``S`` alone.

    Returns
    -------
    SVDResult or Tensor
        ``U`` of shape (..., m, k), ``S`` (..., k) in descending order and ``Vh`` (..., k, n) with
        ``k = min(m, n)``; or ``S`` alone.

    Raises
    ------
    ValueError
        ``full_matrices`` is true and the matrices are not square.
    numpy.linalg.LinAlgError
        ``a`` has fewer than two axes.

    Notes
    -----
    The gradient is that of Townsend, "Differentiating the singular value decomposition" (2016);
    ``U`` and ``Vh`` have one where the singular values are distinct, and not zero: else it is
    NaN.

    Examples
    --------
    >>> import tapegraph as tg
    >>> U, S, Vh = tg.svd([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], full_matrices=False)
    >>> U.shape, S.data, Vh.shape
    ((3, 2), array([4., 3.]), (2, 2))
    """
    a = _matrices("svd", a)
    if not compute_uv:
        return svdvals(a)
    m, n = a.shape[-2:]
    if full_matrices and m != n:
        raise ValueError(
            explain(
                "svd",
                f"full_matrices=True for matrices of shape ({m}, {n})",
                "square matrices, or full_matrices=False",
                "Write svd(a, full_matrices=False).",
            )
        )
    return SVDResult(*parts_of_svd(apply(SVD, (a,)), m))


def parts_of_svd(packed: Any, m: int) -> tuple[Any, Any, Any]:
    """Return U, S and Vh from the array that holds them side by side."""
    return matrix_transpose(packed[..., :m]), packed[..., m], packed[..., m + 1 :]


# Norms


@implements(np.linalg.norm)
@of_array
def norm(
    x: Any,
    ord: float | Literal["fro", "nuc"] | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> Any:
    """Norm of a vector or of a matrix.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape; 1-D or 2-D where ``ord`` is given and ``axis`` is not.
    ord : number, {"fro", "nuc"}, optional
        For vectors: any number ``p`` gives ``sum(|x|**p) ** (1/p)``, inf the largest and -inf the
        smallest ``|x|``, and 0 the count of non-zeros, which has no gradient. For matrices: "fro"
        Frobenius, "nuc" the sum of the singular values, 2 and -2 the largest and the smallest of
        them, 1 and -1 the largest and smallest sum of a column, inf and -inf of a row.
        The 2-norm of all elements where not given.
    axis : int or pair of int, optional
        The axis that holds vectors, or the two that hold matrices.
    keepdims : bool
        Keep these axes with length 1.

    Returns
    -------
    Tensor
        ``x``'s shape without these axes.

    Raises
    ------
    ValueError
        ``ord`` does not go with the number of axes, or an axis is out of range.

    Notes
    -----
    The gradient at a zero vector is zero; elements that tie for the largest share theirs evenly.

    Examples
    --------
    >>> import tapegraph as tg
    >>> x = tg.param([3.0, 4.0])
    >>> y = tg.norm(x)
    >>> y.backward()
    >>> y.item(), x.grad
    (5.0, array([0.6, 0.8]))
    """
    x = tensor_like("norm", x)
    if axis is None and (
        ord is None or (x.ndim == 1 and ord == 2) or (x.ndim == 2 and ord == "fro")
    ):
        return _vector_norm("norm", x, tuple(range(x.ndim)), 2, keepdims)
    axes = tuple(range(x.ndim)) if axis is None else integers("norm", "axis", axis)
    if len(axes) == 1:
        return _vector_norm("norm", x, axes, 2 if ord is None else ord, keepdims)
    if len(axes) == 2:
        return _matrix_norm("norm", x, axes, "fro" if ord is None else ord, keepdims)
    raise ValueError(
        explain("norm", f"axis={axis} and ord={ord!r} for shape {x.shape}", "one axis or two")
    )


@implements(np.linalg.vector_norm)
@of_array
def vector_norm(x: Any, axis: Axes = None, keepdims: bool = False, ord: float = 2) -> Any:
    """Norm of the vectors along some axes.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    axis : int or tuple of int, optional
        The axes whose elements make one vector; all where not given.
    keepdims : bool
        Keep these axes with length 1.
    ord : number
        As of `norm` for vectors.

    Returns
    -------
    Tensor
        ``x``'s shape without these axes.

    Raises
    ------
    ValueError
        ``ord`` is no number, or an axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.vector_norm([[3.0, 4.0], [0.0, -2.0]], axis=1, ord=1).data
    array([7., 2.])
    """
    x = tensor_like("vector_norm", x)
    return _vector_norm("vector_norm", x, some_axes("vector_norm", axis, x.ndim), ord, keepdims)


@implements(np.linalg.matrix_norm)
@of_array
def matrix_norm(x: Any, keepdims: bool = False, ord: float | Literal["fro", "nuc"] = "fro") -> Any:
    """Norm of the matrices in the last two axes.

    Parameters
    ----------
    x : Tensor or array_like, shape (..., m, n)
        A matrix or a stack of them.
    keepdims : bool
        Keep these axes with length 1.
    ord : number or {"fro", "nuc"}
        As of `norm` for matrices.

    Returns
    -------
    Tensor
        Of shape (...).

    Raises
    ------
    ValueError
        ``ord`` is none of these, or ``x`` has fewer than two axes.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.matrix_norm([[3.0, 0.0], [0.0, 4.0]], ord="nuc").item()
    7.0
    """
    return _matrix_norm("matrix_norm", tensor_like("matrix_norm", x), (-2, -1), ord, keepdims)


def _vector_norm(name: str, x: Any, axes: tuple[int, ...], ord: Any, keepdims: bool) -> Any:
    if isinstance(ord, str):
        raise ValueError(explain(name, f"ord={ord!r} for vectors", "a number"))
    power = real(ord, name, "ord")
    axes = some_axes(name, axes, x.ndim)
    if power == 0:
        nonzero = constant((plain(x) != 0).astype(x.dtype if x.dtype.kind == "f" else np.float64))
        return reduce.sum(nonzero, axes, keepdims)
    if x.dtype.kind != "f":
        x = elementwise.mul(x, 1.0)
    return apply(NORM, (x,), {"axis": axes, "keepdims": bool(keepdims), "ord": power})


def _matrix_norm(name: str, x: Any, axes: tuple[int, ...], ord: Any, keepdims: bool) -> Any:
    rows, columns = (one_axis(name, i, x.ndim) for i in axes)
    if rows == columns:
        raise ValueError(explain(name, f"axis {axes}", "two axes that differ"))
    if ord == "fro":
        return _vector_norm(name, x, (rows, columns), 2, keepdims)
    last = axes_last(name, x, rows, columns)
    if ord in (1, -1, math.inf, -math.inf):
        sums = reduce.sum(elementwise.abs(last), axis=-2 if ord in (1, -1) else -1)
        out = _vector_norm(name, sums, (-1,), math.inf if ord > 0 else -math.inf, False)
    elif ord == "nuc":
        out = reduce.sum(svdvals(last), axis=-1)
    elif ord in (2, -2):
        out = svdvals(last)[..., 0 if ord == 2 else -1]
    else:
        expected = "'fro', 'nuc', inf, -inf, 1, -1, 2 or -2"
        raise ValueError(explain(name, f"ord={ord!r} for matrices", expected))
    if not keepdims:
        return out
    return shape.reshape(
        out, tuple(1 if i in (rows, columns) else n for i, n in enumerate(x.shape))
    )


# What goes in


def _matrices(op: str, x: Any) -> Any:
    x = tensor_like(op, x, "a")
    if x.ndim < 2:
        raise np.linalg.LinAlgError(explain(op, f"shape {x.shape}", "matrices, (..., m, n)"))
    return x


def _square(op: str, x: Any) -> Any:
    x = _matrices(op, x)
    if x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError(explain(op, f"shape {x.shape}", "square matrices, (..., n, n)"))
    return x


def _one_triangle(op: str, x: Any, *, lower: bool) -> Any:
    """Mirror one triangle of a square matrix, as LAPACK's routines read it."""
    x = _square(op, x)
    below = np.tri(x.shape[-1], dtype=bool)
    return index.where(below if lower else below.T, x, matrix_transpose(x))


def _is_lower(op: str, UPLO: Any) -> bool:
    if UPLO in ("L", "U", "l", "u"):
        return UPLO in "Ll"
    raise ValueError(explain(op, f"UPLO={UPLO!r}", "'L' or 'U'"))


def _decomposed(op: Op, x: Any, expected: str, *others: Any) -> Any:
    try:
        return apply(op, (x, *others))
    except np.linalg.LinAlgError as error:
        received = f"shape {x.shape}, for which LAPACK says: {error}"
        raise np.linalg.LinAlgError(explain(op.name, received, expected)) from error
