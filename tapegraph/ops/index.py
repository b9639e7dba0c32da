"""Taking parts: slices, gathering rows, choosing by condition, and ``x[...]``."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from tapegraph import typed
from tapegraph.arrays.axes import integers, one_axis
from tapegraph.arrays.bit_select import chosen
from tapegraph.errors import explain, kind_of
from tapegraph.recording.node import Node, constant, numeric
from tapegraph.recording.numpy_functions import implements
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, operand, tensor_like
from tapegraph.typed import Array, ArrayLike, Index, of_array, seen_as


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


def _where(cond: Array, a: Any, b: Any) -> Any:
    return chosen(cond, a, b)


def _getitem(x: Array, begin: Array, end: Array, *, plan: tuple[Any, ...]) -> Any:
    return x[basic_key(begin, plan)]


def _index(x: Array, *arrays: Array, plan: tuple[Any, ...]) -> Any:
    return x[advanced_key(arrays, plan)]


def advanced_key(arrays: tuple[Array, ...], plan: tuple[Any, ...]) -> tuple[Any, ...]:
    """Rebuild an advanced index: each ``"array"`` of the plan is the next index array."""
    left = iter(arrays)
    return tuple(next(left) if part == "array" else slice(None) for part in plan)


# Offsets, indices and conditions are fed as arrays: new ones do not change the graph.
TENSOR_SLICE = Op("tensor_slice", _tensor_slice, differentiable=(True,))
GATHER = Op("gather", _gather, differentiable=(True,))
WHERE = Op("where", _where, differentiable=(False, True, True))
GETITEM = Op("getitem", _getitem, differentiable=(True,))


INDEX = Op("index", _index, differentiable=(True,))


@of_array
def tensor_slice(x: Any, begin: Sequence[SupportsIndex], size: Sequence[SupportsIndex]) -> Any:
    """Take the block of ``size`` elements that starts at ``begin``.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
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

    Examples
    --------
    >>> import tapegraph as tg
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
    x : Tensor or array_like
        At least one axis.
    indices : array_like of int
        Any shape; negative ones count from the end. Repeated indices add up their gradients.
    axis : int
        The axis of ``x`` to take along.

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

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.gather([[1.0, 2.0], [3.0, 4.0]], [1, -1]).data
    array([[3., 4.],
           [3., 4.]])
    """
    x = tensor_like("gather", x)
    along = one_axis("gather", axis, x.ndim)
    given = numeric(indices, "gather", "indices")
    wrapped = _wrapped("gather", given, along, x.shape[along])
    return apply(GATHER, (x, constant(wrapped)), {"axis": along})


@implements(np.where)
@seen_as(typed.Where, "Tensor | tuple[npt.NDArray[np.intp], ...]")
def where(cond: Any, a: Any = None, b: Any = None) -> Any:
    """Choose from ``a`` where the condition is non-zero and from ``b`` elsewhere.

    No gradient flows to the condition, and exactly zero through the branch not taken.

    Parameters
    ----------
    cond : Tensor or array_like
        True where non-zero.
    a, b : Tensor, array_like or number, optional
        Operands; all three broadcast together.

    Returns
    -------
    Tensor
        Of the broadcast shape and NumPy's result dtype. Without ``a`` and ``b``: the places where
        the condition is non-zero, as `numpy.nonzero` gives them.

    Raises
    ------
    ValueError
        The shapes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.where([1, 0], [1.0, 2.0], -1.0).data
    array([ 1., -1.])
    """
    if hasattr(type(cond), "__tapegraph_apply__") and hasattr(cond, "detach"):
        cond = cond.detach()  # a condition carries no tangent
    raw = cond._array if isinstance(cond, Node) else cond
    mask = constant(numeric_mask(raw))
    if a is None and b is None:
        return np.nonzero(mask._array)
    a, b = operand("where", a, "a"), operand("where", b, "b")
    try:
        return apply(WHERE, (mask, a, b))
    except ValueError as error:
        shapes = [np.shape(getattr(v, "_array", v)) for v in (mask, a, b)]
        raise ValueError(
            explain("where", f"shapes {shapes}", "shapes that broadcast together")
        ) from error


def numeric_mask(cond: Any) -> Array:
    """Return a condition as a bool array of its own memory."""
    wrapped = operand("where", cond, "cond")
    return np.array(getattr(wrapped, "_array", wrapped), dtype=np.bool_)


@of_array
def getitem(x: Any, key: Index) -> Any:
    """Index as ``x[key]`` does: integers, slices, ``...``, ``None``, integer and boolean arrays.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
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

    Examples
    --------
    >>> import tapegraph as tg
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
            part = part._array
        if part is None or part is Ellipsis or isinstance(part, slice):
            parts.append(part)
        elif isinstance(part, (bool, np.bool_)):
            parts.append(np.array(part))
        elif isinstance(part, (list, tuple)):
            parts.append(_index_array(part))
        elif isinstance(part, np.ndarray) and part.ndim + _is_mask(part) > 0:
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
    arrays: list[Array] = []
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
    return apply(INDEX, (x, *map(constant, arrays)), {"plan": tuple(plan)})


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


def _as_integers(part: Any, axis: int, shape: tuple[int, ...]) -> list[Array]:
    """Return the integer arrays that an index item stands for; a mask stands for its non-zeros."""
    if not _is_mask(part):
        return [np.asarray(part)]
    if part.shape != shape[axis : axis + part.ndim]:
        raise IndexError(
            explain(
                "getitem",
                f"a boolean index of shape {part.shape} at axis {axis} of shape {shape}",
                f"shape {shape[axis : axis + part.ndim]}",
            )
        )
    return list(np.nonzero(part))


def _wrapped(op: str, indices: Any, axis: int, length: int) -> Array:
    """Return integer indices as non-negative int64, or raise naming the first out of range."""
    array = np.asarray(indices)
    if array.size == 0:
        return np.zeros(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise (IndexError if op == "getitem" else TypeError)(
            explain(op, f"indices {kind_of(indices)}", "integer indices", "Use .astype(int).")
        )
    wrapped = array.astype(np.int64)
    if wrapped.view(np.uint64).max() < length:  # a negative number is a very large one
        return wrapped
    outside = (array < -length) | (array >= length)
    if outside.any():
        raise _out_of_range(op, int(array[outside].flat[0]), axis, length)
    wrapped[wrapped < 0] += length
    return wrapped


def _out_of_range(op: str, index: int, axis: int, length: int) -> IndexError:
    return IndexError(
        explain(
            op,
            f"index {index} for axis {axis} of length {length}",
            f"an index in [{-length}, {length})",
        )
    )
