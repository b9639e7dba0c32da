"""Products, decompositions and norms."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
import string
from collections import Counter, namedtuple
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, SupportsIndex, overload

import numpy as np
import numpy.typing as npt

from tapegraph.arrays import (
    check_one_of,
    int_tuple,
    is_one_product,
    one_axis,
    one_integer,
    ordered_axes,
    some_axes,
    stacked_rows,
)
from tapegraph.errors import kind_of, message
from tapegraph.kinds import Kind
from tapegraph.numpy_warnings import watched
from tapegraph.ops import elementwise, reduce, shape
from tapegraph.ops.elementwise import conj, mul, where
from tapegraph.ops.index import diagonal_places, gather, getitem
from tapegraph.ops.shape import matrix_transpose, moveaxis, permuted, tensors_of
from tapegraph.recording.node import as_float, as_leaf
from tapegraph.recording.numpy_functions import detached, implements, innermost, numbers, peek
from tapegraph.recording.op import Op, OpKind
from tapegraph.recording.record import apply, floating, is_complex, tensor_like
from tapegraph.recording.scopes import recorder
from tapegraph.typed import Array, ArrayLike, Axes, DuckArray, EinsumLabels, Shape, SupportsArray

__all__ = [
    "batch_matmul", "cholesky", "convolve", "cross", "det", "diagonal", "dot", "eig", "eigh",
    "eigvals", "eigvalsh", "einsum", "inner", "inv", "kron", "lstsq", "matmul", "matrix_norm",
    "matrix_power", "matvec", "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "svd",
    "svdvals", "tensordot", "trace", "vdot", "vecdot", "vecmat", "vector_norm",
]  # fmt: skip


def _batch_matmul(a: Array, b: Array) -> DuckArray:
    if is_one_product(a, b) and a.shape[-1] == b.shape[0]:
        # One large product instead of one per matrix: the threads of BLAS have work to share.
        return np.matmul(stacked_rows(a), b).reshape(*a.shape[:-1], b.shape[1])
    return np.matmul(a, b)


MATMUL = Op("matmul", np.matmul, kind=OpKind.CONTRACTION, takes_complex=True)
BATCH_MATMUL = Op("batch_matmul", _batch_matmul, kind=OpKind.CONTRACTION, takes_complex=True)


@implements(np.matmul, np.linalg.matmul)
def matmul(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Matrix product, as `numpy.matmul`; of three axes or more it records a ``batch_matmul``.

    >>> tg.matmul([[1.0, 2.0]], [[3.0], [4.0]]).data
    array([[11.]])
    """
    x, y = tensor_like("matmul", x1, "x1"), tensor_like("matmul", x2, "x2")
    op = BATCH_MATMUL if x.ndim > 2 or y.ndim > 2 else MATMUL
    return _product("matmul", op, x, y)


def batch_matmul(a: Kind | ArrayLike, b: Kind | ArrayLike) -> Kind:
    """Matrix product of stacks of matrices; the leading axes broadcast.

    :param a, b: Of shapes (..., n, k) and (..., k, m), one at least with three axes or more.
    :returns: Tensor of shape (..., n, m).
    :raises ValueError: The shapes are others.

    >>> tg.batch_matmul([[[1.0, 2.0]]], [[[3.0], [4.0]]]).data
    array([[[11.]]])
    """
    name = "batch_matmul"
    x, y = tensor_like(name, a, "a"), tensor_like(name, b, "b")
    if max(x.ndim, y.ndim) < 3 or min(x.ndim, y.ndim) < 2:
        received = f"shapes {x.shape} and {y.shape}"
        expected = "stacks of matrices, (..., n, k) and (..., k, m)"
        raise ValueError(message(name, received, expected, "Use tg.matmul for two matrices."))
    return _product(name, BATCH_MATMUL, x, y)


def _product(name: str, op: Op, a: DuckArray, b: DuckArray) -> DuckArray:
    try:
        return apply(op, (a, b))
    except ValueError as error:
        expected = (
            "the last axis of the first to equal the second-to-last (or only) axis of the second, "
            "and leading axes that broadcast"
        )
        received, fix = f"shapes {a.shape} and {b.shape}", "Transpose or reshape an operand."
        raise ValueError(message(name, received, expected, fix)) from error


# Operands of fewer elements are contracted sooner than a path for them is found.
WORTH_A_PATH = 1000


def contract(spec: str, *arrays: Array) -> DuckArray:
    dtypes = {a.dtype for a in arrays}
    if len(dtypes) > 1:  # or two float32 operands of three would be multiplied in float32
        dtype = np.result_type(*dtypes)
        arrays = tuple(a.astype(dtype, copy=False) for a in arrays)
    return np.einsum(spec, *arrays, optimize=_worth_a_path(arrays))


def _worth_a_path(arrays: tuple[Array, ...]) -> bool:
    return len(arrays) > 2 or max(a.size for a in arrays) > WORTH_A_PATH


def terms_of(spec: str) -> tuple[list[str], str]:
    inputs, output = spec.split("->")
    return inputs.split(","), output


def aligned(x: DuckArray, term: str, labels: str) -> DuckArray:
    """Return an operand with one axis a label, in order, of length 1 where it lacks the label."""
    ordered = x.transpose([term.index(label) for label in labels if label in term])
    lengths = iter(ordered.shape)
    return ordered.reshape([next(lengths) if label in term else 1 for label in labels])


def _einsum(*arrays: Array, spec: str) -> DuckArray:
    if _worth_a_path(arrays):  # then NumPy multiplies, and warns, in Python
        return watched("einsum", contract, spec, *arrays)
    return contract(spec, *arrays)


EINSUM = Op("einsum", _einsum, kind=OpKind.CONTRACTION, takes_complex=True)


@implements(np.dot)
def dot(a: Kind | ArrayLike, b: Kind | ArrayLike) -> Kind:
    """Sum of products over the last axis of ``a`` and the last but one of ``b``, as `numpy.dot`.

    >>> tg.dot([1.0, 2.0], [3.0, 4.0]).item()
    11.0
    """
    x, y = tensor_like("dot", a, "a"), tensor_like("dot", b, "b")
    if not x.ndim or not y.ndim:
        return mul(x, y)
    if y.ndim == 1 or max(x.ndim, y.ndim) == 2:
        return matmul(x, y)
    return _contracted("dot", x, y, (x.ndim - 1,), (y.ndim - 2,))


