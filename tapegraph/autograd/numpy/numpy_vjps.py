"""Broadcast and unbroadcast, for custom rules; `numpy_jvps` is another name of this module."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.typed import DuckArray, Fun


def unbroadcast_f(target: DuckArray, f: Fun) -> Fun:
    """Let a vector-Jacobian product of a broadcast argument end in the argument's shape.

    :param target: The argument.
    :param f: From the cotangent of the result to one of its shape.
    :returns: The same, summed over what was broadcast.
    """
    metadata = (np.shape(target),)
    return lambda g: unbroadcast(f(g), metadata)


def unbroadcast(x: DuckArray, target_meta: tuple[Any, ...], broadcast_idx: int = 0) -> DuckArray:
    """Sum an array over the axes along which something of a shape was broadcast to it.

    :param x: The array.
    :param target_meta: What `tapegraph.autograd.numpy.metadata` told of the target, its shape
        first.
    :param broadcast_idx: Where axes were added: 0 for the front, -1 for the end.
    """
    shape = target_meta[0]
    while np.ndim(x) > len(shape):
        x = np.sum(x, axis=broadcast_idx)
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and np.shape(x)[axis] != 1)
    return np.sum(x, axis=axes, keepdims=True) if axes else x


def broadcast_f(target: DuckArray, f: Fun) -> Fun:
    """Let a Jacobian-vector product of a broadcast argument end in the result's shape.

    :param target: The result.
    :param f: From the tangent of the argument to one that broadcasts to the result's shape.
    """
    return lambda g: broadcast(f(g), target)


def broadcast(x: DuckArray, target: DuckArray) -> DuckArray:
    """Return an array in the shape of another, to which it broadcasts."""
    return np.broadcast_to(x, np.shape(target))
