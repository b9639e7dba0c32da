"""VJP rules: over axes: sums, extremes, statistics, softmax."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ops.reduce import kept_shape, last_order
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


def _extreme(g: Any, y: Array, x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    kept = kept_shape(x.shape, axis)
    chosen = (x == y.reshape(kept)) | (x != x)  # NaNs are what a NaN was chosen from
    return g.reshape(kept) * chosen / chosen.sum(axis=axis, keepdims=True, dtype=x.dtype)


def _prod(g: Any, y: Array, x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return g.reshape(kept_shape(x.shape, axis)) * _others(x, axis)


def _others(x: Array, axis: tuple[int, ...]) -> Array:
    """Return the product of all other elements along some axes, without dividing."""
    order = last_order(x.ndim, axis)
    moved = x.transpose(order)
    rest = moved.shape[: x.ndim - len(axis)]
    flat = moved.reshape(*rest, math.prod(moved.shape[len(rest) :]))
    out, after = np.ones_like(flat), np.ones_like(flat)
    out[..., 1:] = flat[..., :-1].cumprod(axis=-1)
    after[..., :-1] = flat[..., :0:-1].cumprod(axis=-1)[..., ::-1]
    out *= after
    others: Array = out.reshape(moved.shape).transpose(np.argsort(order))
    return others


def _cumsum(g: Any, y: Array, x: Array, *, axis: int) -> Any:
    return np.flip(np.flip(g, axis).cumsum(axis=axis), axis)


def _cumprod(g: Any, y: Array, x: Array, *, axis: int) -> Any:
    """Solve ``h[k] = g[k] + x[k+1] h[k+1]`` by doubling; then ``dx[k] = h[k] y[k-1]``.

    Nothing is divided by ``x``, so that zeros are exact.
    """
    h = np.array(np.moveaxis(g, axis, 0), subok=True)
    values = np.moveaxis(x, axis, 0)
    reach = np.ones_like(values)  # the product from the next element to the farthest one in h
    reach[:-1] = values[1:]
    step = 1
    while step < len(h):
        h[:-step] += h[step:] * reach[:-step]
        reach[:-step] *= reach[step:].copy()
        step *= 2
    before = np.ones_like(values)
    before[1:] = np.moveaxis(y, axis, 0)[:-1]
    return np.moveaxis(h * before, 0, axis)


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "sum": (_sum,),
    "mean": (_mean,),
    "softmax": (_softmax,),
    "max": (_extreme,),
    "min": (_extreme,),
    "prod": (_prod,),
    "cumsum": (_cumsum,),
    "cumprod": (_cumprod,),
}
