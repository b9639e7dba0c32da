"""Tangents of the operations of ``tapegraph/ops/comparison.py``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.differentiation.jvps.rules import Rule, each, times, value
from tapegraph.ops.index import where


def _chosen(t: Any, mine: Any, other: Any) -> Any:
    """Tangent through an operand: all where it was chosen, half where neither was."""
    return where(mine, t, where(other, 0.0, 0.5 * t))


def _larger(t: Any, above: Any, below: Any) -> Any:
    return _chosen(t, value(above) > value(below), value(above) < value(below))


def _not_nan(t: Any, beats: Any, mine: Any, other: Any) -> Any:
    """Tangent through an operand to which a NaN leaves the choice."""
    x, y = value(mine), value(other)
    nan, other_nan = np.isnan(x), np.isnan(y)
    return _chosen(t, beats(x, y) | (~nan & other_nan), beats(y, x) | (nan & ~other_nan))


def _none(t: Any, y: Any, x: Any) -> Any:
    return None


def _whole_quotient(a: Any, b: Any) -> Any:
    return np.asarray(np.floor_divide(value(a), value(b)))


JVPS: dict[str, Rule] = {
    "maximum": each(lambda t, y, a, b: _larger(t, a, b), lambda t, y, a, b: _larger(t, b, a)),
    "minimum": each(lambda t, y, a, b: _larger(t, b, a), lambda t, y, a, b: _larger(t, a, b)),
    "fmax": each(
        lambda t, y, a, b: _not_nan(t, np.greater, a, b),
        lambda t, y, a, b: _not_nan(t, np.greater, b, a),
    ),
    "fmin": each(
        lambda t, y, a, b: _not_nan(t, np.less, a, b),
        lambda t, y, a, b: _not_nan(t, np.less, b, a),
    ),
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
