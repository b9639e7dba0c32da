"""Arrays without tensors: axes and sizes, memory, NumPy's warnings, gradients of few rows."""

from __future__ import annotations

import ctypes
import math
import operator
import re
import sys
import warnings
from cmath import isfinite
from collections.abc import Iterable
from contextvars import copy_context
from types import SimpleNamespace
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tapegraph.errors import kind_of, message, warn
from tapegraph.typed import Array, Cotangent, DType, DuckArray, Fun

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


# NumPy's warnings of a forward, repeated at the user's line, once per line

# Within the library these warnings are errors, after which the forward runs again without them.

# The modules and packages whose lines call NumPy in a forward.
FORWARDS = (
    "tapegraph.recording.record",
    "tapegraph.recording.watchers",
    "tapegraph.differentiation.products",
    "tapegraph.ops",
)

warnings.filterwarnings(
    "error",
    message=r"(divide by zero|overflow|underflow|invalid value) encountered",
    category=RuntimeWarning,
    module=rf"({'|'.join(map(re.escape, FORWARDS))})(\.|$)",
)


# NumPy's context variable and its value where overflow and the like are ignored.
_quiet, _here = copy_context(), copy_context()
_quiet.run(np.seterr, all="ignore")
_QUIET = [(var, value) for var, value in _quiet.items() if _here.get(var) is not value]
del _quiet, _here
# What is to happen where a number overflows and the like, as NumPy keeps it: another object each
# time that it is set. Where it is kept otherwise, NumPy is asked each time.
_in_force: Any = _QUIET[0][0] if len(_QUIET) == 1 else None
_mild: Any = None  # the last one that raises and calls nothing


def are_mild() -> bool:
    """Return whether NumPy ignores or only warns of overflow and the like here."""
    global _mild
    now = None if _in_force is None else _in_force.get()
    if now is not None and now is _mild:
        return True
    if not {"ignore", "warn"}.issuperset(np.geterr().values()):
        return False
    _mild = now
    return True


def watched(name: str, compute: Fun, *arrays: object, **attrs: object) -> Any:
    """Compute, and give NumPy's warnings at the user's line, as those of an operation."""
    kinds: list[str] = []
    called: dict[str, Any] = {k: "call" for k, mode in np.geterr().items() if mode == "warn"}
    with np.errstate(call=lambda kind, flag: kinds.append(kind), **called):
        out = compute(*arrays, **attrs)
    for kind in dict.fromkeys(kinds):
        warn(f"{kind} encountered in {name}", RuntimeWarning)
    return out


def quietly(fn: Fun, *args: object) -> Any:
    """Call a function while NumPy ignores overflow and the like, in a context that is dropped."""
    context = copy_context()
    for variable, value in _QUIET:
        context.run(variable.set, value)
    return context.run(fn, *args)


# Gradients of tables of which few rows were read


