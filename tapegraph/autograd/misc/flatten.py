"""`flatten`: structures of arrays as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.autograd.traced import number


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the numbers of a structure as one vector, and the function that goes back.

    - value: Numbers and arrays, traced ones too, in lists, tuples and dicts. Dicts are read in the
      order of their sorted keys.
    - Returns flat (array of shape (n,))
    - Returns unflatten (callable): From such a vector to the structure.

    >>> import numpy as np
    >>> from tapegraph.autograd.misc import flatten
    >>> flat, unflatten = flatten({"w": np.ones((1, 2)), "b": 3.0})
    >>> flat
    array([3., 1., 1.])
    >>> unflatten(2 * flat)["w"]
    array([[2., 2.]])
    """
    parts: list[Any] = []
    _collect(value, parts)
    flat = np.concatenate([np.ravel(part) for part in parts]) if parts else np.array([])

    def unflatten(vector: Any) -> Any:
        """Return the structure that a vector holds the numbers of."""
        return _rebuilt(value, vector, 0)[0]

    return flat, unflatten


def flatten_func(func: Callable[..., Any], example: Any) -> tuple[Any, Any, Any]:
    """Return a function of structures as one of vectors, `unflatten`, and the example's vector."""
    flat_example, unflatten = flatten(example)

    def flat_func(x: Any, *args: Any) -> Any:
        return flatten(func(unflatten(x), *args))[0]

    return flat_func, unflatten, flat_example


def _collect(value: Any, parts: list[Any]) -> None:
    if isinstance(value, dict):
        for key in sorted(value):
            _collect(value[key], parts)
    elif isinstance(value, (list, tuple)):
        for part in value:
            _collect(part, parts)
    else:
        parts.append(value)


def _rebuilt(value: Any, vector: Any, start: int) -> tuple[Any, int]:
    """Return a structure like ``value`` of what a vector holds from a place on, and the next."""
    if isinstance(value, dict):
        found = {}
        for key in sorted(value):
            found[key], start = _rebuilt(value[key], vector, start)
        return {key: found[key] for key in value}, start
    if isinstance(value, (list, tuple)):
        parts = []
        for part in value:
            rebuilt, start = _rebuilt(part, vector, start)
            parts.append(rebuilt)
        made = type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        return made, start
    stop = start + math.prod(np.shape(value))
    return number(np.reshape(vector[start:stop], np.shape(value))), stop
