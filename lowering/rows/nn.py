"""TensorFlow nodes: neural networks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.lowering.rows import images
from tapegraph.lowering.rows.rules import (
    BOTH,
    Row,
    Rule,
    converted,
    ints,
    number,
    raw,
    reshaped,
    summed_to,
)
from tapegraph.lowering.runtime import tensorflow


def _softmax_crossentropy(out: Any, logits: Any, targets: Any) -> Any:
    if targets.shape.rank == logits.shape.rank:
        # SoftmaxCrossEntropyWithLogits takes rows that sum to 1 for granted; these need not.
        weighted = raw.MulNoNan(x=raw.LogSoftmax(logits=logits), y=targets)
        rows = raw.Neg(x=raw.Sum(input=weighted, axis=ints([logits.shape.rank - 1])))
    else:
        count, classes = math.prod(logits.shape[:-1]), logits.shape[-1]
        if not classes:
            return raw.Mean(input=logits, axis=ints(range(logits.shape.rank)))  # of no rows
        if logits.shape.rank != 2:
            logits, targets = reshaped(logits, (count, classes)), reshaped(targets, (count,))
        rows = _row_losses(logits, targets)
    return raw.Mean(input=rows, axis=ints(range(rows.shape.rank)))


def _row_losses(logits: Any, targets: Any) -> Any:
    """Return the cross-entropy of each row with its class.

    SparseSoftmaxCrossEntropyWithLogits takes three times as long.
    """
    tf = tensorflow()
    last = ints([1])
    places = raw.ExpandDims(input=targets, axis=tf.constant(1))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def lowered(logits: Any) -> Any:
        shifted = raw.Sub(x=logits, y=raw.Max(input=logits, axis=last, keep_dims=True))
        odds = raw.Exp(x=shifted)
        total = raw.Sum(input=odds, axis=last, keep_dims=True)
        picked = raw.GatherV2(params=shifted, indices=places, axis=tf.constant(1), batch_dims=1)
        rows = raw.Squeeze(input=raw.Sub(x=raw.Log(x=total), y=picked), axis=[1])

        def gradient(g: Any) -> Any:
            g = raw.ExpandDims(input=g, axis=tf.constant(1))
            chosen = raw.OneHot(
                indices=targets,
                depth=tf.constant(logits.shape[1]),
                on_value=number(1.0, logits),
                off_value=number(0.0, logits),
            )
            return raw.Mul(x=raw.Sub(x=raw.RealDiv(x=odds, y=total), y=chosen), y=g)

        return rows, gradient

    return lowered(logits)


def _mse_loss(out: Any, prediction: Any, target: Any) -> Any:
    squares = raw.SquaredDifference(x=prediction, y=target)
    return raw.Mean(input=squares, axis=ints(range(squares.shape.rank)))


def _layer_norm(out: Any, x: Any, gamma: Any, beta: Any, *, eps: float) -> Any:
    return layer_normalised(out, x, gamma, beta, eps=eps, times=lambda a, b: raw.Mul(x=a, y=b))


def layer_normalised(out: Any, x: Any, gamma: Any, beta: Any, *, eps: float, times: Rule) -> Any:
    """Lower ``layer_norm`` with ``times`` to multiply a factor by a cotangent."""
    tf = tensorflow()

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def normalised(x: Any) -> Any:
        centred = raw.Sub(x=x, y=_row_mean(x))
        variance = _row_mean(raw.Mul(x=centred, y=centred))
        inverse = raw.Reciprocal(x=raw.Sqrt(x=raw.AddV2(x=variance, y=number(eps, x))))
        normal = raw.Mul(x=centred, y=inverse)

        def gradient(g: Any) -> Any:
            along = _row_mean(times(normal, g))
            return times(inverse, g - _row_mean(g) - times(normal, along))

        return normal, gradient

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def scaled(normal: Any, gamma: Any) -> Any:
        def gradient(g: Any) -> tuple[Any, Any]:
            return times(gamma, g), summed_to(times(normal, g), gamma.shape)

        return raw.Mul(x=normal, y=gamma), gradient

    # Every step in the precision that NumPy computes it in.
    normal = normalised(x if x.dtype.is_floating else converted(x, "float64"))
    kind = np.result_type(normal.dtype.as_numpy_dtype, gamma.dtype.as_numpy_dtype)
    y = scaled(converted(normal, kind), converted(gamma, kind))
    return raw.AddV2(x=converted(y, out.dtype), y=converted(beta, out.dtype))


def _row_mean(x: Any) -> Any:
    return raw.Mean(input=x, axis=ints([x.shape.rank - 1]), keep_dims=True)


LOWERINGS: dict[str, Row | Rule] = {
    "softmax_crossentropy": Row(_softmax_crossentropy, BOTH),
    "mse_loss": Row(_mse_loss, BOTH),
}

# Layers whose first input and result are images channels last.
LAST_LOWERINGS: dict[str, Rule] = {
    "conv2d": images.conv2d,
    "max_pool2d": images.max_pool2d,
    "avg_pool2d": images.avg_pool2d,
}

# Used where a whole recording becomes one graph; a plain backward runs these natively.
WHOLE_LOWERINGS: dict[str, Rule] = {
    "layer_norm": _layer_norm,
    **{name: images.of_channels_first(rule) for name, rule in LAST_LOWERINGS.items()},
}
