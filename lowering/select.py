"""As TensorFlow nodes: taking, sorting and masking elements."""

from __future__ import annotations

from tapegraph.lowering.rules import Rule

LOWERINGS: dict[str, Rule] = {}
