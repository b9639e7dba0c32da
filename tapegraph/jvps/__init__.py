"""Tangent rules by family: how a directional derivative passes through each operation.

The same file name holds an operation's forward in ``tapegraph/ops/`` and its gradient in
``fallback/``.
"""

from __future__ import annotations

from tapegraph.jvps import (
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
from tapegraph.jvps.rules import JVPS

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
    JVPS.update(_family.JVPS)

__all__ = ["JVPS"]
