"""As TensorFlow nodes: arrays made like another, copies and conversions."""

from __future__ import annotations

from tapegraph.lowering.rules import Rule

LOWERINGS: dict[str, Rule] = {}
# Operations of this family that have no lowering, and why.
GAPS: dict[str, str] = {}
