"""Operations by place: indexing, gathering, sorting, splitting."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, Literal, SupportsIndex

import numpy as np

from tapegraph.arrays import check_one_of, int_tuple, one_axis, one_integer, ordered_axes, some_axes
from tapegraph.errors import ConcretizationError, kind_of, message, user_line
from tapegraph.kinds import Kind, Operand
from tapegraph.numpy_warnings import watched
from tapegraph.ops.elementwise import add, astype, where
from tapegraph.ops.shape import (
    at_least,
    broadcast_arrays,
    broadcast_to,
    concat,
    moveaxis,
    ravel,
    reshape,
    sequence_of,
    stack,
    swapaxes,
)
from tapegraph.recording import node as nodes
from tapegraph.recording.lost_gradients import as_index
from tapegraph.recording.node import Node, as_leaf, numeric
from tapegraph.recording.numpy_functions import (
    array_of,
    detached,
    implements,
    numbers,
    without_gradient,
)
from tapegraph.recording.op import Op, OpKind
from tapegraph.recording.record import apply, of_one_dtype, tensor_like
from tapegraph.recording.scopes import recorder
from tapegraph.typed import (
    Array,
    ArrayLike,
    Axes,
    AxisIndex,
    DuckArray,
    Index,
    Shape,
    SupportsArray,
)

__all__ = [
    "add_at", "array_split", "choose", "compress", "delete", "diag", "diagflat", "dsplit",
    "extract", "flip", "fliplr", "flipud", "gather", "hsplit", "insert", "pad", "partition",
    "repeat", "roll", "rot90", "select", "sliding_window_view", "sort", "split", "take",
    "take_along_axis", "tensor_slice", "topk", "tril", "triu", "unstack", "vsplit",
]  # fmt: skip


def _along(op: str, value: DuckArray, argument: str, axis: SupportsIndex | None) -> tuple[Any, int]:
    """Return a tensor and one of its axes; without an axis, the flattened tensor."""
    x = tensor_like(op, value, argument)
    return (ravel(x), 0) if axis is None else (x, one_axis(op, axis, x.ndim))


@implements(np.repeat)
def repeat(
    a: Kind | ArrayLike, repeats: Shape | SupportsArray, axis: SupportsIndex | None = None
) -> Kind:
    """Repeat each element along an axis, as `numpy.repeat`; gradients of the copies add up.

    >>> tg.repeat([1.0, 2.0], 2).data
    array([1., 1., 2., 2.])
    """
    x, along = _along("repeat", a, "a", axis)
    length = x.shape[along]
    times = int_tuple("repeat", "repeats", repeats)
    if min(times, default=0) < 0 or len(times) not in (1, length):
        received = f"repeats {times}"
        raise ValueError(message("repeat", received, f"a number of 0 or more, or {length} of them"))
    if len(times) != 1:
        return gather(x, np.repeat(np.arange(length), times), along)
    before, after = x.shape[: along + 1], x.shape[along + 1 :]
    copies = broadcast_to(reshape(x, (*before, 1, *after)), (*before, times[0], *after))
    return reshape(copies, (*before[:-1], length * times[0], *after))


# Splitting


def unstack(x: Kind | ArrayLike, /, *, axis: SupportsIndex = 0) -> tuple[Kind, ...]:
    """Take an array apart along an axis, as `numpy.unstack`.

    >>> [part.item() for part in tg.unstack([1.0, 2.0])]
    [1.0, 2.0]
    """
    parts: DuckArray = moveaxis(x, axis, 0)
    return tuple(parts)


if hasattr(np, "unstack"):  # new in NumPy 2.1
    implements(np.unstack)(unstack)


@implements(np.array_split)
def array_split(
    ary: Kind | ArrayLike, indices_or_sections: Shape, axis: SupportsIndex = 0
) -> list[Kind]:
    """Cut an array into parts along an axis, equal ones or nearly, as `numpy.array_split`.

    >>> [part.shape for part in tg.array_split([1.0, 2.0, 3.0], 2)]
    [(2,), (1,)]
    """
    return _cut("array_split", ary, indices_or_sections, axis, even=False)


@implements(np.split)
def split(ary: Kind | ArrayLike, indices_or_sections: Shape, axis: SupportsIndex = 0) -> list[Kind]:
    """Cut an array into parts along an axis, as `numpy.split`.

    >>> [part.data for part in tg.split([1.0, 2.0, 3.0], [1])]
    [array([1.]), array([2., 3.])]
    """
    return _cut("split", ary, indices_or_sections, axis, even=True)


@implements(np.hsplit)
def hsplit(ary: Kind | ArrayLike, indices_or_sections: Shape) -> list[Kind]:
    """Cut an array into parts of columns, as `numpy.hsplit`.

    >>> [part.shape for part in tg.hsplit([[1.0, 2.0]], 2)]
    [(1, 1), (1, 1)]
    """
    x = _with_axes("hsplit", ary, 1)
    return _cut("hsplit", x, indices_or_sections, 1 if x.ndim > 1 else 0, even=True)


@implements(np.vsplit)
def vsplit(ary: Kind | ArrayLike, indices_or_sections: Shape) -> list[Kind]:
    """Cut an array into parts of rows, as `numpy.vsplit`.

    >>> [part.shape for part in tg.vsplit([[1.0], [2.0]], 2)]
    [(1, 1), (1, 1)]
    """
    return _cut("vsplit", _with_axes("vsplit", ary, 2), indices_or_sections, 0, even=True)


@implements(np.dsplit)
def dsplit(ary: Kind | ArrayLike, indices_or_sections: Shape) -> list[Kind]:
    """Cut an array into parts along the third axis, as `numpy.dsplit`.

    >>> [part.shape for part in tg.dsplit([[[1.0, 2.0]]], 2)]
    [(1, 1, 1), (1, 1, 1)]
    """
    return _cut("dsplit", _with_axes("dsplit", ary, 3), indices_or_sections, 2, even=True)


def _with_axes(name: str, ary: object, least: int, argument: str = "ary") -> DuckArray:
    x = tensor_like(name, ary, argument)
    if x.ndim < least:
        raise ValueError(message(name, f"shape {x.shape}", f"at least {least} axes"))
    return x


def _cut(
    name: str, ary: object, indices_or_sections: Any, axis: SupportsIndex, *, even: bool
) -> list[DuckArray]:
    x = tensor_like(name, ary, "ary")
    along = one_axis(name, axis, x.ndim)
    length = x.shape[along]
    numbers = int_tuple(name, "indices_or_sections", indices_or_sections)
    if np.ndim(indices_or_sections) == 0:
        (sections,) = numbers
        if sections < 1 or (even and length % sections):
            received = f"{sections} parts of axis {along} of length {length}"
            fix = "tg.array_split cuts into unequal parts." if even else ""
            expected = "a positive number of equal parts" if even else "at least one part"
            raise ValueError(message(name, received, expected, fix))
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
def pad(
    array: Kind | ArrayLike,
    pad_width: Shape | Sequence[Sequence[SupportsIndex]] | Mapping[int, Shape],
    mode: Literal["constant", "edge", "reflect", "symmetric", "wrap"] = "constant",
    *,
    constant_values: ArrayLike = 0,
    reflect_type: Literal["even"] = "even",
) -> Kind:
    """Put a border around an array, as `numpy.pad`; gradients of repeated elements add up.

    ``mode`` is "constant", of numbers without a gradient, "edge", "reflect", "symmetric" or "wrap".

    >>> tg.pad([1.0, 2.0], 1).data
    array([0., 1., 2., 0.])
    """
    x = tensor_like("pad", array, "array")
    if isinstance(pad_width, dict):
        by_axis = {one_axis("pad", a, x.ndim): width for a, width in pad_width.items()}
        pad_width = [np.broadcast_to(by_axis.get(a, 0), 2) for a in range(x.ndim)]
    widths = _pairs("pad_width", pad_width, x.ndim)
    if widths.size and widths.dtype.kind not in "iu":
        raise TypeError(message("pad", f"pad_width {pad_width}", "integers"))
    if widths.size and widths.min() < 0:
        raise ValueError(message("pad", f"pad_width {pad_width}", "widths of 0 or more"))
    if mode == "constant":
        fills = _pairs("constant_values", constant_values, x.ndim)
        return _framed(x, widths, fills)
    if mode not in _CONTINUED or reflect_type != "even":
        expected = f"'constant' or one of {_CONTINUED}, with reflect_type 'even'"
        raise ValueError(message("pad", f"mode {mode!r}, reflect_type {reflect_type!r}", expected))
    for axis, width in enumerate(widths.tolist()):
        if width == [0, 0]:
            continue
        if not x.shape[axis]:
            expected = f"no border along the empty axis {axis} in mode {mode!r}"
            raise ValueError(message("pad", f"pad_width {pad_width}", expected))
        places = np.pad(np.arange(x.shape[axis]), width, mode=mode)
        x = gather(x, places, axis)
    return x


def _pairs(argument: str, value: DuckArray, ndim: int) -> Array:
    try:
        return np.broadcast_to(np.asarray(value), (ndim, 2))
    except ValueError:
        received = f"{argument} {value} for {ndim} axes"
        expected = "a number, (before, after), or one such pair an axis"
        raise ValueError(message("pad", received, expected)) from None


def _framed(x: DuckArray, widths: Array, fills: Array) -> DuckArray:
    """Put constants around an array; those of a later axis fill the corners."""
    for axis, width in enumerate(widths.tolist()):
        if width == [0, 0]:
            continue
        before, after = (
            [watched("pad", np.full, (*x.shape[:axis], count, *x.shape[axis + 1 :]), fill, x.dtype)]
            if count
            else []
            for count, fill in zip(width, fills[axis], strict=True)
        )
        x = concat([*before, x, *after], axis)
    return x


# Turning


@implements(np.roll)
def roll(a: Kind | ArrayLike, shift: Shape, axis: Axes = None) -> Kind:
    """Move elements along an axis and around its end, as `numpy.roll`.

    >>> tg.roll([1.0, 2.0, 3.0], 1).data
    array([3., 1., 2.])
    """
    x = tensor_like("roll", a, "a")
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    shifts = int_tuple("roll", "shift", shift)
    axes = ordered_axes("roll", "axis", axis, x.ndim)
    if len(shifts) != len(axes) and 1 not in (len(shifts), len(axes)):
        received = f"shift {shift} along axis {axis}"
        raise ValueError(message("roll", received, "as many shifts as axes"))
    moves: dict[int, int] = {}
    pairs = (v.tolist() for v in np.broadcast_arrays(shifts, axes))
    for distance, along in zip(*pairs, strict=True):
        moves[along] = (moves.get(along, 0) + distance) % max(1, x.shape[along])
    moves = {along: distance for along, distance in moves.items() if distance}
    if not moves:
        return x
    return apply(ROLL, (x,), {"shift": tuple(moves.values()), "axis": tuple(moves)})


@implements(np.flip)
def flip(m: Kind | ArrayLike, axis: Axes = None) -> Kind:
    """Reverse the elements along axes, as `numpy.flip`.

    >>> tg.flip([1.0, 2.0, 3.0]).data
    array([3., 2., 1.])
    """
    x = tensor_like("flip", m, "m")
    turned = some_axes("flip", axis, x.ndim)
    return getitem(x, tuple(slice(None, None, -1 if a in turned else 1) for a in range(x.ndim)))


@implements(np.fliplr)
def fliplr(m: Kind | ArrayLike) -> Kind:
    """Reverse the order of the columns, as `numpy.fliplr`.

    >>> tg.fliplr([[1.0, 2.0]]).data
    array([[2., 1.]])
    """
    return flip(_with_axes("fliplr", m, 2, "m"), 1)


@implements(np.flipud)
def flipud(m: Kind | ArrayLike) -> Kind:
    """Reverse the order of the rows, as `numpy.flipud`.

    >>> tg.flipud([1.0, 2.0]).data
    array([2., 1.])
    """
    return flip(_with_axes("flipud", m, 1, "m"), 0)


@implements(np.rot90)
def rot90(m: Kind | ArrayLike, k: int = 1, axes: Sequence[SupportsIndex] = (0, 1)) -> Kind:
    """Turn an array by quarters in the plane of two axes, as `numpy.rot90`.

    >>> tg.rot90([[1.0, 2.0]]).data.tolist()
    [[2.0], [1.0]]
    """
    x = tensor_like("rot90", m, "m")
    plane = ordered_axes("rot90", "axes", axes, x.ndim)
    if len(plane) != 2 or plane[0] == plane[1]:
        raise ValueError(message("rot90", f"axes {axes}", "two different axes"))
    quarters = one_integer("rot90", "k", k) % 4
    if quarters == 0:
        return x
    if quarters == 2:
        return flip(x, plane)
    if quarters == 1:
        return swapaxes(flip(x, plane[1]), *plane)
    return flip(swapaxes(x, *plane), plane[1])


# Taking out and putting in


@implements(np.delete)
def delete(arr: Kind | ArrayLike, obj: AxisIndex, axis: SupportsIndex | None = None) -> Kind:
    """Leave out parts of an array, as `numpy.delete`; no gradient flows to them.

    >>> tg.delete([1.0, 2.0, 3.0], 1).data
    array([1., 3.])
    """
    x, along = _along("delete", arr, "arr", axis)
    try:
        kept = np.delete(np.arange(x.shape[along]), detached(obj))
    except (IndexError, ValueError) as error:
        received = f"indices {obj} of axis {along} of length {x.shape[along]}"
        raise type(error)(message("delete", received, "indices of the axis")) from error
    return gather(x, kept, along)


@implements(np.insert)
def insert(
    arr: Kind | ArrayLike,
    obj: AxisIndex,
    values: Kind | ArrayLike,
    axis: SupportsIndex | None = None,
) -> Kind:
    """Put values between the elements of an array, as `numpy.insert`; gradients flow to both.

    >>> tg.insert([1.0, 3.0], 1, 2.0).data
    array([1., 2., 3.])
    """
    x, along = _along("insert", arr, "arr", axis)
    new = tensor_like("insert", values, "values")
    length, places = x.shape[along], detached(obj)
    new = at_least("insert", new, x.ndim)
    if new.dtype != x.dtype:
        new = astype(new, x.dtype)
    if np.ndim(places) == 0 and not isinstance(places, slice):
        # NumPy takes the first axis of the values as the one that goes in at a single place.
        new = moveaxis(new, 0, along)
    try:
        count = len(np.insert(np.arange(length), places, 0)) - length
        if count == 1:
            count = new.shape[along]
        order = np.insert(np.arange(length), places, length + np.arange(count))
    except (IndexError, ValueError) as error:
        received = f"indices {obj} of axis {along} of length {length}"
        raise type(error)(message("insert", received, "indices of the axis")) from error
    room = (*x.shape[:along], count, *x.shape[along + 1 :])
    extra = new.ndim - x.ndim
    if extra and set(new.shape[:extra]) == {1}:  # an assignment drops them
        new = reshape(new, new.shape[extra:])
    return gather(concat([x, broadcast_to(new, room)], along), order, along)


def slice_key(begin: Array, size: tuple[int, ...]) -> tuple[slice, ...]:
    return tuple(slice(b, b + n) for b, n in zip(begin.tolist(), size, strict=True))


def basic_key(begin: Array, plan: tuple[DuckArray, ...]) -> tuple[DuckArray, ...]:
    """Rebuild a basic index from items' offsets and plan: None, ``"int"``, or (length, step)."""
    key: list[DuckArray] = []
    for part, start in zip(plan, begin.tolist()):  # noqa: B905 - strict= takes half a call
        if part is None:
            key.append(None)
        elif part == "int":
            key.append(start)
        else:
            length, step = part
            stop = start + length * step
            key.append(slice(start, stop if stop >= 0 else None, step))
    return tuple(key)