@implements(np.inner)
def inner(a: Kind | ArrayLike, b: Kind | ArrayLike) -> Kind:
    """Sum of products over the last axes of two arrays, as `numpy.inner`.

    >>> tg.inner([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).data
    array([3., 7.])
    """
    x, y = tensor_like("inner", a, "a"), tensor_like("inner", b, "b")
    if not x.ndim or not y.ndim:
        return mul(x, y)
    return _contracted("inner", x, y, (x.ndim - 1,), (y.ndim - 1,))


@implements(np.vdot)
def vdot(a: Kind | ArrayLike, b: Kind | ArrayLike) -> Kind:
    """Sum of products of two arrays' elements, the first conjugated, as `numpy.vdot`.

    >>> tg.vdot([[1.0, 2.0]], [[3.0], [4.0]]).item()
    11.0
    """
    x, y = tensor_like("vdot", a, "a"), tensor_like("vdot", b, "b")
    if x.size != y.size:
        received = f"shapes {x.shape} and {y.shape}"
        raise ValueError(message("vdot", received, "the same number of elements in both"))
    return matmul(conj(_reshaped(x, (x.size,))), _reshaped(y, (y.size,)))


@implements(np.convolve)
def convolve(
    a: Kind | ArrayLike,
    v: Kind | ArrayLike,
    mode: Literal["full", "same", "valid", 0, 1, 2] = "full",
) -> Kind:
    """Convolution of two sequences, as `numpy.convolve`; gradients flow to both.

    >>> tg.convolve([1.0, 2.0, 3.0], [1.0, -1.0]).data
    array([ 1.,  1.,  1., -3.])
    """
    x, y = tensor_like("convolve", a, "a"), tensor_like("convolve", v, "v")
    if x.ndim > 1 or y.ndim > 1 or not x.size or not y.size:
        received = f"shapes {x.shape} and {y.shape}"
        raise ValueError(message("convolve", received, "sequences of one element or more"))
    if type(mode) is int and mode in (0, 1, 2):  # NumPy's numbers for them
        mode = ("valid", "same", "full")[mode]
    check_one_of("convolve", "mode", mode, "full", "same", "valid")
    x, y = _reshaped(x, (x.size,)), _reshaped(y, (y.size,))
    longer, shorter = max(x.size, y.size), min(x.size, y.size)
    whole = apply(CONVOLVE, (x, y))
    if mode == "full":
        return whole
    if mode == "valid":
        return whole[shorter - 1 : longer]
    start = (shorter - 1) // 2
    return whole[start : start + longer]


@implements(np.outer, np.linalg.outer)
def outer(a: Kind | ArrayLike, b: Kind | ArrayLike) -> Kind:
    """Every product of an element of ``a`` and one of ``b``, as `numpy.outer`.

    >>> tg.outer([1.0, 2.0], [3.0, 4.0]).data.tolist()
    [[3.0, 4.0], [6.0, 8.0]]
    """
    x, y = tensor_like("outer", a, "a"), tensor_like("outer", b, "b")
    return mul(_reshaped(x, (x.size, 1)), _reshaped(y, (1, y.size)))


@implements(np.tensordot, np.linalg.tensordot)
def tensordot(
    a: Kind | ArrayLike, b: Kind | ArrayLike, axes: SupportsIndex | Sequence[Shape] = 2
) -> Kind:
    """Sum of products over some axes of two arrays, as `numpy.tensordot`.

    >>> tg.tensordot([[1.0, 2.0], [3.0, 4.0]], [10.0, 1.0], axes=([0], [0])).data
    array([13., 24.])
    """
    name = "tensordot"
    x, y = tensor_like(name, a, "a"), tensor_like(name, b, "b")
    if hasattr(axes, "__index__"):
        count = one_integer(name, "axes", axes)
        if not 0 <= count <= min(x.ndim, y.ndim):
            received = f"axes={count} for shapes {x.shape} and {y.shape}"
            raise ValueError(message(name, received, f"at most {min(x.ndim, y.ndim)} axes"))
        return _contracted(name, x, y, tuple(range(x.ndim - count, x.ndim)), tuple(range(count)))
    try:
        left, right = axes
    except (TypeError, ValueError):
        expected = "an integer, or the axes of a and those of b"
        raise ValueError(message(name, f"axes={axes!r}", expected)) from None
    rows = ordered_axes(name, "axes[0]", left, x.ndim)
    columns = ordered_axes(name, "axes[1]", right, y.ndim)
    return _contracted(name, x, y, rows, columns)


@implements(np.kron)
def kron(a: Kind | ArrayLike, b: Kind | ArrayLike) -> Kind:
    """Kronecker product, as `numpy.kron`.

    >>> tg.kron([1.0, 10.0], [1.0, 2.0]).data
    array([ 1.,  2., 10., 20.])
    """
    left, right = tensor_like("kron", a, "a"), tensor_like("kron", b, "b")
    ndim = max(left.ndim, right.ndim)
    n, m = ((1,) * (ndim - x.ndim) + x.shape for x in (left, right))
    blocks = _reshaped(left, tuple(k for length in n for k in (length, 1)))
    repeated = _reshaped(right, tuple(k for length in m for k in (1, length)))
    return _reshaped(mul(blocks, repeated), tuple(i * j for i, j in zip(n, m, strict=True)))


