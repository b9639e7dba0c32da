"""Gradients of layers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ir import Array
from tapegraph.ops.nn import Pair, overlap_add, valid_counts


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
    flat = g.reshape(n, o, oh * ow)
    gx = gk = None
    if needs[0]:
        columns = np.matmul(k.reshape(o, math.prod(k.shape[1:])).T, flat)
        parts = columns.reshape(n, *k.shape[1:], oh, ow)
        gx = overlap_add(parts, x.shape, stride, pad, dilation)
    if needs[1]:
        gk = np.matmul(flat, saved.swapaxes(1, 2)).sum(axis=0).reshape(k.shape)
    return [gx, gk]


def _max_pool2d(
    g: Any, y: Array, x: Array, *, ksize: Pair, stride: Pair, pad: Pair, saved: Array
) -> Any:
    offsets = np.arange(math.prod(ksize)).reshape(1, 1, *ksize, 1, 1)
    parts = np.where(offsets == saved[:, :, None, None], g[:, :, None, None], 0.0)
    return overlap_add(parts, x.shape, stride, pad)


def _avg_pool2d(g: Any, y: Array, x: Array, *, ksize: Pair, stride: Pair, pad: Pair) -> Any:
    shared = g / valid_counts(x.shape, ksize, stride, pad).astype(x.dtype)
    n, c, oh, ow = y.shape
    parts = np.broadcast_to(shared[:, :, None, None], (n, c, *ksize, oh, ow))
    return overlap_add(parts, x.shape, stride, pad)


def _softmax_crossentropy(
    needs: list[bool], g: Any, y: Array, logits: Array, targets: Array, *, saved: Array
) -> list[Any]:
    rows = max(1, math.prod(logits.shape[:-1]))
    share = g / rows
    if targets.ndim < logits.ndim:
        residual = saved.copy()
        places = targets[..., None]
        at = np.take_along_axis(residual, places, axis=-1)
        np.put_along_axis(residual, places, at - 1, axis=-1)
        return [share * residual, None]
    glogits = gtargets = None
    if needs[0]:
        glogits = share * (saved * targets.sum(axis=-1, keepdims=True) - targets)
    if needs[1]:
        shifted = logits - logits.max(axis=-1, keepdims=True)
        gtargets = share * (np.log(np.exp(shifted).sum(axis=-1, keepdims=True)) - shifted)
    return [glogits, gtargets]


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "layer_norm": Joint(_layer_norm),
    "conv2d": Joint(_conv2d),
    "max_pool2d": (_max_pool2d,),
    "avg_pool2d": (_avg_pool2d,),
    "softmax_crossentropy": Joint(_softmax_crossentropy),
}
