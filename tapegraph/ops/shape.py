"""Operations on shapes, and joins."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal, SupportsIndex, overload

import numpy as np

from tapegraph.arrays import as_it_lies, check_one_of, int_tuple, one_axis, ordered_axes, some_axes
from tapegraph.errors import CodePlace, kind_of, message
from tapegraph.kinds import Kind, Operand, Tensor
from tapegraph.recording import node as nodes
from tapegraph.recording.node import as_leaf, new, next_seq
from tapegraph.recording.numpy_functions import implements
from tapegraph.recording.op import Op, OpKind
from tapegraph.recording.record import apply, tensor_like
from tapegraph.recording.scopes import recorder
from tapegraph.typed import Array, ArrayLike, Axes, DuckArray, Fun, Nested, Shape, SupportsArray

__all__ = [
    "append", "atleast_1d", "atleast_2d", "atleast_3d", "block", "broadcast_arrays", "broadcast_to",
    "column_stack", "concat", "concatenate", "dstack", "expand_dims", "hstack", "matrix_transpose",
    "moveaxis", "permute_dims", "ravel", "reshape", "rollaxis", "squeeze", "stack", "swapaxes",
    "tile", "transpose", "vstack",
]  # fmt: skip


def _concat(*arrays: Array, axis: int) -> DuckArray:
    return np.concatenate(arrays, axis=axis)


TRANSPOSE = Op(
    "transpose", lambda x, *, axes: x.transpose(axes), kind=OpKind.SHAPE, takes_complex=True
)
RESHAPE = Op("reshape", lambda x, *, shape: x.reshape(shape), kind=OpKind.SHAPE, takes_complex=True)
BROADCAST_TO = Op("broadcast_to", np.broadcast_to, kind=OpKind.SHAPE, takes_complex=True)
CONCAT = Op("concat", _concat, kind=OpKind.SHAPE, takes_complex=True)


def alias(x: DuckArray, own: bool = False) -> DuckArray:
    """Return the same numbers as a new entry, to and through which a gradient flows.

    >>> alias(tg.tensor([1.0, 2.0])).requires_grad
    True
    """
    array = x._array
    if not own:  # a leaf's numbers may be changed later on
        array = array.view() if (x._entry or x)._inputs else as_it_lies(array)
    result = recorder().result(RESHAPE, array, (x,), {"shape": array.shape})
    (result._entry or result)._array = array  # that leaf may have others when they are read
    return result


def argument(array: Array, at: CodePlace) -> Tensor:
    """Return `alias` of an array that nobody else holds, in less time; not in captures or vmap."""
    entry: DuckArray = new(nodes.tensor_class)
    entry._array = array
    entry._entry = None
    entry._op = RESHAPE
    entry._inputs = (as_leaf(array),)
    entry._attrs = {"shape": array.shape}
    entry._seq = next_seq()
    entry._changed = 0
    entry._requires_grad = True
    entry._retains = False
    entry._saved = None
    entry._code, entry._lasti = at
    return entry


@implements(np.transpose)
def transpose(a: Kind | ArrayLike, axes: Sequence[SupportsIndex] | None = None) -> Kind:
    """Permute the axes, as `numpy.transpose`; reverse them where no order is given.

    >>> tg.transpose([[1.0, 2.0]]).shape
    (2, 1)
    """
    x = tensor_like("transpose", a, "a")
    if axes is None:
        order = tuple(reversed(range(x.ndim)))
    else:
        order = ordered_axes("transpose", "axes", axes, x.ndim)
        if sorted(order) != list(range(x.ndim)):
            received = f"axes {axes} for shape {x.shape}"
            raise ValueError(message("transpose", received, f"a permutation of all {x.ndim} axes"))
    return apply(TRANSPOSE, (x,), {"axes": order})


def permuted(x: DuckArray, order: tuple[int, ...]) -> DuckArray:
    return x if order == tuple(range(x.ndim)) else transpose(x, order)


@implements(np.reshape)
def reshape(a: Kind | ArrayLike, shape: Shape, order: Literal["C", "F"] = "C") -> Kind:
    """Give an array another shape, as `numpy.reshape`, by rows ("C") or columns ("F").

    >>> tg.reshape([1.0, 2.0, 3.0, 4.0], (2, -1)).shape
    (2, 2)
    """
    x = tensor_like("reshape", a, "a")
    new = int_tuple("reshape", "shape", shape)
    size = math.prod(x.shape)
    unknown = [i for i, n in enumerate(new) if n == -1]
    known = math.prod(n for n in new if n != -1)
    if len(unknown) == 1 and known > 0 and size % known == 0:
        (i,) = unknown
        new = (*new[:i], size // known, *new[i + 1 :])
    elif unknown or known != size or any(n < 0 for n in new):
        received = f"shape {x.shape} ({size} elements) and new shape {new}"
        expected = "the same number of elements, and at most one -1"
        raise ValueError(message("reshape", received, expected))
    if _by_columns("reshape", order):
        return transpose(apply(RESHAPE, (transpose(x),), {"shape": new[::-1]}))
    return apply(RESHAPE, (x,), {"shape": new})


def _by_columns(op: str, order: str) -> bool:
    check_one_of(op, "order", order, "C", "F")
    return order == "F"


@implements(np.concatenate)
def concat(
    arrays: Sequence[Kind | ArrayLike] | SupportsArray, axis: SupportsIndex | None = 0
) -> Kind:
    """Join arrays along an existing axis, as `numpy.concatenate`.

    >>> tg.concat([[1.0], [2.0, 3.0]]).data
    array([1., 2., 3.])
    """
    parts = tensors_of("concat", arrays)
    if axis is None:
        parts, axis = [reshape(p, (p.size,)) for p in parts], 0
    shapes = [p.shape for p in parts]
    if not parts or not shapes[0]:
        received = f"arrays of shapes {shapes}"
        raise ValueError(message("concat", received, "at least one array of 1-D or more"))
    along = one_axis("concat", axis, len(shapes[0]))
    if len({(len(s), s[:along], s[along + 1 :]) for s in shapes}) > 1:
        received = f"arrays of shapes {shapes}"
        raise ValueError(message("concat", received, f"equal shapes except along axis {along}"))
    return apply(CONCAT, tuple(parts), {"axis": along})


def in_one(tensors: Iterable[DuckArray]) -> DuckArray:
    """Return the elements of several tensors as one vector, which `pytree.cut` takes apart."""
    return concat([reshape(x, (-1,)) for x in tensors])


# Another shape, the same elements


@implements(np.ravel)
def ravel(a: Kind | ArrayLike, order: Literal["C", "F"] = "C") -> Kind:
    """Lay the elements out in one axis, as `numpy.ravel`, by rows ("C") or columns ("F").

    >>> tg.ravel([[1.0, 2.0], [3.0, 4.0]]).data
    array([1., 2., 3., 4.])
    """
    x = tensor_like("ravel", a, "a")
    return reshape(transpose(x) if _by_columns("ravel", order) else x, (x.size,))


@implements(np.squeeze)
def squeeze(a: Kind | ArrayLike, axis: Axes = None) -> Kind:
    """Drop axes of length 1, as `numpy.squeeze`.

    >>> tg.squeeze([[[1.0], [2.0]]]).shape
    (2,)
    """
    x = tensor_like("squeeze", a, "a")
    if axis is None:
        return reshape(x, tuple(n for n in x.shape if n != 1))
    dropped = some_axes("squeeze", axis, x.ndim)
    if any(x.shape[a] != 1 for a in dropped):
        received = f"axis {axis} of shape {x.shape}"
        raise ValueError(message("squeeze", received, "only axes of length 1"))
    return reshape(x, tuple(n for a, n in enumerate(x.shape) if a not in dropped))


@implements(np.expand_dims)
def expand_dims(a: Kind | ArrayLike, axis: Shape) -> Kind:
    """Insert axes of length 1, as `numpy.expand_dims`.

    >>> tg.expand_dims([1.0, 2.0], axis=0).shape
    (1, 2)
    """
    x = tensor_like("expand_dims", a, "a")
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    new = int_tuple("expand_dims", "axis", axis) and some_axes("expand_dims", axis, x.ndim + count)
    lengths = iter(x.shape)
    full = (1 if a in new else next(lengths) for a in range(x.ndim + count))
    return reshape(x, tuple(full))


@overload
def atleast_1d(x: Kind | ArrayLike, /) -> Kind: ...
@overload
def atleast_1d(
    x: Kind | ArrayLike, y: Kind | ArrayLike, /, *arys: Kind | ArrayLike
) -> tuple[Kind, ...]: ...
@implements(np.atleast_1d)
def atleast_1d(*arys: Kind | ArrayLike) -> Kind | tuple[Kind, ...]:
    """Give each array at least one axis, as `numpy.atleast_1d`.

    >>> tg.atleast_1d(1.0).shape
    (1,)
    """
    return _each(arys, lambda x: at_least("atleast_1d", x, 1))


@overload
def atleast_2d(x: Kind | ArrayLike, /) -> Kind: ...
@overload
def atleast_2d(
    x: Kind | ArrayLike, y: Kind | ArrayLike, /, *arys: Kind | ArrayLike
) -> tuple[Kind, ...]: ...
@implements(np.atleast_2d)
def atleast_2d(*arys: Kind | ArrayLike) -> Kind | tuple[Kind, ...]:
    """Give each array at least two axes, as `numpy.atleast_2d`.

    >>> tg.atleast_2d([1.0, 2.0]).shape
    (1, 2)
    """
    return _each(arys, lambda x: at_least("atleast_2d", x, 2))


@overload
def atleast_3d(x: Kind | ArrayLike, /) -> Kind: ...
@overload
def atleast_3d(
    x: Kind | ArrayLike, y: Kind | ArrayLike, /, *arys: Kind | ArrayLike
) -> tuple[Kind, ...]: ...
@implements(np.atleast_3d)
def atleast_3d(*arys: Kind | ArrayLike) -> Kind | tuple[Kind, ...]:
    """Give each array at least three axes, as `numpy.atleast_3d`.

    >>> tg.atleast_3d([1.0, 2.0]).shape
    (1, 2, 1)
    """
    return _each(arys, _at_least_3d)


def _each(arrays: tuple[DuckArray, ...], function: Fun) -> DuckArray:
    results = tuple(map(function, arrays))
    return results[0] if len(results) == 1 else results


def at_least(name: str, x: DuckArray, ndim: int, argument: str = "x") -> DuckArray:
    """Put axes of length 1 in front until there are ``ndim``."""
    x = tensor_like(name, x, argument)
    return x if x.ndim >= ndim else reshape(x, (1,) * (ndim - x.ndim) + x.shape)


def _at_least_3d(x: DuckArray) -> DuckArray:
    x = at_least("atleast_3d", x, 2)
    return x if x.ndim >= 3 else reshape(x, (*x.shape, 1))


# Another order of the axes


@implements(np.swapaxes)
def swapaxes(a: Kind | ArrayLike, axis1: SupportsIndex, axis2: SupportsIndex) -> Kind:
    """Exchange two axes, as `numpy.swapaxes`.

    >>> tg.swapaxes([[[1.0, 2.0]]], 0, 2).shape
    (2, 1, 1)
    """
    x = tensor_like("swapaxes", a, "a")
    first, second = (one_axis("swapaxes", axis, x.ndim) for axis in (axis1, axis2))
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return transpose(x, order)


@implements(np.moveaxis)
def moveaxis(a: Kind | ArrayLike, source: Shape, destination: Shape) -> Kind:
    """Move axes to other places, as `numpy.moveaxis`.

    >>> tg.moveaxis([[[1.0, 2.0]]], 2, 0).shape
    (2, 1, 1)
    """
    x = tensor_like("moveaxis", a, "a")
    moved = ordered_axes("moveaxis", "source", source, x.ndim)
    places = ordered_axes("moveaxis", "destination", destination, x.ndim)
    if len({len(moved), len(places), len(set(moved)), len(set(places))}) > 1:
        received = f"source {source} and destination {destination}"
        raise ValueError(
            message("moveaxis", received, "as many destinations as sources, each once")
        )
    order = [a for a in range(x.ndim) if a not in moved]
    for place, a in sorted(zip(places, moved, strict=True)):
        order.insert(place, a)
    return transpose(x, order)


@implements(np.rollaxis)
def rollaxis(a: Kind | ArrayLike, axis: SupportsIndex, start: SupportsIndex = 0) -> Kind:
    """Move one axis before another, as `numpy.rollaxis`; `moveaxis` says it more plainly.

    >>> tg.rollaxis([[[1.0, 2.0]]], 2).shape
    (2, 1, 1)
    """
    x = tensor_like("rollaxis", a, "a")
    moved = one_axis("rollaxis", axis, x.ndim)
    place = x.ndim if start == x.ndim else one_axis("rollaxis", start, x.ndim)
    return moveaxis(x, moved, place - (moved < place))


permute_dims = transpose


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Kind | ArrayLike) -> Kind:
    """Exchange the last two axes, as `numpy.matrix_transpose`.

    >>> tg.matrix_transpose([[[1.0, 2.0]]]).shape
    (1, 2, 1)
    """
    array = tensor_like("matrix_transpose", x)
    if array.ndim < 2:
        raise ValueError(message("matrix_transpose", f"shape {array.shape}", "two axes or more"))
    return swapaxes(array, -1, -2)


# Repeating


@implements(np.broadcast_to)
def broadcast_to(array: Kind | ArrayLike, shape: Shape) -> Kind:
    """Repeat an array to another shape, as `numpy.broadcast_to`; gradients of the copies add up.

    >>> tg.broadcast_to([1.0, 2.0], (2, 2)).data.tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    x = tensor_like("broadcast_to", array, "array")
    new = int_tuple("broadcast_to", "shape", shape)
    before = len(new) - x.ndim
    if before < 0 or any(n not in (1, m) for n, m in zip(x.shape, new[before:], strict=True)):
        expected = "lengths that are 1 or those of the new shape, axis by axis from the last"
        raise ValueError(message("broadcast_to", f"shape {x.shape} and new shape {new}", expected))
    if min(new, default=0) < 0:
        raise ValueError(message("broadcast_to", f"new shape {new}", "lengths of 0 or more"))
    return apply(BROADCAST_TO, (x,), {"shape": new})


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Kind | ArrayLike) -> tuple[Kind, ...]:
    """Repeat to a common shape, as `numpy.broadcast_arrays`; gradients of the copies add up.

    >>> [a.shape for a in tg.broadcast_arrays([1.0, 2.0], [[3.0]])]
    [(1, 2), (1, 2)]
    """
    name = "broadcast_arrays"
    parts = tensors_of(name, args)
    shapes = [p.shape for p in parts]
    try:
        common = np.broadcast_shapes(*shapes)
    except ValueError:
        received = f"arrays of shapes {shapes}"
        raise ValueError(message(name, received, "shapes that broadcast together")) from None
    return tuple(p if p.shape == common else broadcast_to(p, common) for p in parts)


