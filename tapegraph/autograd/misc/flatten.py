"""`flatten`: trees of arrays to one vector, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.boxes import number
from tapegraph.pytree import cut, leaves, replaced
from tapegraph.typed import Fun, Pytree


def flatten(value: Pytree) -> tuple[Any, Fun]:
    """Return the numbers of a tree as one vector, and the function that restores the tree.

    :param value: Numbers and arrays, traced ones too, in lists, tuples and dicts with sorted keys.

    >>> from tapegraph.autograd.misc import flatten
    >>> flat, unflatten = flatten({"w": np.ones((1, 2)), "b": 3.0})
    >>> flat, unflatten(2 * flat)["w"]
    (array([3., 1., 1.]), array([[2., 2.]]))
    """
    parts = [part for _, part in leaves(value, keys=sorted)]
    flat = np.concatenate([np.ravel(part) for part in parts]) if parts else np.array([])

    def unflatten(vector: object) -> Pytree:
        return replaced(value, map(number, cut(vector, map(np.shape, parts))), sorted)

    return flat, unflatten


def flatten_func(func: Fun, example: Pytree) -> tuple[Any, Any, Any]:
    """Return a function of trees as one of vectors, with `unflatten` and the example's vector."""
    flat_example, unflatten = flatten(example)

    def flat_func(x: Pytree, *args: Pytree) -> Pytree:
        return flatten(func(unflatten(x), *args))[0]

    return flat_func, unflatten, flat_example
