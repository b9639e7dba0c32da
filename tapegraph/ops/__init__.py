"""Operations by family: forward, checks and the public function of each.

The same file name holds an operation's gradient in ``fallback/``, its tangent in
``tapegraph/differentiation/jvps/`` and its TensorFlow node in ``lowering/``.
"""

from __future__ import annotations

import importlib
from typing import Any

FAMILIES = ("elementwise", "reduce", "linalg", "shape", "index", "special", "nn")


def rules_of_families(package: str, table: str) -> dict[str, Any]:
    """Return the rows of every family's table in a package that mirrors this one.

    Raises
    ------
    ValueError
        Two families have a row of one name.
    """
    rows: dict[str, Any] = {}
    for family in FAMILIES:
        found = getattr(importlib.import_module(f"{package}.{family}"), table)
        twice = sorted(rows.keys() & found.keys())
        if twice:
            raise ValueError(f"{package}.{family}.{table}: rows that another family has: {twice}")
        rows.update(found)
    return rows
