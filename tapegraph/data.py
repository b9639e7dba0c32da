"""Training data in batches: `batches` for a loop, `epoch` for ``step.scan``."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn, TypeAlias

import numpy as np

from tapegraph import pytree, random
from tapegraph.arrays import one_integer
from tapegraph.errors import kind_of, message
from tapegraph.other_names import missing_in, unexpected
from tapegraph.recording.node import Node, as_array
from tapegraph.typed import Array

__all__ = ["Batches", "Epoch", "batches", "epoch"]

Rng: TypeAlias = "int | np.random.Generator | None"  # NumPy loads its generators when asked


class Rows:
    """The rows of an array, each an array of its own."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __len__(self) -> int:
        return len(self._array)

    def row(self, place: int) -> Any:
        return self._array[place]

    def block(self, start: int, stop: int) -> Any:
        return self._array[start:stop]

    def alike(self, start: int) -> int:
        """Return how many rows from one on have its shape."""
        return len(self) - start


class BatchRows(Rows):
    """The rows of an array, a batch at a time, in an order; the last batch may be a short one."""

    def __init__(self, array: Array, order: Array | None, size: int, *, drop_last: bool) -> None:
        self._array, self._order, self._size = array, order, size
        self._full, left = divmod(len(array), size)
        self._count = self._full + (left > 0 and not drop_last)

    def __len__(self) -> int:
        return self._count

    def alike(self, start: int) -> int:
        """Return how many batches from one on have its shape."""
        return self._full - start if start < self._full else 1

    def row(self, place: int) -> Array:
        return self._rows(place * self._size, (place + 1) * self._size)

    def block(self, start: int, stop: int) -> Array:
        rows = self._rows(start * self._size, stop * self._size)
        return rows.reshape(stop - start, -1, *rows.shape[1:])

    def _rows(self, start: int, stop: int) -> Array:
        if self._order is None:
            return self._array[start:stop]
        return np.take(self._array, self._order[start:stop], axis=0)


class Epoch:
    """One pass over arrays, batch by batch: for a loop, or for ``step.scan``; `epoch` makes it."""

    def __init__(self, trees: tuple[object, ...]) -> None:
        self.trees = trees  # of `BatchRows`
        self._count = len(next(rows for _, rows in pytree.leaves(trees)))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        """Yield a batch of each array: the array of a single one, and a tuple of several."""
        for place in range(self._count):
            batch = pytree.mapped(operator.methodcaller("row", place), self.trees)
            yield batch if len(batch) > 1 else batch[0]


class Batches:
    """Arrays to go over in batches, as often as is asked; `batches` makes it."""

    def __init__(
        self,
        trees: tuple[object, ...],
        permutation: Callable[[int], Array] | None,
        size: int,
        drop_last: bool,
    ) -> None:
        self._trees, self._permutation = trees, permutation
        self._batches = partial(BatchRows, size=size, drop_last=drop_last)
        self._first = next(array for _, array in pytree.leaves(trees))
        self._count = len(self._batches(self._first, None))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return iter(self.epoch())

    def epoch(self) -> Epoch:
        """Return the next pass, shuffled anew."""
        order = None if self._permutation is None else self._permutation(len(self._first))
        take = partial(self._batches, order=order)
        return Epoch(tuple(pytree.mapped(take, tree) for tree in self._trees))


def batches(
    *arrays: object,
    size: int,
    shuffle: bool = False,
    rng: Rng = None,
    drop_last: bool = False,
    **others: NoReturn,
) -> Batches:
    """Iterate over arrays in batches, as often as wanted.

    :param *arrays: Arrays of shape (rows, ...), or dicts, lists and tuples of them, with equal
        numbers of rows. They are read batch by batch, so that one on disk (``np.memmap``) need not
        fit into memory.
    :param size: The rows of a batch.
    :param shuffle: Whether each loop takes the rows in another order.
    :param rng: The generator of the orders, or its seed; `tapegraph.random` by default.
    :param drop_last: Whether to leave out a last batch with fewer rows.
    :returns: An iterable with a length, of arrays for one argument and of tuples for several.
    :raises TypeError, ValueError: An argument is no array, or the arrays have other numbers of
        rows, or fewer than one batch.

    >>> for x in tg.data.batches(np.arange(5), size=2):
    ...     print(x)
    [0 1]
    [2 3]
    [4]
    """
    if others:
        raise unexpected("batches", others)
    size = one_integer("batches", "size", size)
    if size < 1:
        raise ValueError(message("batches", f"size={size}", "1 or more"))
    trees = tuple(
        pytree.replaced(tree, (_array(path, x) for path, x in pytree.leaves(tree, f"arrays[{i}]")))
        for i, tree in enumerate(arrays)
    )
    lengths = [len(array) for _, array in pytree.leaves(trees)]
    if len(set(lengths)) != 1:
        received = f"arrays of {lengths} rows" if lengths else "no arrays"
        raise ValueError(message("batches", received, "arrays with the same number of rows"))
    if lengths[0] < (size if drop_last else 1):
        received = f"{lengths[0]} rows for batches of {size}"
        raise ValueError(message("batches", received, "enough rows for one batch"))
    return Batches(trees, _permutation(rng) if shuffle else None, size, drop_last)


def epoch(
    *arrays: object,
    size: int,
    shuffle: bool = False,
    rng: Rng = None,
    drop_last: bool = False,
    **others: NoReturn,
) -> Epoch:
    """Return one pass over arrays for ``step.scan``: ``step.scan(tg.data.epoch(x, y))``.

    Without ``shuffle`` nothing is copied. A short last batch runs separately, after the others.

    :param *arrays, size, shuffle, rng, drop_last: As for `batches`.
    :returns: An iterable with a length. In ``scan`` it stands for the arguments of a batch.
    :raises TypeError, ValueError: As for `batches`.

    >>> step = tg.compile(lambda x, y: np.sum(x * y))
    >>> x = np.arange(6.0)
    >>> step.scan(tg.data.epoch(x, x, size=2))
    Tensor([ 1., 13., 41.])
    """
    every = batches(*arrays, size=size, shuffle=shuffle, rng=rng, drop_last=drop_last, **others)
    return every.epoch()


def _array(path: str, data: object) -> Array:
    if isinstance(data, Node):
        if data._requires_grad:
            received = f"{kind_of(data)} that needs a gradient for {path}"
            raise TypeError(message("batches", received, "data", "Pass tensor.detach()."))
        data = data._array
    array: Array = data if isinstance(data, np.ndarray) else as_array(data, "batches", path)
    if not array.ndim or array.dtype == object:
        raise TypeError(message("batches", f"{kind_of(data)} for {path}", "an array with rows"))
    return array


def _permutation(rng: object) -> Callable[[int], Array]:
    if rng is None:
        return random.permutation
    if isinstance(rng, np.random.Generator):
        return rng.permutation
    seed = one_integer("batches", "rng", rng, expected="an integer, a Generator or None")
    if seed < 0:
        raise ValueError(message("batches", f"rng={seed}", "0 or more"))
    return np.random.default_rng(seed).permutation


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> NoReturn:
    raise missing_in("data", name)
