"""Tangents of the operations of ``tapegraph/ops/comparison.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.jvps.rules import Rule, each, times, value
from tapegraph.ops.index import where


def _chosen(t: Any, above: Any, below: Any) -> Any:
    """Tangent through the operand that is above the other, half of it where they are equal."""
    apart = (value(above) > value(below)) | (value(above) < value(below))
    shared = t if apart.all() else where(apart, t, 0.5 * t)
    return where(value(above) < value(below), 0.0, shared)


def _none(t: Any, y: Any, x: Any) -> Any:
    return None


def _whole_quotient(a: Any, b: Any) -> Any:
    return np.asarray(np.floor_divide(value(a), value(b)))


JVPS: dict[str, Rule] = {
    "maximum": each(lambda t, y, a, b: _chosen(t, a, b), lambda t, y, a, b: _chosen(t, b, a)),
    "minimum": each(lambda t, y, a, b: _chosen(t, b, a), lambda t, y, a, b: _chosen(t, a, b)),
    "sign": each(_none),
    "floor": each(_none),
    "ceil": each(_none),
    "rint": each(_none),
    "trunc": each(_none),
    "mod": each(
        lambda t, y, a, b: t,
        lambda t, y, a, b: times(-t, _whole_quotient(a, b).astype(y.dtype)),
    ),
}
