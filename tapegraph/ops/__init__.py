"""Operations by family; gradients, in `fallback`, and nodes, in `lowering`, are in like files."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

FAMILIES = ("elementwise", "reduce", "linalg", "shape", "index", "special", "fft", "nn")
# Functions composed of operations, which have no rules of their own.
COMPOSITIONS = ("layers", "losses", "samples")
COMPOSED = tuple(f for f in FAMILIES if f not in ("elementwise", "special"))  # not from slopes


def rules_of_families(
    package: str, table: str, families: Iterable[str] = FAMILIES
) -> dict[str, Any]:
    """Return the rows of all families that have a table, or ValueError for a repeated name."""
    rows: dict[str, Any] = {}
    for family in families:
        found = getattr(importlib.import_module(f"{package}.{family}"), table, {})
        twice = sorted(rows.keys() & found.keys())
        if twice:
            raise ValueError(f"{package}.{family}.{table}: rows that another family has: {twice}")
        rows.update(found)
    return rows


for _family in FAMILIES:  # which enters its operations in the table
    importlib.import_module(f"tapegraph.ops.{_family}")
