"""Arrays whose rows are asked for one by one, or many at once, and read when they are."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from tapegraph.typed import Array


class Rows(ABC):
    """An array's rows, each of which is an array of its own."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def row(self, place: int) -> Array:
        """Return one row."""

    @abstractmethod
    def block(self, start: int, stop: int) -> Array:
        """Return some rows, all of one shape, as one array."""

    def alike(self, start: int) -> int:
        """Return how many rows from one on have its shape."""
        return len(self) - start


class ArrayRows(Rows):
    """The rows of an array."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def row(self, place: int) -> Array:
        """Return one row."""
        return self._array[place]  # type: ignore[no-any-return]

    def block(self, start: int, stop: int) -> Array:
        """Return some rows."""
        return self._array[start:stop]


class BatchRows(Rows):
    """The rows of an array, a batch at a time; the last batch may be a short one.

    :param order: Where the rows stand in the array; None for as they stand there.
    """

    def __init__(self, array: Array, order: Array | None, size: int, *, drop_last: bool) -> None:
        self._array = array
        self._order = order
        self._size = size
        self._full, left = divmod(len(array), size)
        self._count = self._full + (left > 0 and not drop_last)

    def __len__(self) -> int:
        return self._count

    def alike(self, start: int) -> int:
        """Return how many batches from one on have its shape."""
        return self._full - start if start < self._full else 1

    def row(self, place: int) -> Array:
        """Return one batch."""
        return self._rows(place * self._size, (place + 1) * self._size)

    def block(self, start: int, stop: int) -> Array:
        """Return some batches."""
        rows = self._rows(start * self._size, stop * self._size)
        return rows.reshape(stop - start, -1, *rows.shape[1:])

    def _rows(self, start: int, stop: int) -> Array:
        if self._order is None:
            return self._array[start:stop]
        return np.take(self._array, self._order[start:stop], axis=0)
