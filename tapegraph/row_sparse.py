"""Gradients of tables of which few rows were read, and what gradients of either kind hold."""

from __future__ import annotations

from cmath import isfinite
from collections.abc import Iterable
from typing import Any, final

import numpy as np
import numpy.typing as npt

from tapegraph.arrays import MAX_KEPT_BYTES
from tapegraph.typed import Array, Cotangent, DType, DuckArray


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
