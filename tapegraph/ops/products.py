"""Products of vectors, matrices and tensors.

All but `einsum` are compositions of products and rearrangements that have rules already.
"""

from __future__ import annotations

import math
import string
from collections import Counter
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from tapegraph import typed
from tapegraph.arrays.axes import integers, one_axis
from tapegraph.errors import explain, kind_of
from tapegraph.numpy_warnings import watched
from tapegraph.ops import elementwise, reduce, shape
from tapegraph.ops.arrange import matrix_transpose
from tapegraph.ops.index import gather, getitem
from tapegraph.ops.linalg import matmul
from tapegraph.recording.numpy_functions import implements
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, tensor_like
from tapegraph.typed import Array, Labels, Operand, Shape, of_array, of_arrays, of_two, seen_as

# Operands of fewer elements are contracted sooner than a path for them is found.
WORTH_A_PATH = 1000


def contract(spec: str, *arrays: Array) -> Any:
    """Evaluate explicit subscripts on arrays, by matrix products where that is faster."""
    dtypes = {a.dtype for a in arrays}
    if len(dtypes) > 1:  # or two float32 operands of three would be multiplied in float32
        dtype = np.result_type(*dtypes)
        arrays = tuple(a.astype(dtype, copy=False) for a in arrays)
    return np.einsum(spec, *arrays, optimize=_worth_a_path(arrays))


def _worth_a_path(arrays: tuple[Array, ...]) -> bool:
    return len(arrays) > 2 or max(a.size for a in arrays) > WORTH_A_PATH


def terms_of(spec: str) -> tuple[list[str], str]:
    """Split explicit subscripts into those of the operands and that of the result."""
    inputs, output = spec.split("->")
    return inputs.split(","), output


def aligned(x: Any, term: str, labels: str) -> Any:
    """Give an operand one axis a label, in order, of length 1 where it does not have it."""
    ordered = x.transpose([term.index(label) for label in labels if label in term])
    lengths = iter(ordered.shape)
    return ordered.reshape([next(lengths) if label in term else 1 for label in labels])


def _einsum(*arrays: Array, spec: str) -> Any:
    if _worth_a_path(arrays):  # then NumPy multiplies, and warns, in Python
        return watched("einsum", contract, spec, *arrays)
    return contract(spec, *arrays)


EINSUM = Op("einsum", _einsum)


@implements(np.dot)
@of_two
def dot(a: Any, b: Any) -> Any:
    """Sum of products over the last axis of ``a`` and the last but one of ``b``, as ``numpy.dot``.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., k) or ()
    b : Tensor or array_like, shape (k,), (..., k, m) or ()
        A 0-d operand multiplies the other.

    Returns
    -------
    Tensor
        Of shape ``a.shape[:-1] + b.shape[:-2] + b.shape[-1:]``.

    Raises
    ------
    ValueError
        The lengths to sum over differ.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.dot([1.0, 2.0], [3.0, 4.0]).item()
    11.0
    """
    a, b = tensor_like("dot", a, "a"), tensor_like("dot", b, "b")
    if not a.ndim or not b.ndim:
        return elementwise.mul(a, b)
    if b.ndim == 1 or max(a.ndim, b.ndim) == 2:
        return matmul(a, b)
    return _contracted("dot", a, b, (a.ndim - 1,), (b.ndim - 2,))


@implements(np.inner)
@of_two
def inner(a: Any, b: Any) -> Any:
    """Sum of products over the last axis of both operands.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., k) or ()
    b : Tensor or array_like, shape (..., k) or ()
        A 0-d operand multiplies the other.

    Returns
    -------
    Tensor
        Of shape ``a.shape[:-1] + b.shape[:-1]``.

    Raises
    ------
    ValueError
        The last lengths differ.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.inner([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).data
    array([3., 7.])
    """
    a, b = tensor_like("inner", a, "a"), tensor_like("inner", b, "b")
    if not a.ndim or not b.ndim:
        return elementwise.mul(a, b)
    return _contracted("inner", a, b, (a.ndim - 1,), (b.ndim - 1,))


