"""VJP rules: neural networks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from tapegraph.arrays.bit_select import kept
from tapegraph.fallback.rules import Joint, Rule
from tapegraph.fallback.strong_zero import plain
from tapegraph.ops.nn import (
    Pair,
    cropped,
    firsts,
    images_first,
    images_last,
    overlap_add,
    padded_shape,
    places_of,
    planes,
    valid_counts,
)
from tapegraph.typed import Array


def _layer_norm(
    needs: list[bool], g: Any, y: Array, x: Array, gamma: Any, beta: Any, *, eps: float, saved: Any
) -> list[Any]:
    normal, inverse = saved
    gx = None
    if needs[0]:
        scaled = g * gamma
        along = (scaled * normal).mean(axis=-1, keepdims=True)
        gx = (scaled - scaled.mean(axis=-1, keepdims=True) - normal * along) * inverse
    return [gx, g * normal if needs[1] else None, g]


def _conv2d(
    needs: list[bool],
    g: Any,
    y: Array,
    x: Array,
    k: Array,
    *,
    stride: Pair,
    pad: Pair,
    dilation: Pair,
    saved: Array,
) -> list[Any]:
    n, o, oh, ow = y.shape
    flat = images_last(g).reshape(o, oh * ow * n)
    gx = gk = None
    if needs[0]:
        c, h, w = x.shape[1], x.shape[2] + 2 * pad[0], x.shape[3] + 2 * pad[1]
        columns = np.matmul(k.reshape(o, saved.shape[0]).T, flat)
        parts = columns.reshape(*k.shape[1:], oh, ow, n)
        gx = cropped(images_first(overlap_add(parts, (c, h, w, n), stride, dilation)), pad)
    if needs[1]:
        gk = np.matmul(flat, saved.T).reshape(k.shape)
    return [gx, gk]


def _max_pool2d(g: Any, y: Array, x: Array, *, ksize: Pair, stride: Pair, pad: Pair) -> Any:
    if g.strides != y.strides:  # in the order of y's memory, where it is read once a window offset
        g, unordered = np.empty_like(y), g
        g[...] = unordered
    chosen = (kept(plain(g), here) for here in firsts(x, y, ksize, stride, pad))
    return _spread(chosen, x, ksize, stride, pad)


def _avg_pool2d(g: Any, y: Array, x: Array, *, ksize: Pair, stride: Pair, pad: Pair) -> Any:
    shared = g / valid_counts(x.shape, ksize, stride, pad).astype(x.dtype)
    return _spread(itertools.repeat(shared), x, ksize, stride, pad)


def _spread(parts: Iterable[Any], x: Array, ksize: Pair, stride: Pair, pad: Pair) -> Any:
    """Add to each place of the padded image what each window offset sends there."""
    out = np.zeros_like(x, shape=padded_shape(x.shape, pad))
    for plane, part in zip(planes(out, ksize, stride), parts, strict=False):
        plane += part
    return cropped(out, pad)


def _softmax_crossentropy(
    needs: list[bool], g: Any, y: Array, logits: Array, targets: Array, *, saved: Array
) -> list[Any]:
    rows = max(1, math.prod(logits.shape[:-1]))
    share = g / rows
    if targets.ndim < logits.ndim:
        residual = saved.copy("C")
        residual.ravel()[places_of(targets, logits.shape[-1])] -= 1
        return [share * residual, None]
    glogits = gtargets = None
    if needs[0]:
        glogits = share * (saved * targets.sum(axis=-1, keepdims=True) - targets)
    if needs[1]:
        shifted = logits - logits.max(axis=-1, keepdims=True, initial=-np.inf)
        gtargets = share * (np.log(np.exp(shifted).sum(axis=-1, keepdims=True)) - shifted)
    return [glogits, gtargets]


def _mse_loss(
    needs: list[bool], g: Any, y: Array, prediction: Array, target: Array, *, saved: Array
) -> list[Any]:
    slope = saved * (g * (2.0 / max(1, saved.size)))
    return [slope, -slope if needs[1] else None]


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "layer_norm": Joint(_layer_norm),
    "conv2d": Joint(_conv2d),
    "max_pool2d": (_max_pool2d,),
    "avg_pool2d": (_avg_pool2d,),
    "softmax_crossentropy": Joint(_softmax_crossentropy),
    "mse_loss": Joint(_mse_loss),
}
