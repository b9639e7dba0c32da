"""The native engine: a reverse sweep over a `Program` in NumPy alone."""

from __future__ import annotations

from tapegraph.fallback import (
    arrange,
    comparison,
    creation,
    decompositions,
    elementwise,
    index,
    linalg,
    nn,
    products,
    reduce,
    select,
    shape,
    special,
    statistics,
    transcendental,
)
from tapegraph.fallback.rules import VJPS
from tapegraph.fallback.sweep import gradients

for _family in (
    arrange,
    comparison,
    creation,
    decompositions,
    elementwise,
    index,
    linalg,
    nn,
    products,
    reduce,
    select,
    shape,
    special,
    statistics,
    transcendental,
):
    VJPS.update(_family.VJPS)

__all__ = ["VJPS", "gradients"]
