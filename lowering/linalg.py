"""Matrix products as TensorFlow nodes."""

from __future__ import annotations

from typing import Any

from tapegraph.lowering.rules import Rule, raw, reshaped


def _as_matrices(a: Any, b: Any) -> tuple[Any, Any]:
    """Write a 1-D operand as a row on the left, or as a column on the right."""
    if a.shape.rank == 1:
        a = reshaped(a, (1, a.shape[0]))
    if b.shape.rank == 1:
        b = reshaped(b, (b.shape[0], 1))
    return a, b


def _matmul(out: Any, a: Any, b: Any) -> Any:
    left, right = _as_matrices(a, b)
    product = raw.MatMul(a=left, b=right)
    return product if product.shape.rank == len(out.shape) else reshaped(product, out.shape)


def _batch_matmul(out: Any, a: Any, b: Any) -> Any:
    left, right = _as_matrices(a, b)
    product = raw.BatchMatMulV2(x=left, y=right)
    return product if product.shape.rank == len(out.shape) else reshaped(product, out.shape)


LOWERINGS: dict[str, Rule] = {"matmul": _matmul, "batch_matmul": _batch_matmul}
