"""Tangent rules by family: how a directional derivative passes through each operation.

The same file name holds an operation's forward in ``tapegraph/ops/`` and its gradient in
``fallback/``.
"""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import JVPS
from tapegraph.ops import rules_of_families

JVPS.update(rules_of_families(__name__, "JVPS"))

__all__ = ["JVPS"]
