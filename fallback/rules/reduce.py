"""VJP rules: sums, extremes, statistics, softmax."""

from __future__ import annotations

import math

import numpy as np

from tapegraph.fallback.rules import Row, Rule
from tapegraph.ops.reduce import kept_shape, last_order
from tapegraph.typed import Array, Cotangent


def _spread(g: Cotangent, x: Array, axis: tuple[int, ...], keepdims: bool) -> Array:
    """Repeat the cotangent of a reduction over the axes that it removed."""
    if type(g) is np.ndarray and not g.ndim:  # five times as fast as `np.broadcast_to`
        out: Array = np.ndarray(x.shape, g.dtype, g, 0, (0,) * len(x.shape))
        out.flags.writeable = False
        return out
    if not keepdims and g.ndim:
        g = np.expand_dims(g, axis)
    return np.broadcast_to(g, x.shape)


def _mean(g: Cotangent, y: Array, x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Array:
    count = math.prod(x.shape[a] for a in axis)
    return _spread(g / count if count else g, x, axis, keepdims)


_dot: Rule = np.vecdot  # NumPy's types do not know its axis


def _softmax(g: Cotangent, y: Array, x: Array, *, axis: int) -> Array:
    out = g - np.expand_dims(_dot(g, y, axis=axis), axis)
    out *= y
    return out


def _extreme(g: Cotangent, y: Array, x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Array:
    kept = kept_shape(x.shape, axis)
    chosen = np.logical_or(x == y.reshape(kept), np.isnan(x))  # a NaN was chosen from NaNs
    one, zero = np.ones((), x.dtype), np.zeros((), x.dtype)
    count = np.sum(np.where(chosen, one, zero), axis=axis, keepdims=True)
    return np.where(chosen, g.reshape(kept), zero) / count


def _prod(g: Cotangent, y: Array, x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Array:
    return g.reshape(kept_shape(x.shape, axis)) * _others(x, axis)


def _others(x: Array, axis: tuple[int, ...]) -> Array:
    """Return the product of all other elements along some axes, without dividing."""
    order = last_order(x.ndim, axis)
    moved = x.transpose(order)
    rest = moved.shape[: x.ndim - len(axis)]
    flat = moved.reshape((*rest, math.prod(moved.shape[len(rest) :])))
    one = np.ones((*rest, min(1, flat.shape[-1])), x.dtype)
    before = np.concatenate([one, np.cumprod(flat[..., :-1], axis=-1)], -1)
    after = np.flip(np.cumprod(np.flip(flat[..., 1:], -1), axis=-1), -1)
    others = before * np.concatenate([after, one], -1)
    return others.reshape(moved.shape).transpose(tuple(np.argsort(order).tolist()))


def _cumsum(g: Cotangent, y: Array, x: Array, *, axis: int) -> Array:
    return np.flip(np.flip(g, axis).cumsum(axis=axis), axis)


# From so many running products side by side, a step at a time takes less than log2(length) passes.
WIDE = 64


def _cumprod(g: Cotangent, y: Array, x: Array, *, axis: int) -> Array:
    """Solve ``h[k] = g[k] + x[k+1] h[k+1]``; then ``dx[k] = h[k] y[k-1]``, exact at zeros."""
    h = np.array(np.moveaxis(g, axis, 0), order="C", subok=True)
    values = np.ascontiguousarray(np.moveaxis(x, axis, 0))
    if values.size >= WIDE * len(values):
        for k in range(len(h) - 2, -1, -1):
            h[k] += h[k + 1] * values[k + 1]
    else:
        reach = np.ones_like(values)  # the product from the next element to the farthest one in h
        reach[:-1] = values[1:]
        step = 1
        while step < len(h):
            h[:-step] += h[step:] * reach[:-step]
            reach[:-step] *= reach[step:].copy()
            step *= 2
    h[1:] *= np.moveaxis(y, axis, 0)[:-1]
    return np.moveaxis(h, 0, axis)


# On Tensors


def _cumprod_recorded(g: Cotangent, y: Array, x: Array, *, axis: int) -> Array:
    h, values = np.moveaxis(g, axis, 0), np.moveaxis(x, axis, 0)
    one = np.ones((min(1, len(values)), *values.shape[1:]), x.dtype)
    reach = np.concatenate([values[1:], one])
    step = 1
    while step < len(values):
        h = np.concatenate([h[:-step] + h[step:] * reach[:-step], h[-step:]])
        reach = np.concatenate([reach[:-step] * reach[step:], reach[-step:]])
        step *= 2
    before = np.concatenate([one, np.moveaxis(y, axis, 0)[:-1]])
    return np.moveaxis(h * before, 0, axis)


VJPS: dict[str, Row] = {
    "sum": (lambda g, y, x, *, axis, keepdims: _spread(g, x, axis, keepdims),),
    "mean": (_mean,),
    "softmax": (_softmax,),
    "max": (_extreme,),
    "min": (_extreme,),
    "prod": (_prod,),
    "cumsum": (_cumsum,),
    "cumprod": (_cumprod,),
}

RECORDED: dict[str, Row] = {
    "cumprod": (_cumprod_recorded,),
}
