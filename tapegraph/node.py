"""What the tape knows of a tensor: its value, and the operation and inputs that made it."""

from __future__ import annotations

import itertools
from types import CodeType
from typing import Any

import numpy as np

from tapegraph.errors import explain, kind_of
from tapegraph.ir import CONSTANT, NO_ATTRS, Array, Op
from tapegraph.memory import own

next_seq = itertools.count(1).__next__
new = object.__new__


class Node:
    """A recorded value, its own entry on the tape.

    ``_seq`` orders entries in time: every operation has a larger number than its inputs. A leaf
    that was given new numbers keeps its place, and ``_changed`` says when: a reader with a smaller
    number is stale.
    """

    __slots__ = (
        "__weakref__",
        "_attrs",
        "_changed",
        "_code",
        "_data",
        "_grad",
        "_inputs",
        "_lasti",
        "_name",
        "_op",
        "_retains",
        "_saved",
        "_seq",
        "requires_grad",
    )

    _data: Array
    _op: Op
    _inputs: tuple[Any, ...]
    _attrs: dict[str, Any]
    _changed: int
    _saved: Any
    _seq: int
    _code: CodeType
    _lasti: int
    _grad: Any
    _name: str | None
    _retains: bool
    requires_grad: bool

    @property
    def name(self) -> str | None:
        """The name given by the user, or None."""
        return getattr(self, "_name", None)

    @name.setter
    def name(self, value: str | None) -> None:
        self._name = value

    def __init_subclass__(cls) -> None:
        global tensor_class
        tensor_class = cls


# The class of every recorded result: `Tensor` puts its own name here by being defined.
tensor_class: type[Any] = Node


def mark_changed(leaf: Node) -> None:
    """Remember that a leaf has other numbers from now on."""
    leaf._changed = next_seq()


def constant(data: Array) -> Any:
    """Wrap an array that nobody else holds as a constant leaf."""
    node = new(tensor_class)
    node._data = data
    node._op = CONSTANT
    node._inputs = ()
    node._attrs = NO_ATTRS
    node._seq = next_seq()
    node.requires_grad = False
    return node


def numeric(data: Any, op: str, argument: str) -> Array:
    """Return ``data`` as a native-endian array of its own memory, refusing what is not numeric.

    Raises
    ------
    TypeError
        For a dtype other than bool, integer, float32 and float64.
    ValueError
        For ragged nested lists.
    """
    if isinstance(data, Node):
        data = data._data
    try:
        array = np.asarray(data)
    except ValueError as error:
        if "inhomogeneous" not in str(error):
            raise
        fix = "Give every row the same length."
        raise ValueError(
            explain(op, f"ragged data for {argument!r}", "a rectangular array", fix)
        ) from error
    kind = array.dtype.kind
    if kind in "biu" or (kind == "f" and array.dtype.itemsize in (4, 8)):
        return own(array)
    fix = "Convert it first, for instance with np.asarray(data, dtype=np.float64)."
    received = kind_of(data) if kind != "f" else f"dtype {array.dtype}"
    raise TypeError(
        explain(
            op,
            f"{received} for {argument!r}",
            "numbers (bool, integer, float32 or float64)",
            fix,
        )
    )


def real(value: Any, op: str, argument: str) -> float:
    """Return one number as a Python float.

    Raises
    ------
    TypeError
        It is not a number.
    """
    try:
        if not isinstance(value, str):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise TypeError(explain(op, f"{kind_of(value)} for {argument!r}", "a number"))
