"""Dicts, lists and tuples of arrays and numbers: their content, and the same form with other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tapegraph.typed import Array


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
        return parts if type(value) is dict else type(value)(parts)
    if isinstance(value, (list, tuple)):
        found = [replaced(part, content) for part in value]
        return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    return next(content)


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """Return a structure of the same form with a function of everything that it holds."""
    return replaced(value, (function(leaf) for _, leaf in leaves(value)))


class Layout:
    """Where the numbers of a structure lie in one vector: in its order, row by row.

    Parameters
    ----------
    model
        Floats and arrays, and dicts, lists and tuples of them.

    Examples
    --------
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