@implements(np.vdot)
@of_two
def vdot(a: Any, b: Any) -> Any:
    """Sum of products of two arrays' elements, each array taken as one vector.

    Parameters
    ----------
    a, b : Tensor or array_like
        Of the same number of elements.

    Returns
    -------
    Tensor
        0-d.

    Raises
    ------
    ValueError
        The numbers of elements differ.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.vdot([[1.0, 2.0]], [[3.0], [4.0]]).item()
    11.0
    """
    a, b = tensor_like("vdot", a, "a"), tensor_like("vdot", b, "b")
    if a.size != b.size:
        raise ValueError(
            explain("vdot", f"shapes {a.shape} and {b.shape}", "as many elements in both")
        )
    return matmul(_reshaped(a, (a.size,)), _reshaped(b, (b.size,)))


@implements(np.outer, np.linalg.outer)
@of_two
def outer(a: Any, b: Any) -> Any:
    """Every product of an element of ``a`` and one of ``b``, ``a[i] * b[j]``.

    Parameters
    ----------
    a, b : Tensor or array_like
        Taken as vectors of n and m elements.

    Returns
    -------
    Tensor
        Of shape (n, m).

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.outer([1.0, 2.0], [3.0, 4.0]).data
    array([[3., 4.],
           [6., 8.]])
    """
    a, b = tensor_like("outer", a, "a"), tensor_like("outer", b, "b")
    return elementwise.mul(_reshaped(a, (a.size, 1)), _reshaped(b, (1, b.size)))


@implements(np.tensordot, np.linalg.tensordot)
@of_two
def tensordot(a: Any, b: Any, axes: SupportsIndex | Sequence[Shape] = 2) -> Any:
    """Sum of products over some axes of two arrays.

    Parameters
    ----------
    a, b : Tensor or array_like
        Any shapes.
    axes : int or pair
        The number of last axes of ``a`` and first axes of ``b`` to sum over; or the axes of
        ``a`` and those of ``b``, each an integer or a sequence.

    Returns
    -------
    Tensor
        The remaining axes of ``a``, then those of ``b``.

    Raises
    ------
    ValueError
        The axes are out of range, repeated, or not of the same lengths.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.tensordot([[1.0, 2.0], [3.0, 4.0]], [10.0, 1.0], axes=([0], [0])).data
    array([13., 24.])
    """
    name = "tensordot"
    a, b = tensor_like(name, a, "a"), tensor_like(name, b, "b")
    if hasattr(axes, "__index__"):
        count = integers(name, "axes", axes)[0]
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise ValueError(
                explain(
                    name,
                    f"axes={count} for shapes {a.shape} and {b.shape}",
                    f"at most {min(a.ndim, b.ndim)} axes",
                )
            )
        return _contracted(name, a, b, tuple(range(a.ndim - count, a.ndim)), tuple(range(count)))
    try:
        left, right = axes
    except (TypeError, ValueError):
        raise ValueError(
            explain(name, f"axes={axes!r}", "an integer, or the axes of a and those of b")
        ) from None
    return _contracted(
        name,
        a,
        b,
        tuple(one_axis(name, i, a.ndim) for i in integers(name, "axes[0]", left)),
        tuple(one_axis(name, i, b.ndim) for i in integers(name, "axes[1]", right)),
    )


@implements(np.kron)
@of_two
def kron(a: Any, b: Any) -> Any:
    """Kronecker product: ``b`` scaled by every element of ``a``, as blocks.

    Parameters
    ----------
    a, b : Tensor or array_like
        Any shapes; the one of fewer axes is given leading ones.

    Returns
    -------
    Tensor
        Of length ``a.shape[i] * b.shape[i]`` along each axis.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.kron([1.0, 10.0], [1.0, 2.0]).data
    array([ 1.,  2., 10., 20.])
    """
    a, b = tensor_like("kron", a, "a"), tensor_like("kron", b, "b")
    ndim = max(a.ndim, b.ndim)
    n, m = ((1,) * (ndim - x.ndim) + x.shape for x in (a, b))
    blocks = elementwise.mul(
        _reshaped(a, tuple(k for length in n for k in (length, 1))),
        _reshaped(b, tuple(k for length in m for k in (1, length))),
    )
    return _reshaped(blocks, tuple(i * j for i, j in zip(n, m, strict=True)))


