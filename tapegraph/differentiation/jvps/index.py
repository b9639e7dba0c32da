"""Tangents of taking parts: the same part of the tangent."""

from __future__ import annotations

from typing import Any

from tapegraph.differentiation.jvps.rules import Rule, linear
from tapegraph.ops import index
from tapegraph.recording.record import apply


def _where(tangents: tuple[Any, ...], y: Any, cond: Any, a: Any, b: Any) -> Any:
    _, ta, tb = tangents
    return apply(index.WHERE, (cond, 0.0 if ta is None else ta, 0.0 if tb is None else tb))


JVPS: dict[str, Rule] = {
    "tensor_slice": linear(index.TENSOR_SLICE),
    "gather": linear(index.GATHER),
    "where": _where,
    "getitem": linear(index.GETITEM),
    "index": linear(index.INDEX),
}
