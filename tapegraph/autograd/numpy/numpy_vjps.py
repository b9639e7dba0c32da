"""Undoing broadcasting, for vector-Jacobian products of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def unbroadcast_f(target: Any, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Let a vector-Jacobian product of a broadcast argument end in the argument's shape.

    :param target: The argument.
    :param f: From the cotangent of the result to one of its shape.
    :returns: The same, summed over what was broadcast.
    """
    shape = np.shape(target)
    return lambda g: _summed(f(g), shape)


def unbroadcast(x: Any, target_meta: tuple[Any, ...], broadcast_idx: int = 0) -> Any:
    """Sum an array over the axes along which something of a shape was broadcast to it.

    :param x: The array.
    :param target_meta: What `tapegraph.autograd.numpy.metadata` told of the target, its shape
        first.
    :param broadcast_idx: Where axes were added: 0 for the front, -1 for the end.
    """
    return _summed(x, target_meta[0], broadcast_idx)


def _summed(x: Any, shape: tuple[int, ...], place: int = 0) -> Any:
    while np.ndim(x) > len(shape):
        x = np.sum(x, axis=place)
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and np.shape(x)[axis] != 1)
    return np.sum(x, axis=axes, keepdims=True) if axes else x
