"""The native engine: a reverse sweep over a `Program` in NumPy alone."""

from __future__ import annotations

from tapegraph.fallback.engine import ENGINE
from tapegraph.fallback.rules import RECORDED, VJPS, recorded_row
from tapegraph.fallback.sweep import gradients
from tapegraph.ops import rules_of_families

VJPS.update(rules_of_families(__name__, "VJPS"))
RECORDED.update(rules_of_families(__name__, "RECORDED"))

__all__ = ["ENGINE", "RECORDED", "VJPS", "gradients", "recorded_row"]
