"""Forwards by TensorFlow's eager kernels: the rows of element-wise operations and of products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.lowering.calls import to_tensorflow
from tapegraph.lowering.rows import elementwise, linalg, shape
from tapegraph.lowering.rows.rules import Result
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.translate import row_of
from tapegraph.recording.op import Attrs, Op
from tapegraph.typed import Array

_SHAPES = linalg.EAGER | shape.EAGER


def forward(op: Op, arrays: tuple[Any, ...], attrs: Attrs) -> Array | None:
    """Return an operation's result, or None where NumPy is to compute it, or to refuse it."""
    shaped = _SHAPES.get(op.name)
    each = op.name in elementwise.LOWERINGS and op.differentiable is None and not attrs
    if op.rules is not None or (shaped is None and not each):
        return None
    try:
        lengths = (shaped or np.broadcast_shapes)(*map(np.shape, arrays), **attrs)
    except ValueError:
        return None
    dtype = np.result_type(*arrays).name
    if dtype.startswith("complex"):
        return None
    tf = tensorflow()
    operands = [
        to_tensorflow(a.astype(dtype, copy=False))
        if isinstance(a, np.ndarray)
        else tf.constant(a, dtype)
        for a in arrays
    ]
    return np.array(row_of(op).rule(Result(lengths, dtype), *operands, **attrs))