@implements(np.cross, np.linalg.cross)
def cross(
    a: Kind | ArrayLike,
    b: Kind | ArrayLike,
    axisa: SupportsIndex = -1,
    axisb: SupportsIndex = -1,
    axisc: SupportsIndex = -1,
    axis: SupportsIndex | None = None,
) -> Kind:
    """Cross product of vectors of three elements, as `numpy.cross`; those of two are refused.

    >>> tg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]).data
    array([0., 0., 1.])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    x = axes_last("cross", tensor_like("cross", a, "a"), axisa)
    y = axes_last("cross", tensor_like("cross", b, "b"), axisb)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        received = f"vectors of {x.shape[-1]} and {y.shape[-1]} elements"
        fix = "Give plane vectors a third element, 0."
        raise ValueError(message("cross", received, "vectors of three elements", fix))
    (x1, y1), (x2, y2) = [(gather(x, i, -1), gather(y, i, -1)) for i in ((1, 2, 0), (2, 0, 1))]
    out = x1 * y2 - x2 * y1
    place = one_axis("cross", axisc, out.ndim)
    return out if place == out.ndim - 1 else moveaxis(out, -1, place)


@implements(np.trace)
def trace(
    a: Kind | ArrayLike,
    offset: int = 0,
    axis1: SupportsIndex = 0,
    axis2: SupportsIndex = 1,
    dtype: npt.DTypeLike | None = None,
) -> Kind:
    """Sum along a diagonal, as `numpy.trace`.

    >>> tg.trace([[1.0, 2.0], [3.0, 4.0]]).item()
    5.0
    """
    return reduce.sum(_diagonal("trace", a, offset, axis1, axis2), axis=-1, dtype=dtype)


@implements(np.diagonal)
def diagonal(
    a: Kind | ArrayLike, offset: int = 0, axis1: SupportsIndex = 0, axis2: SupportsIndex = 1
) -> Kind:
    """Take a diagonal of each matrix, as `numpy.diagonal`; its gradient is zero off the diagonal.

    >>> tg.diagonal([[1.0, 2.0], [3.0, 4.0]], offset=1).data
    array([2.])
    """
    return _diagonal("diagonal", a, offset, axis1, axis2)


# numpy.linalg's own take the last two axes.
@implements(np.linalg.trace)
def _matrix_trace(x: DuckArray, offset: int = 0, dtype: Any = None) -> DuckArray:
    return trace(x, offset, -2, -1, dtype)


@implements(np.linalg.diagonal)
def _matrix_diagonal(x: DuckArray, offset: int = 0) -> DuckArray:
    return diagonal(x, offset, -2, -1)


@implements(np.vecdot, np.linalg.vecdot)
def vecdot(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /, axis: SupportsIndex = -1) -> Kind:
    """Dot product of the vectors along one axis, the first conjugated, as `numpy.vecdot`.

    >>> tg.vecdot([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).data
    array([3., 7.])
    """
    x = axes_last("vecdot", tensor_like("vecdot", x1, "x1"), axis)
    y = axes_last("vecdot", tensor_like("vecdot", x2, "x2"), axis)
    if x.shape[-1] != y.shape[-1]:
        received = f"shapes {x.shape} and {y.shape}"
        raise ValueError(message("vecdot", received, "vectors of the same length"))
    products = mul(conj(x), y)
    return reduce.sum(products, axis=-1, dtype=products.dtype)


def matvec(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Product of stacks of matrices and stacks of vectors, as `numpy.matvec`.

    >>> tg.matvec([[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]).data.tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    x, y = tensor_like("matvec", x1, "x1"), tensor_like("matvec", x2, "x2")
    if x.ndim < 2 or y.ndim < 1:
        received = f"shapes {x.shape} and {y.shape}"
        raise ValueError(message("matvec", received, "(..., n, k) and (..., k)"))
    out = matmul(x, _reshaped(y, (*y.shape, 1)))
    return _reshaped(out, out.shape[:-1])


def vecmat(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Product of stacks of vectors, conjugated, and stacks of matrices, as `numpy.vecmat`.

    >>> tg.vecmat([[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [3.0, 4.0]]).data.tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    x, y = tensor_like("vecmat", x1, "x1"), tensor_like("vecmat", x2, "x2")
    if x.ndim < 1 or y.ndim < 2:
        received = f"shapes {x.shape} and {y.shape}"
        raise ValueError(message("vecmat", received, "(..., n) and (..., n, k)"))
    out = matmul(conj(_reshaped(x, (*x.shape[:-1], 1, x.shape[-1]))), y)
    return _reshaped(out, (*out.shape[:-2], out.shape[-1]))


if hasattr(np, "matvec"):  # new in NumPy 2.2
    implements(np.matvec)(matvec)
    implements(np.vecmat)(vecmat)


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Sequence[Kind | ArrayLike] | SupportsArray) -> Kind:
    """Product of several matrices in the cheapest order, as `numpy.linalg.multi_dot`.

    >>> tg.multi_dot([[[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]], [3.0, 4.0]]).data
    array([11.])
    """
    name = "multi_dot"
    parts = tensors_of(name, arrays)
    shapes = [p.shape for p in parts]
    fits = len(parts) > 1 and all(len(s) == 2 for s in shapes[1:-1])
    if not fits or not all(len(s) in (1, 2) for s in (shapes[0], shapes[-1])):
        expected = "at least two matrices, of which the first and the last may be vectors"
        error = ValueError if len(parts) < 2 else np.linalg.LinAlgError
        raise error(message(name, f"shapes {shapes}", expected))
    rows = 1 if len(shapes[0]) == 1 else shapes[0][0]
    columns = 1 if len(shapes[-1]) == 1 else shapes[-1][1]
    # After which matrix to split each run of the chain (Cormen et al., ch. 15.2).
    lengths = [rows, *(s[0] for s in shapes[1:]), columns]
    count = len(lengths) - 1
    cost = {(i, i): 0 for i in range(count)}
    order: dict[tuple[int, int], int] = {}
    for width in range(1, count):
        for i in range(count - width):
            j = i + width
            works = [
                cost[i, k] + cost[k + 1, j] + lengths[i] * lengths[k + 1] * lengths[j + 1]
                for k in range(i, j)
            ]
            cost[i, j] = min(works)
            order[i, j] = i + works.index(cost[i, j])

    def product(first: int, last: int) -> DuckArray:
        if first == last:
            return parts[first]
        middle = order[first, last]
        return matmul(product(first, middle), product(middle + 1, last))

    return product(0, len(parts) - 1)


@implements(np.einsum)
def einsum(*operands: str | Kind | ArrayLike | EinsumLabels, optimize: object = False) -> Kind:
    """Sum of products over named axes, as `numpy.einsum`, which ``optimize`` makes no faster.

    >>> tg.einsum("ij,j->i", [[1.0, 2.0], [3.0, 4.0]], [1.0, 10.0]).data
    array([21., 43.])
    """
    subscripts, arrays = _subscripts(operands)
    tensors = tensors_of("einsum", arrays, "operands")
    terms, output = _explicit(subscripts, [x.ndim for x in tensors], tensors)
    pairs = [_diagonals(x, term, subscripts) for x, term in zip(tensors, terms, strict=True)]
    pairs = _unstretched(pairs, subscripts)
    known = Counter(label for _, term in pairs for label in term) + Counter(output)
    for i, (x, term) in enumerate(pairs):
        alone = tuple(place for place, label in enumerate(term) if known[label] == 1)
        if alone:  # in no other term, nor in the result
            rest = "".join(label for label in term if known[label] != 1)
            pairs[i] = reduce.sum(x, axis=alone), rest
    if len(pairs) == 1:
        ((x, term),) = pairs
        return permuted(x, tuple(term.index(label) for label in output))
    spec = ",".join(term for _, term in pairs) + "->" + output
    return apply(EINSUM, tuple(x for x, _ in pairs), {"spec": spec})


def _bad_subscripts(subscripts: str, expected: str) -> ValueError:
    return ValueError(message("einsum", f"subscripts {subscripts!r}", expected))


def _subscripts(operands: tuple[DuckArray, ...]) -> tuple[str, tuple[DuckArray, ...]]:
    if operands and isinstance(operands[0], str):
        return operands[0].replace(" ", ""), operands[1:]
    if len(operands) < 2:
        received = f"{len(operands)} operands"
        raise ValueError(message("einsum", received, "subscripts and at least one array"))
    paired = len(operands) - len(operands) % 2
    text = ",".join(_letters(labels) for labels in operands[1:paired:2])
    if len(operands) > paired:
        text += "->" + _letters(operands[-1])
    return text, operands[:paired:2]


def _letters(labels: Any) -> str:
    try:
        return "".join("..." if i is Ellipsis else string.ascii_letters[i] for i in labels)
    except (TypeError, IndexError):
        received = f"labels {kind_of(labels)}"
        raise ValueError(message("einsum", received, "a list of integers from 0 to 51")) from None


def _explicit(subscripts: str, ndims: list[int], tensors: list[DuckArray]) -> tuple[list[str], str]:
    """Write out ``...`` and the result's labels; every axis then has a letter."""
    inputs, arrow, output = subscripts.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ndims):
        raise _bad_subscripts(subscripts, f"{len(ndims)} terms, one per array")
    letters = subscripts.replace("->", "").replace(",", "").replace("...", "")
    if not all(c in string.ascii_letters for c in letters):
        raise _bad_subscripts(subscripts, "letters, ',', '->' and '...'")
    spare = "".join(c for c in string.ascii_letters if c not in letters)
    dots = ""
    written = []
    for term, ndim in zip(terms, ndims, strict=True):
        rest = ndim - len(term.replace("...", ""))
        if rest < 0 or (rest and "..." not in term) or term.count("...") > 1:
            shapes = [t.shape for t in tensors]
            raise _bad_subscripts(subscripts, f"one label an axis for shapes {shapes}")
        here = spare[:rest][::-1]  # ellipses broadcast: their axes are named from the last
        dots = max(dots, here, key=len)
        written.append(term.replace("...", here))
    if not arrow:
        counts = Counter(letters)
        output = "..." + "".join(sorted(c for c in counts if counts[c] == 1))
    elif dots and "..." not in output:
        raise _bad_subscripts(subscripts, "'...' in the result too")
    output = output.replace("...", dots)
    if len(set(output)) != len(output) or set(output) - set("".join(written)):
        raise _bad_subscripts(subscripts, "labels of the operands in the result, each once")
    return written, output