def _tensor_slice(x: Array, begin: Array, *, size: tuple[int, ...]) -> DuckArray:
    return x[slice_key(begin, size)]


def _gather(x: Array, indices: Array, *, axis: int) -> DuckArray:
    return x.take(indices, axis=axis)


def _getitem(x: Array, begin: Array, end: Array, *, plan: tuple[DuckArray, ...]) -> DuckArray:
    return x[basic_key(begin, plan)]


def _index(x: Array, *arrays: Array, plan: tuple[DuckArray, ...]) -> DuckArray:
    return x[advanced_key(arrays, plan)]


def _scatter(x: Array, places: Array, *, shape: tuple[int, ...]) -> DuckArray:
    out = np.zeros(math.prod(shape), x.dtype)
    np.add.at(out, places.ravel(), x.ravel())
    return out.reshape(shape)


def advanced_key(arrays: tuple[Array, ...], plan: tuple[DuckArray, ...]) -> tuple[DuckArray, ...]:
    """Rebuild an advanced index: each ``"array"`` of the plan is the next index array."""
    left = iter(arrays)
    return tuple(next(left) if part == "array" else slice(None) for part in plan)


# Offsets, indices and conditions are fed as arrays: new ones do not change the graph.
TENSOR_SLICE = Op(
    "tensor_slice", _tensor_slice, kind=OpKind.INDEX, differentiable=(True,), takes_complex=True
)


