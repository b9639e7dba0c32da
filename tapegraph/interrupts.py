"""Signal and fork safety.

A handler runs anywhere in the program. Its errors look like errors of the code there, and its reads
like reads of a step that is being recorded.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import CodeType, FrameType, FunctionType
from typing import Any
from weakref import WeakSet

_SIGNALS = tuple(signal.valid_signals())  # which makes them anew in each call


def raise_interrupt(error: BaseException) -> None:
    """Raise what a signal handler has raised, if an error is that error or was made of it."""
    handlers = _handlers()
    found: BaseException | None = error
    while found is not None:
        trace = found.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in handlers:
                raise found
            trace = trace.tb_next
        found = found.__cause__ or found.__context__


def in_handler(outer: FrameType | None) -> bool:
    """Return whether a signal handler runs here that began inside a frame's call."""
    handlers = _handlers()
    frame: FrameType | None = sys._getframe(1)
    while handlers and frame is not None and frame is not outer:
        if frame.f_code in handlers:
            return True
        frame = frame.f_back
    return False


def _handlers() -> set[CodeType]:
    codes = {_code(signal.getsignal(number)) for number in _SIGNALS}
    return {code for code in codes if code is not None}


def _code(handler: object) -> CodeType | None:
    handler = getattr(handler, "func", handler)  # of a partial
    handler = getattr(handler, "__func__", handler)
    if not isinstance(handler, FunctionType):
        handler = vars(type(handler)).get("__call__")
    return handler.__code__ if isinstance(handler, FunctionType) else None


class Lock:
    """A lock that a forked child gets released, used as ``with lock.held:``, also by handlers.

    It is the plain lock: an interrupt in an ``__enter__`` of Python's could leave it locked.
    """

    __slots__ = ("__weakref__", "held")

    def __init__(self) -> None:
        self.held: Any = threading.RLock()
        _locks.add(self)


_locks: WeakSet[Lock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock.held = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
