"""Arrays without tensors: their axes and sizes, and their memory."""

from __future__ import annotations

import ctypes
import math
import operator
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph.errors import kind_of, message
from tapegraph.typed import Array, DType

# Axes and sizes as users write them, checked and made non-negative


def one_axis(op: str, axis: Any, ndim: int) -> int:
    try:
        number = operator.index(axis)
    except TypeError:
        raise TypeError(message(op, f"axis {kind_of(axis)}", "an integer axis")) from None
    if not -ndim <= number < ndim:
        expected = f"an axis in [{-ndim}, {ndim}) for a {ndim}-D array"
        raise np.exceptions.AxisError(message(op, f"axis {number}", expected))
    return number % ndim


def some_axes(op: str, axis: object, ndim: int) -> tuple[int, ...]:
    """Return the axes that None (all), an integer or a sequence names, in ascending order."""
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is bool:  # most likely meant for another argument
        raise TypeError(message(op, f"axis={axis}", "an integer axis"))
    if not isinstance(axis, (tuple, list)):
        return (one_axis(op, axis, ndim),)
    axes = tuple(sorted(one_axis(op, a, ndim) for a in axis))
    if len(set(axes)) != len(axes):
        raise ValueError(message(op, f"axis {tuple(axis)}", "each axis at most once"))
    return axes


def ordered_axes(op: str, argument: str, axes: object, ndim: int) -> tuple[int, ...]:
    """Return the axes that an integer or a sequence names, in the order given."""
    return tuple(one_axis(op, axis, ndim) for axis in int_tuple(op, argument, axes))


def int_tuple(op: str, argument: str, value: Any) -> tuple[int, ...]:
    try:
        if hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0:
            return (operator.index(value),)
        return tuple(operator.index(v) for v in value)
    except TypeError:
        received = f"{kind_of(value)} for {argument!r}"
        raise TypeError(message(op, received, "an integer or a tuple of integers")) from None


def one_integer(
    op: str, argument: str, value: Any, fix: str = "", expected: str = "an integer"
) -> int:
    try:
        return operator.index(value)
    except TypeError:
        received = f"{kind_of(value)} for {argument!r}"
        raise TypeError(message(op, received, expected, fix)) from None


def check_one_of(op: str, argument: str, value: object, *known: object) -> None:
    if value not in known:
        expected = f"{', '.join(map(repr, known[:-1]))} or {known[-1]!r}"
        raise ValueError(message(op, f"{argument}={value!r}", expected))


def spreads(shape: tuple[int, ...], over: tuple[int, ...]) -> bool:
    if shape == over[len(over) - len(shape) :]:  # as most do, in a tenth of the time
        return True
    try:
        return np.broadcast_shapes(shape, over) == over
    except ValueError:
        return False


def check_spreads(op: str, argument: str, shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    if not spreads(shape, over):
        expected = f"a shape that broadcasts to {over}"
        raise ValueError(message(op, f"{argument!r} of shape {shape}", expected))


def check_broadcast(op: str, *shapes: tuple[int, ...]) -> None:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        received = f"shapes {' and '.join(map(str, shapes))}"
        expected = "shapes that broadcast together (equal, or 1, axis by axis from the last)"
        raise ValueError(message(op, received, expected, "Reshape one of them.")) from None


def pair(op: str, argument: str, value: object, least: int) -> tuple[int, int]:
    """Return ``(height, width)`` from an integer or a pair, each at least ``least``."""
    numbers = int_tuple(op, argument, value)
    if len(numbers) == 1:
        numbers *= 2
    if len(numbers) != 2 or min(numbers) < least:
        expected = f"an integer or a pair (height, width), each at least {least}"
        raise ValueError(message(op, f"{argument}={value!r}", expected))
    return numbers[0], numbers[1]


def stacked_rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def is_one_product(a: Array, b: Array) -> bool:
    """Return whether a stack times one matrix is a single product of the stack's rows."""
    return a.ndim > 2 and b.ndim == 2 and a.size > 0


# Memory that leaves own: its alignment, and who else holds it

# The alignment in bytes that vector units and TensorFlow want of an array's first element.
ALIGNMENT = 64
# Below this many bytes a copy costs less than looking.
LARGE_BYTES = 1 << 14
# The largest block, in bytes, that the allocator can be made to keep when it is freed.
MAX_KEPT_BYTES = (32 << 20) - (1 << 13)


def read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def own(array: npt.ArrayLike, dtype: npt.DTypeLike | None = None, *, align: bool = False) -> Array:
    """Return a C-ordered copy, aligned to 64 bytes where it is large or ``align`` asks for it."""
    source = np.asarray(array)
    # NumPy's own instance of the native dtype: np.add.at is 30 times slower with any other.
    # In two lines, because mypy takes 45 s for them in one.
    held: DType = source.dtype if dtype is None else np.dtype(dtype)
    kind: DType = np.dtype(held.type)
    if source.size * kind.itemsize < LARGE_BYTES and not align:
        return source.copy() if source.dtype is kind else source.astype(kind, "C")
    copy = aligned_empty(source.shape, kind)
    copy[...] = source
    return copy


def as_it_lies(view: Array) -> Array:
    """Return a copy that lies in memory as a view; axes that it repeats come first, not last."""
    if 0 not in view.strides:
        return view.copy("K")
    axes = sorted(range(view.ndim), key=lambda i: -abs(view.strides[i] or math.inf))
    return view.transpose(axes).copy().transpose(np.argsort(axes))


_address: Any = ctypes.addressof
_first_byte: Any = ctypes.c_char.from_buffer


def aligned_empty(shape: tuple[int, ...], dtype: DType) -> Array:
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -_address(_first_byte(raw)) % ALIGNMENT  # raw.ctypes.data takes five times as long
    return np.ndarray(shape, dtype, raw, start)


def is_shared(node: Any) -> bool:
    """Return whether anyone but the leaf holds its array or a view of its memory."""
    if sys.getrefcount(node._array) > _SOLE:
        return True
    # Views of a view hold the array that owns the memory, not the one they were taken from.
    return node._array.base is not None and sys.getrefcount(node._array.base) > _SOLE_BASE


_kept = False


def keep_freed_memory() -> None:
    """Let the allocator keep freed memory for the next sweep, once per process.

    glibc returns memory above a threshold, the largest freed block up to 32 MB; without one a sweep
    faults all pages in anew, a quarter of a transformer block's backward.
    """
    global _kept
    if not _kept:
        _kept = True
        np.empty(MAX_KEPT_BYTES, dtype=np.uint8)


# This interpreter's count for an array that only a leaf holds, by the same expression as above.
_leaf = SimpleNamespace(_array=np.zeros(2)[:1])
_SOLE = sys.getrefcount(_leaf._array)
_SOLE_BASE = sys.getrefcount(_leaf._array.base)
