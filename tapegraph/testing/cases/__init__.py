"""The table of operation cases: one row per way to call an operation.

Whatever holds for every operation is tested over these rows: forward, gradients, dtypes, memory
layouts, agreement of the engines. A new operation adds its rows here and is covered.
"""

from __future__ import annotations

from tapegraph.testing.cases import (
    arrange,
    comparison,
    core,
    creation,
    decompositions,
    products,
    select,
    special,
    statistics,
    transcendental,
)
from tapegraph.testing.cases.case import Case

_FAMILIES = (
    core,
    transcendental,
    comparison,
    statistics,
    creation,
    special,
    products,
    decompositions,
    arrange,
    select,
)
CASES: tuple[Case, ...] = tuple(case for family in _FAMILIES for case in family.cases())

__all__ = ["CASES", "Case"]
