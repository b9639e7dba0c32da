"""Tangents of the reductions."""

from __future__ import annotations

from typing import Any

from tapegraph.differentiation.jvps.rules import Rule, each, linear, times
from tapegraph.ops import reduce


def _softmax(t: Any, y: Any, x: Any, *, axis: int) -> Any:
    weighted = times(t, y)
    return weighted - times(reduce.sum(weighted, axis=axis, keepdims=True), y)


JVPS: dict[str, Rule] = {
    "sum": linear(reduce.SUM),
    "mean": linear(reduce.MEAN),
    "softmax": each(_softmax),
}
