"""Broadcast and unbroadcast, for custom rules; `numpy_jvps` is another name of this module."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.typed import DuckArray, Fun


def unbroadcast_f(target: DuckArray, f: Fun) -> Fun:
    """Return the rule ``f`` of a broadcast argument, summed to the shape of the target."""
    metadata = (np.shape(target),)
    return lambda g: unbroadcast(f(g), metadata)


def unbroadcast(x: DuckArray, target_meta: tuple[Any, ...], broadcast_idx: int = 0) -> DuckArray:
    """Sum an array over the axes along which a target was broadcast to it.

    :param target_meta: The target's `tapegraph.autograd.numpy.metadata`.
    :param broadcast_idx: The position of added axes: 0 for the front, -1 for the end.
    """
    shape = target_meta[0]
    while np.ndim(x) > len(shape):
        x = np.sum(x, axis=broadcast_idx)
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1 and np.shape(x)[axis] != 1)
    return np.sum(x, axis=axes, keepdims=True) if axes else x


def broadcast_f(target: DuckArray, f: Fun) -> Fun:
    """Return the rule ``f`` of a broadcast argument, broadcast to the target's shape."""
    return lambda g: broadcast(f(g), target)


def broadcast(x: DuckArray, target: DuckArray) -> DuckArray:
    """Broadcast an array to the shape of another."""
    return np.broadcast_to(x, np.shape(target))
