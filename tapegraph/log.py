"""The logger ``tapegraph``, which prints only where logging is configured."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def logger() -> Any:
    """Return it, importing `logging` the first time: that takes longer than any module here."""
    import logging

    found = logging.getLogger("tapegraph")
    found.addHandler(logging.NullHandler())
    return found
