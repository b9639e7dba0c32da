"""Ctrl-C that waits: an engine's state and what is known of it change together, or not at all."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def later_interrupts() -> Iterator[None]:
    """Handle a SIGINT that comes inside the block at its end.

    Python runs handlers in the main thread alone: elsewhere there is nothing to wait for.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[Any] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])
