"""The native engine: a reverse sweep over a `Program` in NumPy alone."""

from __future__ import annotations

from tapegraph.fallback.engine import ENGINE
from tapegraph.fallback.rules import RECORDED, VJPS, recorded_row
from tapegraph.fallback.sweep import gradients

__all__ = ["ENGINE", "RECORDED", "VJPS", "gradients", "recorded_row"]
