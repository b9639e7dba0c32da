"""Gradients of ``tapegraph/ops/comparison.py``: to the element chosen, none through a step."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.fallback.absorbing import plain
from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ir import Array
from tapegraph.masking import kept


def _chosen(g: Any, above: Any, below: Any) -> Any:
    """Gradient of the operand that is above the other, half of it where neither is."""
    g = plain(g)
    up = np.greater(above, below)
    gradient = kept(g, up)
    neither = ~(up | np.less(above, below))
    if neither.any():
        gradient = gradient + kept(0.5 * g, neither)
    return gradient


def _zero(g: Any, y: Array, x: Array) -> Any:
    return np.zeros_like(x)


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "maximum": (lambda g, y, a, b: _chosen(g, a, b), lambda g, y, a, b: _chosen(g, b, a)),
    "minimum": (lambda g, y, a, b: _chosen(g, b, a), lambda g, y, a, b: _chosen(g, a, b)),
    "sign": (_zero,),
    "floor": (_zero,),
    "ceil": (_zero,),
    "rint": (_zero,),
    "trunc": (_zero,),
    "mod": (lambda g, y, a, b: g, lambda g, y, a, b: -g * np.floor_divide(a, b)),
}