GATHER = Op("gather", _gather, kind=OpKind.INDEX, differentiable=(True,), takes_complex=True)


GETITEM = Op("getitem", _getitem, kind=OpKind.INDEX, differentiable=(True,), takes_complex=True)


def rolled(x: DuckArray, *, shift: tuple[int, ...], axis: tuple[int, ...]) -> DuckArray:
    """Move elements along different axes, each by less than its length, in either direction."""
    for distance, along in zip(shift, axis, strict=True):
        before = (slice(None),) * along
        end, start = (*before, slice(-distance, None)), (*before, slice(-distance))
        x = np.concatenate((x[end], x[start]), axis=along)  # a plan makes it in its own memory
    return x


ROLL = Op("roll", rolled, kind=OpKind.ALONG, takes_complex=True)


INDEX = Op("index", _index, kind=OpKind.INDEX, differentiable=(True,), takes_complex=True)


SCATTER = Op("scatter", _scatter, kind=OpKind.INDEX, differentiable=(True,), takes_complex=True)


def scatter(x: Kind | ArrayLike, places: DuckArray, shape: tuple[int, ...]) -> Kind:
    """Add each element to its place in an array of zeros: the transpose of taking elements.

    Places, int64 of ``x``'s shape, count through the flattened result; repeated ones add up.

    >>> scatter([1.0, 2.0, 3.0], [0, 3, 3], (2, 2)).data.tolist()
    [[1.0, 0.0], [0.0, 5.0]]
    """
    if not hasattr(places, "requires_grad"):  # of no program, and not of many examples
        places = as_leaf(np.asarray(places, np.int64))
    return apply(SCATTER, (tensor_like("scatter", x), places), {"shape": shape})


