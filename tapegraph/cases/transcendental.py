"""Cases of ``tapegraph/ops/transcendental.py``."""

from __future__ import annotations

from collections.abc import Iterator

from tapegraph.cases.case import Case


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from ()
