"""The native engine: a reverse sweep over a `Program` in NumPy alone."""

from __future__ import annotations

from tapegraph.fallback import elementwise, index, linalg, nn, reduce, shape
from tapegraph.fallback.rules import VJPS
from tapegraph.fallback.sweep import gradients

for _family in (elementwise, reduce, linalg, shape, index, nn):
    VJPS.update(_family.VJPS)

__all__ = ["VJPS", "gradients"]
