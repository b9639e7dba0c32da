"""Operations by family; `fallback.rules` has the gradients, `lowering.rows` the nodes."""

from __future__ import annotations

import importlib
from typing import Any

FAMILIES = ("elementwise", "reduce", "linalg", "shape", "index", "special", "fft", "nn")
# Functions composed of operations, which have no rules of their own.
COMPOSITIONS = ("layers", "losses", "samples")
# The files of gradients and nodes: special is in elementwise, shape in index, and fft in linalg.
RULE_FILES = ("elementwise", "reduce", "linalg", "index", "nn")


def rules_of_families(package: str, table: str) -> dict[str, Any]:
    """Return the rows of all families that have a table, or ValueError for a repeated name."""
    rows: dict[str, Any] = {}
    for family in RULE_FILES:
        found = getattr(importlib.import_module(f"{package}.{family}"), table, {})
        twice = sorted(rows.keys() & found.keys())
        if twice:
            raise ValueError(f"{package}.{family}.{table}: rows that another family has: {twice}")
        rows.update(found)
    return rows


for _family in FAMILIES:  # which enters its operations in the table
    importlib.import_module(f"tapegraph.ops.{_family}")
