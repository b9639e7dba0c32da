"""Operations: elements by their places: indexing, gathering, sorting, splitting."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, SupportsIndex

import numpy as np

from tapegraph import typed
from tapegraph.arrays.axes import integers, one_axis, some_axes
from tapegraph.errors import explain, kind_of
from tapegraph.numpy_warnings import watched
from tapegraph.ops.elementwise import astype, where
from tapegraph.ops.shape import (
    at_least,
    broadcast_arrays,
    broadcast_to,
    concat,
    moveaxis,
    ravel,
    reshape,
    stack,
    swapaxes,
)
from tapegraph.recording.concretization import follows
from tapegraph.recording.node import Node, constant, numeric
from tapegraph.recording.numpy_functions import implements, numbers, plain, without_gradient
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, tensor_like
from tapegraph.typed import (
    Array,
    ArrayLike,
    Axes,
    Index,
    Operand,
    Place,
    Shape,
    SupportsArray,
    of_array,
    of_second,
    seen_as,
    to_list,
)

__all__ = [
    "array_split",
    "choose",
    "compress",
    "delete",
    "diag",
    "diagflat",
    "dsplit",
    "extract",
    "flip",
    "fliplr",
    "flipud",
    "gather",
    "hsplit",
    "insert",
    "pad",
    "partition",
    "repeat",
    "roll",
    "rot90",
    "select",
    "sort",
    "split",
    "take",
    "take_along_axis",
    "tensor_slice",
    "tril",
    "triu",
    "vsplit",
]


@implements(np.repeat)
@of_array
def repeat(x: Any, repeats: Shape | SupportsArray, axis: SupportsIndex | None = None) -> Any:
    """Repeat each element along an axis.

    Parameters
    ----------
    repeats : int or sequence of int
        How often, for all or for each place along the axis.

    Returns
    -------
    Tensor
        Gradients of the copies add up.

    Raises
    ------
    ValueError
        The axis is out of range, a number is negative, or the numbers are not one per place.

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


# Splitting


@implements(np.array_split)
@to_list
def array_split(x: Any, indices_or_sections: Shape, axis: SupportsIndex = 0) -> list[Any]:
    """Cut an array into parts along an axis, equal ones or nearly.

    Parameters
    ----------
    x : at least one axis
    indices_or_sections : int or sequence of int
        How many parts, the first ones being one longer where it does not go even; or where each
        part but the first starts.
    axis
        The axis to cut along.

    Raises
    ------
    ValueError
        The number of parts is not positive, or the axis is out of range.

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
    x : at least one axis
    indices_or_sections : int or sequence of int
        How many equal parts, or where each part but the first starts.
    axis
        The axis to cut along.

    Raises
    ------
    ValueError
        The parts would not be equal, or the axis is out of range.

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
    x : at least one axis

    Raises
    ------
    ValueError
        The array is 0-d, or the parts would not be equal.

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
    x : at least two axes

    Raises
    ------
    ValueError
        There are fewer than two axes, or the parts would not be equal.

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

    Raises
    ------
    ValueError
        There are fewer than three axes, or the parts would not be equal.

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
    shift : int or tuple of int
        How far, in elements.
    axis
        The axes to move along; through all elements in row-major order where not given.

    Returns
    -------
    of x's shape

    Raises
    ------
    ValueError
        An axis is out of range, or shifts and axes differ in number.

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
    moves: dict[int, int] = {}
    for distance, along in zip(
        shifts * (count // len(shifts)), axes * (count // len(axes)), strict=True
    ):
        moves[along] = (moves.get(along, 0) + distance) % max(1, x.shape[along])
    moves = {along: distance for along, distance in moves.items() if distance}
    if not moves:
        return x
    return apply(ROLL, (x,), {"shift": tuple(moves.values()), "axis": tuple(moves)})


@implements(np.flip)
@of_array
def flip(x: Any, axis: Axes = None) -> Any:
    """Reverse the elements along axes.

    Parameters
    ----------
    axis
        The axes to reverse; all where not given.

    Returns
    -------
    of x's shape

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
    x : at least two axes

    Returns
    -------
    of x's shape

    Raises
    ------
    ValueError
        There are fewer than two axes.

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
    x : at least one axis

    Returns
    -------
    of x's shape

    Raises
    ------
    no axis

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
    x : at least two axes
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
    obj : int, slice, sequence of int, or mask
        The places along the axis to leave out.

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
    obj : int, slice or sequence of int
        The places along the axis that the values come before.
    values : Tensor or array_like
        What is put in; broadcast to the room there is.

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

    >>> tg.insert([1.0, 3.0], 1, 2.0).data
    array([1., 2., 3.])
    """
    x, values = tensor_like("insert", x), tensor_like("insert", values, "values")
    if axis is None:
        x, axis = ravel(x), 0
    along = one_axis("insert", axis, x.ndim)
    length, places = x.shape[along], plain(obj)
    values = at_least("insert", values, x.ndim)
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


def slice_key(begin: Array, size: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the index of the block of ``size`` elements that starts at ``begin``."""
    return tuple(slice(b, b + n) for b, n in zip(begin.tolist(), size, strict=True))


