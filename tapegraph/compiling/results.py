"""What compiled functions give: results of many calls, stacked; of derivatives plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from types import FunctionType
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from tapegraph import pytree
from tapegraph.errors import kind_of, message
from tapegraph.ops.shape import concat, reshape
from tapegraph.recording.node import Node, as_leaf
from tapegraph.recording.remote import restore
from tapegraph.tensors.value import Value

F = TypeVar("F", bound=Callable[..., Any])
_NUMBERS = (bool, int, float, complex, np.generic, np.ndarray)

# The functions that `tapegraph.grad` and the like return, which give plain numbers for such.
_DERIVATIVES: WeakSet[Callable[..., Any]] = WeakSet()


class Results:
    """What a function returned in many calls: tensors, arrays and numbers, calls as first axis.

    A `Value` of each call is in a list; anything else, such as None, has to be the same in all.

    :param calls: How many there will be.
    :param recorded: Stack tensors by an operation, through which gradients flow.
    :ivar count: How many have been taken.
    """

    def __init__(self, calls: int, *, recorded: bool = False) -> None:
        self.count = 0
        self._calls = calls
        self._recorded = recorded
        self._form: Any = None
        self._paths: list[str] = []
        self._columns: list[Any] = []  # an array, or a list of what the calls gave
        self._tensors: list[bool] = []

    def add(self, result: Any) -> None:
        """Take the result of the next call."""
        self._take(result, 1, rows=False)

    def add_rows(self, result: Any, calls: int) -> None:
        """Take a result whose tensors have a row for each of so many calls."""
        self._take(result, calls, rows=True)

    def stacked(self) -> Any:
        """Return the results of all calls."""
        found = zip(self._columns, self._tensors, strict=True)
        return pytree.replaced(self._form, (_finished(*column) for column in found))

    def _take(self, result: Any, calls: int, *, rows: bool) -> None:
        found = list(pytree.leaves(result, "the result"))
        paths = [path for path, _ in found]
        if not self.count:
            self._form = pytree.replaced(result, repeat(None))
            self._paths = paths
            for _, leaf in found:
                self._tensors.append(isinstance(leaf, Node))
                self._columns.append(self._column(leaf, rows))
        elif paths != self._paths:
            self._refuse(f"{', '.join(paths)}", f"{', '.join(self._paths)}")
        for place, (path, leaf) in enumerate(found):
            self._put(place, path, leaf, calls, rows)
        self.count += calls

    def _column(self, leaf: Any, rows: bool) -> Any:
        """Return what is to hold the values of a leaf."""
        if isinstance(leaf, Node) and not self._recorded:
            shape = leaf._array.shape[1:] if rows else leaf._array.shape
            return np.empty((self._calls, *shape), leaf._array.dtype)
        if isinstance(leaf, _NUMBERS):
            return np.empty((self._calls, *np.shape(leaf)), np.asarray(leaf).dtype)
        return []

    def _put(self, place: int, path: str, leaf: Any, calls: int, rows: bool) -> None:
        """Keep the values of a leaf in so many calls."""
        column = self._columns[place]
        if isinstance(leaf, Node) != self._tensors[place]:
            self._refuse(f"{kind_of(leaf)} for {path}", "the same kind")
        if isinstance(column, list):
            if not isinstance(leaf, (Node, Value)) and column and column[0] != leaf:
                self._refuse(f"{leaf!r} for {path}", repr(column[0]))
            if isinstance(leaf, Node):  # as it is now: it may be state
                held: Any = leaf
                leaf = reshape(held, (1, *leaf._array.shape))
            column.extend([leaf] * calls)
            return
        array = leaf._array if isinstance(leaf, Node) else np.asarray(leaf)
        each = array.shape[1:] if rows and self._tensors[place] else array.shape
        if each != column.shape[1:] or array.dtype != column.dtype:
            received = f"shape {each} and dtype {array.dtype} for {path}"
            self._refuse(received, f"shape {column.shape[1:]} and dtype {column.dtype}")
        column[self.count : self.count + calls] = array

    def _refuse(self, received: str, expected: str) -> None:
        fix = "Return the same from every call, or loop over them."
        received = f"{received}, from call {self.count}"
        raise ValueError(message("scan", received, f"{expected}, as from call 0", fix))


def _finished(column: Any, is_tensor: bool) -> Any:
    if not isinstance(column, list):
        return as_leaf(column) if is_tensor else column
    if is_tensor:
        return concat(column)
    return column if isinstance(column[0], Value) else column[0]


def derivative_function(f: F) -> F:
    """Note that a function returns plain numbers where it is given no tensor."""
    _DERIVATIVES.add(f)
    return f


def is_derivative_function(f: Any) -> bool:
    """Return whether `derivative_function` has noted a function, or that of a method."""
    f = getattr(f, "__func__", f)
    return isinstance(f, FunctionType) and f in _DERIVATIVES  # other callables may have no hash


def as_numbers(result: Any) -> Any:
    """Return a structure with floats and arrays in place of its tensors."""
    return pytree.mapped(_as_number, result)


def _as_number(x: Any) -> Any:
    if not isinstance(x, Node):
        return x
    array = np.array(restore(x))  # an engine may have kept its numbers
    return array.item() if array.shape == () else array