@implements(np.cross, np.linalg.cross)
@of_two
def cross(
    a: Any,
    b: Any,
    axisa: SupportsIndex = -1,
    axisb: SupportsIndex = -1,
    axisc: SupportsIndex = -1,
    axis: SupportsIndex | None = None,
) -> Any:
    """Cross product of vectors of three elements.

    Parameters
    ----------
    a, b : Tensor or array_like
        Arrays of vectors; the other axes broadcast.
    axisa, axisb, axisc : int
        The axis that holds the vectors of ``a``, of ``b`` and of the result.
    axis : int, optional
        All three of them.

    Returns
    -------
    Tensor
        ``(a1 b2 - a2 b1, a2 b0 - a0 b2, a0 b1 - a1 b0)`` along ``axisc``.

    Raises
    ------
    ValueError
        A vector has not three elements, or an axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]).data
    array([0., 0., 1.])
    """
    if axis is not None:
        axisa = axisb = axisc = axis
    a = axes_last("cross", tensor_like("cross", a, "a"), axisa)
    b = axes_last("cross", tensor_like("cross", b, "b"), axisb)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise ValueError(
            explain(
                "cross",
                f"vectors of {a.shape[-1]} and {b.shape[-1]} elements",
                "vectors of three elements",
                "Give vectors of the plane a third element of 0.",
            )
        )
    first, second = (1, 2, 0), (2, 0, 1)
    out = _turned(a, first) * _turned(b, second) - _turned(a, second) * _turned(b, first)
    place = one_axis("cross", axisc, out.ndim)
    order = [*range(out.ndim - 1)]
    order.insert(place, out.ndim - 1)
    return _permuted(out, tuple(order))


@implements(np.trace)
@of_array
def trace(x: Any, offset: int = 0, axis1: SupportsIndex = 0, axis2: SupportsIndex = 1) -> Any:
    """Sum along a diagonal.

    Parameters
    ----------
    x : Tensor or array_like
        At least two axes.
    offset : int
        How far the diagonal is above the main one; below where negative.
    axis1, axis2 : int
        The axes of the matrices.

    Returns
    -------
    Tensor
        Of ``x``'s shape without the two axes.

    Raises
    ------
    ValueError
        ``x`` has fewer than two axes, or the two are the same or out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.trace([[1.0, 2.0], [3.0, 4.0]]).item()
    5.0
    """
    return reduce.sum(_diagonal("trace", x, offset, axis1, axis2), axis=-1)


@implements(np.diagonal)
@of_array
def diagonal(x: Any, offset: int = 0, axis1: SupportsIndex = 0, axis2: SupportsIndex = 1) -> Any:
    """Take a diagonal of a matrix, or of each matrix of a stack.

    Parameters
    ----------
    x : Tensor or array_like
        At least two axes.
    offset : int
        How far the diagonal is above the main one; below where negative.
    axis1, axis2 : int
        The axes of the matrices.

    Returns
    -------
    Tensor
        Of ``x``'s shape without the two axes, with the diagonal as a new last axis.

    Raises
    ------
    ValueError
        ``x`` has fewer than two axes, or the two are the same or out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.diagonal([[1.0, 2.0], [3.0, 4.0]], offset=1).data
    array([2.])
    """
    return _diagonal("diagonal", x, offset, axis1, axis2)


# numpy.linalg's own take the last two axes.
@implements(np.linalg.trace)
def _matrix_trace(x: Any, offset: int = 0) -> Any:
    return trace(x, offset, -2, -1)


@implements(np.linalg.diagonal)
def _matrix_diagonal(x: Any, offset: int = 0) -> Any:
    return diagonal(x, offset, -2, -1)