def basic_key(begin: Array, plan: tuple[Any, ...]) -> tuple[Any, ...]:
    """Rebuild a basic index from its plan and the offset it starts at along each item.

    The plan has one item per item of the index: ``None`` for a new axis, ``"int"`` for an axis
    that is dropped, or ``(length, step)`` for a slice.
    """
    key: list[Any] = []
    for part, start in zip(plan, begin.tolist(), strict=True):
        if part is None:
            key.append(None)
        elif part == "int":
            key.append(start)
        else:
            length, step = part
            stop = start + length * step
            key.append(slice(start, stop if stop >= 0 else None, step))
    return tuple(key)


def _tensor_slice(x: Array, begin: Array, *, size: tuple[int, ...]) -> Any:
    return x[slice_key(begin, size)]


def _gather(x: Array, indices: Array, *, axis: int) -> Any:
    return x.take(indices, axis=axis)


def _getitem(x: Array, begin: Array, end: Array, *, plan: tuple[Any, ...]) -> Any:
    return x[basic_key(begin, plan)]


def _index(x: Array, *arrays: Array, plan: tuple[Any, ...]) -> Any:
    return x[advanced_key(arrays, plan)]


def _scatter(x: Array, places: Array, *, shape: tuple[int, ...]) -> Any:
    out = np.zeros(math.prod(shape), x.dtype)
    np.add.at(out, places.ravel(), x.ravel())
    return out.reshape(shape)


def advanced_key(arrays: tuple[Array, ...], plan: tuple[Any, ...]) -> tuple[Any, ...]:
    """Rebuild an advanced index: each ``"array"`` of the plan is the next index array."""
    left = iter(arrays)
    return tuple(next(left) if part == "array" else slice(None) for part in plan)


# Offsets, indices and conditions are fed as arrays: new ones do not change the graph.
TENSOR_SLICE = Op("tensor_slice", _tensor_slice, differentiable=(True,))


GATHER = Op("gather", _gather, differentiable=(True,))


GETITEM = Op("getitem", _getitem, differentiable=(True,))


def rolled(x: Any, *, shift: tuple[int, ...], axis: tuple[int, ...]) -> Any:
    """Move elements along different axes, each by less than its length, forwards or back."""
    for distance, along in zip(shift, axis, strict=True):
        before = (slice(None),) * along
        end, start = (*before, slice(-distance, None)), (*before, slice(-distance))
        x = np.concatenate((x[end], x[start]), axis=along)  # a plan makes it in its own memory
    return x


ROLL = Op("roll", rolled)


INDEX = Op("index", _index, differentiable=(True,))


