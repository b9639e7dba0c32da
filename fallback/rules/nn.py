"""VJP rules: neural networks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import numpy as np

from tapegraph.fallback.rules import Gradients, JointVJP, Row, to_ndarray
from tapegraph.ops.elementwise import select_bits
from tapegraph.ops.index import scatter
from tapegraph.ops.nn import (
    Pair,
    conv2d,
    cropped,
    firsts,
    images_first,
    images_last,
    overlap_add,
    padded,
    padded_shape,
    places_of,
    planes,
    valid_counts,
)
from tapegraph.ops.reduce import softmax
from tapegraph.ops.special import log_softmax
from tapegraph.typed import Array, Cotangent


def _layer_norm(
    needs: list[bool],
    g: Cotangent,
    _: Array,
    x: Array,
    gamma: Array,
    beta: Array,
    *,
    eps: float,
    saved: tuple[Array, Array] | None = None,
) -> Gradients:
    if saved is None:  # on Tensors
        centred = x - x.mean(axis=-1, keepdims=True)
        inverse = 1.0 / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + eps)
        normal = centred * inverse
    else:
        normal, inverse = saved
    gx = None
    if needs[0]:
        gx = g * gamma
        along = np.expand_dims(np.vecdot(gx, normal), -1) / x.shape[-1]
        gx -= gx.sum(axis=-1, keepdims=True) / x.shape[-1]
        gx -= normal * along
        gx *= inverse
    return [gx, g * normal if needs[1] else None, g]


def _conv2d(
    needs: list[bool],
    g: Cotangent,
    _: Array,
    x: Array,
    k: Array,
    *,
    stride: Pair,
    pad: Pair,
    dilation: Pair,
    saved: Array,
) -> Gradients:
    n, o, oh, ow = g.shape
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


def _max_pool2d(g: Cotangent, y: Array, x: Array, **window: Pair) -> Array:
    if g.strides != y.strides:  # in the order of y's memory, where it is read once a window offset
        g, unordered = np.empty_like(y), g
        g[...] = unordered
    chosen = (select_bits(to_ndarray(g), here) for here in firsts(x, y, **window))
    return _spread(chosen, x, **window)


def _avg_pool2d(g: Cotangent, y: Array, x: Array, **window: Pair) -> Array:
    shared = g / valid_counts(x.shape, **window).astype(x.dtype)
    return _spread(itertools.repeat(shared), x, **window)


def _spread(parts: Iterable[Array], x: Array, ksize: Pair, stride: Pair, pad: Pair) -> Array:
    out = np.zeros_like(x, shape=padded_shape(x.shape, pad))
    for plane, part in zip(planes(out, ksize, stride), parts, strict=False):
        plane += part
    return cropped(out, pad)


def _softmax_crossentropy(
    needs: list[bool], g: Cotangent, y: Array, logits: Array, targets: Array, *, saved: Array
) -> Gradients:
    exps, total = saved
    rows = max(1, math.prod(logits.shape[:-1]))
    share = g / rows
    if targets.ndim < logits.ndim:
        residual = np.ascontiguousarray(to_ndarray(exps * (share / total)))
        residual.ravel()[places_of(targets, logits.shape[-1])] -= to_ndarray(share)
        return [residual, None]
    glogits = gtargets = None
    if needs[0]:
        glogits = share * (exps / total * targets.sum(axis=-1, keepdims=True) - targets)
    if needs[1]:
        shifted = logits - logits.max(axis=-1, keepdims=True, initial=-np.inf)
        gtargets = share * (np.log(np.exp(shifted).sum(axis=-1, keepdims=True)) - shifted)
    return [glogits, gtargets]


def _mse_loss(
    needs: list[bool],
    g: Cotangent,
    y: Array,
    prediction: Array,
    target: Array,
    *,
    saved: Array | None = None,
) -> Gradients:
    missed = prediction - target if saved is None else saved
    slope = missed * (g * (2.0 / max(1, missed.size)))
    return [slope, -slope if needs[1] else None]


# On Tensors


def _conv2d_recorded(
    needs: list[bool],
    g: Cotangent,
    y: Array,
    x: Array,
    k: Array,
    *,
    stride: Pair,
    pad: Pair,
    dilation: Pair,
) -> Gradients:
    gx = gk = None
    (n, _, h, w), (kh, kw) = x.shape, k.shape[2:]
    if needs[0]:
        # Each output spread over its inputs: the turned kernel, over the
        # cotangent with zeros between its elements and around it.
        reach = (dilation[0] * (kh - 1), dilation[1] * (kw - 1))
        shape = (n, k.shape[0], h + 2 * pad[0] + reach[0], w + 2 * pad[1] + reach[1])
        places = np.arange(math.prod(shape)).reshape(shape)
        places = places[:, :, reach[0] :: stride[0], reach[1] :: stride[1]]
        spread = scatter(g, places[:, :, : g.shape[2], : g.shape[3]], shape)
        turned = np.flip(k, (2, 3)).transpose(1, 0, 2, 3)
        gx = cropped(conv2d(spread, turned, dilation=dilation), pad)
    if needs[1]:
        # The cotangent is the kernel; how far its elements are apart is the stride.
        images, kernels = x.transpose(1, 0, 2, 3), g.transpose(1, 0, 2, 3)
        made = conv2d(images, kernels, stride=dilation, pad=pad, dilation=stride)
        gk = made.transpose(1, 0, 2, 3)[:, :, :kh, :kw]
    return [gx, gk]


def _max_pool2d_recorded(
    g: Cotangent, y: Array, x: Array, *, ksize: Pair, stride: Pair, pad: Pair
) -> Array:
    (ph, pw), zero = pad, np.zeros((), x.dtype)
    image = np.pad(x, ((0, 0), (0, 0), (ph, ph), (pw, pw)), constant_values=-np.inf)
    inside = planes(padded(np.ones((1, 1, *x.shape[2:]), np.bool_), pad, False), ksize, stride)
    taken: Array = np.zeros(y.shape, np.bool_)
    parts = []
    for plane, pixels in zip(planes(image, ksize, stride), inside, strict=True):
        same = np.logical_or(plane == y, np.logical_and(np.isnan(plane), np.isnan(y)))
        first = np.logical_and(np.logical_and(same, pixels), np.logical_not(taken))
        taken = np.logical_or(taken, first)
        parts.append(np.where(first, g, zero))
    return _spread_recorded(np.stack(parts), x.shape, ksize, stride, pad)


def _avg_pool2d_recorded(g: Cotangent, y: Array, x: Array, **window: Pair) -> Array:
    shared = g / valid_counts(x.shape, **window).astype(x.dtype)
    parts = np.broadcast_to(shared, (math.prod(window["ksize"]), *shared.shape))
    return _spread_recorded(parts, x.shape, **window)


def _spread_recorded(
    parts: Array, shape: tuple[int, ...], ksize: Pair, stride: Pair, pad: Pair
) -> Array:
    full = padded_shape(shape, pad)
    places = np.arange(math.prod(full)).reshape(full)
    return cropped(scatter(parts, np.stack(planes(places, ksize, stride)), full), pad)


def _softmax_crossentropy_recorded(
    needs: list[bool], g: Cotangent, y: Array, logits: Array, targets: Array
) -> Gradients:
    share = g / max(1, math.prod(logits.shape[:-1]))
    if targets.ndim < logits.ndim:
        one, zero = np.ones((), logits.dtype), np.zeros((), logits.dtype)
        chosen = np.expand_dims(targets, -1) == np.arange(logits.shape[-1])
        return [share * (softmax(logits) - np.where(chosen, one, zero)), None]
    glogits = gtargets = None
    if needs[0]:
        glogits = share * (softmax(logits) * targets.sum(axis=-1, keepdims=True) - targets)
    if needs[1]:
        gtargets = share * -log_softmax(logits, -1)
    return [glogits, gtargets]


VJPS: dict[str, Row] = {
    "layer_norm": JointVJP(_layer_norm),
    "conv2d": JointVJP(_conv2d),
    "max_pool2d": (_max_pool2d,),
    "avg_pool2d": (_avg_pool2d,),
    "softmax_crossentropy": JointVJP(_softmax_crossentropy),
    "mse_loss": JointVJP(_mse_loss),
}

RECORDED: dict[str, Row] = {
    "conv2d": JointVJP(_conv2d_recorded),
    "max_pool2d": (_max_pool2d_recorded,),
    "avg_pool2d": (_avg_pool2d_recorded,),
    "softmax_crossentropy": JointVJP(_softmax_crossentropy_recorded),
}