@final
class RowSparse:
    """A sum of rows: zero but for ``values[i]`` added at row ``rows[i]``, repeated rows adding up.

    ``rows`` are of shape (n,), in any order, ``values`` of (n, ...); ``shape`` is the table's.
    """

    __slots__ = ("rows", "shape", "values")
    __array_ufunc__ = None

    def __init__(self, rows: npt.NDArray[np.int64], values: Array, shape: tuple[int, ...]) -> None:
        self.rows = rows
        self.values = values
        self.shape = shape

    @property
    def dtype(self) -> DType:
        return self.values.dtype

    def dense(self) -> Array:
        table = np.zeros(self.shape, dtype=self.values.dtype)
        self.add_to(table)
        return table

    def apart(self, others: Iterable[Array]) -> RowSparse:
        """Return the same gradient in memory that none of the other arrays share."""
        rows, values = (
            part.copy() if any(np.may_share_memory(part, other) for other in others) else part
            for part in (self.rows, self.values)
        )
        return RowSparse(rows, values, self.shape)

    def added_up(self) -> RowSparse:
        earlier, places, sums = self._sums()
        return self._once(earlier, places, sums) if len(earlier) else self

    def _once(self, earlier: Array, places: Array, sums: Array) -> RowSparse:
        once = np.ones(len(self.rows), bool)
        once[earlier] = False
        values = self.values[once]
        values[np.cumsum(once)[places] - 1] = sums
        return RowSparse(self.rows[once], values, self.shape)

    def add_to(self, table: Array) -> None:
        """Add the rows to an array in place; the bits are the dense gradient's."""
        rows, moved = self.moved(table)
        table[rows] = moved  # NumPy keeps the last assignment to a repeated row

    def moved(self, table: Array, factor: float = 1.0) -> tuple[Array, Array]:
        """Return rows, and the new numbers, ``factor`` times theirs added, at their last places."""
        earlier, places, sums = self._sums()
        if 2 * len(earlier) > len(self.rows):
            once = self._once(earlier, places, sums)
            rows, added = once.rows, once.values * factor
        else:
            rows, added = self.rows, self.values * factor
            added[places] = sums * factor
        added += table.take(rows, axis=0)
        return rows, added

    def _sums(self) -> tuple[Array, Array, Array]:
        """Return places of rows that occur again later, each row's last place, and its sum."""
        earlier, last = _repeated(self.rows, self.shape[0])
        if not len(earlier):
            return earlier, earlier, self.values[:0]
        places, at = np.unique(last, return_inverse=True)
        sums = self.values[places]
        if len(earlier) > 4 * len(sums):
            order = np.argsort(at, kind="stable")
            starts = np.searchsorted(at[order], np.arange(len(sums)))
            sums += np.add.reduceat(self.values[earlier[order]], starts)
            return earlier, places, sums
        more = self.values[earlier]
        while len(at):  # each round adds the last occurrence of each row, as NumPy assigns it
            sums[at] = sums.take(at, axis=0) + more
            before, _ = _repeated(at, len(sums))
            at, more = at[before], more[before]
        return earlier, places, sums

    def __add__(self, other: DuckArray) -> DuckArray:
        if isinstance(other, RowSparse):
            rows = np.concatenate([self.rows, other.rows])
            joined = RowSparse(rows, np.concatenate([self.values, other.values]), self.shape)
            # Past the table's own length the dense form is the smaller one.
            return joined if len(rows) <= self.shape[0] else joined.dense()
        total = np.array(other)
        self.add_to(total)
        return total

    __radd__ = __add__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.dense().astype(dtype or self.dtype, copy=False)


def _repeated(rows: Array, length: int) -> tuple[Array, Array]:
    """Return the places of rows that occur again later, and the last place of each row."""
    if length * rows.itemsize > MAX_KEPT_BYTES:
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        same = ordered[1:] == ordered[:-1]
        ends = np.flatnonzero(~np.append(same, False))
        run = np.cumsum(np.append(False, ~same))  # which row of those that differ
        return order[:-1][same], order[ends][run[:-1][same]]
    held = np.empty(length, dtype=rows.dtype)  # faster than sorting; only written places are read
    places = np.arange(len(rows))
    held[rows] = places
    last = held.take(rows)
    earlier = np.flatnonzero(last != places)
    return earlier, last[earlier]


def dense_copy(grad: Cotangent) -> Array:
    return grad.dense() if isinstance(grad, RowSparse) else np.array(grad)


def has_nan(grad: Array | RowSparse) -> bool:
    """Return whether a gradient holds a NaN: its product with itself does, and is quick to sum."""
    array = grad.values if type(grad) is RowSparse else grad
    if array.ndim == 1 and array.strides[0] == array.itemsize:
        square = array.dot(array)  # np.dot would ask it whether it is an array
    elif array.ndim:
        square = _square(array)
    else:
        square = array.item()
    return bool(np.isnan(array).any() if square is None else square != square)


def is_finite(grad: Array | RowSparse) -> bool:
    """Return whether all numbers are finite: if the squares overflow, look again."""
    array = grad.values if type(grad) is RowSparse else grad
    square = _square(array)
    finite = square is not None and isfinite(square)
    return finite or bool(np.isfinite(array).all())


def _square(array: DuckArray) -> DuckArray:
    """Return the product of an array with itself; None unless its memory is contiguous."""
    if 0 in array.strides:  # the same numbers again and again
        array = array[tuple(slice(None) if step else slice(0, 1) for step in array.strides)]
    if array.flags.c_contiguous or array.flags.f_contiguous:
        flat = array.ravel("K")
        return flat.dot(flat)
    return None


def conjugated(g: Any) -> Any:
    """Return a gradient as a cotangent inside a sweep, which carries conjugates, or the reverse."""
    if g.dtype.kind != "c":
        return g
    return RowSparse(g.rows, np.conj(g.values), g.shape) if type(g) is RowSparse else np.conj(g)