SCATTER = Op("scatter", _scatter, differentiable=(True,))


@of_array
def scatter(x: Any, places: Any, shape: tuple[int, ...]) -> Any:
    """Add each element to its place in an array of zeros: what taking elements transposes to.

    Parameters
    ----------
    x
        The elements.
    places : array of int64, of x's shape
        Where each one goes, as the place in the flattened result.
    shape : tuple of int
        Of the result.

    Returns
    -------
    Tensor
        Of ``x``'s dtype; elements of one place add up.

    >>> from tapegraph.ops.index import scatter
    >>> scatter([1.0, 2.0, 3.0], [0, 3, 3], (2, 2)).data
    array([[1., 0.],
           [0., 5.]])
    """
    recorded = places if isinstance(places, Node) else constant(np.asarray(places, np.int64))
    return apply(SCATTER, (tensor_like("scatter", x), recorded), {"shape": shape})


@of_array
def tensor_slice(x: Any, begin: Sequence[SupportsIndex], size: Sequence[SupportsIndex]) -> Any:
    """Take the block of ``size`` elements that starts at ``begin``.

    Parameters
    ----------
    begin : sequence of int
        The first index along each axis, not negative.
    size : sequence of int
        The length along each axis; -1 means up to the end.

    Returns
    -------
    Tensor
        Of shape ``size``.

    Raises
    ------
    ValueError
        ``begin`` or ``size`` has not one number per axis.
    IndexError
        The block reaches outside ``x``.

    >>> tg.tensor_slice([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], (0, 1), (2, -1)).data
    array([[2., 3.],
           [5., 6.]])
    """
    name = "tensor_slice"
    x = tensor_like(name, x)
    first, lengths = integers(name, "begin", begin), integers(name, "size", size)
    if len(first) != x.ndim or len(lengths) != x.ndim:
        raise ValueError(
            explain(
                name,
                f"begin {first} and size {lengths} for shape {x.shape}",
                f"{x.ndim} numbers each, one per axis",
            )
        )
    full = []
    for b, n, length in zip(first, lengths, x.shape, strict=True):
        n = length - b if n == -1 else n
        if b < 0 or n < 0 or b + n > length:
            raise IndexError(
                explain(
                    name,
                    f"begin {first} and size {lengths} for shape {x.shape}",
                    "0 <= begin and begin + size <= shape along every axis",
                )
            )
        full.append(n)
    return apply(
        TENSOR_SLICE, (x, constant(np.array(first, dtype=np.int64))), {"size": tuple(full)}
    )


@of_array
def gather(x: Any, indices: ArrayLike, axis: SupportsIndex = 0) -> Any:
    """Take elements along an axis by index, as an embedding lookup does.

    Parameters
    ----------
    x : at least one axis
    indices : array_like of int
        Any shape; negative ones count from the end. Repeated indices add up their gradients.

    Returns
    -------
    Tensor
        Of shape ``x.shape[:axis] + indices.shape + x.shape[axis + 1:]``.

    Raises
    ------
    IndexError
        An index is out of range; the message names it and the bound.
    TypeError
        The indices are not integers.
    ValueError
        ``x`` is 0-d or the axis is out of range.

    >>> tg.gather([[1.0, 2.0], [3.0, 4.0]], [1, -1]).data
    array([[3., 4.],
           [3., 4.]])
    """
    x = tensor_like("gather", x)
    along = one_axis("gather", axis, x.ndim)
    given = indices if follows(indices) else numeric(indices, "gather", "indices")
    wrapped = _wrapped("gather", given, along, x.shape[along])
    return apply(GATHER, (x, wrapped), {"axis": along})


