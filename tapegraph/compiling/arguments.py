"""Arguments and results of a compiled function: their structure, and the arrays in it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.errors import explain, kind_of
from tapegraph.recording.node import Node

Structure = Any
_STATIC = (bool, int, str, bytes, type(None))


# Stand for a tensor, a `Value` and a float of the program among the results of a call.
RESULT, VALUE, FLOAT = object(), object(), object()
_RESULTS = {id(RESULT): "tensor", id(VALUE): "Value", id(FLOAT): "float"}


class Leaf:
    """Stands for an array or float in a structure."""

    __slots__ = ("kind",)

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Leaf) and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.kind)

    def __repr__(self) -> str:
        return " ".join(map(str, self.kind))


def flattened(value: Any, path: str, found: list[tuple[str, Any]]) -> Structure:
    """Return the hashable structure of a value; its arrays and floats go to ``found``, with paths.

    Arrays count by shape and dtype, floats by being floats; ints, bools, strings and None by value.
    A parameter is state, and counts by which one it is.

    Raises
    ------
    TypeError
        Something else is in it; names its path.
    """
    kind = type(value)
    if kind in _STATIC:
        return (kind, value)
    if id(value) in _RESULTS:
        found.append((path, value))
        return Leaf((_RESULTS[id(value)],))
    if isinstance(value, Node):
        if value._requires_grad:
            return (Node, _Same(value))
        found.append((path, value._array))
        return Leaf(("tensor", value._array.shape, value._array.dtype.str))
    if isinstance(value, np.ndarray) and not isinstance(value, np.matrix):
        found.append((path, value))
        return Leaf(("array", value.shape, value.dtype.str))
    if isinstance(value, np.generic):
        found.append((path, np.asarray(value)))
        return Leaf(("number", (), value.dtype.str))
    if kind is float:
        found.append((path, value))
        return Leaf(("float",))
    if kind in (dict, OrderedDict):
        for key in value:
            if not isinstance(key, (str, int)):
                fix = "Use strings."
                raise TypeError(explain("compile", f"the key {key!r} in {path}", "names", fix))
        items = ((k, flattened(v, f"{path}[{k!r}]", found)) for k, v in value.items())
        return (kind, tuple(items))
    if kind in (list, tuple) or (isinstance(value, tuple) and hasattr(kind, "_fields")):
        parts = (flattened(v, f"{path}[{i}]", found) for i, v in enumerate(value))
        return (kind, tuple(parts))
    expected = "arrays, numbers, strings, None, and dicts, lists and tuples of them"
    fix = "Reach other objects through the function's closure or self."
    raise TypeError(explain("compile", f"{kind_of(value)} for {path}", expected, fix))


class _Same:
    """An object that counts by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)

    def __repr__(self) -> str:
        return f"parameter {self.value.name or ''} of shape {self.value.shape}"


def rebuilt(structure: Structure, leaf: Callable[[Leaf], Any]) -> Any:
    """Return a value of a structure, whose arrays and floats ``leaf`` gives in order."""
    if isinstance(structure, Leaf):
        return leaf(structure)
    kind, content = structure
    if kind in _STATIC:
        return content
    if kind is Node:
        return content.value
    if kind in (dict, OrderedDict):
        return kind((key, rebuilt(part, leaf)) for key, part in content)
    parts = [rebuilt(part, leaf) for part in content]
    if hasattr(kind, "_fields"):  # a named tuple
        return kind(*parts)
    return kind(parts)