def add_at(a: Kind | ArrayLike, indices: Index, b: Kind | ArrayLike) -> Kind:
    """Return an array with numbers added at some places: the result of `numpy.add.at`.

    :param a: Any shape; it is not changed.
    :param indices: An index as for ``a[indices]``; repeated indices add up.
    :param b: Broadcasts to the shape of ``a[indices]``; a gradient flows to it too.
    :returns: Tensor of ``a``'s shape and dtype.
    :raises IndexError: An index is out of range.
    :raises TypeError: ``a``'s dtype would drop a part of ``b``, as integers would of floats.
    :raises ValueError: ``b`` does not broadcast to the places.

    >>> tg.add_at([1.0, 2.0, 3.0], [0, 2, 2], [10.0, 20.0, 30.0]).data
    array([11.,  2., 53.])
    """
    x, more = tensor_like("add_at", a, "a"), tensor_like("add_at", b, "b")
    if not np.can_cast(more.dtype, x.dtype, "same_kind"):
        fix = f"Convert a first: a.astype({more.dtype.name!r})."
        raise TypeError(message("add_at", f"dtype {more.dtype} for 'b'", f"{x.dtype}", fix))
    try:
        places = getitem(np.arange(x.size).reshape(x.shape), indices)
        parts = broadcast_to(astype(more, x.dtype), places.shape)
    except (IndexError, ValueError) as error:
        raise type(error)(f"add_at: {str(error).partition(': ')[2]}") from None
    return add(x, scatter(parts, places, x.shape))


def tensor_slice(
    x: Kind | ArrayLike, begin: Sequence[SupportsIndex], size: Sequence[SupportsIndex]
) -> Kind:
    """Take the block of ``size`` elements that starts at ``begin``.

    :param x: Any shape.
    :param begin, size: First indices, not negative, and lengths, one an axis; -1 is up to the end.
    :returns: Tensor of shape ``size``.
    :raises IndexError: The block reaches outside ``x``.
    :raises ValueError: ``begin`` or ``size`` has not one number per axis.

    >>> tg.tensor_slice([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], (0, 1), (2, -1)).data.tolist()
    [[2.0, 3.0], [5.0, 6.0]]
    """
    name = "tensor_slice"
    array = tensor_like(name, x)
    first, lengths = int_tuple(name, "begin", begin), int_tuple(name, "size", size)
    if len(first) != array.ndim or len(lengths) != array.ndim:
        received = f"begin {first} and size {lengths} for shape {array.shape}"
        raise ValueError(message(name, received, f"{array.ndim} numbers each, one per axis"))
    full = []
    for b, n, length in zip(first, lengths, array.shape, strict=True):
        n = length - b if n == -1 else n
        if b < 0 or n < 0 or b + n > length:
            received = f"begin {first} and size {lengths} for shape {array.shape}"
            expected = "0 <= begin and begin + size <= shape along every axis"
            raise IndexError(message(name, received, expected))
        full.append(n)
    start = as_leaf(np.array(first, dtype=np.int64))
    return apply(TENSOR_SLICE, (array, start), {"size": tuple(full)})


def gather(x: Kind | ArrayLike, indices: ArrayLike, axis: SupportsIndex = 0) -> Kind:
    """Take elements along an axis by index, as an embedding lookup does.

    :param x: At least one axis.
    :param indices: Any shape; negative ones count from the end, gradients of repeated ones add up.
    :param axis: The axis to take along.
    :returns: Tensor of shape ``x.shape[:axis] + indices.shape + x.shape[axis + 1:]``.
    :raises IndexError: An index is out of range; the message names it and the bound.
    :raises TypeError: The indices are not integers.
    :raises ValueError: ``x`` is 0-d or the axis is out of range.

    >>> tg.gather([[1.0, 2.0], [3.0, 4.0]], [1, -1]).data.tolist()
    [[3.0, 4.0], [3.0, 4.0]]
    """
    array = tensor_like("gather", x)
    along = one_axis("gather", axis, array.ndim)
    given = indices if recorder().records(indices) else numeric(indices, "gather", "indices")
    wrapped = _wrapped("gather", given, along, array.shape[along])
    return apply(GATHER, (array, wrapped), {"axis": along})