@of_array
def getitem(x: Any, key: Index) -> Any:
    """Index as ``x[key]`` does: integers, slices, ``...``, ``None``, integer and boolean arrays.

    Parameters
    ----------
    key : index
        Any basic or advanced NumPy index.

    Returns
    -------
    Tensor
        The elements chosen; gradients of repeated ones add up.

    Raises
    ------
    IndexError
        Too many indices, an index out of range, or something that is no index.

    >>> x = tg.param([[1.0, 2.0], [3.0, 4.0]])
    >>> x[:, 1].data
    array([2., 4.])
    """
    x = tensor_like("getitem", x)
    parts = _expanded(key if isinstance(key, tuple) else (key,), x.shape)
    if all(_is_basic(p) for p in parts):
        return _basic(x, parts)
    return _advanced(x, parts)


def _is_basic(part: Any) -> bool:
    return part is None or isinstance(part, (int, slice))


def _expanded(key: tuple[Any, ...], shape: tuple[int, ...]) -> list[Any]:
    """Return the index with arrays as ndarrays, ``...`` written out, and every axis named."""
    parts: list[Any] = []
    for part in key:
        if isinstance(part, Node):
            # The places of a mask decide the shape.
            part = plain(part) if _is_mask(part) else numbers(part)
        elif hasattr(part, "__array__") and not isinstance(part, np.generic):
            part = np.asarray(part)  # of pandas, for one
        if part is None or part is Ellipsis or isinstance(part, slice):
            parts.append(part)
        elif isinstance(part, (bool, np.bool_)):
            parts.append(np.array(part))
        elif isinstance(part, (list, tuple)):
            parts.append(_index_array(part))
        elif follows(part) or (isinstance(part, np.ndarray) and part.ndim + _is_mask(part) > 0):
            parts.append(part)
        else:
            try:
                parts.append(operator.index(part))
            except TypeError:
                expected = "integers, slices, '...', None, or integer or boolean arrays"
                raise IndexError(explain("getitem", kind_of(part), expected)) from None
    used = _count(parts)
    dots = [i for i, p in enumerate(parts) if p is Ellipsis]
    if used > len(shape) or len(dots) > 1:
        raise IndexError(
            explain(
                "getitem",
                f"an index of {used} axes and {len(dots)} '...' for shape {shape}",
                f"at most {len(shape)} axes and one '...'",
            )
        )
    rest = [slice(None)] * (len(shape) - used)
    if not dots:
        return parts + rest
    before, after = parts[: dots[0]], parts[dots[0] + 1 :]
    if not rest and _are_parted(before, after):
        return parts  # for no axis, yet it says where NumPy puts those of the arrays
    return [*before, *rest, *after]


def _are_parted(before: list[Any], after: list[Any]) -> bool:
    """Tell whether index arrays stand on both sides; integers next to an array are such too."""
    both = all(any(p is not None and not isinstance(p, slice) for p in s) for s in (before, after))
    return both and not all(map(_is_basic, before + after))


def _index_array(part: Any) -> Array:
    try:
        array = np.asarray(part)
    except ValueError as error:
        raise ValueError(
            explain("getitem", f"the ragged index {part!r}", "rows of the same length")
        ) from error
    return array if array.size else array.astype(np.intp)


def _is_mask(part: Any) -> bool:
    return getattr(part, "dtype", None) == np.bool_


def _count(parts: list[Any]) -> int:
    """Return how many axes an index uses up; a boolean array uses one for each of its own."""
    total = 0
    for p in parts:
        if p is not None and p is not Ellipsis:
            total += p.ndim if _is_mask(p) else 1
    return total