def _diagonals(x: DuckArray, term: str, subscripts: str) -> tuple[Any, str]:
    for label in dict.fromkeys(term):
        while term.count(label) > 1:
            i = term.index(label)
            j = term.index(label, i + 1)
            if x.shape[i] != x.shape[j]:
                expected = f"equal lengths along the axes {label!r} of shape {x.shape}"
                raise _bad_subscripts(subscripts, expected)
            x = diagonal(x, 0, i, j)
            term = term[:i] + term[i + 1 : j] + term[j + 1 :] + label
    return x, term


def _unstretched(pairs: list[tuple[Any, str]], subscripts: str) -> list[tuple[Any, str]]:
    """Drop the axes of length 1 that meet longer ones."""
    lengths: dict[str, int] = {}
    for x, term in pairs:
        for label, length in zip(term, x.shape, strict=True):
            known = lengths.setdefault(label, length)
            if known == 1:
                lengths[label] = length
            elif length not in (1, known):
                expected = f"one length of the axes {label!r} in {[x.shape for x, _ in pairs]}"
                raise _bad_subscripts(subscripts, expected)
    kept = []
    for x, term in pairs:
        stay = [i for i, n in enumerate(x.shape) if n == lengths[term[i]]]
        left = _reshaped(x, tuple(x.shape[i] for i in stay))
        kept.append((left, "".join(term[i] for i in stay)))
    return kept


def axes_last(op: str, x: DuckArray, *axes: SupportsIndex) -> DuckArray:
    last = tuple(one_axis(op, axis, x.ndim) for axis in axes)
    if len(set(last)) != len(last):
        raise ValueError(message(op, f"axes {axes}", "axes that differ"))
    return permuted(x, reduce.last_order(x.ndim, last))


def _diagonal(
    op: str, a: DuckArray, offset: int, axis1: SupportsIndex, axis2: SupportsIndex
) -> DuckArray:
    x = tensor_like(op, a, "a")
    if x.ndim < 2:
        raise ValueError(message(op, f"shape {x.shape}", "at least two axes"))
    x = axes_last(op, x, axis1, axis2)
    shift = one_integer(op, "offset", offset)
    return getitem(x, (..., *diagonal_places(x.shape[-2:], shift)))


