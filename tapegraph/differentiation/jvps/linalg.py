"""Tangents of matrix products: the product rule."""

from __future__ import annotations

from typing import Any

from tapegraph.differentiation.jvps.rules import Rule, each, is_finite, times
from tapegraph.ops import reduce, shape
from tapegraph.ops.linalg import BATCH_MATMUL, MATMUL
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply


def _bilinear(op: Op) -> Rule:
    return each(
        lambda t, y, a, b: _product(op, y, t, b),
        lambda t, y, a, b: _product(op, y, a, t),
    )


def _product(op: Op, y: Any, a: Any, b: Any) -> Any:
    """Multiply a tangent and a matrix so that a zero adds nothing, whatever it is paired with."""
    out = apply(op, (a, b))
    if is_finite(out) or (is_finite(a) and is_finite(b)):
        return out
    left = a[..., :, :, None] if a.ndim > 1 else a[None, :, None]
    right = b[..., None, :, :] if b.ndim > 1 else b[None, :, None]
    return shape.reshape(reduce.sum(times(left, right), axis=-2), y.shape)


JVPS: dict[str, Rule] = {
    "matmul": _bilinear(MATMUL),
    "batch_matmul": _bilinear(BATCH_MATMUL),
}
