"""Gradients of ``tapegraph/ops/comparison.py``: to the element chosen, none through a step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.arrays.bit_select import kept
from tapegraph.fallback.absorbing import plain
from tapegraph.fallback.rules import Joint, Rule
from tapegraph.typed import Array


def _chosen(g: Any, mine: Any, other: Any) -> Any:
    """Gradient of an operand: all where it was chosen, half where neither was."""
    g = plain(g)
    gradient = kept(g, mine)
    neither = ~(mine | other)
    if neither.any():
        gradient = gradient + kept(0.5 * g, neither)
    return gradient


def _larger(g: Any, above: Any, below: Any) -> Any:
    return _chosen(g, np.greater(above, below), np.less(above, below))


def _not_nan(g: Any, beats: Any, mine: Any, other: Any) -> Any:
    """Gradient of an operand to which a NaN leaves the choice."""
    nan, other_nan = np.isnan(mine), np.isnan(other)
    return _chosen(
        g, beats(mine, other) | (~nan & other_nan), beats(other, mine) | (nan & ~other_nan)
    )


def _zero(g: Any, y: Array, x: Array) -> Any:
    return np.zeros_like(x)


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "maximum": (lambda g, y, a, b: _larger(g, a, b), lambda g, y, a, b: _larger(g, b, a)),
    "minimum": (lambda g, y, a, b: _larger(g, b, a), lambda g, y, a, b: _larger(g, a, b)),
    "fmax": (
        lambda g, y, a, b: _not_nan(g, np.greater, a, b),
        lambda g, y, a, b: _not_nan(g, np.greater, b, a),
    ),
    "fmin": (
        lambda g, y, a, b: _not_nan(g, np.less, a, b),
        lambda g, y, a, b: _not_nan(g, np.less, b, a),
    ),
    "sign": (_zero,),
    "floor": (_zero,),
    "ceil": (_zero,),
    "rint": (_zero,),
    "trunc": (_zero,),
    "mod": (lambda g, y, a, b: g, lambda g, y, a, b: -g * np.floor_divide(a, b)),
}
