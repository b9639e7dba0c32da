"""What signal handlers do in the midst of the library's work, told from what the program does.

A handler runs wherever the program happens to be. What it raises looks like an error of the code
there, and what it reads like a read of a step that is being recorded.
"""

from __future__ import annotations

import signal
import sys
from types import CodeType, FrameType, FunctionType
from typing import Any


def raise_interrupt(error: BaseException) -> None:
    """Raise what a signal handler has raised, if an error is that or was made of it.

    Whoever goes on after an error asks first: that of a handler is nobody's failure.
    """
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
    """Return whether a signal handler runs here, that began inside the call of a frame."""
    handlers = _handlers()
    frame: FrameType | None = sys._getframe(1)
    while handlers and frame is not None and frame is not outer:
        if frame.f_code in handlers:
            return True
        frame = frame.f_back
    return False


def _handlers() -> set[CodeType]:
    """Return the code of the handlers that are written in Python."""
    codes = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    return {code for code in codes if code is not None}


def _code(handler: Any) -> CodeType | None:
    """Return the code of a function, a method, or an object that can be called."""
    handler = getattr(handler, "func", handler)  # of a partial
    handler = getattr(handler, "__func__", handler)
    if not isinstance(handler, FunctionType):
        handler = vars(type(handler)).get("__call__")
    return handler.__code__ if isinstance(handler, FunctionType) else None
