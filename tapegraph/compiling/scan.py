"""Many calls in one: a row of the arguments for each, and the results stacked."""

from __future__ import annotations

import copy
import operator
from array import array
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np

from tapegraph import pytree
from tapegraph.compiling.arguments import ArgSpec, of_call
from tapegraph.compiling.inputs import Converted, Reading
from tapegraph.data import Batches, Epoch, Rows
from tapegraph.errors import kind_of, message
from tapegraph.ops.shape import concat, reshape
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.node import Node, as_array, as_leaf
from tapegraph.tensors.batched import Batched
from tapegraph.tensors.dual import Dual
from tapegraph.tensors.value import Value
from tapegraph.typed import Array, ArrayLike

_NUMBERS = (bool, int, float, complex, np.generic, np.ndarray)


class Each(Rows):
    """Python numbers, one for each call; `each` makes it."""

    def alike(self, start: int) -> int:
        """Return how many from one on count the same: floats are fed."""
        if type(self._array[start]) is float:
            return len(self) - start
        stop = start
        while stop < len(self) and self._array[stop] == self._array[start]:
            stop += 1
        return stop - start


class _TensorRows(Rows):
    def row(self, place: int) -> Any:
        return as_leaf(self._array[place])


def each(values: ArrayLike) -> Each:
    """Give each call of ``step.scan`` its own Python number.

    :param values: Numbers of shape (n,). Floats are fed; each other int or bool is a trace, as in
        calls.
    :returns: `Each`, which stands for the argument.
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
    """The arguments of many calls."""

    def __init__(
        self,
        args: Sequence[object],
        kwargs: dict[str, object],
        length: int | None,
        *,
        recorded: bool,
    ) -> None:
        spread: list[Any] = []
        for argument in args:
            given = argument.epoch() if isinstance(argument, Batches) else argument
            spread += given.trees if isinstance(given, Epoch) else [given]
        self._form = (spread, kwargs)
        found = chain(pytree.leaves(spread, "args"), pytree.leaves(kwargs, "kwargs"))
        self._leaves = {path: _leaf(path, value, recorded) for path, value in found}
        self.rows = {path: x for path, x in self._leaves.items() if isinstance(x, Rows)}
        lengths = {path: len(rows) for path, rows in self.rows.items()}
        if length is not None:
            lengths["length"] = operator.index(length)
        if not lengths:
            raise _no_rows(self._leaves)
        if len(set(lengths.values())) > 1:
            received = ", ".join(f"{n} for {path}" for path, n in lengths.items())
            raise ValueError(message("scan", f"rows: {received}", "the same number for each"))
        self._count = next(iter(lengths.values()))
        if self._count < 1:
            raise ValueError(message("scan", f"{self._count} calls", "1 or more"))

    def __len__(self) -> int:
        return self._count

    def arguments(self, call: int) -> tuple[list[Any], dict[str, Any]]:
        values = (x.row(call) if isinstance(x, Rows) else x for x in self._leaves.values())
        args, kwargs = pytree.replaced(self._form, values)
        return args, kwargs

    def block(self, start: int) -> CallBlock:
        alike = [rows.alike(start) for rows in self.rows.values()]
        return CallBlock(self, start, min(alike, default=self._count - start))


class CallBlock:
    """Calls with arguments of one structure, in the form of `tapegraph.compiling.arguments`."""

    def __init__(self, calls: Calls, start: int, count: int) -> None:
        self._start = start
        self.count = count
        self.ahead = len(calls) - start  # the calls from here on, others included
        args, kwargs = calls.arguments(start)
        found: list[tuple[str, Any]] = []
        self.structure: ArgSpec = of_call(args, kwargs, found)
        self.given = [value for _, value in found]
        # Of each array and float, where its rows are; None where it is the same in every call.
        self._rows = [calls.rows.get(path) for path, _ in found]

    def and_fed(self, numbers: Sequence[object]) -> None:
        self.given = [*self.given, *numbers]
        self._rows += [None] * len(numbers)

    def part(self, start: int) -> CallBlock:
        rest = copy.copy(self)
        rest._start += start
        rest.count -= start
        rest.ahead -= start
        return rest

    def row(self, run: int) -> list[Any]:
        place = self._start + run
        found = []
        for rows, x in zip(self._rows, self.given, strict=True):
            if rows is None:
                found.append(x)
            elif isinstance(x, np.ndarray):
                found.append(np.asarray(rows.block(place, place + 1)[0], x.dtype))
            else:
                found.append(rows.row(place))
        return found

    def column(self, source: Any, read: Sequence[list[Any]], runs: int) -> Array:
        """Return a source's value in each of several calls, a row for each."""
        if isinstance(source, Converted):
            return self.column(source.source, read, runs).astype(source.dtype)
        if isinstance(source, Reading):
            return np.array(read[source.position])
        rows, first = self._rows[source.position], np.asarray(self.given[source.position])
        if rows is None:
            return np.broadcast_to(first, (runs, *first.shape))
        return np.asarray(rows.block(self._start, self._start + runs), first.dtype)