def _basic(x: Any, parts: list[Any]) -> Any:
    begin: list[int] = []
    end: list[int] = []
    plan: list[Any] = []
    axis = 0
    for part in parts:
        if part is None:
            begin.append(0)
            end.append(1)
            plan.append(None)
            continue
        length = x.shape[axis]
        if isinstance(part, slice):
            start, stop, step = _bounds(part, length)
            count = len(range(start, stop, step))
            if count < 2:  # the step takes none, however long
                start, step = (start if count else 0), 1
            begin.append(start)
            # Counted from the end, so that going down to the first element stays below it.
            end.append(start + count * step - (length if step < 0 else 0))
            plan.append((count, step))
        else:
            if not -length <= part < length:
                raise _out_of_range("getitem", part, axis, length)
            begin.append(part % length)
            end.append(part % length + 1)
            plan.append("int")
        axis += 1
    offsets = (constant(np.array(v, dtype=np.int64)) for v in (begin, end))
    return apply(GETITEM, (x, *offsets), {"plan": tuple(plan)})


def _bounds(part: slice, length: int) -> tuple[int, int, int]:
    try:
        return part.indices(length)
    except (TypeError, ValueError) as error:
        raise IndexError(
            explain("getitem", repr(part), "a slice of integers with a step other than 0")
        ) from error


def _advanced(x: Any, parts: list[Any]) -> Any:
    """Record integer and boolean arrays as one ``index``, and the rest of the key around it."""
    if any(p is Ellipsis for p in parts):
        return _parted(x, parts)
    if any(_is_rest(p) for p in parts):
        return _mixed(x, parts)
    plan: list[str] = []
    arrays: list[Any] = []
    axis = 0
    for part in parts:
        if isinstance(part, slice):
            plan.append("slice")
            axis += 1
            continue
        for array in _as_integers(part, axis, x.shape):
            plan.append("array")
            arrays.append(_wrapped("getitem", array, axis, x.shape[axis]))
            axis += 1
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        raise IndexError(
            explain(
                "getitem",
                f"index arrays of shapes {[a.shape for a in arrays]}",
                "shapes that broadcast together",
            )
        ) from None
    return apply(INDEX, (x, *arrays), {"plan": tuple(plan)})


def _parted(x: Any, parts: list[Any]) -> Any:
    """Index with a new axis for a ``...`` that stands for none, and drop that axis again."""
    place = next(i for i, p in enumerate(parts) if p is Ellipsis)
    after = parts[place + 1 :]
    taken = _advanced(x, [*parts[:place], None, *after])
    behind = sum(p is None or isinstance(p, slice) for p in after)
    dropped = [0 if a == taken.ndim - 1 - behind else slice(None) for a in range(taken.ndim)]
    return _basic(taken, dropped)


def _mixed(x: Any, parts: list[Any]) -> Any:
    """Take the slices and new axes first, then the arrays: NumPy's result is the same.

    A new axis becomes an axis of length 1 that the arrays' part then keeps as a whole slice, so
    whether the array axes stand together, which decides where NumPy puts them, does not change.
    """
    first: list[Any] = []
    then: list[Any] = []
    for part in parts:
        if part is None or isinstance(part, slice):
            first.append(part)
            then.append(slice(None))
        elif _is_mask(part) and part.ndim == 0:  # True or False: a new axis of length 1 or 0
            first.append(None)
            then.append(np.zeros(int(part), dtype=np.int64))
        else:
            first.extend([slice(None)] * (part.ndim if _is_mask(part) else 1))
            then.append(part)
    return _advanced(_basic(x, first), then)


def _is_rest(part: Any) -> bool:
    """Tell what is no index array of one existing axis or more."""
    if _is_mask(part):
        return bool(part.ndim == 0)
    return part is None or (isinstance(part, slice) and part != slice(None))


def _as_integers(part: Any, axis: int, shape: tuple[int, ...]) -> list[Any]:
    """Return the integer arrays that an index item stands for; a mask stands for its non-zeros."""
    if not _is_mask(part):
        return [part if follows(part) else np.asarray(part)]
    if part.shape != shape[axis : axis + part.ndim]:
        raise IndexError(
            explain(
                "getitem",
                f"a boolean index of shape {part.shape} at axis {axis} of shape {shape}",
                f"shape {shape[axis : axis + part.ndim]}",
            )
        )
    return list(np.nonzero(part))