@implements(np.tile)
def tile(A: Kind | ArrayLike, reps: Shape) -> Kind:
    """Repeat a whole array along axes, as `numpy.tile`; gradients of the copies add up.

    >>> tg.tile([1.0, 2.0], 2).data
    array([1., 2., 1., 2.])
    """
    times = int_tuple("tile", "reps", reps)
    if min(times, default=0) < 0:
        raise ValueError(message("tile", f"reps {reps}", "numbers of 0 or more"))
    x = at_least("tile", A, len(times), "A")
    times = (1,) * (x.ndim - len(times)) + times
    if set(times) <= {1}:
        return broadcast_to(x, x.shape)
    # An axis before each repeated one holds its copies.
    pairs = list(zip(times, x.shape, strict=True))
    before = tuple(k for count, n in pairs for k in ((n,) if count == 1 else (1, n)))
    copied = tuple(k for count, n in pairs for k in ((n,) if count == 1 else (count, n)))
    return reshape(broadcast_to(reshape(x, before), copied), tuple(n * k for k, n in pairs))


# Joining


concatenate = concat


@implements(np.stack)
def stack(arrays: Sequence[Kind | ArrayLike] | SupportsArray, axis: SupportsIndex = 0) -> Kind:
    """Join arrays along a new axis, as `numpy.stack`.

    >>> tg.stack([[1.0, 2.0], [3.0, 4.0]], axis=1).data.tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    parts = tensors_of("stack", arrays)
    shapes = [p.shape for p in parts]
    if len(set(shapes)) != 1:
        received = f"arrays of shapes {shapes}"
        raise ValueError(message("stack", received, "at least one array, and equal shapes"))
    along = one_axis("stack", axis, len(shapes[0]) + 1)
    return concat([expand_dims(p, along) for p in parts], along)


@implements(np.vstack)
def vstack(tup: Sequence[Kind | ArrayLike] | SupportsArray) -> Kind:
    """Join arrays row by row, as `numpy.vstack`.

    >>> tg.vstack([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    """
    return concat([at_least("vstack", x, 2) for x in tensors_of("vstack", tup)], 0)


@implements(np.hstack)
def hstack(tup: Sequence[Kind | ArrayLike] | SupportsArray) -> Kind:
    """Join arrays column by column, as `numpy.hstack`.

    >>> tg.hstack([[1.0, 2.0], [3.0]]).data
    array([1., 2., 3.])
    """
    parts = [at_least("hstack", x, 1) for x in tensors_of("hstack", tup)]
    return concat(parts, 0 if parts and parts[0].ndim == 1 else 1)


@implements(np.dstack)
def dstack(tup: Sequence[Kind | ArrayLike] | SupportsArray) -> Kind:
    """Join arrays along the third axis, as `numpy.dstack`.

    >>> tg.dstack([[1.0, 2.0], [3.0, 4.0]]).shape
    (1, 2, 2)
    """
    return concat([_at_least_3d(x) for x in tensors_of("dstack", tup)], 2)


@implements(np.column_stack)
def column_stack(tup: Sequence[Kind | ArrayLike] | SupportsArray) -> Kind:
    """Join arrays as the columns of a matrix, as `numpy.column_stack`.

    >>> tg.column_stack([[1.0, 2.0], [3.0, 4.0]]).data.tolist()
    [[1.0, 3.0], [2.0, 4.0]]
    """
    parts = tensors_of("column_stack", tup)
    return concat([reshape(x, (x.size, 1)) if x.ndim < 2 else x for x in parts], 1)


@implements(np.block)
def block(arrays: Operand | Nested[Operand]) -> Tensor:
    """Put an array together from nested lists of blocks, as `numpy.block`.

    >>> tg.block([[tg.param(1.0), 2.0], [3.0, 4.0]]).data.tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """
    depths, ndim = _nesting(arrays)
    if len(depths) != 1:
        received = f"lists nested {sorted(depths)} deep"
        raise ValueError(message("block", received, "lists of equal depth, none empty"))
    (depth,) = depths
    return _joined_blocks(arrays, depth, max(depth, ndim))


def _nesting(arrays: DuckArray) -> tuple[set[int], int]:
    """Return the depth of blocks in nested lists, and the largest number of axes of a block."""
    if not isinstance(arrays, list):
        return {0}, np.ndim(arrays)
    if not arrays:
        return {-1, 0}, 0  # an empty list joins to nothing: never of equal depth
    inner = [_nesting(a) for a in arrays]
    return {d + 1 for depths, _ in inner for d in depths}, max(ndim for _, ndim in inner)


def _joined_blocks(arrays: DuckArray, depth: int, ndim: int) -> DuckArray:
    if depth == 0:
        return at_least("block", arrays, ndim)
    return concat([_joined_blocks(a, depth - 1, ndim) for a in arrays], -depth)


@implements(np.append)
def append(
    arr: Kind | ArrayLike, values: Kind | ArrayLike, axis: SupportsIndex | None = None
) -> Kind:
    """Put values behind an array, as `numpy.append`; gradients flow to both.

    >>> tg.append([1.0, 2.0], 3.0).data
    array([1., 2., 3.])
    """
    return concatenate([arr, values], axis)


def tensors_of(name: str, arrays: DuckArray, argument: str = "arrays") -> list[DuckArray]:
    given = sequence_of(name, arrays)
    return [tensor_like(name, x, f"{argument}[{i}]") for i, x in enumerate(given)]


def sequence_of(name: str, arrays: DuckArray) -> list[DuckArray]:
    try:
        return list(arrays)
    except TypeError:
        fix = f"Write tg.{name}([a, b])."
        raise TypeError(message(name, kind_of(arrays), "a sequence of arrays", fix)) from None
