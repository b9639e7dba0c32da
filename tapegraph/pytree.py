"""Pytrees: dicts, lists and tuples of arrays and numbers. Their leaves, and the same form anew."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tapegraph.errors import explain
from tapegraph.typed import Array

# How much of a structure a message shows.
_SHOWN = 300


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what a structure holds, in order, with the path of each.

    >>> list(leaves({"w": (1.0, 2.0), "b": 3.0}, "p"))
    [("p['w'][0]", 1.0), ("p['w'][1]", 2.0), ("p['b']", 3.0)]
    """
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from leaves(part, f"{path}[{i}]")
    else:
        yield path, value


def replaced(value: Any, content: Iterator[Any]) -> Any:
    """Return a structure of the same form that holds something else, in order.

    >>> replaced({"w": (1.0, 2.0), "b": 3.0}, iter("xyz"))
    {'w': ('x', 'y'), 'b': 'z'}
    """
    if isinstance(value, dict):
        parts = {key: replaced(part, content) for key, part in value.items()}
        if type(value) is dict:
            return parts
        made = copy.copy(value)  # what a class of the user's takes to be made is not known
        made.update(parts)
        return made
    if isinstance(value, (list, tuple)):
        found = [replaced(part, content) for part in value]
        return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    return next(content)


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return a structure of the same form with a function of everything that it holds."""
    if not isinstance(value, (dict, list, tuple)):
        return function(value)
    return replaced(value, (function(leaf) for _, leaf in leaves(value)))


def matched(op: str, given: Any, form: Any, argument: str, of: str) -> Iterator[tuple[str, Any]]:
    """Return what a structure holds, with the path of each, in the order of another one.

    Dicts are paired by key, lists and tuples by place.

    - op: Who asks, for messages.
    - given, form: The structure, and the one that it is to have.
    - argument, of (str): What messages call them.
    - Raises ValueError: The structures differ; names both.

    >>> list(matched("f", {"b": 3.0, "w": [1.0]}, {"w": ["x"], "b": "y"}, "p", "q"))
    [("p['w'][0]", 1.0), ("p['b']", 3.0)]
    """
    place = _difference(given, form, argument)
    if place is not None:
        received = f"{argument} of structure {described(given)}"
        expected = f"the structure of {of}, {described(form)}"
        fix = f"They differ at {place}: dicts are paired by key, lists and tuples by place."
        raise ValueError(explain(op, received, expected, fix))
    return _along(given, form, argument)


def described(value: Any) -> str:
    """Return a structure as text, a star for what it holds.

    >>> described({"w": (1.0, None), "b": [np.ones(2)]})
    "{'w': (*, None), 'b': [*]}"
    """
    text = _spelled(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _spelled(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {_spelled(part)}" for key, part in value.items()) + "}"
    if not isinstance(value, (list, tuple)):
        return "None" if value is None else "*"
    parts = list(map(_spelled, value))
    if hasattr(value, "_fields"):
        pairs = zip(value._fields, parts, strict=True)
        return f"{type(value).__name__}({', '.join(f'{name}={part}' for name, part in pairs)})"
    if isinstance(value, list):
        return f"[{', '.join(parts)}]"
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _difference(given: Any, form: Any, path: str) -> str | None:
    """Return the path of the first place where two structures differ, None where none does."""
    if isinstance(form, dict):
        if not isinstance(given, dict) or given.keys() != form.keys():
            return path
        parts = [(given[key], form[key], f"{path}[{key!r}]") for key in form]
    elif isinstance(form, (list, tuple)):
        if not isinstance(given, (list, tuple)) or len(given) != len(form):
            return path
        fields = {x._fields for x in (given, form) if hasattr(x, "_fields")}
        if len(fields) > 1:  # two named tuples, of other names
            return path
        pairs = enumerate(zip(given, form, strict=True))
        parts = [(a, b, f"{path}[{i}]") for i, (a, b) in pairs]
    else:
        return path if isinstance(given, (dict, list, tuple)) else None
    return next(filter(None, (_difference(*part) for part in parts)), None)


def _along(given: Any, form: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(form, dict):
        for key, part in form.items():
            yield from _along(given[key], part, f"{path}[{key!r}]")
    elif isinstance(form, (list, tuple)):
        for i, (a, b) in enumerate(zip(given, form, strict=True)):
            yield from _along(a, b, f"{path}[{i}]")
    else:
        yield path, given


class Layout:
    """Where the numbers of a structure lie in one vector: in its order, row by row.

    - model: Floats and arrays, and dicts, lists and tuples of them.

    >>> layout = Layout({"w": np.ones((1, 2)), "b": 3.0})
    >>> layout.vector({"w": np.array([[5.0, 6.0]]), "b": 7.0})
    array([5., 6., 7.])
    >>> layout.structure(np.array([5.0, 6.0, 7.0]))
    {'w': array([[5., 6.]]), 'b': 7.0}
    """

    def __init__(self, model: Any) -> None:
        self._model = model

    @staticmethod
    def vector(structure: Any) -> Array:
        """Return the numbers of a structure of this form as float64."""
        parts = [np.ravel(leaf) for _, leaf in leaves(structure)]
        return np.concatenate(parts, dtype=np.float64) if parts else np.zeros(0)

    def structure(self, vector: Array) -> Any:
        """Return the structure that holds the numbers of a vector, in memory of its own."""
        return replaced(self._model, self._cut(vector))

    def _cut(self, vector: Array) -> Iterator[Any]:
        start = 0
        for _, leaf in leaves(self._model):
            stop = start + math.prod(np.shape(leaf))
            part = np.array(vector[start:stop]).reshape(np.shape(leaf))
            yield part if isinstance(leaf, np.ndarray) else float(part)
            start = stop
