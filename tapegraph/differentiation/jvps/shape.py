"""JVP rules: other shapes of the same elements, and joins."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.differentiation.jvps.rules import Rule, linear
from tapegraph.ops import shape
from tapegraph.recording.node import constant
from tapegraph.recording.record import apply


def _concat(tangents: tuple[Any, ...], y: Any, *arrays: Any, axis: int) -> Any:
    parts = [
        constant(np.zeros(x.shape, x.dtype)) if t is None else t
        for t, x in zip(tangents, arrays, strict=True)
    ]
    return apply(shape.CONCAT, tuple(parts), {"axis": axis})


JVPS: dict[str, Rule] = {
    "transpose": linear(shape.TRANSPOSE),
    "reshape": linear(shape.RESHAPE),
    "concat": _concat,
    "broadcast_to": linear(shape.BROADCAST_TO),
}
