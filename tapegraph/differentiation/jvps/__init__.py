"""Tangent rules by family: how a directional derivative passes through each operation.

The same file name holds an operation's forward in ``tapegraph/ops/`` and its gradient in
``fallback/rules/``. The rules of what is computed element by element come from the slopes.
"""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import JVPS, rows_of
from tapegraph.differentiation.slopes import SLOPES
from tapegraph.ops import COMPOSED, rules_of_families

JVPS.update(rows_of(SLOPES) | rules_of_families(__name__, "JVPS", COMPOSED))

__all__ = ["JVPS"]
