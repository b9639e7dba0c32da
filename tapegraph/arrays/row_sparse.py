"""`RowSparse`: the gradient of a table of which few rows were read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph.arrays.buffers import KEPT
from tapegraph.typed import Array


class RowSparse:
    """A sum of rows: zero but for ``values[i]`` added at row ``rows[i]``, repeated rows adding up.

    Attributes
    ----------
    rows : ndarray of int64, shape (n,)
        Row numbers, in any order, repeated or not.
    values : ndarray, shape (n, ...)
        What is added to each.
    shape : tuple of int
        Of the table.
    """

    __slots__ = ("rows", "shape", "values")
    __array_ufunc__ = None

    def __init__(self, rows: npt.NDArray[np.int64], values: Array, shape: tuple[int, ...]) -> None:
        self.rows = rows
        self.values = values
        self.shape = shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self.values.dtype

    def dense(self) -> Array:
        """Return the whole table's gradient."""
        table = np.zeros(self.shape, dtype=self.values.dtype)
        self.add_to(table)
        return table

    def added_up(self) -> RowSparse:
        """Return the same gradient with each row once, in order."""
        if not len(self.rows):
            return self
        return RowSparse(*_added_up(self.rows, self.values), self.shape)

    def add_to(self, table: Array, factor: float = 1.0) -> None:
        """Add ``factor`` times the rows to an array of the table's shape, in place.

        Of a row that is repeated NumPy keeps what was assigned last, so the earlier ones are added
        in another round; where most are repeated, they are added up before.
        """
        rows, values = self.rows, self.values * factor
        while len(rows):
            earlier = _earlier(rows, len(table))
            if 2 * len(earlier) > len(rows):
                rows, values = _added_up(rows, values)
                earlier = earlier[:0]
            moved = table.take(rows, axis=0)
            moved += values
            table[rows] = moved
            rows, values = rows[earlier], values[earlier]

    def __add__(self, other: Any) -> Any:
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


def _earlier(rows: Array, length: int) -> Array:
    """Return the places of rows that come again later on."""
    if length * rows.itemsize > KEPT:
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        repeated: Array = order[:-1][ordered[1:] == ordered[:-1]]
        return repeated
    last = np.empty(length, dtype=rows.dtype)  # only what is written is read: quicker than to sort
    places = np.arange(len(rows))
    last[rows] = places
    return np.nonzero(last.take(rows) != places)[0]


def _added_up(rows: Array, values: Array) -> tuple[Array, Array]:
    """Return each row once, with the sum of its values."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    return ordered[starts], np.add.reduceat(values[order], starts, axis=0)


def has_nan(grad: Any) -> bool:
    """Tell whether a gradient holds a NaN.

    A product of the array with itself keeps every NaN and makes no new one, and is the quickest
    look at each element that NumPy has.
    """
    array = grad.values if isinstance(grad, RowSparse) else grad
    if array.flags.c_contiguous or array.flags.f_contiguous:
        flat = array.ravel("K")
        square = np.dot(flat, flat)
        return bool(square != square)
    return bool(np.isnan(array).any())
