"""Which rows of a table the quick suite tries: a few of every function's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from tests.cases import Case


def a_few_each(cases: Iterable[Case], few: int = 1) -> list[Any]:
    """Return cases as parameters; past a few of one function they run with ``--thorough`` alone.

    The first word of a label names the function, where several record one operation.
    """
    seen: Counter[tuple[str, str]] = Counter()
    rows = []
    for case in cases:
        key = (case.op, case.label.partition("-")[0])
        seen[key] += 1
        later = seen[key] > few
        rows.append(pytest.param(case, id=case.id, marks=[pytest.mark.thorough] if later else []))
    return rows


def thinned(values: Iterable[Any], every: int) -> list[Any]:
    """Return values as parameters, all but one in so many for ``--thorough`` alone."""
    return [
        pytest.param(value, marks=[pytest.mark.thorough] if i % every else [])
        for i, value in enumerate(values)
    ]
