"""JVP rules: neural networks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.differentiation.jvps.rules import Rule, linear_in_first, mul_strong, per_input, value
from tapegraph.ops import nn, reduce
from tapegraph.ops.elementwise import exp, log, sqrt, where
from tapegraph.ops.index import INDEX
from tapegraph.ops.nn import Pair
from tapegraph.recording.node import as_leaf
from tapegraph.recording.record import apply


def _layer_norm(
    tangents: tuple[Any, ...], y: Any, x: Any, gamma: Any, beta: Any, *, eps: float
) -> Any:
    tx, tgamma, tbeta = tangents
    centred = x - _row_mean(x)
    inverse = 1.0 / sqrt(_row_mean(centred * centred) + eps)
    normal = centred * inverse
    total = tbeta
    if tgamma is not None:
        total = _sum(total, mul_strong(tgamma, normal))
    if tx is not None:
        moved = tx - _row_mean(tx)
        along = _row_mean(mul_strong(moved, normal))
        total = _sum(
            total, mul_strong(mul_strong(moved - mul_strong(along, normal), inverse), gamma)
        )
    return total


def _row_mean(x: Any) -> Any:
    return reduce.mean(x, axis=-1, keepdims=True)


def _sum(a: Any, b: Any) -> Any:
    return b if a is None else a + b


def _max_pool2d(t: Any, y: Any, x: Any, *, ksize: Pair, stride: Pair, pad: Pair) -> Any:
    array = value(x)
    hits = nn.firsts(array, value(y), ksize, stride, pad)
    first = np.argmax(np.stack(list(hits)), axis=0)
    n, c, row, column = np.indices(first.shape)
    row = row * stride[0] - pad[0] + first // ksize[1]
    column = column * stride[1] - pad[1] + first % ksize[1]
    return apply(INDEX, (t, *map(as_leaf, (n, c, row, column))), {"plan": ("array",) * 4})


def _softmax_crossentropy(tangents: tuple[Any, ...], y: Any, logits: Any, targets: Any) -> Any:
    tlogits, ttargets = tangents
    rows = max(1, math.prod(logits.shape[:-1]))
    total: Any = None
    if tlogits is not None:
        if targets.ndim < logits.ndim:
            one, zero = np.ones((), logits.dtype), np.zeros((), logits.dtype)
            chosen = np.expand_dims(targets, -1) == np.arange(logits.shape[-1])
            targets = where(chosen, one, zero)
        weight = reduce.sum(targets, axis=-1, keepdims=True)
        total = mul_strong(tlogits, reduce.softmax(logits) * weight - targets)
    if ttargets is not None:
        # Any constant shift gives the same derivative; the largest logit never overflows.
        shifted = logits - as_leaf(value(logits).max(axis=-1, keepdims=True, initial=-np.inf))
        normaliser = log(reduce.sum(exp(shifted), axis=-1, keepdims=True))
        total = _sum(total, mul_strong(ttargets, normaliser - shifted))
    return reduce.sum(total) / rows


def _mse_loss(tangents: tuple[Any, ...], y: Any, prediction: Any, target: Any) -> Any:
    moved, shifted = tangents
    approach = moved if shifted is None else -shifted if moved is None else moved - shifted
    slope = (prediction - target) * (2.0 / max(1, prediction.size))
    return reduce.sum(mul_strong(approach, slope))


JVPS: dict[str, Rule] = {
    "layer_norm": _layer_norm,
    "conv2d": per_input(
        lambda t, y, x, k, **attrs: apply(nn.CONV2D, (t, k), attrs),
        lambda t, y, x, k, **attrs: apply(nn.CONV2D, (x, t), attrs),
    ),
    "max_pool2d": per_input(_max_pool2d),
    "avg_pool2d": linear_in_first(nn.AVG_POOL2D),
    "softmax_crossentropy": _softmax_crossentropy,
    "mse_loss": _mse_loss,
}
