"""Locks that a forked child and a signal handler can use, whoever holds them."""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakSet


class Lock:
    """A mutual exclusion of threads, as in ``with lock():``; a forked child gets it released.

    A fork copies a lock as it is, without the thread that would release it. A signal handler runs
    in the thread that it interrupts, and may take the lock that this holds again. A call gives the
    plain lock, which a ``with`` takes in one piece: in an ``__enter__`` written in Python an
    interrupt could fall behind the taking, and it would stay taken for good.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock: Any = threading.RLock()
        _all.add(self)

    def __call__(self) -> Any:
        """Return what a ``with`` takes."""
        return self._lock

    def renew(self) -> None:
        """Release it, whoever holds it."""
        self._lock = threading.RLock()


_all: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
