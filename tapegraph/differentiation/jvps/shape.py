"""JVP rules: other shapes of the same elements, and joins."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.differentiation.jvps.rules import Rule, linear_in_first
from tapegraph.ops import shape
from tapegraph.recording.node import as_leaf
from tapegraph.recording.record import apply


def _concat(tangents: tuple[Any, ...], y: Any, *arrays: Any, axis: int) -> Any:
    parts = [
        as_leaf(np.zeros(x.shape, x.dtype)) if t is None else t
        for t, x in zip(tangents, arrays, strict=True)
    ]
    return apply(shape.CONCAT, tuple(parts), {"axis": axis})


JVPS: dict[str, Rule] = {
    "transpose": linear_in_first(shape.TRANSPOSE),
    "reshape": linear_in_first(shape.RESHAPE),
    "concat": _concat,
    "broadcast_to": linear_in_first(shape.BROADCAST_TO),
}