implements(np.linalg.matmul)(matmul)
implements(np.linalg.matrix_transpose)(matrix_transpose)


@implements(np.vecdot, np.linalg.vecdot)
@of_two
def vecdot(a: Any, b: Any, axis: SupportsIndex = -1) -> Any:
    """Dot product of the vectors along one axis of both operands.

    Parameters
    ----------
    a, b : Tensor or array_like
        Of the same length along ``axis``; the other axes broadcast.
    axis : int
        The axis that holds the vectors.

    Returns
    -------
    Tensor
        Of the broadcast shape without the axis.

    Raises
    ------
    ValueError
        The lengths differ, an operand is 0-d, or the other axes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.vecdot([[1.0, 2.0], [3.0, 4.0]], [1.0, 1.0]).data
    array([3., 7.])
    """
    a = axes_last("vecdot", tensor_like("vecdot", a, "a"), axis)
    b = axes_last("vecdot", tensor_like("vecdot", b, "b"), axis)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(
            explain("vecdot", f"shapes {a.shape} and {b.shape}", "vectors of the same length")
        )
    return reduce.sum(elementwise.mul(a, b), axis=-1)


@of_two
def matvec(a: Any, b: Any) -> Any:
    """Product of stacks of matrices and stacks of vectors.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n, k)
    b : Tensor or array_like, shape (..., k)
        Leading axes broadcast.

    Returns
    -------
    Tensor
        Of shape (..., n).

    Raises
    ------
    ValueError
        The inner lengths differ, an operand has too few axes, or the leading axes do not
        broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.matvec([[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]).data
    array([[1., 3.],
           [2., 4.]])
    """
    a, b = tensor_like("matvec", a, "a"), tensor_like("matvec", b, "b")
    if a.ndim < 2 or b.ndim < 1:
        raise ValueError(
            explain("matvec", f"shapes {a.shape} and {b.shape}", "(..., n, k) and (..., k)")
        )
    out = matmul(a, _reshaped(b, (*b.shape, 1)))
    return _reshaped(out, out.shape[:-1])


@of_two
def vecmat(a: Any, b: Any) -> Any:
    """Product of stacks of vectors and stacks of matrices.

    Parameters
    ----------
    a : Tensor or array_like, shape (..., n)
    b : Tensor or array_like, shape (..., n, k)
        Leading axes broadcast.

    Returns
    -------
    Tensor
        Of shape (..., k).

    Raises
    ------
    ValueError
        The inner lengths differ, an operand has too few axes, or the leading axes do not
        broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.vecmat([[1.0, 0.0], [0.0, 1.0]], [[1.0, 2.0], [3.0, 4.0]]).data
    array([[1., 2.],
           [3., 4.]])
    """
    a, b = tensor_like("vecmat", a, "a"), tensor_like("vecmat", b, "b")
    if a.ndim < 1 or b.ndim < 2:
        raise ValueError(
            explain("vecmat", f"shapes {a.shape} and {b.shape}", "(..., n) and (..., n, k)")
        )
    out = matmul(_reshaped(a, (*a.shape[:-1], 1, a.shape[-1])), b)
    return _reshaped(out, (*out.shape[:-2], out.shape[-1]))


if hasattr(np, "matvec"):  # new in NumPy 2.2
    implements(np.matvec)(matvec)
    implements(np.vecmat)(vecmat)


