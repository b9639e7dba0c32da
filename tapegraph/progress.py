"""A line on stderr where compiling takes long: what is being compiled, and then how long it took.

It appears after two seconds, where stderr is a terminal. Where logging is set up, the logger
``tapegraph`` has it at INFO.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tapegraph.locks import Lock

PATIENCE = 2.0  # seconds
# "0" never shows the line, any other value shows it where stderr is no terminal too.
VARIABLE = "TAPEGRAPH_PROGRESS"
_logger = logging.getLogger("tapegraph")


@contextmanager
def told(what: str) -> Iterator[None]:
    """Tell what is going on inside the block once that takes long, and then how long it took.

    Parameters
    ----------
    what : str
        Such as ``compiling step in TensorFlow: 412 entries``.
    """
    start = time.perf_counter()
    line = _Line(what)
    timer = threading.Timer(PATIENCE, line.begin)
    timer.daemon = True
    timer.start()
    end = "stopped after "
    try:
        yield
        end = ""
    finally:
        timer.cancel()
        line.end(f"{end}{time.perf_counter() - start:.1f} s")


class _Line:
    """A line that is begun by a timer's thread, and ended once."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._stream = sys.stderr  # what a test or a notebook has put there
        self._lock = Lock()
        self._begun = self._ended = False

    def begin(self) -> None:
        with self._lock():
            if not self._ended:
                self._begun = True
                self._write(f"tapegraph: {self._what} ... ")

    def end(self, seconds: str) -> None:
        with self._lock():
            self._ended = True
            if self._begun:
                self._write(f"{seconds}\n")
                _logger.info("%s: %s", self._what, seconds)

    def _write(self, text: str) -> None:
        with suppress(Exception):  # a closed stderr is no reason to fail
            if _is_shown(self._stream):
                self._stream.write(text)
                self._stream.flush()


def _is_shown(stream: object) -> bool:
    wish = os.environ.get(VARIABLE, "")
    return wish != "0" if wish else bool(getattr(stream, "isatty", lambda: False)())