def _contracted(
    op: str, a: DuckArray, b: DuckArray, left: tuple[int, ...], right: tuple[int, ...]
) -> DuckArray:
    """Sum over pairs of axes by one matrix product."""
    lengths = [a.shape[i] for i in left]
    once = all(len(set(axes)) == len(axes) for axes in (left, right))
    if not once or lengths != [b.shape[i] for i in right]:
        received = f"shapes {a.shape} and {b.shape} to sum over axes {left} and {right}"
        raise ValueError(message(op, received, "each axis once, and the same lengths"))
    rows = tuple(i for i in range(a.ndim) if i not in left)
    columns = tuple(i for i in range(b.ndim) if i not in right)
    kept = tuple(a.shape[i] for i in rows) + tuple(b.shape[i] for i in columns)
    depth = math.prod(lengths)
    n, m = (math.prod(x.shape[i] for i in keep) for x, keep in ((a, rows), (b, columns)))
    first = _reshaped(permuted(a, rows + left), (n, depth))
    second = _reshaped(permuted(b, right + columns), (depth, m))
    return _reshaped(matmul(first, second), kept)


def _reshaped(x: DuckArray, lengths: tuple[int, ...]) -> DuckArray:
    return x if x.shape == lengths else shape.reshape(x, lengths)


if TYPE_CHECKING:  # generic, as they cannot be before Python 3.11
    from typing_extensions import NamedTuple

    class SlogdetResult(NamedTuple, Generic[Kind]):
        sign: Kind
        logabsdet: Kind

    class EighResult(NamedTuple, Generic[Kind]):
        eigenvalues: Kind
        eigenvectors: Kind

    class EigResult(NamedTuple, Generic[Kind]):
        eigenvalues: Kind
        eigenvectors: Kind

    class QRResult(NamedTuple, Generic[Kind]):
        Q: Kind
        R: Kind

    class SVDResult(NamedTuple, Generic[Kind]):
        U: Kind
        S: Kind
        Vh: Kind

else:
    SlogdetResult = namedtuple("SlogdetResult", "sign logabsdet")
    EighResult = namedtuple("EighResult", "eigenvalues eigenvectors")
    EigResult = namedtuple("EigResult", "eigenvalues eigenvectors")
    QRResult = namedtuple("QRResult", "Q R")
    SVDResult = namedtuple("SVDResult", "U S Vh")


# Forward


def flipped(x: DuckArray) -> DuckArray:
    return x.swapaxes(-1, -2)


def adjoint(x: DuckArray) -> DuckArray:
    return np.conj(flipped(x)) if x.dtype.kind == "c" else flipped(x)


def equal_pairs(values: Array) -> Array:
    """Return which eigenvalues or singular values are equal except for rounding, (..., n, n)."""
    gaps = np.abs(values[..., None, :] - values[..., :, None])
    equal: Array = gaps <= _rounding(values)[..., None]
    return equal & ~np.eye(values.shape[-1], dtype=bool)


def zeros_among(values: Array) -> Array:
    return values <= _rounding(values)


def _rounding(values: Array) -> Array:
    largest = np.max(np.abs(values), axis=-1, keepdims=True, initial=0.0)
    return largest * (np.finfo(values.dtype).eps * values.shape[-1])


def may_cut(rcond: float, shape: tuple[Any, ...], eps: float) -> bool:
    """Return whether a limit of singular values cuts more than rounding, which defaults do not."""
    return rcond > 10 * eps * max(shape[-2:])


def _eig(x: Array) -> DuckArray:
    dtype = np.result_type(x.dtype, np.complex64)
    return [part.astype(dtype, copy=False) for part in np.linalg.eig(x)]


def _svdvals(x: Array) -> DuckArray:
    if np.isinf(x).any():
        s = np.linalg.svd(x, compute_uv=False)
        (m, n), k = x.shape[-2:], s.shape[-1]
        lengths = ((*x.shape[:-2], m, k), (*x.shape[:-2], k, n))
        u, vh = (np.full(shape, np.nan, np.result_type(s, x)) for shape in lengths)
        return s, (u, vh)
    u, s, vh = np.linalg.svd(x, full_matrices=False)
    return s, (u, vh)


def _check_ends(x: Array) -> None:
    """Raise for infinities, on which LAPACK's search for singular vectors never ends."""
    if np.isinf(x).any():
        raise np.linalg.LinAlgError("SVD did not converge")


def _svd(x: Array) -> DuckArray:
    _check_ends(x)
    return np.linalg.svd(x, full_matrices=False)


def _pinv(x: Array, *, rcond: float) -> DuckArray:
    _check_ends(x)
    return watched("pinv", np.linalg.pinv, x, rcond)


