"""Dicts, lists and tuples of arrays and numbers: their content, and the same form with other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


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
