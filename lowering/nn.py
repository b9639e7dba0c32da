"""TensorFlow nodes: neural networks."""

from __future__ import annotations

import math
from typing import Any

from tapegraph.lowering.rules import BOTH, Row, Rule, ints, raw, reshaped


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
        rows, _ = raw.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=targets)
    return raw.Mean(input=rows, axis=ints(range(rows.shape.rank)))


def _mse_loss(out: Any, prediction: Any, target: Any) -> Any:
    squares = raw.SquaredDifference(x=prediction, y=target)
    return raw.Mean(input=squares, axis=ints(range(squares.shape.rank)))


LOWERINGS: dict[str, Row | Rule] = {
    "softmax_crossentropy": Row(_softmax_crossentropy, BOTH),
    "mse_loss": Row(_mse_loss, BOTH),
}
