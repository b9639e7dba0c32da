"""The arguments of many calls: which of them have a row for each, and what a call is given."""

from __future__ import annotations

import copy
import operator
from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph import pytree
from tapegraph.compiling.arguments import ArgSpec, of_call
from tapegraph.data import ArrayRows, Batches, Epoch, Rows
from tapegraph.errors import kind_of, message
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.node import Node, as_array, as_leaf
from tapegraph.typed import Array, ArrayLike


class Each(Rows):
    """Python numbers, one for each call; `each` makes it."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def row(self, place: int) -> Any:
        """Return the number of a call."""
        return self._values[place]

    def block(self, start: int, stop: int) -> Array:
        """Return the numbers of some calls."""
        return np.array(self._values[start:stop])

    def alike(self, start: int) -> int:
        """Return how many there are from one on that count the same: floats are fed."""
        if type(self._values[start]) is float:
            return len(self) - start
        stop = start
        while stop < len(self) and self._values[stop] == self._values[start]:
            stop += 1
        return stop - start


class _TensorRows(ArrayRows):
    """The rows of a constant tensor."""

    def row(self, place: int) -> Any:
        return as_leaf(self._array[place])


class _RecordedRows(Rows):
    """The rows of a tensor, of which the operation that takes them is recorded."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __len__(self) -> int:
        return len(self._tensor)

    def row(self, place: int) -> Any:
        return self._tensor[place]

    def block(self, start: int, stop: int) -> Any:
        return self._tensor[start:stop]


def each(values: ArrayLike) -> Each:
    """Give each call of ``step.scan`` a Python number of its own.

    :param values: Of shape (n,). The numbers. Floats are fed; every other int or bool is a trace of
        its own, as in calls.
    :returns: Each. What stands for the argument.
    :raises TypeError, ValueError: It is no sequence of numbers.

    >>> step = tg.compile(lambda x, k: x * k)
    >>> step.scan(np.array([1.0, 2.0, 3.0]), tg.each([0.5, 0.25, 2.0]))
    Tensor([0.5, 0.5, 6. ])
    """
    numbers = as_array(values, "each", "values")
    if numbers.ndim != 1 or numbers.dtype.kind not in "fiubc":
        raise TypeError(message("each", kind_of(values), "a sequence of numbers"))
    return Each(numbers.tolist())


class Calls:
    """The arguments of so many calls.

    :param recorded: Rows of tensors are taken by an operation.
    :ivar rows: The arrays of which each call is given a row, by the path of the argument.
    :raises TypeError, ValueError: Arrays have other lengths, or there is nothing to tell how many
        calls there are.
    """

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], length: int | None, *, recorded: bool
    ) -> None:
        spread: list[Any] = []
        for argument in args:
            given = argument.epoch() if isinstance(argument, Batches) else argument
            spread += given.trees if isinstance(given, Epoch) else [given]
        self._form = (spread, kwargs)
        found = [
            *pytree.leaves(spread, "args"),
            *pytree.leaves(kwargs, "kwargs"),
        ]
        self._leaves = [_leaf(path, value, recorded) for path, value in found]
        paths = (path for path, _ in found)
        self.rows = {
            path: leaf
            for path, leaf in zip(paths, self._leaves, strict=True)
            if isinstance(leaf, Rows)
        }
        lengths = {path: len(rows) for path, rows in self.rows.items()}
        if length is not None:
            lengths["length"] = operator.index(length)
        self._count = _common(lengths)

    def __len__(self) -> int:
        return self._count

    def arguments(self, call: int) -> tuple[list[Any], dict[str, Any]]:
        """Return what the function is given in one call."""
        values = (x.row(call) if isinstance(x, Rows) else x for x in self._leaves)
        args, kwargs = pytree.replaced(self._form, values)
        return args, kwargs

    def block(self, start: int) -> CallBlock:
        """Return the calls from one on that are alike."""
        alike = [rows.alike(start) for rows in self.rows.values()]
        return CallBlock(self, start, min(alike, default=self._count - start))


class CallBlock:
    """Calls with arguments of one structure.

    :param count: How many.
    :ivar structure, given: As a single call takes them (`tapegraph.compiling.arguments`).
    """

    def __init__(self, calls: Calls, start: int, count: int) -> None:
        self._start = start
        self.count = count
        args, kwargs = calls.arguments(start)
        found: list[tuple[str, Any]] = []
        self.structure: ArgSpec = of_call(args, kwargs, found)
        self.given = [value for _, value in found]
        # Of each array and float, where its rows are; None where it is the same in every call.
        self._rows = [calls.rows.get(path) for path, _ in found]

    def and_fed(self, numbers: Sequence[Any]) -> None:
        """Add numbers that are given besides, in every call."""
        self.given = [*self.given, *numbers]
        self._rows += [None] * len(numbers)

    def part(self, start: int) -> CallBlock:
        """Return the calls from one on."""
        rest = copy.copy(self)
        rest._start += start
        rest.count -= start
        return rest

    def row(self, run: int) -> list[Any]:
        """Return the arguments' arrays and floats of one call."""
        place = self._start + run
        pairs = zip(self._rows, self.given, strict=True)
        return [x if rows is None else _given(rows, place, x) for rows, x in pairs]

    def column(self, position: int, runs: int) -> Array | None:
        """Return an array argument of so many calls, a row for each; None of a float."""
        rows, first = self._rows[position], self.given[position]
        if not isinstance(first, np.ndarray):
            return None
        if rows is None:
            return np.broadcast_to(first, (runs, *first.shape))
        return np.asarray(rows.block(self._start, self._start + runs), first.dtype)


def _given(rows: Rows, place: int, first: Any) -> Any:
    """Return the array or float that a call is given, of the type of the first one's."""
    if isinstance(first, np.ndarray):
        return np.asarray(rows.block(place, place + 1)[0], first.dtype)
    return rows.row(place)


def _leaf(path: str, value: Any, recorded: bool) -> Any:
    """Return the rows of an array; anything else is the same in every call."""
    if isinstance(value, Rows):
        return value
    if isinstance(value, Node):
        if value._requires_grad and DIFFERENTIATING.value():
            received = f"{kind_of(value)} for {path}, by which it is differentiated"
            fix = "Loop over the calls, or let the function reach the tensor through its closure."
            raise TypeError(message("scan", received, "arrays", fix))
        if value._requires_grad:
            return value
        _check_rows(path, value._array)
        return _RecordedRows(value) if recorded else _TensorRows(value._array)
    is_array = isinstance(value, (np.ndarray, memoryview, array)) or (
        hasattr(value, "__array__") and not isinstance(value, (np.generic, np.dtype, type))
    )
    if not is_array:
        return value
    numbers = value if isinstance(value, np.ndarray) else as_array(value, "scan", path)
    _check_rows(path, numbers)
    return ArrayRows(numbers)


def _check_rows(path: str, array: Array) -> None:
    if not array.ndim:
        fix = "Pass the same number to all calls as a plain one, float(x)."
        raise ValueError(message("scan", f"an array of shape () for {path}", "rows", fix))


def _common(lengths: dict[str, int]) -> int:
    """Return how many calls there are."""
    if len(set(lengths.values())) > 1:
        received = ", ".join(f"{n} for {path}" for path, n in lengths.items())
        raise ValueError(message("scan", f"rows: {received}", "as many of each"))
    if not lengths:
        fix = "Pass length=n where no argument is an array."
        raise ValueError(message("scan", "no array", "arrays with a row for each call", fix))
    count = next(iter(lengths.values()))
    if count < 1:
        raise ValueError(message("scan", f"{count} calls", "1 or more"))
    return count