def _wrapped(op: str, indices: Any, axis: int, length: int) -> Any:
    """Return integer indices as non-negative int64, or raise naming the first out of range."""
    array = indices if follows(indices) else np.asarray(indices)
    if array.size == 0:
        return constant(np.zeros(array.shape, dtype=np.int64))
    if array.dtype.kind not in "iu":
        raise (IndexError if op == "getitem" else TypeError)(
            explain(op, f"indices {kind_of(indices)}", "integer indices", "Use .astype(int).")
        )
    if follows(array):
        return within(array, -length, length, lambda i: _out_of_range(op, i, axis, length))
    wrapped = array.astype(np.int64)
    if wrapped.view(np.uint64).max() < length:  # a negative number is a very large one
        return constant(wrapped)
    outside = (array < -length) | (array >= length)
    if outside.any():
        raise _out_of_range(op, int(array[outside].flat[0]), axis, length)
    wrapped[wrapped < 0] += length
    return constant(wrapped)


def _out_of_range(op: str, index: int, axis: int, length: int) -> IndexError:
    return IndexError(
        explain(
            op,
            f"index {index} for axis {axis} of length {length}",
            f"an index in [{-length}, {length})",
        )
    )


# By place


@implements(np.take)
@of_array
def take(x: Any, indices: ArrayLike, axis: SupportsIndex | None = None) -> Any:
    """Take elements along an axis by index.

    Parameters
    ----------
    indices : array_like of int
        Any shape; negative ones count from the end. Repeated indices add up their gradients.

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
    x : at least one axis
    indices : array_like of int
        As many axes as ``x``; broadcast with it off the axis.

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

    >>> tg.take_along_axis([[1.0, 2.0], [3.0, 4.0]], [[1], [0]], axis=1).data
    array([[2.],
           [3.]])
    """
    x = tensor_like("take_along_axis", x)
    places = numbers(indices) if follows(indices) else np.asarray(plain(indices))
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
    a : an array

    Returns
    -------
    Tensor
        The parts chosen, in order.

    Raises
    ------
    IndexError
        The condition holds beyond the end of the axis.
    ValueError
        The condition is not 1-D, or the axis is out of range.

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
    arr : an array

    Returns
    -------
    Tensor, 1-D

    Raises
    ------
    IndexError
        The condition holds beyond the last element.

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

    >>> tg.choose([1, 0], [[1.0, 2.0], [3.0, 4.0]]).data
    array([3., 2.])
    """
    number = _integral("choose", "a", a)
    options = [tensor_like("choose", c, f"choices[{i}]") for i, c in enumerate(choices)]
    count = len(options)

    def refused(choice: int) -> ValueError:
        return ValueError(
            explain("choose", f"choice {choice} of {count}", f"a number in [0, {count})")
        )

    if follows(number):
        number = within(number, 0, count, refused)
    else:
        outside = (number < 0) | (number >= count)
        if outside.any():
            raise refused(int(number[outside].flat[0]))
    spread = broadcast_arrays(number, *options)
    grid = np.ogrid[tuple(slice(n) for n in spread[0].shape)]
    return getitem(stack(spread[1:]), (numbers(spread[0]), *grid))


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

    >>> x = tg.param([1.0, 2.0, 3.0])
    >>> tg.select([x < 2, x < 3], [x, 10 * x], -1.0).data
    array([ 1., 20., -1.])
    """
    conditions = [numbers(c) if follows(c) else np.asarray(plain(c)) for c in condlist]
    choices = list(choicelist)
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


