"""Gradients of the reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.fallback.rules import Joint, Rule
from tapegraph.typed import Array


def _spread(g: Any, x: Array, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Repeat the cotangent of a reduction over the axes that it removed."""
    if not keepdims and g.ndim:
        g = np.expand_dims(g, axis)
    return np.broadcast_to(g, x.shape)


def _sum(g: Any, y: Array, x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return _spread(g, x, axis, keepdims)


def _mean(g: Any, y: Array, x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    count = math.prod(x.shape[a] for a in axis)
    return _spread(g / count if count else g, x, axis, keepdims)


_dot: Any = np.vecdot  # NumPy's types do not know its axis


def _softmax(g: Any, y: Array, x: Array, *, axis: int) -> Any:
    out = g - np.expand_dims(_dot(g, y, axis=axis), axis)
    out *= y
    return out


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "sum": (_sum,),
    "mean": (_mean,),
    "softmax": (_softmax,),
}