@implements(np.linalg.multi_dot)
@of_arrays
def multi_dot(arrays: Any) -> Any:
    """Product of several matrices, multiplied in the order that takes the least work.

    Parameters
    ----------
    arrays : sequence of Tensor or array_like
        At least two matrices; the first and the last may be vectors.

    Returns
    -------
    Tensor
        As ``arrays[0] @ arrays[1] @ ...``.

    Raises
    ------
    ValueError
        There are fewer than two, a matrix is not 2-D, or neighbouring lengths differ.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.multi_dot([[[1.0, 2.0]], [[1.0, 0.0], [0.0, 1.0]], [3.0, 4.0]]).data
    array([11.])
    """
    name = "multi_dot"
    parts = [tensor_like(name, x, f"arrays[{i}]") for i, x in enumerate(arrays)]
    shapes = [p.shape for p in parts]
    fits = len(parts) > 1 and all(len(s) == 2 for s in shapes[1:-1])
    if not fits or not all(len(s) in (1, 2) for s in (shapes[0], shapes[-1])):
        expected = "at least two matrices, of which the first and the last may be vectors"
        raise (ValueError if len(parts) < 2 else np.linalg.LinAlgError)(
            explain(name, f"shapes {shapes}", expected)
        )
    rows = 1 if len(shapes[0]) == 1 else shapes[0][0]
    columns = 1 if len(shapes[-1]) == 1 else shapes[-1][1]
    lengths = [rows, *(s[0] for s in shapes[1:]), columns]
    order = _cheapest(lengths)

    def product(first: int, last: int) -> Any:
        if first == last:
            return parts[first]
        middle = order[first, last]
        return matmul(product(first, middle), product(middle + 1, last))

    return product(0, len(parts) - 1)


def _cheapest(lengths: list[int]) -> dict[tuple[int, int], int]:
    """Return after which matrix to split each run of a chain (Cormen et al., ch. 15.2)."""
    count = len(lengths) - 1
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for width in range(1, count):
        for i in range(count - width):
            j = i + width
            works = [
                cost[i, k] + cost[k + 1, j] + lengths[i] * lengths[k + 1] * lengths[j + 1]
                for k in range(i, j)
            ]
            cost[i, j] = min(works)
            split[i, j] = i + works.index(cost[i, j])
    return split


@implements(np.einsum)
@seen_as(typed.Einsum)
def einsum(*operands: str | Operand | Labels, optimize: object = False) -> Any:
    """Sum of products over named axes, as ``numpy.einsum`` defines it.

    Repeated labels take diagonals, a label that is left out of the result is summed over, and
    ``...`` stands for axes that broadcast.

    Parameters
    ----------
    *operands
        The subscripts and one Tensor or array_like a term, ``einsum("ij,jk->ik", a, b)``; or each
        array with the list of its labels, ``einsum(a, [0, 1], b, [1, 2], [0, 2])``.
    optimize
        Taken for NumPy's sake; large products are always contracted by matrix products.

    Returns
    -------
    Tensor
        One axis a label of the result; without ``->``, the labels that occur once, in
        alphabetical order.

    Raises
    ------
    ValueError
        The subscripts are malformed, or do not fit the shapes.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.einsum("ij,j->i", [[1.0, 2.0], [3.0, 4.0]], [1.0, 10.0]).data
    array([21., 43.])
    """
    subscripts, arrays = _subscripts(operands)
    tensors = [tensor_like("einsum", x, f"operands[{i}]") for i, x in enumerate(arrays)]
    terms, output = _explicit(subscripts, [x.ndim for x in tensors], tensors)
    pairs = [_diagonals(x, term, subscripts) for x, term in zip(tensors, terms, strict=True)]
    pairs = _unstretched(pairs, subscripts)
    known = Counter(label for _, term in pairs for label in term) + Counter(output)
    pairs = [_summed(x, term, known) for x, term in pairs]
    if len(pairs) == 1:
        ((x, term),) = pairs
        return _permuted(x, tuple(term.index(label) for label in output))
    spec = ",".join(term for _, term in pairs) + "->" + output
    return apply(EINSUM, tuple(x for x, _ in pairs), {"spec": spec})


def _bad_subscripts(subscripts: str, expected: str) -> ValueError:
    return ValueError(explain("einsum", f"subscripts {subscripts!r}", expected))