def _integral(name: str, argument: str, value: Any) -> Any:
    """Return an array of integers, empty or not."""
    array = numbers(value) if follows(value) else np.asarray(plain(value))
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
    x : at least one axis
    kind, stable : optional
        Accepted for NumPy's sake: the order is always the stable one.

    Returns
    -------
    Tensor
        A sorted copy.

    >>> tg.sort([3.0, 1.0, 2.0]).data
    array([1., 2., 3.])
    """
    x = tensor_like("sort", x)
    if axis is None:
        x, axis = ravel(x), 0
    along = one_axis("sort", axis, x.ndim)
    return take_along_axis(x, np.argsort(numbers(x), axis=along, kind="stable"), along)


@implements(np.partition)
@of_array
def partition(x: Any, kth: Shape, axis: SupportsIndex | None = -1) -> Any:
    """Put the element that sorting would put at place ``kth`` there, smaller ones before it.

    The gradient of each element goes where it was taken from. The order on either side of the
    place is not specified, as in NumPy.

    Parameters
    ----------
    x : at least one axis
    kth : int or sequence of int
        One place or several.

    Returns
    -------
    Tensor
        A partitioned copy.

    Raises
    ------
    ValueError
        A place or the axis is out of range.

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
    return take_along_axis(x, np.argpartition(numbers(x), places, axis=along), along)


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
    v : an array
    k : int
        Which diagonal: above the main one where positive, below where negative.

    Returns
    -------
    Tensor, shape (v.size + abs(k), v.size + abs(k))

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
    no axis

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
    no axis

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


# Without a gradient: plain arrays, and operations where a program is recorded whole


class Outside(IndexError):
    """An index is out of range; its first argument is the index."""


def _within(x: Array, *, low: int, high: int) -> Any:
    outside = (x < low) | (x >= high)
    if outside.any():
        raise Outside(int(x[outside].flat[0]), f"expected one in [{low}, {high})")
    return np.where(x < 0, x + high, x).astype(np.int64)


def _argsort(x: Array, *, axis: int) -> Any:
    return np.argsort(x, axis=axis, kind="stable")


def _argpartition(x: Array, *, kth: tuple[int, ...], axis: int) -> Any:
    return np.argpartition(x, kth, axis=axis)


def _searchsorted(a: Array, v: Any, *, side: Literal["left", "right"]) -> Any:
    return np.searchsorted(a, v, side)


WITHIN = Op("within", _within, differentiable=())
ARGSORT = Op("argsort", _argsort, differentiable=())
ARGPARTITION = Op("argpartition", _argpartition, differentiable=())
SEARCHSORTED = Op("searchsorted", _searchsorted, differentiable=())


def within(indices: Any, low: int, high: int, refused: Callable[[int], Exception]) -> Any:
    """Record integer indices from ``low`` to ``high``, negative ones counted from ``high``.

    Raises
    ------
    Exception
        One is out of range: what ``refused`` gives for it.
    """
    try:
        return apply(WITHIN, (indices,), {"low": low, "high": high})
    except Outside as error:
        raise refused(error.args[0]) from None


@without_gradient(np.argsort)
def _order(a: Any, axis: SupportsIndex | None = -1, kind: Any = None, stable: Any = None) -> Any:
    x, axis = (ravel(a), 0) if axis is None else (a, axis)
    return apply(ARGSORT, (x,), {"axis": one_axis("argsort", axis, x.ndim)})


@without_gradient(np.argpartition)
def _partial_order(a: Any, kth: Shape, axis: SupportsIndex | None = -1, kind: Any = None) -> Any:
    x, axis = (ravel(a), 0) if axis is None else (a, axis)
    places = integers("argpartition", "kth", kth)
    attrs = {"kth": places, "axis": one_axis("argpartition", axis, x.ndim)}
    return apply(ARGPARTITION, (x,), attrs)


@without_gradient(np.searchsorted)
def _places(a: Any, v: Any, side: Literal["left", "right"] = "left", sorter: Any = None) -> Any:
    if sorter is not None:
        a = take(a, sorter)
    pair = (tensor_like("searchsorted", a, "a"), tensor_like("searchsorted", v, "v"))
    return apply(SEARCHSORTED, pair, {"side": side})