def getitem(x: Kind | ArrayLike, key: Index) -> Kind:
    """Index as ``x[key]`` does, in any way; gradients of repeated elements add up.

    >>> tg.param([[1.0, 2.0], [3.0, 4.0]])[:, 1].data
    array([2., 4.])
    """
    array: Any = x if type(x) is nodes.tensor_class else tensor_like("getitem", x)
    places, shape = key if isinstance(key, tuple) else (key,), array.shape
    if _PLACES.issuperset(map(type, places)) and len(places) <= len(shape):
        return _basic(array, shape, [*places, *[slice(None)] * (len(shape) - len(places))])
    parts = _expanded(places, shape)
    if all(map(_is_basic, parts)):
        return _basic(array, shape, parts)
    return _advanced(array, parts)


_PLACES = frozenset((int, slice))


def _is_basic(part: DuckArray) -> bool:
    return part is None or isinstance(part, (int, slice))


def _is_mask(part: DuckArray) -> bool:
    return getattr(part, "dtype", None) == np.bool_


def _expanded(key: tuple[DuckArray, ...], shape: tuple[int, ...]) -> list[DuckArray]:
    """Return an index with an item an axis, and new axes, masks of no axis, a ``...`` of none."""
    parts = list(map(_item, key))
    used = sum(
        part.ndim if _is_mask(part) else part is not None and part is not Ellipsis for part in parts
    )
    dots = [i for i, p in enumerate(parts) if p is Ellipsis]
    if used > len(shape) or len(dots) > 1:
        received = f"an index of {used} axes and {len(dots)} '...' for shape {shape}"
        raise IndexError(message("getitem", received, f"at most {len(shape)} axes and one '...'"))
    rest = [slice(None)] * (len(shape) - used)
    at = dots[0] if dots else len(parts)
    before, after = parts[:at], parts[at + 1 :]
    # Whether arrays, or integers next to one, stand on both sides of a ``...``.
    sides = (any(p is not None and not isinstance(p, slice) for p in s) for s in (before, after))
    if rest or not all(sides) or all(map(_is_basic, before + after)):
        parts = [*before, *rest, *after]
    found: list[DuckArray] = []
    axis = 0
    for part in parts:
        if not _is_mask(part):
            found.append(part)
            axis += part is not None and part is not Ellipsis
        elif not part.ndim:
            found.append(part)
        else:
            along = shape[axis : axis + part.ndim]
            if part.shape != along:
                received = f"a boolean index of shape {part.shape} at axis {axis} of shape {shape}"
                raise IndexError(message("getitem", received, f"shape {along}"))
            found += np.nonzero(part)
            axis += part.ndim
    return found


def _item(part: DuckArray) -> DuckArray:
    """Return an item of an index as a slice, an int, None, ``...``, or an array."""
    if isinstance(part, Node) or hasattr(part, "primal") or recorder().records(part):
        # The places of a mask decide the shape.
        part = detached(part) if _is_mask(part) else numbers(part)
    elif hasattr(part, "__array__") and not isinstance(part, np.generic):
        part = np.asarray(part)  # of pandas, for one
    if part is None or part is Ellipsis or isinstance(part, slice):
        return part
    if isinstance(part, (bool, np.bool_)):
        return np.array(part)
    if isinstance(part, (list, tuple)):
        try:
            array = np.asarray(part)
        except ValueError as error:
            received = f"the ragged index {part!r}"
            raise ValueError(message("getitem", received, "rows of the same length")) from error
        return array if array.size else array.astype(np.intp)
    if hasattr(part, "requires_grad"):  # of a program, or of many examples
        return part
    if isinstance(part, np.ndarray) and part.ndim + _is_mask(part) > 0:
        return part
    try:
        return operator.index(part)
    except TypeError:
        expected = "integers, slices, '...', None, or integer or boolean arrays"
        fix = as_index() if isinstance(part, np.ndarray) else ""
        raise IndexError(message("getitem", kind_of(part), expected, fix)) from None


def _basic(x: DuckArray, shape: tuple[int, ...], parts: list[DuckArray]) -> DuckArray:
    begin: list[int] = []
    end: list[int] = []
    plan: list[DuckArray] = []
    axis = 0
    for part in parts:
        if part is None:
            begin.append(0)
            end.append(1)
            plan.append(None)
            continue
        length = shape[axis]
        if isinstance(part, slice):
            try:
                start, stop, step = part.indices(length)
            except ConcretizationError:
                raise
            except (TypeError, ValueError) as error:
                expected = "a slice of integers with a step other than 0"
                raise IndexError(message("getitem", repr(part), expected)) from error
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
    starts, ends = map(as_leaf, np.array((begin, end), np.int64))
    return apply(GETITEM, (x, starts, ends), {"plan": tuple(plan)})


def _advanced(x: DuckArray, parts: list[DuckArray]) -> DuckArray:
    """Record integer arrays as one ``index``, and the rest of the key around it."""
    if any(p is Ellipsis for p in parts):  # for no axis: a new one there, which is dropped again
        place = next(i for i, p in enumerate(parts) if p is Ellipsis)
        after = parts[place + 1 :]
        taken = _advanced(x, [*parts[:place], None, *after])
        behind = sum(p is None or isinstance(p, slice) for p in after)
        dropped = [0 if a == taken.ndim - 1 - behind else slice(None) for a in range(taken.ndim)]
        return _basic(taken, taken.shape, dropped)
    if any(p is None or _is_mask(p) or isinstance(p, slice) and p != slice(None) for p in parts):
        # Slices and new axes first. To the arrays they are whole slices then, so that whether array
        # axes stand together, which decides their place, does not change. True and False are new
        # axes of length 1 and 0.
        first = [
            p if isinstance(p, slice) else None if p is None or _is_mask(p) else slice(None)
            for p in parts
        ]
        then = [
            slice(None)
            if p is None or isinstance(p, slice)
            else np.zeros(int(p), dtype=np.int64)
            if _is_mask(p)
            else p
            for p in parts
        ]
        return _advanced(_basic(x, x.shape, first), then)
    plan = tuple("slice" if isinstance(part, slice) else "array" for part in parts)
    arrays = [
        _wrapped("getitem", part, axis, x.shape[axis])
        for axis, part in enumerate(parts)
        if not isinstance(part, slice)
    ]
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
    except ValueError:
        received = f"index arrays of shapes {[a.shape for a in arrays]}"
        raise IndexError(message("getitem", received, "shapes that broadcast together")) from None
    return apply(INDEX, (x, *arrays), {"plan": plan})


