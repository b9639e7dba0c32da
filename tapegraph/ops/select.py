"""Taking, sorting and masking elements: compositions of indexing and `where`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from tapegraph import typed
from tapegraph.arrays.axes import integers, one_axis
from tapegraph.errors import explain, kind_of
from tapegraph.ops.arrange import broadcast_arrays, broadcast_to, ravel, stack
from tapegraph.ops.index import gather, getitem, where
from tapegraph.ops.shape import concat, reshape
from tapegraph.recording.node import constant
from tapegraph.recording.numpy_functions import implements, plain
from tapegraph.recording.record import tensor_like
from tapegraph.typed import Array, ArrayLike, Operand, Shape, of_array, of_second, seen_as

# By place


@implements(np.take)
@of_array
def take(x: Any, indices: ArrayLike, axis: SupportsIndex | None = None) -> Any:
    """Take elements along an axis by index.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    indices : array_like of int
        Any shape; negative ones count from the end. Repeated indices add up their gradients.
    axis : int, optional
        The axis to take along; the elements in one axis where not given.

    Returns
    -------
    Tensor
        Of shape ``x.shape[:axis] + indices.shape + x.shape[axis + 1:]``.

    Raises
    ------
    IndexError
        An index is out of range.
    TypeError
        The indices are not integers.
    ValueError
        The axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.take([[1.0, 2.0], [3.0, 4.0]], [0, -1]).data
    array([1., 4.])
    """
    x = tensor_like("take", x)
    along = 0 if axis is None else one_axis("take", axis, x.ndim)
    return gather(ravel(x) if axis is None else x, _integral("take", "indices", indices), along)


@implements(np.take_along_axis)
@of_array
def take_along_axis(x: Any, indices: ArrayLike, axis: SupportsIndex | None = -1) -> Any:
    """Take along an axis with indices of their own for every line, as `argsort` gives them.

    ``out[i, j] = x[indices[i, j], j]`` for a matrix and axis 0.

    Parameters
    ----------
    x : Tensor or array_like
        At least one axis.
    indices : array_like of int
        As many axes as ``x``; broadcast with it off the axis.
    axis : int or None
        The axis to take along; None takes from the elements in one axis.

    Returns
    -------
    Tensor
        Of the indices' shape, broadcast.

    Raises
    ------
    IndexError
        An index is out of range, or the indices are not integers.
    ValueError
        The axis is out of range, or the numbers of axes differ.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.take_along_axis([[1.0, 2.0], [3.0, 4.0]], [[1], [0]], axis=1).data
    array([[2.],
           [3.]])
    """
    x, places = tensor_like("take_along_axis", x), np.asarray(plain(indices))
    if axis is None:
        x, axis = ravel(x), 0
    along = one_axis("take_along_axis", axis, x.ndim)
    if places.ndim != x.ndim:
        received = f"indices of shape {places.shape} for shape {x.shape}"
        raise ValueError(explain("take_along_axis", received, f"{x.ndim} axes"))
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in x.shape)])
    grid[along] = places
    return getitem(x, tuple(grid))


@implements(np.compress)
@of_second
def compress(condition: ArrayLike, a: Any, axis: SupportsIndex | None = None) -> Any:
    """Take the parts along an axis for which a condition holds.

    Parameters
    ----------
    condition : array_like of bool, 1-D
        No longer than the axis; what it does not reach is left out.
    a : Tensor or array_like
        Any shape.
    axis : int, optional
        The axis; the elements in one axis where not given.

    Returns
    -------
    Tensor
        The parts, in order.

    Raises
    ------
    IndexError
        The condition holds beyond the end of the axis.
    ValueError
        The condition is not 1-D, or the axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.compress([True, False, True], [1.0, 2.0, 3.0]).data
    array([1., 3.])
    """
    mask = np.asarray(plain(condition))
    if mask.ndim != 1:
        raise ValueError(explain("compress", f"a condition of shape {mask.shape}", "one axis"))
    return take(tensor_like("compress", a, "a"), np.flatnonzero(mask), axis)


@implements(np.extract)
@of_second
def extract(condition: ArrayLike, arr: Any) -> Any:
    """Take the elements for which a condition holds, in one axis.

    Parameters
    ----------
    condition : array_like of bool
        As many elements as ``arr``.
    arr : Tensor or array_like
        Any shape.

    Returns
    -------
    Tensor, 1-D

    Raises
    ------
    IndexError
        The condition holds beyond the last element.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.extract([True, False, True], [1.0, 2.0, 3.0]).data
    array([1., 3.])
    """
    places = np.flatnonzero(np.asarray(plain(condition)))
    return take(tensor_like("extract", arr, "arr"), places)


@implements(np.choose)
@seen_as(typed.Choose)
def choose(a: Any, choices: Sequence[Operand]) -> Any:
    """Choose each element from one of several arrays, by number.

    Parameters
    ----------
    a : array_like of int
        Which array, from 0.
    choices : sequence of Tensor or array_like
        The arrays; all broadcast together with ``a``.

    Returns
    -------
    Tensor
        Of the broadcast shape.

    Raises
    ------
    TypeError
        ``a`` is not of integers.
    ValueError
        A number is out of range, or the shapes do not broadcast together.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.choose([1, 0], [[1.0, 2.0], [3.0, 4.0]]).data
    array([3., 2.])
    """
    number = _integral("choose", "a", a)
    options = [tensor_like("choose", c, f"choices[{i}]") for i, c in enumerate(choices)]
    outside = (number < 0) | (number >= len(options))
    if outside.any():
        received = f"choice {int(number[outside].flat[0])} of {len(options)}"
        raise ValueError(explain("choose", received, f"a number in [0, {len(options)})"))
    spread = broadcast_arrays(number, *options)
    grid = np.ogrid[tuple(slice(n) for n in spread[0].shape)]
    return getitem(stack(spread[1:]), (plain(spread[0]), *grid))


@implements(np.select)
@seen_as(typed.Select)
def select(condlist: Sequence[Operand], choicelist: Sequence[Operand], default: Any = 0) -> Any:
    """Choose each element from the array of the first condition that holds.

    Parameters
    ----------
    condlist : sequence of array_like of bool
        The conditions.
    choicelist : sequence of Tensor, array_like or number
        As many arrays; everything broadcasts together.
    default : Tensor, array_like or number
        What is chosen where no condition holds.

    Returns
    -------
    Tensor
        Of the broadcast shape; exactly zero gradient goes to what is not chosen.

    Raises
    ------
    TypeError
        A condition is not of bools.
    ValueError
        There is no condition, or not one choice each, or the shapes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> x = tg.param([1.0, 2.0, 3.0])
    >>> tg.select([x < 2, x < 3], [x, 10 * x], -1.0).data
    array([ 1., 20., -1.])
    """
    conditions, choices = [np.asarray(plain(c)) for c in condlist], list(choicelist)
    if not conditions or len(conditions) != len(choices):
        received = f"{len(conditions)} conditions and {len(choices)} choices"
        raise ValueError(explain("select", received, "one choice per condition, and at least one"))
    for i, condition in enumerate(conditions):
        if condition.dtype != np.bool_:
            fix = "Compare it with something."
            received = f"{kind_of(condition)} for 'condlist[{i}]'"
            raise TypeError(explain("select", received, "an array of bools", fix))
    chosen = default
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        chosen = where(condition, choice, chosen)
    return chosen


def _integral(name: str, argument: str, value: Any) -> Array:
    """Return an array of integers, empty or not."""
    array = np.asarray(plain(value))
    if array.dtype.kind not in "iu":
        if array.size:
            received = f"{kind_of(array)} for {argument!r}"
            raise TypeError(explain(name, received, "integers", "Use .astype(int)."))
        array = array.astype(np.int64)
    return array


# By size


@implements(np.sort)
@of_array
def sort(
    x: Any, axis: SupportsIndex | None = -1, kind: str | None = None, *, stable: bool | None = None
) -> Any:
    """Return the elements in ascending order along an axis; NaN comes last.

    The gradient of each element goes where it was taken from; equal ones keep their order.

    Parameters
    ----------
    x : Tensor or array_like
        At least one axis.
    axis : int or None
        The axis to sort along; None sorts the elements in one axis.
    kind, stable : optional
        Accepted for NumPy's sake: the order is always the stable one.

    Returns
    -------
    Tensor
        A sorted copy.

    Raises
    ------
    ValueError
        The axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.sort([3.0, 1.0, 2.0]).data
    array([1., 2., 3.])
    """
    x = tensor_like("sort", x)
    if axis is None:
        x, axis = ravel(x), 0
    along = one_axis("sort", axis, x.ndim)
    return take_along_axis(x, np.argsort(plain(x), axis=along, kind="stable"), along)


@implements(np.partition)
@of_array
def partition(x: Any, kth: Shape, axis: SupportsIndex | None = -1) -> Any:
    """Put the element that sorting would put at place ``kth`` there, smaller ones before it.

    The gradient of each element goes where it was taken from. The order on either side of the
    place is not specified, as in NumPy.

    Parameters
    ----------
    x : Tensor or array_like
        At least one axis.
    kth : int or sequence of int
        One place or several.
    axis : int or None
        The axis to partition along; None means the elements in one axis.

    Returns
    -------
    Tensor
        A partitioned copy.

    Raises
    ------
    ValueError
        A place or the axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.partition([3.0, 1.0, 2.0], 0)[0].item()
    1.0
    """
    x = tensor_like("partition", x)
    if axis is None:
        x, axis = ravel(x), 0
    along = one_axis("partition", axis, x.ndim)
    length = x.shape[along]
    places = integers("partition", "kth", kth)
    if any(not -length <= k < length for k in places):
        received = f"kth {kth} for axis {along} of length {length}"
        raise ValueError(explain("partition", received, f"places in [{-length}, {length})"))
    return take_along_axis(x, np.argpartition(plain(x), places, axis=along), along)


# Diagonals and triangles


@implements(np.diag)
@of_array
def diag(v: Any, k: int = 0) -> Any:
    """Take a diagonal of a matrix, or make the matrix of a diagonal.

    Parameters
    ----------
    v : Tensor or array_like, shape (m, n) or (n,)
        The matrix, or the diagonal.
    k : int
        Which diagonal: above the main one where positive, below where negative.

    Returns
    -------
    Tensor
        1-D of a matrix; of shape ``(n + |k|, n + |k|)`` of a diagonal.

    Raises
    ------
    ValueError
        The array is neither 1-D nor 2-D.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.diag([1.0, 2.0]).data
    array([[1., 0.],
           [0., 2.]])
    """
    v = tensor_like("diag", v, "v")
    (offset,) = integers("diag", "k", k)
    down, right = max(0, -offset), max(0, offset)
    if v.ndim == 2:
        places = np.arange(max(0, min(v.shape[0] - down, v.shape[1] - right)))
        return getitem(v, (places + down, places + right))
    if v.ndim != 1:
        raise ValueError(explain("diag", f"shape {v.shape}", "a vector or a matrix"))
    size = v.size + down + right
    # Each row or, above the main diagonal, each column holds its one element everywhere.
    filled = concat([v, np.zeros(down + right, v.dtype)]) if offset else v
    lines = reshape(filled, (size, 1) if offset >= 0 else (1, size))
    return where(np.eye(size, k=offset, dtype=np.bool_), lines, _zero_like(v))


@implements(np.diagflat)
@of_array
def diagflat(v: Any, k: int = 0) -> Any:
    """Make the matrix that has all elements of an array on a diagonal.

    Parameters
    ----------
    v : Tensor or array_like
        Any shape.
    k : int
        Which diagonal: above the main one where positive, below where negative.

    Returns
    -------
    Tensor, shape (v.size + abs(k), v.size + abs(k))

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.diagflat([[1.0, 2.0]], 1).shape
    (3, 3)
    """
    return diag(ravel(tensor_like("diagflat", v, "v")), k)


@implements(np.tril)
@of_array
def tril(m: Any, k: int = 0) -> Any:
    """Keep the lower triangle of each matrix, with zeros above it.

    Parameters
    ----------
    m : Tensor or array_like, shape (..., m, n)
        One matrix or a stack of them; a vector stands for a matrix of equal rows.
    k : int
        The last diagonal kept: above the main one where positive, below where negative.

    Returns
    -------
    Tensor
        Of ``m``'s shape and dtype; exactly zero gradient goes to the rest.

    Raises
    ------
    ValueError
        The array is 0-d.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.tril([[1.0, 2.0], [3.0, 4.0]]).data
    array([[1., 0.],
           [3., 4.]])
    """
    return _triangle("tril", m, k, lower=True)


@implements(np.triu)
@of_array
def triu(m: Any, k: int = 0) -> Any:
    """Keep the upper triangle of each matrix, with zeros below it.

    Parameters
    ----------
    m : Tensor or array_like, shape (..., m, n)
        One matrix or a stack of them; a vector stands for a matrix of equal rows.
    k : int
        The first diagonal kept: above the main one where positive, below where negative.

    Returns
    -------
    Tensor
        Of ``m``'s shape and dtype; exactly zero gradient goes to the rest.

    Raises
    ------
    ValueError
        The array is 0-d.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.triu([[1.0, 2.0], [3.0, 4.0]]).data
    array([[1., 2.],
           [0., 4.]])
    """
    return _triangle("triu", m, k, lower=False)


def _triangle(name: str, m: Any, k: int, *, lower: bool) -> Any:
    m = tensor_like(name, m, "m")
    if m.ndim == 0:
        raise ValueError(explain(name, "a 0-d array", "at least one axis"))
    (offset,) = integers(name, "k", k)
    if m.ndim == 1:
        m = broadcast_to(m, (m.size, m.size))
    rows, columns = m.shape[-2:]
    below = np.tri(rows, columns, k=offset if lower else offset - 1, dtype=np.bool_)
    return where(below if lower else ~below, m, _zero_like(m))


def _zero_like(x: Any) -> Any:
    """Return a zero of an array's own dtype, be it integer or bool."""
    return constant(np.zeros((), x.dtype))
