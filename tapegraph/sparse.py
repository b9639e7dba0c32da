"""`RowSparse`: the gradient of a table of which few rows were read."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph.ir import Array

# Up to so many readings of one row, adding reading by reading beats a segmented sum.
FEW = 16


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
        """Return each row touched once, ascending, and what is added to it, in a new array."""
        if not self.rows.size:
            return self.rows, self.values.copy()
        order = np.argsort(self.rows, kind="stable")
        rows = self.rows[order]
        starts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
        if len(starts) == len(rows):
            return rows, self.values[order]
        counts = np.diff(starts, append=len(rows))
        most = int(counts.max())
        if most > FEW:
            return rows[starts], np.add.reduceat(self.values[order], starts, axis=0)
        sums = self.values[order[starts]]
        for repeat in range(1, most):  # the second reading of every row read twice, and so on
            again = np.flatnonzero(counts > repeat)
            sums[again] += self.values[order[starts[again] + repeat]]
        return rows[starts], sums

    def dense(self) -> Array:
        """Return the whole table's gradient."""
        table = np.zeros(self.shape, dtype=self.values.dtype)
        rows, sums = self.summed()
        table[rows] = sums
        return table

    def add_to(self, table: Array) -> None:
        """Add the rows to an array of the table's shape, in place."""
        rows, sums = self.summed()
        sums += table.take(rows, axis=0)
        table[rows] = sums

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


def has_nan(grad: Any) -> bool:
    """Tell whether a gradient holds a NaN.

    A product of the array with itself keeps every NaN and makes no new one, and is the quickest
    look at each element that NumPy has.
    """
    array = grad.values if isinstance(grad, RowSparse) else grad
    if array.flags.c_contiguous or array.flags.f_contiguous:
        flat = array.ravel("K")
        return bool(np.isnan(np.dot(flat, flat)))
    return bool(np.isnan(array).any())
