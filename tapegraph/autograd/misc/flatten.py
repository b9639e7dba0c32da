"""`flatten`: structures of arrays as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tapegraph.autograd.boxes import number


def flatten(value: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the numbers of a structure as one vector, and the function that goes back.

    :param value: Numbers and arrays, traced ones too, in lists, tuples and dicts. Dicts are read in
        the order of their sorted keys.
    :returns: The vector, and the function from such a vector to the structure.

    >>> from tapegraph.autograd.misc import flatten
    >>> flat, unflatten = flatten({"w": np.ones((1, 2)), "b": 3.0})
    >>> flat
    array([3., 1., 1.])
    >>> unflatten(2 * flat)["w"]
    array([[2., 2.]])
    """
    parts = list(_in_order(value))
    flat = np.concatenate([np.ravel(part) for part in parts]) if parts else np.array([])

    def unflatten(vector: Any) -> Any:
        """Return the structure that a vector holds the numbers of."""
        return _rebuilt(value, _cut(vector, map(np.shape, parts)))

    return flat, unflatten


def flatten_func(func: Callable[..., Any], example: Any) -> tuple[Any, Any, Any]:
    """Return a function of structures as one of vectors, `unflatten`, and the example's vector."""
    flat_example, unflatten = flatten(example)

    def flat_func(x: Any, *args: Any) -> Any:
        return flatten(func(unflatten(x), *args))[0]

    return flat_func, unflatten, flat_example


def _in_order(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _in_order(part)
    else:
        yield value


def _cut(vector: Any, shapes: Iterable[tuple[int, ...]]) -> Iterator[Any]:
    """Yield the arrays and numbers of some shapes whose elements a vector holds."""
    start = 0
    for shape in shapes:
        stop = start + math.prod(shape)
        yield number(np.reshape(vector[start:stop], shape))
        start = stop


def _rebuilt(value: Any, parts: Iterator[Any]) -> Any:
    if isinstance(value, dict):
        found = {key: _rebuilt(value[key], parts) for key in sorted(value)}
        return {key: found[key] for key in value}
    if isinstance(value, (list, tuple)):
        made = [_rebuilt(part, parts) for part in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return next(parts)
