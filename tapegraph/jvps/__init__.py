"""Tangent rules by family: how a directional derivative passes through each operation.

The same file name holds an operation's forward in ``tapegraph/ops/`` and its gradient in
``fallback/``.
"""

from __future__ import annotations

from tapegraph.jvps import elementwise, index, linalg, nn, reduce, shape
from tapegraph.jvps.rules import JVPS

for _family in (elementwise, reduce, linalg, shape, index, nn):
    JVPS.update(_family.JVPS)

__all__ = ["JVPS"]