def _wrapped(op: str, indices: DuckArray, axis: int, length: int) -> DuckArray:
    """Return integer indices as non-negative int64; raise for the first out of range."""
    array = array_of(indices)
    if array.size == 0:
        return as_leaf(np.zeros(array.shape, dtype=np.int64))
    if array.dtype.kind not in "iu":
        error = IndexError if op == "getitem" else TypeError
        received = f"indices {kind_of(indices)}"
        raise error(message(op, received, "integer indices", as_index()))
    if isinstance(array, np.ndarray):
        wrapped = array.astype(np.int64)
        if wrapped.view(np.uint64).max() < length:  # a negative number is a very large one
            return as_leaf(wrapped)
    found = within(array, -length, length, _outside(op, axis))
    return as_leaf(found) if isinstance(found, np.ndarray) else found


def _out_of_range(op: str, index: int, axis: int, length: int) -> IndexError:
    said = _outside(op, axis).format(index, low=-length, high=length)
    return IndexError(f"{said} (at {user_line()})")


def _outside(op: str, axis: int) -> str:
    received = f"index {{}} for axis {axis} of length {{high}}"
    return f"{op}: received {received}; expected an index in [{{low}}, {{high}})."


# By place


@implements(np.take)
def take(a: Kind | ArrayLike, indices: ArrayLike, axis: SupportsIndex | None = None) -> Kind:
    """Take by index, as `numpy.take`, none out of range; gradients of repeated elements add up.

    >>> tg.take([[1.0, 2.0], [3.0, 4.0]], [0, -1]).data
    array([1., 4.])
    """
    x, along = _along("take", a, "a", axis)
    return gather(x, integers_of("take", "indices", indices), along)


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x: Kind | ArrayLike, window_shape: Shape, axis: Axes = None) -> Kind:
    """Copy all windows over axes, as `numpy.lib.stride_tricks.sliding_window_view` views them.

    Gradients of windows that overlap add up.

    >>> tg.sliding_window_view([1.0, 2.0, 3.0, 4.0], 2).data.tolist()
    [[1.0, 2.0], [2.0, 3.0], [3.0, 4.0]]
    """
    name = "sliding_window_view"
    array = out = tensor_like(name, x)
    lengths = int_tuple(name, "window_shape", window_shape)
    axes = range(out.ndim) if axis is None else ordered_axes(name, "axis", axis, out.ndim)
    if len(lengths) != len(axes):
        received = f"window_shape {lengths} for {len(axes)} axes"
        raise ValueError(message(name, received, "a length for each axis"))
    for length, along in zip(lengths, axes, strict=True):
        count = out.shape[along] - length + 1
        if length < 0 or count < 1:
            received = f"window_shape {lengths} for shape {array.shape}"
            raise ValueError(message(name, received, "windows that are no longer than their axes"))
        places = np.arange(count)[:, None] + np.arange(length)
        out = moveaxis(gather(out, places, along), along + 1, -1)
    return out


@implements(np.take_along_axis)
def take_along_axis(
    arr: Kind | ArrayLike, indices: ArrayLike, axis: SupportsIndex | None = -1
) -> Kind:
    """Take along an axis, as `numpy.take_along_axis`; gradients of repeated elements add up.

    >>> tg.take_along_axis([[1.0, 2.0], [3.0, 4.0]], [[1], [0]], axis=1).data.tolist()
    [[2.0], [3.0]]
    """
    x, along = _along("take_along_axis", arr, "arr", axis)
    places = array_of(indices)
    if places.ndim != x.ndim:
        received = f"indices of shape {places.shape} for shape {x.shape}"
        raise ValueError(message("take_along_axis", received, f"{x.ndim} axes"))
    grid: list[DuckArray] = list(np.ogrid[tuple(slice(n) for n in x.shape)])
    grid[along] = places
    return getitem(x, tuple(grid))


@implements(np.compress)
def compress(condition: ArrayLike, a: Kind | ArrayLike, axis: SupportsIndex | None = None) -> Kind:
    """Take the parts along an axis for which a condition holds, as `numpy.compress`.

    >>> tg.compress([True, False, True], [1.0, 2.0, 3.0]).data
    array([1., 3.])
    """
    mask = np.asarray(detached(condition))
    if mask.ndim != 1:
        raise ValueError(message("compress", f"a condition of shape {mask.shape}", "one axis"))
    return take(tensor_like("compress", a, "a"), np.flatnonzero(mask), axis)


@implements(np.extract)
def extract(condition: ArrayLike, arr: Kind | ArrayLike) -> Kind:
    """Take the elements for which a condition holds, in one axis, as `numpy.extract`.

    >>> tg.extract([True, False, True], [1.0, 2.0, 3.0]).data
    array([1., 3.])
    """
    places = np.flatnonzero(np.asarray(detached(condition)))
    return take(tensor_like("extract", arr, "arr"), places)