def _norm(x: Array, *, axis: tuple[int, ...], keepdims: bool, ord: float) -> DuckArray:
    if ord == 2 and len(axis) == x.ndim and x.dtype.kind == "f":
        flat = x.ravel("K")
        length = np.sqrt(np.dot(flat, flat))  # as numpy.linalg.norm has it
        return length.reshape((1,) * x.ndim) if keepdims else length
    if ord == 2:
        return np.sqrt(reduce.add_up(x * x, axis=axis, keepdims=keepdims))
    sizes = np.abs(x)
    if ord == math.inf:
        return sizes.max(axis=axis, keepdims=keepdims)
    if ord == -math.inf:
        return sizes.min(axis=axis, keepdims=keepdims)
    if ord == 1:
        return reduce.add_up(sizes, axis=axis, keepdims=keepdims)
    return reduce.add_up(sizes**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


CONVOLVE = Op("convolve", np.convolve, kind=OpKind.CONTRACTION, takes_complex=True)
INV = Op("inv", np.linalg.inv, takes_complex=True)
SOLVE = Op("solve", np.linalg.solve, takes_complex=True)
DET = Op("det", lambda x: watched("det", np.linalg.det, x), takes_complex=True)
SLOGDET = Op("slogdet", np.linalg.slogdet, several=True, takes_complex=True)
CHOLESKY = Op("cholesky", np.linalg.cholesky, takes_complex=True)
EIGVALSH = Op("eigvalsh", np.linalg.eigh, saves=True, takes_complex=True)
# The triangles are equal, but LAPACK's choice of the vectors' signs depends on which it reads.
EIGH = Op("eigh", lambda x, *, uplo: np.linalg.eigh(x, uplo), several=True, takes_complex=True)
EIG = Op("eig", _eig, several=True, takes_complex=True)
QR = Op("qr", np.linalg.qr, several=True, takes_complex=True)
SVDVALS = Op("svdvals", _svdvals, saves=True, takes_complex=True)
SVD = Op("svd", _svd, several=True, takes_complex=True)
PINV = Op("pinv", _pinv, takes_complex=True)
LSTSQ = Op("lstsq", lambda a, b, *, rcond: np.linalg.lstsq(a, b, rcond)[0], takes_complex=True)
NORM = Op("norm", _norm, kind=OpKind.REDUCTION)


# Systems of equations


@implements(np.linalg.inv)
def inv(a: Kind | ArrayLike) -> Kind:
    """Inverse of a square matrix, as `numpy.linalg.inv`; its derivative is ``-inv(a) da inv(a)``.

    >>> tg.inv([[2.0, 0.0], [0.0, 4.0]]).data.tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    return _decomposed(INV, _square("inv", a), "an invertible matrix")


@implements(np.linalg.solve)
def solve(a: Kind | ArrayLike, b: Kind | ArrayLike) -> Kind:
    """Solution ``x`` of ``a @ x = b``, as `numpy.linalg.solve`; gradients flow to both.

    >>> tg.solve([[2.0, 0.0], [0.0, 4.0]], [2.0, 2.0]).data
    array([1. , 0.5])
    """
    x, y = _square("solve", a), tensor_like("solve", b, "b")
    vector = y.ndim == 1
    right = shape.reshape(y, (*y.shape, 1)) if vector else y
    if right.ndim < 2 or x.shape[-1] != right.shape[-2]:
        expected = f"b of shape ({x.shape[-1]},) or (..., {x.shape[-1]}, k)"
        raise ValueError(message("solve", f"shapes {x.shape} and {y.shape}", expected))
    out = _decomposed(SOLVE, x, "an invertible matrix", right)
    return shape.reshape(out, out.shape[:-1]) if vector else out


@implements(np.linalg.pinv)
def pinv(a: Kind | ArrayLike, rcond: float | None = None, *, rtol: float | None = 1e-15) -> Kind:
    """Pseudo-inverse, as `numpy.linalg.pinv`; its derivative holds where the rank does not change.

    >>> tg.pinv([[2.0], [0.0]]).data
    array([[0.5, 0. ]])
    """
    x = _matrices("pinv", a)
    if rtol is None:  # as the array API standard has it
        rtol = max(x.shape[-2:]) * np.finfo(np.result_type(x.dtype, 1.0)).eps
    limit = as_float(rtol, "pinv", "rtol") if rcond is None else as_float(rcond, "pinv", "rcond")
    return _decomposed(PINV, x, "finite numbers", rcond=limit)


@implements(np.linalg.lstsq)
def lstsq(
    a: Kind | ArrayLike, b: Kind | ArrayLike, rcond: float | None = None
) -> tuple[Kind, Kind, int, Kind]:
    """Solution of least length that minimises ``|a @ x - b|``, as `numpy.linalg.lstsq`.

    Gradients flow through all but the rank, an int, if the rank does not change. In `tg.compile` it
    is a tensor, and residuals are NaN where it is below the number of columns; in `tg.vmap` it is
    one where matrices differ in rank, and then no example has residuals.

    >>> x, residuals, rank, s = tg.lstsq([[1.0], [1.0]], [1.0, 3.0])
    >>> x.data, residuals.data, rank
    (array([2.]), array([2.]), 1)
    """
    x, y = tensor_like("lstsq", a, "a"), tensor_like("lstsq", b, "b")
    if x.ndim != 2 or y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        received = f"shapes {x.shape} and {y.shape}"
        raise np.linalg.LinAlgError(message("lstsq", received, "(m, n), and (m,) or (m, k)"))
    kind = np.result_type(x.dtype, y.dtype)
    if kind.char in "fF":  # NumPy computes in float64, too
        wide = np.result_type(kind, np.float64)
        found = lstsq(x.astype(wide), y.astype(wide), rcond)
        solution, residuals = (part.astype(kind) for part in found[:2])
        return solution, residuals, found[2], found[3].astype(np.float32)
    x = x.astype(np.result_type(x.dtype, np.float64))
    m, n = x.shape
    eps = np.finfo(np.float64).eps
    limit = float(eps * max(m, n)) if rcond is None else as_float(rcond, "lstsq", "rcond")
    right = _reshaped(y, (m, y.shape[1] if y.ndim == 2 else 1))
    solution = _decomposed(LSTSQ, x, "finite numbers", right, rcond=limit)
    solution = _reshaped(solution, (n, *y.shape[1:]))
    s = svdvals(x)
    rank: Any = reduce.sum(s > limit * reduce.max(s)) if s.size else 0
    ranks = np.asarray(peek(rank))  # of all examples, inside `tg.vmap`
    captured = recorder().records(innermost(s))
    if captured:
        lowest = n
    else:
        lowest = int(ranks.min(initial=min(m, n)))
        rank = rank if (ranks != lowest).any() else lowest
    if lowest < n or m <= n:
        return solution, as_leaf(np.empty(0, solution.dtype)), rank, s
    missed = reduce.squared(matmul(x, solution) - y)
    residuals = reduce.sum(missed, axis=0, keepdims=y.ndim == 1)
    if captured:
        residuals = where(rank == n, residuals, math.nan)
    return solution, residuals, rank, s


@implements(np.linalg.matrix_power)
def matrix_power(a: Kind | ArrayLike, n: int) -> Kind:
    """Power of a square matrix, as `numpy.linalg.matrix_power`; below 0 of its inverse.

    >>> tg.matrix_power([[1.0, 1.0], [0.0, 1.0]], 3).data.tolist()
    [[1.0, 3.0], [0.0, 1.0]]
    """
    x = _square("matrix_power", a)
    power = one_integer("matrix_power", "n", n)
    if power == 0:
        return as_leaf(np.broadcast_to(np.eye(x.shape[-1], dtype=x.dtype), x.shape).copy())
    square, power = (inv(x), -power) if power < 0 else (x, power)
    if power == 3:  # NumPy multiplies from the left here, and from the right beyond
        return matmul(matmul(square, square), square)
    result: DuckArray = None
    while power:
        if power & 1:
            result = square if result is None else matmul(result, square)
        power >>= 1
        if power:
            square = matmul(square, square)
    return result


# Determinants


@implements(np.linalg.det)
def det(a: Kind | ArrayLike) -> Kind:
    """Compute a determinant, as `numpy.linalg.det`; its gradient is the cofactors, always exact.

    >>> tg.det([[3.0, 0.0], [0.0, 2.0]]).item()
    6.0
    """
    return apply(DET, (_square("det", a),))


@implements(np.linalg.slogdet)
def slogdet(a: Kind | ArrayLike) -> SlogdetResult[Kind]:
    """Sign and logarithm of the determinant's size, as `numpy.linalg.slogdet`.

    >>> sign, logabsdet = tg.slogdet([[0.0, 1.0], [1.0, 0.0]])
    >>> sign.item(), logabsdet.item()
    (-1.0, 0.0)
    """
    return SlogdetResult(*apply(SLOGDET, (_square("slogdet", a),)))


# Factors


@implements(np.linalg.cholesky)
def cholesky(a: Kind | ArrayLike, upper: bool = False) -> Kind:
    """Lower triangular ``L`` with ``a = L @ L.T``, conjugated, as `numpy.linalg.cholesky`.

    It reads one triangle of ``a``, and half of the symmetric gradient (Murray, 2016) goes to each.

    >>> tg.cholesky([[4.0, 2.0], [2.0, 5.0]]).data.tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    square = _square("cholesky", a)
    read = conj(matrix_transpose(square)) if upper else square
    out = _decomposed(CHOLESKY, read, "a positive-definite matrix")
    return conj(matrix_transpose(out)) if upper else out


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Kind | ArrayLike, UPLO: Literal["L", "U"] = "L") -> Kind:
    """Eigenvalues of a symmetric or Hermitian matrix, as `numpy.linalg.eigvalsh`.

    The triangle that is not read has no gradient; of equal eigenvalues only the sum has one.

    >>> tg.eigvalsh([[2.0, 0.0], [0.0, 1.0]]).data
    array([1., 2.])
    """
    return apply(EIGVALSH, (_one_triangle("eigvalsh", a, UPLO),))