def _subscripts(operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Return the subscripts as text, and the arrays."""
    if operands and isinstance(operands[0], str):
        return operands[0].replace(" ", ""), operands[1:]
    if len(operands) < 2:
        raise ValueError(
            explain("einsum", f"{len(operands)} operands", "subscripts and at least one array")
        )
    paired = len(operands) - len(operands) % 2
    text = ",".join(_letters(labels) for labels in operands[1:paired:2])
    if len(operands) > paired:
        text += "->" + _letters(operands[-1])
    return text, operands[:paired:2]


def _letters(labels: Any) -> str:
    try:
        return "".join("..." if i is Ellipsis else string.ascii_letters[i] for i in labels)
    except (TypeError, IndexError):
        raise ValueError(
            explain("einsum", f"labels {kind_of(labels)}", "a list of integers from 0 to 51")
        ) from None


def _explicit(subscripts: str, ndims: list[int], tensors: list[Any]) -> tuple[list[str], str]:
    """Write out ``...`` and the result's labels; every axis then has a letter."""
    inputs, arrow, output = subscripts.partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ndims):
        raise _bad_subscripts(subscripts, f"{len(ndims)} terms, one an array")
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


def _diagonals(x: Any, term: str, subscripts: str) -> tuple[Any, str]:
    """Take the diagonal over axes of the same label."""
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
        shape_left = tuple(x.shape[i] for i in stay)
        kept.append((_reshaped(x, shape_left), "".join(term[i] for i in stay)))
    return kept


def _summed(x: Any, term: str, known: Counter[str]) -> tuple[Any, str]:
    """Sum over the axes that nothing else has: what is left is in another term or the result."""
    alone = tuple(i for i, label in enumerate(term) if known[label] == 1)
    if not alone:
        return x, term
    rest = "".join(label for i, label in enumerate(term) if i not in alone)
    return reduce.sum(x, axis=alone), rest


def axes_last(op: str, x: Any, *axes: SupportsIndex) -> Any:
    """Move some axes of a tensor to its end, in the order given."""
    last = tuple(one_axis(op, axis, x.ndim) for axis in axes)
    if len(set(last)) != len(last):
        raise ValueError(explain(op, f"axes {axes}", "axes that differ"))
    return _permuted(x, (*(i for i in range(x.ndim) if i not in last), *last))


def _diagonal(op: str, x: Any, offset: int, axis1: SupportsIndex, axis2: SupportsIndex) -> Any:
    x = tensor_like(op, x)
    if x.ndim < 2:
        raise ValueError(explain(op, f"shape {x.shape}", "at least two axes"))
    x = axes_last(op, x, axis1, axis2)
    (shift,) = integers(op, "offset", offset)
    down, right = max(-shift, 0), max(shift, 0)
    places = np.arange(max(min(x.shape[-2] - down, x.shape[-1] - right), 0))
    return getitem(x, (Ellipsis, places + down, places + right))


def _contracted(op: str, a: Any, b: Any, left: tuple[int, ...], right: tuple[int, ...]) -> Any:
    """Sum over pairs of axes by one matrix product."""
    lengths = [a.shape[i] for i in left]
    if (
        lengths != [b.shape[i] for i in right]
        or len(set(left)) < len(left)
        or len(set(right)) < len(right)
    ):
        raise ValueError(
            explain(
                op,
                f"shapes {a.shape} and {b.shape} to sum over axes {left} and {right}",
                "each axis once, and the same lengths",
            )
        )
    rows = tuple(i for i in range(a.ndim) if i not in left)
    columns = tuple(i for i in range(b.ndim) if i not in right)
    kept = tuple(a.shape[i] for i in rows) + tuple(b.shape[i] for i in columns)
    depth = math.prod(lengths)
    n, m = (math.prod(x.shape[i] for i in keep) for x, keep in ((a, rows), (b, columns)))
    first = _reshaped(_permuted(a, rows + left), (n, depth))
    second = _reshaped(_permuted(b, right + columns), (depth, m))
    return _reshaped(matmul(first, second), kept)


def _turned(x: Any, order: tuple[int, ...]) -> Any:
    return gather(x, order, axis=-1)


def _reshaped(x: Any, lengths: tuple[int, ...]) -> Any:
    return x if x.shape == lengths else shape.reshape(x, lengths)


def _permuted(x: Any, order: tuple[int, ...]) -> Any:
    return x if order == tuple(range(x.ndim)) else shape.transpose(x, order)