@implements(np.choose)
def choose(
    a: Operand,
    choices: Sequence[Kind | ArrayLike] | SupportsArray,
    *,
    mode: Literal["raise", "wrap", "clip"] = "raise",
) -> Kind:
    """Choose from several arrays by number, as `numpy.choose`; gradients flow to what is chosen.

    >>> tg.choose([1, 0], [[1.0, 2.0], [3.0, 4.0]]).data
    array([3., 2.])
    """
    options = of_one_dtype("choose", sequence_of("choose", choices), "choices")
    chosen = integers_of("choose", "a", a)
    check_one_of("choose", "mode", mode, "raise", "wrap", "clip")
    if mode == "wrap":
        chosen = np.mod(chosen, len(options))
    elif mode == "clip":
        chosen = np.minimum(np.maximum(chosen, 0), len(options) - 1)
    number = in_range("choose", "choice", chosen, len(options), ValueError)
    spread = broadcast_arrays(number, *options)
    grid = np.ogrid[tuple(slice(n) for n in spread[0].shape)]
    return getitem(stack(spread[1:]), (numbers(spread[0]), *grid))


@implements(np.select)
def select(
    condlist: Sequence[Operand],
    choicelist: Sequence[Kind | ArrayLike],
    default: Kind | ArrayLike = 0,
) -> Kind:
    """Choose by the first condition that holds, as `numpy.select`; the others get no gradient.

    >>> x = tg.param([1.0, 2.0, 3.0])
    >>> tg.select([x < 2, x < 3], [x, 10 * x], -1.0).data
    array([ 1., 20., -1.])
    """
    conditions = [array_of(c) for c in condlist]
    choices: list[DuckArray] = list(choicelist)
    if not conditions or len(conditions) != len(choices):
        received = f"{len(conditions)} conditions and {len(choices)} choices"
        raise ValueError(message("select", received, "one choice per condition, and at least one"))
    for i, condition in enumerate(conditions):
        if condition.dtype != np.bool_:
            fix = "Compare it, as in x > 0."
            received = f"{kind_of(condition)} for 'condlist[{i}]'"
            raise TypeError(message("select", received, "an array of bools", fix))
    *choices, chosen = of_one_dtype("select", [*choices, default], "choicelist")
    for condition, choice in zip(reversed(conditions), reversed(choices), strict=True):
        chosen = where(condition, choice, chosen)
    return chosen


def integers_of(name: str, argument: str, value: DuckArray) -> DuckArray:
    array = array_of(value)
    if array.dtype.kind not in "iu":
        if array.size:
            received = f"{kind_of(array)} for {argument!r}"
            raise TypeError(message(name, received, "integers", as_index()))
        array = array.astype(np.int64)
    return array


# By size


@implements(np.sort)
def sort(
    a: Kind | ArrayLike,
    axis: SupportsIndex | None = -1,
    kind: str | None = None,
    *,
    stable: bool | None = None,
) -> Kind:
    """Sort along an axis, as `numpy.sort`, always stably; a gradient goes where its element was.

    >>> tg.sort([3.0, 1.0, 2.0]).data
    array([1., 2., 3.])
    """
    x, along = _along("sort", a, "a", axis)
    return take_along_axis(x, np.argsort(numbers(x), axis=along, kind="stable"), along)


@implements(np.partition)
def partition(a: Kind | ArrayLike, kth: Shape, axis: SupportsIndex | None = -1) -> Kind:
    """Sort in part, as `numpy.partition`; a gradient goes where its element was.

    >>> tg.partition([3.0, 1.0, 2.0], 0)[0].item()
    1.0
    """
    x, along = _along("partition", a, "a", axis)
    length = x.shape[along]
    places = int_tuple("partition", "kth", kth)
    if any(not -length <= k < length for k in places):
        received = f"kth {kth} for axis {along} of length {length}"
        raise ValueError(message("partition", received, f"indices in [{-length}, {length})"))
    return take_along_axis(x, np.argpartition(numbers(x), places, axis=along), along)


def topk(
    x: Kind | ArrayLike, k: int, axis: SupportsIndex = -1, largest: bool = True
) -> tuple[Kind, Array]:
    """Take the ``k`` largest elements along an axis in falling order, and their indices.

    The gradient of each goes to its place. NaN counts as the largest.

    :param x: Any shape but 0-d.
    :param k: The number of elements, at most the axis' length.
    :param axis: The axis to search along.
    :param largest: False for the smallest, in rising order.
    :returns: A Tensor of the elements and a plain array of their indices, ``k`` along the axis.
    :raises ValueError: ``k`` is negative or larger than the axis.

    >>> values, indices = tg.topk([3.0, 9.0, 1.0, 7.0], 2)
    >>> values.data, indices
    (array([9., 7.]), array([1, 3]))
    """
    name = "topk"
    count = one_integer(name, "k", k)
    array: DuckArray = tensor_like(name, x)
    along = one_axis(name, axis, array.ndim)
    length = array.shape[along]
    if not 0 <= count <= length:
        received = f"k={count} for axis {along} of length {length}"
        raise ValueError(message(name, received, f"k in [0, {length}]"))
    order = np.argsort(numbers(array), axis=along, kind="stable")
    # The last k from the back; a stop of -1 would mean the last element.
    last = slice(length - 1, length - 1 - count if count < length else None, -1)
    chosen = slice(0, count) if not largest else last
    indices = order[(slice(None),) * along + (chosen,)]
    return take_along_axis(array, indices, along), indices


# Diagonals and triangles


def diagonal_places(shape: tuple[int, ...], offset: int) -> tuple[Array, Array]:
    down, right = max(0, -offset), max(0, offset)
    places = np.arange(max(0, min(shape[0] - down, shape[1] - right)))
    return places + down, places + right