@implements(np.linalg.eigh)
def eigh(a: Kind | ArrayLike, UPLO: Literal["L", "U"] = "L") -> EighResult[Kind]:
    """Eigenvalues and eigenvectors of a symmetric or Hermitian matrix, as `numpy.linalg.eigh`.

    The triangle that is not read has no gradient. Through a vector of repeated eigenvalues it is
    NaN, as are third derivatives of the other values. The loss must not depend on a complex
    vector's phase.

    >>> w, v = tg.eigh([[2.0, 0.0], [0.0, 1.0]])
    >>> w.data, tg.abs(v).data.tolist()
    (array([1., 2.]), [[0.0, 1.0], [1.0, 0.0]])
    """
    read = _one_triangle("eigh", a, UPLO)
    return EighResult(*apply(EIGH, (read,), {"uplo": UPLO.upper()}))


@implements(np.linalg.eig)
def eig(a: Kind | ArrayLike) -> EigResult[Kind]:
    """Eigenvalues and right eigenvectors, as `numpy.linalg.eig`, but always complex.

    Through a vector of repeated eigenvalues the gradient is NaN. The loss must not depend on the
    phase of a vector.

    >>> w, v = tg.eig([[0.0, -1.0], [1.0, 0.0]])
    >>> w.data
    array([0.+1.j, 0.-1.j])
    """
    return EigResult(*_decomposed(EIG, _square("eig", a), "a matrix of finite numbers"))


@implements(np.linalg.eigvals)
def eigvals(a: Kind | ArrayLike) -> Kind:
    """Eigenvalues of a square matrix, as `numpy.linalg.eigvals`: complex, as those of `eig`.

    >>> tg.eigvals([[0.0, -1.0], [1.0, 0.0]]).data
    array([0.+1.j, 0.-1.j])
    """
    return eig(a).eigenvalues


@implements(np.linalg.qr)
def qr(a: Kind | ArrayLike, mode: Literal["reduced", "r"] = "reduced") -> QRResult[Kind] | Kind:
    """Product of a unitary and an upper triangular matrix, as `numpy.linalg.qr`, of full rank.

    The modes are "reduced" and "r"; what "complete" adds is arbitrary and has no gradient.

    >>> Q, R = tg.qr([[3.0, 0.0], [4.0, 5.0]])
    >>> tg.abs(Q).data.round(3).tolist(), tg.abs(R).data.round(3).tolist()
    ([[0.6, 0.8], [0.8, 0.6]], [[5.0, 4.0], [0.0, 3.0]])
    """
    x = _matrices("qr", a)
    check_one_of("qr", "mode", mode, "reduced", "r")
    m, n = x.shape[-2:]
    q, r = apply(QR, (x if m >= n else x[..., :m],))
    if m < n:  # the further columns are what they are along those of Q
        r = shape.concat([r, matmul(conj(matrix_transpose(q)), x[..., m:])], axis=-1)
    return r if mode == "r" else QRResult(q, r)


@implements(np.linalg.svdvals)
def svdvals(x: Kind | ArrayLike) -> Kind:
    """Singular values, as `numpy.linalg.svdvals`; the derivative is ``ds_i = u_i^T dx v_i``.

    >>> tg.svdvals([[3.0, 0.0], [0.0, 4.0]]).data
    array([4., 3.])
    """
    return apply(SVDVALS, (_matrices("svdvals", x),))


