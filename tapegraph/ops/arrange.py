"""Joining, splitting, stacking, repeating and turning.

All but `broadcast_to` are compositions of reshaping, transposing, indexing and joining: their
gradients, tangents and nodes are those of their parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, SupportsIndex

import numpy as np

from tapegraph import typed
from tapegraph.arrays.axes import integers, one_axis, some_axes
from tapegraph.errors import explain, kind_of
from tapegraph.numpy_warnings import watched
from tapegraph.ops.creation import astype
from tapegraph.ops.index import gather, getitem
from tapegraph.ops.shape import concat, reshape, transpose
from tapegraph.recording.numpy_functions import implements, plain
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, tensor_like
from tapegraph.typed import (
    Array,
    ArrayLike,
    Axes,
    Place,
    Shape,
    SupportsArray,
    of_array,
    of_arrays,
    of_each,
    of_two,
    seen_as,
    to_list,
)


def _broadcast_to(x: Array, *, shape: tuple[int, ...]) -> Any:
    return np.broadcast_to(x, shape)


BROADCAST_TO = Op("broadcast_to", _broadcast_to)


# Another shape, the same elements


@implements(np.ravel)
@of_array
def ravel(x: Any, order: Literal["C", "F"] = "C") -> Any:
    """Lay the elements out in one axis.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    order : {"C", "F"}
        Row by row, or column by column.

    Returns
    -------
    Tensor, shape (x.size,)

    Raises
    ------
    ValueError
        The order is neither: how a tensor lies in memory is not part of its value.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.ravel([[1.0, 2.0], [3.0, 4.0]]).data
    array([1., 2., 3., 4.])
    """
    x = tensor_like("ravel", x)
    if order not in ("C", "F"):
        raise ValueError(explain("ravel", f"order {order!r}", "'C' or 'F'"))
    return reshape(x if order == "C" else transpose(x), (x.size,))


@implements(np.squeeze)
@of_array
def squeeze(x: Any, axis: Axes = None) -> Any:
    """Drop axes of length 1.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    axis : int or tuple of int, optional
        The axes to drop; every one of length 1 where not given.

    Returns
    -------
    Tensor
        The same elements.

    Raises
    ------
    ValueError
        An axis is out of range, repeated or longer than 1.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.squeeze([[[1.0], [2.0]]]).shape
    (2,)
    """
    x = tensor_like("squeeze", x)
    if axis is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))
    dropped = some_axes("squeeze", axis, x.ndim)
    if any(x.shape[a] != 1 for a in dropped):
        raise ValueError(
            explain("squeeze", f"axis {axis} of shape {x.shape}", "axes of length 1 alone")
        )
    return reshape(x, tuple(n for a, n in enumerate(x.shape) if a not in dropped))


@implements(np.expand_dims)
@of_array
def expand_dims(x: Any, axis: Shape) -> Any:
    """Insert axes of length 1.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    axis : int or tuple of int
        Where the new axes are in the result.

    Returns
    -------
    Tensor
        The same elements.

    Raises
    ------
    ValueError
        An axis is out of range or repeated.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.expand_dims([1.0, 2.0], axis=0).shape
    (1, 2)
    """
    x = tensor_like("expand_dims", x)
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    new = integers("expand_dims", "axis", axis) and some_axes("expand_dims", axis, x.ndim + count)
    lengths = iter(x.shape)
    full = (1 if a in new else next(lengths) for a in range(x.ndim + count))
    return reshape(x, tuple(full))


@implements(np.atleast_1d)
@of_each
def atleast_1d(*arrays: Any) -> Any:
    """Give each array at least one axis.

    Parameters
    ----------
    *arrays : Tensor or array_like
        A 0-d one becomes one of shape (1,); the others stay as they are.

    Returns
    -------
    Tensor or tuple of Tensor
        One where one is given.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.atleast_1d(1.0).shape
    (1,)
    """
    return _each(arrays, lambda x: _at_least("atleast_1d", x, 1))


@implements(np.atleast_2d)
@of_each
def atleast_2d(*arrays: Any) -> Any:
    """Give each array at least two axes; new ones come first.

    Parameters
    ----------
    *arrays : Tensor or array_like
        One of shape (n,) becomes one of shape (1, n).

    Returns
    -------
    Tensor or tuple of Tensor
        One where one is given.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.atleast_2d([1.0, 2.0]).shape
    (1, 2)
    """
    return _each(arrays, lambda x: _at_least("atleast_2d", x, 2))


@implements(np.atleast_3d)
@of_each
def atleast_3d(*arrays: Any) -> Any:
    """Give each array at least three axes.

    Parameters
    ----------
    *arrays : Tensor or array_like
        One of shape (n,) becomes one of shape (1, n, 1), and (m, n) becomes (m, n, 1).

    Returns
    -------
    Tensor or tuple of Tensor
        One where one is given.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.atleast_3d([1.0, 2.0]).shape
    (1, 2, 1)
    """
    return _each(arrays, _at_least_3d)


def _each(arrays: tuple[Any, ...], function: Any) -> Any:
    results = tuple(map(function, arrays))
    return results[0] if len(results) == 1 else results


def _at_least(name: str, x: Any, ndim: int) -> Any:
    """Put axes of length 1 in front until there are ``ndim``."""
    x = tensor_like(name, x)
    return x if x.ndim >= ndim else reshape(x, (1,) * (ndim - x.ndim) + x.shape)


def _at_least_3d(x: Any) -> Any:
    x = _at_least("atleast_3d", x, 2)
    return x if x.ndim >= 3 else reshape(x, (*x.shape, 1))


# Another order of the axes


@implements(np.swapaxes)
@of_array
def swapaxes(x: Any, axis1: SupportsIndex, axis2: SupportsIndex) -> Any:
    """Exchange two axes.

    Parameters
    ----------
    x : Tensor or array_like
        At least one axis.
    axis1, axis2 : int
        The axes.

    Returns
    -------
    Tensor
        The permuted array.

    Raises
    ------
    ValueError
        An axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.swapaxes([[[1.0, 2.0]]], 0, 2).shape
    (2, 1, 1)
    """
    x = tensor_like("swapaxes", x)
    a, b = (one_axis("swapaxes", axis, x.ndim) for axis in (axis1, axis2))
    order = list(range(x.ndim))
    order[a], order[b] = b, a
    return transpose(x, order)


@implements(np.moveaxis)
@of_array
def moveaxis(x: Any, source: Shape, destination: Shape) -> Any:
    """Move axes to other places; the rest keep their order.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    source : int or sequence of int
        The axes to move.
    destination : int or sequence of int
        Where each goes.

    Returns
    -------
    Tensor
        The permuted array.

    Raises
    ------
    ValueError
        An axis is out of range or repeated, or the two differ in length.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.moveaxis([[[1.0, 2.0]]], 2, 0).shape
    (2, 1, 1)
    """
    x = tensor_like("moveaxis", x)
    moved, places = (
        tuple(one_axis("moveaxis", a, x.ndim) for a in integers("moveaxis", argument, value))
        for argument, value in (("source", source), ("destination", destination))
    )
    if len({len(moved), len(places), len(set(moved)), len(set(places))}) > 1:
        raise ValueError(
            explain(
                "moveaxis",
                f"source {source} and destination {destination}",
                "as many places as axes, each once",
            )
        )
    order = [a for a in range(x.ndim) if a not in moved]
    for place, a in sorted(zip(places, moved, strict=True)):
        order.insert(place, a)
    return transpose(x, order)


@implements(np.rollaxis)
@of_array
def rollaxis(x: Any, axis: SupportsIndex, start: SupportsIndex = 0) -> Any:
    """Move one axis before another; `moveaxis` says it more plainly.

    Parameters
    ----------
    x : Tensor or array_like
        At least one axis.
    axis : int
        The axis to move.
    start : int
        The axis it comes before, or ``x.ndim`` for the end.

    Returns
    -------
    Tensor
        The permuted array.

    Raises
    ------
    ValueError
        An axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.rollaxis([[[1.0, 2.0]]], 2).shape
    (2, 1, 1)
    """
    x = tensor_like("rollaxis", x)
    moved = one_axis("rollaxis", axis, x.ndim)
    place = x.ndim if start == x.ndim else one_axis("rollaxis", start, x.ndim)
    return moveaxis(x, moved, place - (moved < place))


permute_dims = transpose


@implements(np.matrix_transpose)
@of_array
def matrix_transpose(x: Any) -> Any:
    """Transpose each matrix of a stack: exchange the last two axes.

    Parameters
    ----------
    x : Tensor or array_like, shape (..., m, n)
        One matrix or a stack of them.

    Returns
    -------
    Tensor, shape (..., n, m)

    Raises
    ------
    ValueError
        There are fewer than two axes.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.matrix_transpose([[[1.0, 2.0]]]).shape
    (1, 2, 1)
    """
    x = tensor_like("matrix_transpose", x)
    if x.ndim < 2:
        raise ValueError(explain("matrix_transpose", f"shape {x.shape}", "two axes or more"))
    return swapaxes(x, -1, -2)


# Repeating


@implements(np.broadcast_to)
@of_array
def broadcast_to(x: Any, shape: Shape) -> Any:
    """Repeat an array along new axes and axes of length 1, as arithmetic does.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape that broadcasts to the new one.
    shape : int or tuple of int
        The new shape.

    Returns
    -------
    Tensor
        Of the new shape; gradients of the copies add up.

    Raises
    ------
    ValueError
        The shape does not broadcast to the new one.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.broadcast_to([1.0, 2.0], (2, 2)).data
    array([[1., 2.],
           [1., 2.]])
    """
    x = tensor_like("broadcast_to", x)
    new = integers("broadcast_to", "shape", shape)
    before = len(new) - x.ndim
    if before < 0 or any(n not in (1, m) for n, m in zip(x.shape, new[before:], strict=True)):
        raise ValueError(
            explain(
                "broadcast_to",
                f"shape {x.shape} and new shape {new}",
                "lengths that are 1 or those of the new shape, axis by axis from the last",
            )
        )
    if min(new, default=0) < 0:
        raise ValueError(explain("broadcast_to", f"new shape {new}", "lengths of 0 or more"))
    return apply(BROADCAST_TO, (x,), {"shape": new})


@implements(np.broadcast_arrays)
@seen_as(typed.BroadcastArrays, "tuple[Tensor, ...]")
def broadcast_arrays(*arrays: Any) -> Any:
    """Give all arrays the shape that they broadcast to together.

    Parameters
    ----------
    *arrays : Tensor or array_like
        Shapes that broadcast together.

    Returns
    -------
    tuple of Tensor

    Raises
    ------
    ValueError
        The shapes do not broadcast together.

    Examples
    --------
    >>> import tapegraph as tg
    >>> [a.shape for a in tg.broadcast_arrays([1.0, 2.0], [[3.0]])]
    [(1, 2), (1, 2)]
    """
    name = "broadcast_arrays"
    parts = [tensor_like(name, x, f"arrays[{i}]") for i, x in enumerate(arrays)]
    shapes = [p.shape for p in parts]
    try:
        common = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(
            explain(name, f"arrays of shapes {shapes}", "shapes that broadcast together")
        ) from None
    return tuple(p if p.shape == common else broadcast_to(p, common) for p in parts)


@implements(np.tile)
@of_array
def tile(x: Any, reps: Shape) -> Any:
    """Repeat a whole array along each axis.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape; gains axes in front where ``reps`` is longer.
    reps : int or sequence of int
        How often along each axis, counted from the last.

    Returns
    -------
    Tensor
        Gradients of the copies add up.

    Raises
    ------
    ValueError
        A number is negative.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.tile([1.0, 2.0], 2).data
    array([1., 2., 1., 2.])
    """
    times = integers("tile", "reps", reps)
    if min(times, default=0) < 0:
        raise ValueError(explain("tile", f"reps {reps}", "numbers of 0 or more"))
    x = _at_least("tile", x, len(times))
    times = (1,) * (x.ndim - len(times)) + times
    if set(times) <= {1}:
        return broadcast_to(x, x.shape)
    # An axis before each repeated one holds its copies.
    before: list[int] = []
    copied: list[int] = []
    for count, length in zip(times, x.shape, strict=True):
        before.extend((length,) if count == 1 else (1, length))
        copied.extend((length,) if count == 1 else (count, length))
    full = tuple(n * count for n, count in zip(x.shape, times, strict=True))
    return reshape(broadcast_to(reshape(x, tuple(before)), tuple(copied)), full)


@implements(np.repeat)
@of_array
def repeat(x: Any, repeats: Shape | SupportsArray, axis: SupportsIndex | None = None) -> Any:
    """Repeat each element along an axis.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    repeats : int or sequence of int
        How often, for all or for each place along the axis.
    axis : int, optional
        The axis to repeat along; the elements in one axis where not given.

    Returns
    -------
    Tensor
        Gradients of the copies add up.

    Raises
    ------
    ValueError
        The axis is out of range, a number is negative, or the numbers are not one per place.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.repeat([1.0, 2.0], 2).data
    array([1., 1., 2., 2.])
    """
    x = tensor_like("repeat", x)
    if axis is None:
        x, axis = ravel(x), 0
    along = one_axis("repeat", axis, x.ndim)
    length = x.shape[along]
    times = integers("repeat", "repeats", repeats)
    if min(times, default=0) < 0 or len(times) not in (1, length):
        raise ValueError(
            explain("repeat", f"repeats {times}", f"a number of 0 or more, or {length} of them")
        )
    if len(times) != 1:
        return gather(x, np.repeat(np.arange(length), times), along)
    before, after = x.shape[: along + 1], x.shape[along + 1 :]
    copies = broadcast_to(reshape(x, (*before, 1, *after)), (*before, times[0], *after))
    return reshape(copies, (*before[:-1], length * times[0], *after))


# Joining


@implements(np.concatenate)
@of_arrays
def concatenate(arrays: Any, axis: SupportsIndex | None = 0) -> Any:
    """Join arrays along an existing axis; `concat` that also takes ``axis=None``.

    Parameters
    ----------
    arrays : sequence of Tensor or array_like
        At least one; equal shapes but for ``axis``.
    axis : int or None
        The axis to join along; None lays every array out in one axis first.

    Returns
    -------
    Tensor
        The joined array, of NumPy's result dtype.

    Raises
    ------
    ValueError
        No array is given, an array is 0-d, or the shapes differ off the axis.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.concatenate([[[1.0]], [[2.0]]], axis=None).data
    array([1., 2.])
    """
    if axis is None:
        return concat([ravel(x) for x in _sequence("concatenate", arrays)])
    return concat(arrays, axis)


@implements(np.stack)
@of_arrays
def stack(arrays: Any, axis: SupportsIndex = 0) -> Any:
    """Join arrays along a new axis.

    Parameters
    ----------
    arrays : sequence of Tensor or array_like
        At least one; equal shapes.
    axis : int
        Where the new axis is in the result.

    Returns
    -------
    Tensor
        The joined array, of NumPy's result dtype.

    Raises
    ------
    ValueError
        No array is given, the shapes differ, or the axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.stack([[1.0, 2.0], [3.0, 4.0]], axis=1).data
    array([[1., 3.],
           [2., 4.]])
    """
    parts = _sequence("stack", arrays)
    shapes = [p.shape for p in parts]
    if len(set(shapes)) != 1:
        received = f"arrays of shapes {shapes}"
        raise ValueError(explain("stack", received, "at least one array, and equal shapes"))
    along = one_axis("stack", axis, len(shapes[0]) + 1)
    return concat([expand_dims(p, along) for p in parts], along)


@implements(np.vstack)
@of_arrays
def vstack(arrays: Any) -> Any:
    """Join arrays row by row; one of shape (n,) is a row.

    Parameters
    ----------
    arrays : sequence of Tensor or array_like
        Equal shapes but for the first axis.

    Returns
    -------
    Tensor
        At least 2-D.

    Raises
    ------
    ValueError
        No array is given, or the shapes differ.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.vstack([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    """
    return concat([_at_least("vstack", x, 2) for x in _sequence("vstack", arrays)], 0)


@implements(np.hstack)
@of_arrays
def hstack(arrays: Any) -> Any:
    """Join arrays column by column; those of shape (n,) end to end.

    Parameters
    ----------
    arrays : sequence of Tensor or array_like
        Equal shapes but for the second axis, or the only one.

    Returns
    -------
    Tensor
        At least 1-D.

    Raises
    ------
    ValueError
        No array is given, or the shapes differ.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.hstack([[1.0, 2.0], [3.0]]).data
    array([1., 2., 3.])
    """
    parts = [_at_least("hstack", x, 1) for x in _sequence("hstack", arrays)]
    return concat(parts, 0 if parts and parts[0].ndim == 1 else 1)


@implements(np.dstack)
@of_arrays
def dstack(arrays: Any) -> Any:
    """Join arrays along the third axis.

    Parameters
    ----------
    arrays : sequence of Tensor or array_like
        Equal shapes but for the third axis; fewer axes are filled up as `atleast_3d` does.

    Returns
    -------
    Tensor
        At least 3-D.

    Raises
    ------
    ValueError
        No array is given, or the shapes differ.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.dstack([[1.0, 2.0], [3.0, 4.0]]).shape
    (1, 2, 2)
    """
    return concat([_at_least_3d(x) for x in _sequence("dstack", arrays)], 2)


@implements(np.column_stack)
@of_arrays
def column_stack(arrays: Any) -> Any:
    """Join arrays as the columns of a matrix.

    Parameters
    ----------
    arrays : sequence of Tensor or array_like
        Columns of shape (n,), or matrices of n rows.

    Returns
    -------
    Tensor
        The matrix.

    Raises
    ------
    ValueError
        No array is given, or the lengths differ.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.column_stack([[1.0, 2.0], [3.0, 4.0]]).data
    array([[1., 3.],
           [2., 4.]])
    """
    parts = _sequence("column_stack", arrays)
    return concat([reshape(x, (x.size, 1)) if x.ndim < 2 else x for x in parts], 1)


@implements(np.block)
@seen_as(typed.Block)
def block(arrays: Any) -> Any:
    """Put an array together from nested lists of blocks.

    Parameters
    ----------
    arrays : nested list of Tensor or array_like
        The innermost lists are joined along the last axis, those around them along the one
        before, and so on.

    Returns
    -------
    Tensor
        With as many axes as the deepest block, or as the lists are nested.

    Raises
    ------
    ValueError
        The lists are not equally deep, one is empty, or the shapes do not fit.

    Examples
    --------
    >>> import tapegraph as tg
    >>> one, two = tg.param([[1.0]]), tg.param([[2.0]])
    >>> tg.block([[one, two], [two, one]]).data
    array([[1., 2.],
           [2., 1.]])
    """
    depths, ndim = _nesting(arrays)
    if len(depths) != 1:
        raise ValueError(
            explain("block", f"lists nested {sorted(depths)} deep", "lists of equal depth, filled")
        )
    (depth,) = depths
    return _joined_blocks(arrays, depth, max(depth, ndim))


def _nesting(arrays: Any) -> tuple[set[int], int]:
    """Return how deep the blocks lie in lists, and the most axes that a block has."""
    if not isinstance(arrays, list):
        return {0}, np.ndim(plain(arrays))
    if not arrays:
        return {-1, 0}, 0  # an empty list joins to nothing: never of equal depth
    inner = [_nesting(a) for a in arrays]
    return {d + 1 for depths, _ in inner for d in depths}, max(ndim for _, ndim in inner)


def _joined_blocks(arrays: Any, depth: int, ndim: int) -> Any:
    if depth == 0:
        return _at_least("block", arrays, ndim)
    return concat([_joined_blocks(a, depth - 1, ndim) for a in arrays], -depth)


@implements(np.append)
@of_two
def append(x: Any, values: Any, axis: SupportsIndex | None = None) -> Any:
    """Put values behind an array.

    Parameters
    ----------
    x, values : Tensor or array_like
        Equal shapes but for ``axis``.
    axis : int, optional
        The axis to join along; both in one axis where not given.

    Returns
    -------
    Tensor
        A new array of NumPy's result dtype.

    Raises
    ------
    ValueError
        The shapes differ off the axis.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.append([1.0, 2.0], 3.0).data
    array([1., 2., 3.])
    """
    return concatenate([x, values], axis)


def _sequence(name: str, arrays: Any) -> list[Any]:
    try:
        given = list(arrays)
    except TypeError:
        fix = f"Write tg.{name}([a, b])."
        raise TypeError(explain(name, kind_of(arrays), "a sequence of arrays", fix)) from None
    return [tensor_like(name, x, f"arrays[{i}]") for i, x in enumerate(given)]


# Splitting


@implements(np.array_split)
@to_list
def array_split(x: Any, indices_or_sections: Shape, axis: SupportsIndex = 0) -> list[Any]:
    """Cut an array into parts along an axis, equal ones or nearly.

    Parameters
    ----------
    x : Tensor or array_like
        At least one axis.
    indices_or_sections : int or sequence of int
        How many parts, the first ones being one longer where it does not go even; or where each
        part but the first starts.
    axis : int
        The axis to cut along.

    Returns
    -------
    list of Tensor

    Raises
    ------
    ValueError
        The number of parts is not positive, or the axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> [part.shape for part in tg.array_split([1.0, 2.0, 3.0], 2)]
    [(2,), (1,)]
    """
    return _cut("array_split", x, indices_or_sections, axis, even=False)


@implements(np.split)
@to_list
def split(x: Any, indices_or_sections: Shape, axis: SupportsIndex = 0) -> list[Any]:
    """Cut an array into parts along an axis.

    Parameters
    ----------
    x : Tensor or array_like
        At least one axis.
    indices_or_sections : int or sequence of int
        How many equal parts, or where each part but the first starts.
    axis : int
        The axis to cut along.

    Returns
    -------
    list of Tensor

    Raises
    ------
    ValueError
        The parts would not be equal, or the axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> [part.data for part in tg.split([1.0, 2.0, 3.0], [1])]
    [array([1.]), array([2., 3.])]
    """
    return _cut("split", x, indices_or_sections, axis, even=True)


@implements(np.hsplit)
@to_list
def hsplit(x: Any, indices_or_sections: Shape) -> list[Any]:
    """Cut an array into parts of columns, or one of shape (n,) along its only axis.

    Parameters
    ----------
    x : Tensor or array_like
        At least one axis.
    indices_or_sections : int or sequence of int
        As for `split`.

    Returns
    -------
    list of Tensor

    Raises
    ------
    ValueError
        The array is 0-d, or the parts would not be equal.

    Examples
    --------
    >>> import tapegraph as tg
    >>> [part.shape for part in tg.hsplit([[1.0, 2.0]], 2)]
    [(1, 1), (1, 1)]
    """
    x = _with_axes("hsplit", x, 1)
    return _cut("hsplit", x, indices_or_sections, 1 if x.ndim > 1 else 0, even=True)


@implements(np.vsplit)
@to_list
def vsplit(x: Any, indices_or_sections: Shape) -> list[Any]:
    """Cut an array into parts of rows.

    Parameters
    ----------
    x : Tensor or array_like
        At least two axes.
    indices_or_sections : int or sequence of int
        As for `split`.

    Returns
    -------
    list of Tensor

    Raises
    ------
    ValueError
        There are fewer than two axes, or the parts would not be equal.

    Examples
    --------
    >>> import tapegraph as tg
    >>> [part.shape for part in tg.vsplit([[1.0], [2.0]], 2)]
    [(1, 1), (1, 1)]
    """
    return _cut("vsplit", _with_axes("vsplit", x, 2), indices_or_sections, 0, even=True)


@implements(np.dsplit)
@to_list
def dsplit(x: Any, indices_or_sections: Shape) -> list[Any]:
    """Cut an array into parts along the third axis.

    Parameters
    ----------
    x : Tensor or array_like
        At least three axes.
    indices_or_sections : int or sequence of int
        As for `split`.

    Returns
    -------
    list of Tensor

    Raises
    ------
    ValueError
        There are fewer than three axes, or the parts would not be equal.

    Examples
    --------
    >>> import tapegraph as tg
    >>> [part.shape for part in tg.dsplit([[[1.0, 2.0]]], 2)]
    [(1, 1, 1), (1, 1, 1)]
    """
    return _cut("dsplit", _with_axes("dsplit", x, 3), indices_or_sections, 2, even=True)


def _with_axes(name: str, x: Any, least: int) -> Any:
    x = tensor_like(name, x)
    if x.ndim < least:
        raise ValueError(explain(name, f"shape {x.shape}", f"at least {least} axes"))
    return x


def _cut(
    name: str, x: Any, indices_or_sections: Any, axis: SupportsIndex, *, even: bool
) -> list[Any]:
    x = tensor_like(name, x)
    along = one_axis(name, axis, x.ndim)
    length = x.shape[along]
    numbers = integers(name, "indices_or_sections", indices_or_sections)
    if np.ndim(indices_or_sections) == 0:
        (sections,) = numbers
        if sections < 1 or (even and length % sections):
            received = f"{sections} parts of axis {along} of length {length}"
            fix = "tg.array_split cuts into unequal parts." if even else ""
            expected = "a positive number of parts, equal ones" if even else "at least one part"
            raise ValueError(explain(name, received, expected, fix))
        short, longer = divmod(length, sections)
        starts = [short * i + min(i, longer) for i in range(1, sections)]
    else:
        starts = list(numbers)
    before = (slice(None),) * along
    bounds = zip([0, *starts], [*starts, length], strict=True)
    return [getitem(x, (*before, slice(start, stop))) for start, stop in bounds]


# Borders

_CONTINUED = ("edge", "reflect", "symmetric", "wrap")


@implements(np.pad)
@of_array
def pad(
    x: Any,
    pad_width: Shape | Sequence[Sequence[SupportsIndex]] | Mapping[int, Shape],
    mode: Literal["constant", "edge", "reflect", "symmetric", "wrap"] = "constant",
    *,
    constant_values: ArrayLike = 0,
    reflect_type: Literal["even"] = "even",
) -> Any:
    """Put a border around an array.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    pad_width : int, (before, after), or one such pair an axis; or a dict of them by axis
        How wide, in elements.
    mode : {"constant", "edge", "reflect", "symmetric", "wrap"}
        Given numbers, the outermost element again, the array mirrored without or with its
        outermost element, or the array from its other end.
    constant_values : number, (before, after), or one such pair an axis
        The numbers of ``mode="constant"``; plain ones, without a gradient.
    reflect_type : {"even"}
        Accepted for NumPy's sake.

    Returns
    -------
    Tensor
        Of ``x``'s dtype; gradients of repeated elements add up.

    Raises
    ------
    TypeError
        The widths are not integers.
    ValueError
        The mode is another, a width is negative or does not fit the axes, or an empty axis is to
        be continued.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.pad([1.0, 2.0], 1).data
    array([0., 1., 2., 0.])
    """
    x = tensor_like("pad", x)
    widths = _widths(pad_width, x.ndim)
    if mode == "constant":
        fills = _pairs("constant_values", constant_values, x.ndim)
        return _framed(x, widths, fills)
    if mode not in _CONTINUED or reflect_type != "even":
        expected = f"'constant' or one of {_CONTINUED}, with reflect_type 'even'"
        raise ValueError(explain("pad", f"mode {mode!r}, reflect_type {reflect_type!r}", expected))
    for axis, width in enumerate(widths.tolist()):
        if width == [0, 0]:
            continue
        if not x.shape[axis]:
            expected = f"no border along the empty axis {axis} in mode {mode!r}"
            raise ValueError(explain("pad", f"pad_width {pad_width}", expected))
        places = np.pad(np.arange(x.shape[axis]), width, mode=mode)
        x = gather(x, places, axis)
    return x


def _widths(pad_width: Any, ndim: int) -> Array:
    """Return the border's width as one pair of integers an axis."""
    if isinstance(pad_width, dict):
        by_axis = {one_axis("pad", a, ndim): width for a, width in pad_width.items()}
        pad_width = [np.broadcast_to(by_axis.get(a, 0), 2) for a in range(ndim)]
    widths = _pairs("pad_width", pad_width, ndim)
    if widths.size and widths.dtype.kind not in "iu":
        raise TypeError(explain("pad", f"pad_width {pad_width}", "integers"))
    if widths.size and widths.min() < 0:
        raise ValueError(explain("pad", f"pad_width {pad_width}", "widths of 0 or more"))
    return widths


def _pairs(argument: str, value: Any, ndim: int) -> Array:
    """Return a number, a pair, or a pair an axis as one pair an axis."""
    try:
        return np.broadcast_to(np.asarray(value), (ndim, 2))
    except ValueError:
        received = f"{argument} {value} for {ndim} axes"
        expected = "a number, (before, after), or one such pair an axis"
        raise ValueError(explain("pad", received, expected)) from None


def _framed(x: Any, widths: Array, fills: Array) -> Any:
    """Put constants around an array; a later axis' ones fill the corners."""
    for axis, width in enumerate(widths.tolist()):
        if width == [0, 0]:
            continue
        borders = []
        for count, fill in zip(width, fills[axis], strict=True):
            lengths = (*x.shape[:axis], count, *x.shape[axis + 1 :])
            borders.append(watched("pad", np.full, lengths, fill, x.dtype))
        x = concat([borders[0], x, borders[1]], axis)
    return x


# Turning


@implements(np.roll)
@of_array
def roll(x: Any, shift: Shape, axis: Axes = None) -> Any:
    """Move elements along an axis; those that leave it at one end come in at the other.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    shift : int or tuple of int
        How far, in elements.
    axis : int or tuple of int, optional
        The axes to move along; through all elements in row-major order where not given.

    Returns
    -------
    Tensor
        Of ``x``'s shape.

    Raises
    ------
    ValueError
        An axis is out of range, or shifts and axes differ in number.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.roll([1.0, 2.0, 3.0], 1).data
    array([3., 1., 2.])
    """
    x = tensor_like("roll", x)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    shifts = integers("roll", "shift", shift)
    axes = tuple(one_axis("roll", a, x.ndim) for a in integers("roll", "axis", axis))
    if len(shifts) != len(axes) and 1 not in (len(shifts), len(axes)):
        received = f"shift {shift} along axis {axis}"
        raise ValueError(explain("roll", received, "as many shifts as axes"))
    count = max(len(shifts), len(axes))
    moves = zip(shifts * (count // len(shifts)), axes * (count // len(axes)), strict=True)
    for distance, along in moves:
        x = _rolled(x, distance, along)
    return x


def _rolled(x: Any, distance: int, axis: int) -> Any:
    start = -distance % max(1, x.shape[axis])
    if not start:
        return x
    before = (slice(None),) * axis
    parts = [getitem(x, (*before, part)) for part in (slice(start, None), slice(start))]
    return concat(parts, axis)


@implements(np.flip)
@of_array
def flip(x: Any, axis: Axes = None) -> Any:
    """Reverse the elements along axes.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    axis : int or tuple of int, optional
        The axes to reverse; all where not given.

    Returns
    -------
    Tensor
        Of ``x``'s shape.

    Raises
    ------
    ValueError
        An axis is out of range or repeated.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.flip([1.0, 2.0, 3.0]).data
    array([3., 2., 1.])
    """
    x = tensor_like("flip", x)
    reversed_axes = some_axes("flip", axis, x.ndim)
    return getitem(
        x, tuple(slice(None, None, -1 if a in reversed_axes else 1) for a in range(x.ndim))
    )


@implements(np.fliplr)
@of_array
def fliplr(x: Any) -> Any:
    """Reverse the order of the columns.

    Parameters
    ----------
    x : Tensor or array_like
        At least two axes.

    Returns
    -------
    Tensor
        Of ``x``'s shape.

    Raises
    ------
    ValueError
        There are fewer than two axes.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.fliplr([[1.0, 2.0]]).data
    array([[2., 1.]])
    """
    return flip(_with_axes("fliplr", x, 2), 1)


@implements(np.flipud)
@of_array
def flipud(x: Any) -> Any:
    """Reverse the order of the rows.

    Parameters
    ----------
    x : Tensor or array_like
        At least one axis.

    Returns
    -------
    Tensor
        Of ``x``'s shape.

    Raises
    ------
    ValueError
        The array is 0-d.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.flipud([1.0, 2.0]).data
    array([2., 1.])
    """
    return flip(_with_axes("flipud", x, 1), 0)


@implements(np.rot90)
@of_array
def rot90(x: Any, k: int = 1, axes: Sequence[SupportsIndex] = (0, 1)) -> Any:
    """Turn an array by quarters in the plane of two axes, the first towards the second.

    Parameters
    ----------
    x : Tensor or array_like
        At least two axes.
    k : int
        How many quarters; negative ones turn the other way.
    axes : (int, int)
        The plane.

    Returns
    -------
    Tensor
        The turned array.

    Raises
    ------
    ValueError
        The axes are not two different ones of the array.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.rot90([[1.0, 2.0]]).data
    array([[2.],
           [1.]])
    """
    x = tensor_like("rot90", x)
    plane = tuple(one_axis("rot90", a, x.ndim) for a in integers("rot90", "axes", axes))
    if len(plane) != 2 or plane[0] == plane[1]:
        raise ValueError(explain("rot90", f"axes {axes}", "two different axes"))
    (quarters,) = integers("rot90", "k", k)
    quarters %= 4
    if quarters == 0:
        return x
    if quarters == 2:
        return flip(x, plane)
    if quarters == 1:
        return swapaxes(flip(x, plane[1]), *plane)
    return flip(swapaxes(x, *plane), plane[1])


# Taking out and putting in


@implements(np.delete)
@of_array
def delete(x: Any, obj: Place, axis: SupportsIndex | None = None) -> Any:
    """Leave out parts of an array.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    obj : int, slice, sequence of int, or mask
        The places along the axis to leave out.
    axis : int, optional
        The axis; the elements in one axis where not given.

    Returns
    -------
    Tensor
        The rest, as a new array.

    Raises
    ------
    IndexError
        A place is out of range.
    ValueError
        The axis is out of range, or a mask has not its length.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.delete([1.0, 2.0, 3.0], 1).data
    array([1., 3.])
    """
    x = tensor_like("delete", x)
    if axis is None:
        x, axis = ravel(x), 0
    along = one_axis("delete", axis, x.ndim)
    try:
        kept = np.delete(np.arange(x.shape[along]), plain(obj))
    except (IndexError, ValueError) as error:
        received = f"places {obj} of axis {along} of length {x.shape[along]}"
        raise type(error)(explain("delete", received, "places on the axis")) from error
    return gather(x, kept, along)


@implements(np.insert)
@seen_as(typed.Insert)
def insert(x: Any, obj: Place, values: Any, axis: SupportsIndex | None = None) -> Any:
    """Put values between the elements of an array.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    obj : int, slice or sequence of int
        The places along the axis that the values come before.
    values : Tensor or array_like
        What is put in; broadcast to the room there is.
    axis : int, optional
        The axis; the elements in one axis where not given.

    Returns
    -------
    Tensor
        A new array of ``x``'s dtype.

    Raises
    ------
    IndexError
        A place is out of range.
    ValueError
        The axis is out of range, or the values do not fit.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.insert([1.0, 3.0], 1, 2.0).data
    array([1., 2., 3.])
    """
    x, values = tensor_like("insert", x), tensor_like("insert", values, "values")
    if axis is None:
        x, axis = ravel(x), 0
    along = one_axis("insert", axis, x.ndim)
    length, places = x.shape[along], plain(obj)
    values = _at_least("insert", values, x.ndim)
    if values.dtype != x.dtype:
        values = astype(values, x.dtype)
    if np.ndim(places) == 0 and not isinstance(places, slice):
        # NumPy takes the first axis of the values as the one that goes in at a single place.
        values = moveaxis(values, 0, along)
    try:
        count = len(np.insert(np.arange(length), places, 0)) - length
        if count == 1:
            count = values.shape[along]
        order = np.insert(np.arange(length), places, length + np.arange(count))
    except (IndexError, ValueError) as error:
        received = f"places {obj} of axis {along} of length {length}"
        raise type(error)(explain("insert", received, "places on the axis")) from error
    room = (*x.shape[:along], count, *x.shape[along + 1 :])
    extra = values.ndim - x.ndim
    if extra and set(values.shape[:extra]) == {1}:  # an assignment drops them
        values = reshape(values, values.shape[extra:])
    return gather(concat([x, broadcast_to(values, room)], along), order, along)
