"""Locks that a forked child can use, whoever held them in the parent."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class Lock:
    """A mutual exclusion, as in ``with lock():``; a forked child gets it released.

    A fork copies a lock as it is, without the thread that would release it. Every lock of the
    library is one of these. What a call gives is a plain lock, which a ``with`` takes in one
    piece: in an ``__enter__`` written in Python an interrupt could fall behind the taking, and it
    would stay taken for good.
    """

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _all.add(self)

    def __call__(self) -> threading.Lock:
        """Return what a ``with`` takes."""
        return self._lock

    def renew(self) -> None:
        """Release it, whoever holds it."""
        self._lock = threading.Lock()


_all: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_all):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