@overload
def svd(
    a: Kind | ArrayLike, full_matrices: bool = True, compute_uv: Literal[True] = True
) -> SVDResult[Kind]: ...
@overload
def svd(a: Kind | ArrayLike, full_matrices: bool = True, *, compute_uv: Literal[False]) -> Kind: ...
@implements(np.linalg.svd)
def svd(
    a: Kind | ArrayLike, full_matrices: bool = True, compute_uv: bool = True
) -> SVDResult[Kind] | Kind:
    """Singular value decomposition ``a = (U * S) @ Vh``, as `numpy.linalg.svd`.

    Where a gradient flows ``full_matrices=True`` is an error, unless matrices are square; through
    ``U`` and ``Vh`` it is NaN where singular values are equal or zero (Townsend, 2016). The loss
    must not depend on the phase that complex vectors share.

    >>> U, S, Vh = tg.svd([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]], full_matrices=False)
    >>> U.shape, S.data, Vh.shape
    ((3, 2), array([4., 3.]), (2, 2))
    """
    x = _matrices("svd", a)
    if not compute_uv:
        return svdvals(x)
    m, n = x.shape[-2:]
    if full_matrices and m != n:
        if not (x.requires_grad or recorder().records(x)):
            return SVDResult(*map(as_leaf, np.linalg.svd(detached(x))))
        received = f"full_matrices=True for matrices of shape ({m}, {n})"
        expected = "square matrices, or full_matrices=False"
        raise ValueError(message("svd", received, expected, "Write svd(a, full_matrices=False)."))
    return SVDResult(*_decomposed(SVD, x, "finite numbers"))


# Norms


@implements(np.linalg.norm)
def norm(
    x: Kind | ArrayLike,
    ord: float | Literal["fro", "nuc"] | None = None,
    axis: Axes = None,
    keepdims: bool = False,
) -> Kind:
    """Norm of a vector or of a matrix, as `numpy.linalg.norm`.

    Its gradient at a zero vector is zero; elements that tie for the largest share theirs evenly.

    >>> tg.norm([3.0, 4.0]).item()
    5.0
    """
    array = tensor_like("norm", x)
    axes = tuple(range(array.ndim)) if axis is None else int_tuple("norm", "axis", axis)
    if axis is None and ord is None:
        return _vector_norm("norm", array, axes, 2, keepdims)
    if len(axes) == 1:
        return _vector_norm("norm", array, axes, 2 if ord is None else ord, keepdims)
    if len(axes) == 2:
        return _matrix_norm("norm", array, axes, "fro" if ord is None else ord, keepdims)
    received = f"axis={axis} and ord={ord!r} for shape {array.shape}"
    raise ValueError(message("norm", received, "one axis or two"))


@implements(np.linalg.vector_norm)
def vector_norm(
    x: Kind | ArrayLike, axis: Axes = None, keepdims: bool = False, ord: float = 2
) -> Kind:
    """Norm of the vectors along some axes, as `numpy.linalg.vector_norm`; gradients as of `norm`.

    >>> tg.vector_norm([[3.0, 4.0], [0.0, -2.0]], axis=1, ord=1).data
    array([7., 2.])
    """
    name = "vector_norm"
    array = tensor_like(name, x)
    return _vector_norm(name, array, some_axes(name, axis, array.ndim), ord, keepdims)


@implements(np.linalg.matrix_norm)
def matrix_norm(
    x: Kind | ArrayLike, keepdims: bool = False, ord: float | Literal["fro", "nuc"] = "fro"
) -> Kind:
    """Norm of the matrices in the last two axes, as `numpy.linalg.matrix_norm`; see `norm`.

    >>> tg.matrix_norm([[3.0, 0.0], [0.0, 4.0]], ord="nuc").item()
    7.0
    """
    return _matrix_norm("matrix_norm", tensor_like("matrix_norm", x), (-2, -1), ord, keepdims)


def _vector_norm(
    name: str, x: DuckArray, axes: tuple[int, ...], ord: object, keepdims: bool
) -> DuckArray:
    if isinstance(ord, str):
        raise ValueError(message(name, f"ord={ord!r} for vectors", "a number"))
    power = as_float(ord, name, "ord")
    axes = some_axes(name, axes, x.ndim)
    if is_complex(x):
        x = elementwise.abs(x)
    if power == 0:
        nonzero = (numbers(x) != 0).astype(x.dtype if x.dtype.kind == "f" else np.float64)
        return reduce.sum(nonzero, axes, keepdims)
    return apply(
        NORM, (floating(name, x),), {"axis": axes, "keepdims": bool(keepdims), "ord": power}
    )


def _matrix_norm(
    name: str, x: DuckArray, axes: tuple[int, ...], ord: object, keepdims: bool
) -> DuckArray:
    rows, columns = (one_axis(name, i, x.ndim) for i in axes)
    if rows == columns:
        raise ValueError(message(name, f"axis {axes}", "two axes that differ"))
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
        raise ValueError(message(name, f"ord={ord!r} for matrices", expected))
    if not keepdims:
        return out
    return shape.reshape(out, reduce.kept_shape(x.shape, (rows, columns)))


# Inputs


def _matrices(op: str, x: DuckArray) -> DuckArray:
    x = tensor_like(op, x, "a")
    if x.ndim < 2:
        raise np.linalg.LinAlgError(message(op, f"shape {x.shape}", "matrices, (..., m, n)"))
    return x


def _square(op: str, x: DuckArray) -> DuckArray:
    x = _matrices(op, x)
    if x.shape[-1] != x.shape[-2]:
        raise np.linalg.LinAlgError(message(op, f"shape {x.shape}", "square matrices, (..., n, n)"))
    return x


def _one_triangle(op: str, x: DuckArray, UPLO: str) -> DuckArray:
    """Mirror one triangle of a square matrix, as LAPACK's routines read it."""
    check_one_of(op, "UPLO", UPLO, "L", "U", "l", "u")
    x = _square(op, x)
    below = np.tri(x.shape[-1], dtype=bool)
    return where(below if UPLO in "Ll" else below.T, x, conj(matrix_transpose(x)))


def _decomposed(op: Op, x: DuckArray, expected: str, *others: object, **attrs: object) -> DuckArray:
    try:
        return apply(op, (x, *others), attrs)
    except np.linalg.LinAlgError as error:
        received = f"shape {x.shape}, for which LAPACK says: {error}"
        raise np.linalg.LinAlgError(message(op.name, received, expected)) from error
