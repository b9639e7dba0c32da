"""Several promises in one test: a failure begins with the one that was broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def named(promise: str) -> Iterator[None]:
    """Begin the message of whatever fails inside with what was promised."""
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{promise}: {error}") from error