def _leaf(path: str, value: object, recorded: bool) -> Any:
    if isinstance(value, Rows):
        return value
    if isinstance(value, Node):
        if value._requires_grad and DIFFERENTIATING.value():
            received = f"{kind_of(value)} for {path}, with respect to which scan is differentiated"
            fix = "Loop over the calls, or let the function reach the tensor through its closure."
            raise TypeError(message("scan", received, "arrays", fix))
        if value._requires_grad:
            return value
        _check_rows(path, value._array)
        tensor: Any = value
        return Rows(tensor) if recorded else _TensorRows(value._array)
    is_array = isinstance(value, (np.ndarray, memoryview, array)) or (
        hasattr(value, "__array__") and not isinstance(value, (np.generic, np.dtype, type))
    )
    if not is_array:
        return value
    numbers = value if isinstance(value, np.ndarray) else as_array(value, "scan", path)
    _check_rows(path, numbers)
    return Rows(numbers)


def _check_rows(path: str, array: Array) -> None:
    if not array.ndim:
        fix = "Pass the same number to all calls as a plain one, float(x)."
        raise ValueError(message("scan", f"an array of shape () for {path}", "rows", fix))


def _no_rows(leaves: dict[str, Any]) -> Exception:
    expected = "arrays with a row for each call"
    for path, value in leaves.items():
        if hasattr(value, "__iter__") and not isinstance(value, (Node, str, bytes)):
            received = f"{type(value).__name__} for {path}, which gives its items one by one"
            fix = "Stack them, np.stack(list(items)), or loop: for item in items: step(item)."
            return TypeError(message("scan", received, expected, fix))
    return ValueError(
        message("scan", "no array", expected, "Pass length=n where no argument is an array.")
    )


TENSORS = (Node, Dual, Batched)


class Results:
    """The results of many calls, stacked along a first axis; a list holds the `Value` of each."""

    def __init__(self, calls: int, *, recorded: bool = False) -> None:
        self.count = 0
        self._calls = calls
        self._recorded = recorded
        self._form: Any = None
        self._paths: list[str] = []
        self._columns: list[Any] = []  # an array, or a list of the calls' results
        self._tensors: list[bool] = []

    def add(self, result: object, calls: int | None = None) -> None:
        found = list(pytree.leaves(result, "the result"))
        paths = [path for path, _ in found]
        if not self.count:
            self._form = pytree.replaced(result, repeat(pytree.HOLE))
            self._paths = paths
            self._tensors = [isinstance(leaf, TENSORS) for _, leaf in found]
            self._columns = [self._column(leaf, calls is not None) for _, leaf in found]
        elif paths != self._paths:
            self._refuse(", ".join(paths), ", ".join(self._paths))
        for place, (path, leaf) in enumerate(found):
            self._put(place, path, leaf, calls)
        self.count += calls or 1

    def stacked(self) -> Any:
        found: list[Any] = []
        for column, is_tensor in zip(self._columns, self._tensors, strict=True):
            if not isinstance(column, list):
                found.append(as_leaf(column) if is_tensor else column)
            elif is_tensor:
                found.append(concat(column))
            else:
                found.append(column if isinstance(column[0], Value) else column[0])
        return pytree.replaced(self._form, iter(found))

    def _column(self, leaf: object, rows: bool) -> Any:
        if isinstance(leaf, Node) and not self._recorded:
            shape = leaf._array.shape[1:] if rows else leaf._array.shape
            return np.empty((self._calls, *shape), leaf._array.dtype)
        if isinstance(leaf, _NUMBERS):
            return np.empty((self._calls, *np.shape(leaf)), np.asarray(leaf).dtype)
        return []

    def _put(self, place: int, path: str, leaf: object, calls: int | None) -> None:
        column, count = self._columns[place], calls or 1
        if isinstance(leaf, TENSORS) != self._tensors[place]:
            self._refuse(f"{kind_of(leaf)} for {path}", "the same kind")
        if isinstance(column, list):
            if not isinstance(leaf, (*TENSORS, Value)) and column and column[0] != leaf:
                self._refuse(f"{leaf!r} for {path}", repr(column[0]))
            if isinstance(leaf, TENSORS):  # its present numbers: it may be state
                held = leaf
                leaf = reshape(held, (1, *held.shape))
            column.extend([leaf] * count)
            return
        array = leaf._array if isinstance(leaf, Node) else np.asarray(leaf)
        each = array.shape[1:] if calls and self._tensors[place] else array.shape
        if each != column.shape[1:] or array.dtype != column.dtype:
            received = f"shape {each} and dtype {array.dtype} for {path}"
            self._refuse(received, f"shape {column.shape[1:]} and dtype {column.dtype}")
        column[self.count : self.count + count] = array

    def _refuse(self, received: str, expected: str) -> None:
        fix = "Return the same from every call, or loop over them."
        received = f"{received}, from call {self.count}"
        raise ValueError(message("scan", received, f"{expected}, as from call 0", fix))
