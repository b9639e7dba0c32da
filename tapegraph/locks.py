"""Locks that a forked child can use, whoever held them in the parent."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from weakref import WeakSet


class Lock:
    """A mutual exclusion, as ``threading.Lock`` in a ``with``; a forked child gets it released.

    A fork copies a lock as it is, without the thread that would release it. Every lock of the
    library is one of these.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._lock.locked():  # not in a child that was forked inside the block
            self._lock.release()

    def renew(self) -> None:
        """Release it, whoever holds it."""
        self._lock = threading.Lock()


_all: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
