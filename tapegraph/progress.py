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
from typing import Any

PATIENCE = 2.0  # seconds
# "0" never shows the line, any other value shows it where stderr is no terminal too.
VARIABLE = "TAPEGRAPH_PROGRESS"


@contextmanager
def announce(what: str) -> Iterator[None]:
    """Announce what goes on inside the block once that takes long, and then how long it took.

    - what: Such as ``compiling step in TensorFlow: 412 entries``.
    """
    stream = sys.stderr  # what a test or a notebook has put there
    begun: list[str] = []

    def begin() -> None:
        begun.append(what)
        _write(stream, f"tapegraph: {what} ... ")

    start = time.perf_counter()
    timer = threading.Timer(PATIENCE, begin)
    timer.daemon = True
    timer.start()
    end = "stopped after "
    try:
        yield
        end = ""
    finally:
        timer.cancel()
        timer.join()
        if begun:
            end += f"{time.perf_counter() - start:.1f} s"
            _write(stream, f"{end}\n")
            logging.getLogger("tapegraph").info("%s: %s", what, end)


def _write(stream: Any, text: str) -> None:
    with suppress(Exception):  # a closed stderr is no reason to fail
        wish = os.environ.get(VARIABLE, "")
        is_shown = wish != "0" if wish else stream.isatty()
        if is_shown:
            stream.write(text)
            stream.flush()
