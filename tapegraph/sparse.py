"""`RowSparse`: the gradient of a table of which few rows were read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph.ir import Array


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

    def summed(self) -> tuple[npt.NDArray[np.int64], Array]:
        """Return each row touched once, in ascending order, and the sum of what is added to it."""
        order = np.argsort(self.rows, kind="stable")
        rows = self.rows[order]
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        if len(first) == len(rows):
            return rows, self.values[order]
        return rows[first], np.add.reduceat(self.values[order], first, axis=0)

    def dense(self) -> Array:
        """Return the whole table's gradient."""
        table = np.zeros(self.shape, dtype=self.values.dtype)
        if self.rows.size:
            rows, sums = self.summed()
            table[rows] = sums
        return table

    def add_to(self, table: Array) -> None:
        """Add the rows to an array of the table's shape, in place."""
        if self.rows.size:
            rows, sums = self.summed()
            table[rows] += sums

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