@implements(np.diag)
def diag(v: Kind | ArrayLike, k: int = 0) -> Kind:
    """Take a diagonal of a matrix, or make the matrix of a diagonal, as `numpy.diag`.

    >>> tg.diag([1.0, 2.0]).data.tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    x = tensor_like("diag", v, "v")
    offset = one_integer("diag", "k", k)
    if x.ndim == 2:
        return getitem(x, diagonal_places(x.shape, offset))
    if x.ndim != 1:
        raise ValueError(message("diag", f"shape {x.shape}", "a vector or a matrix"))
    more = max(offset, -offset)
    size = x.size + more
    # Each row or, above the main diagonal, each column holds its one element everywhere.
    filled = concat([x, np.zeros(more, x.dtype)]) if offset else x
    lines = reshape(filled, (size, 1) if offset >= 0 else (1, size))
    return where(np.eye(size, k=offset, dtype=np.bool_), lines, _zero_like(x))


@implements(np.diagflat)
def diagflat(v: Kind | ArrayLike, k: int = 0) -> Kind:
    """Make the matrix that has all elements of an array on a diagonal, as `numpy.diagflat`.

    >>> tg.diagflat([[1.0, 2.0]], 1).shape
    (3, 3)
    """
    return diag(ravel(tensor_like("diagflat", v, "v")), k)


@implements(np.tril)
def tril(m: Kind | ArrayLike, k: int = 0) -> Kind:
    """Keep the lower triangle of each matrix, as `numpy.tril`; no gradient flows to the rest.

    >>> tg.tril([[1.0, 2.0], [3.0, 4.0]]).data.tolist()
    [[1.0, 0.0], [3.0, 4.0]]
    """
    return _triangle("tril", m, k, lower=True)


@implements(np.triu)
def triu(m: Kind | ArrayLike, k: int = 0) -> Kind:
    """Keep the upper triangle of each matrix, as `numpy.triu`; no gradient flows to the rest.

    >>> tg.triu([[1.0, 2.0], [3.0, 4.0]]).data.tolist()
    [[1.0, 2.0], [0.0, 4.0]]
    """
    return _triangle("triu", m, k, lower=False)


def _triangle(name: str, m: DuckArray, k: int, *, lower: bool) -> DuckArray:
    m = tensor_like(name, m, "m")
    if m.ndim == 0:
        raise ValueError(message(name, "a 0-d array", "at least one axis"))
    offset = one_integer(name, "k", k)
    if m.ndim == 1:
        m = broadcast_to(m, (m.size, m.size))
    rows, columns = m.shape[-2:]
    below = np.tri(rows, columns, k=offset if lower else offset - 1, dtype=np.bool_)
    return where(below if lower else ~below, m, _zero_like(m))


def _zero_like(x: DuckArray) -> DuckArray:
    return as_leaf(np.zeros((), x.dtype))


# Without a gradient: plain arrays, and operations in a captured step


class Outside(IndexError):
    """An index is out of range; the text lacks the user's line."""


def _within(x: Array, *, low: int, high: int, said: str) -> DuckArray:
    outside = (x < low) | (x >= high)
    if outside.any():
        raise Outside(said.format(x[outside].flat[0], low=low, high=high))
    found = x.astype(np.int64)  # of eight bits ``x + high`` may overflow
    return np.where(found < 0, found + high, found)


def _argsort(x: Array, *, axis: int) -> DuckArray:
    return np.argsort(x, axis=axis, kind="stable")


WITHIN = Op("within", _within, kind=OpKind.ELEMENTWISE, differentiable=())
ARGSORT = Op("argsort", _argsort, kind=OpKind.ALONG, differentiable=(), takes_complex=True)
ARGPARTITION = Op("argpartition", np.argpartition, kind=OpKind.ALONG, differentiable=())
SEARCHSORTED = Op("searchsorted", np.searchsorted, kind=OpKind.COMPARISON, differentiable=())


def within(
    indices: DuckArray, low: int, high: int, said: str, error: type[Exception] = IndexError
) -> DuckArray:
    """Return indices in [low, high) as int64, negative ones from ``high``; else raise ``said``."""
    try:
        if not isinstance(indices, np.ndarray):  # of a program, or of many examples
            return apply(WITHIN, (indices,), {"low": low, "high": high, "said": said})
        found = indices.astype(np.int64)
        if not found.size or found.view(np.uint64).max() < high:  # as for `_wrapped`
            return found
        return _within(indices, low=low, high=high, said=said)
    except Outside as outside:
        raise error(f"{outside} (at {user_line()})") from None


def in_range(
    name: str, what: str, indices: DuckArray, count: int, error: type[Exception] = IndexError
) -> DuckArray:
    """Return integers below ``count`` as int64: an array, or in a captured step an entry."""
    said = f"{name}: received {what} {{}} of {{high}}; expected a {what} in [0, {{high}})."
    return within(indices, 0, count, said, error)


@without_gradient(np.argsort)
def _order(
    a: DuckArray, axis: SupportsIndex | None = -1, kind: object = None, stable: object = None
) -> DuckArray:
    x, along = _along("argsort", a, "a", axis)
    return apply(ARGSORT, (x,), {"axis": along})


@without_gradient(np.argpartition)
def _partial_order(
    a: DuckArray, kth: Shape, axis: SupportsIndex | None = -1, kind: object = None
) -> DuckArray:
    x, along = _along("argpartition", a, "a", axis)
    places = int_tuple("argpartition", "kth", kth)
    return apply(ARGPARTITION, (x,), {"kth": places, "axis": along})


@without_gradient(np.searchsorted)
def _places(
    a: DuckArray, v: DuckArray, side: Literal["left", "right"] = "left", sorter: Any = None
) -> DuckArray:
    if sorter is not None:
        a = take(a, sorter)
    pair = (tensor_like("searchsorted", a, "a"), tensor_like("searchsorted", v, "v"))
    return apply(SEARCHSORTED, pair, {"side": side})
