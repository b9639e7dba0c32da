"""A line on stderr while compiling takes long: what is compiling, and then the time it took.

It appears after two seconds on a terminal. With logging set up, the logger ``tapegraph`` has it at
INFO.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from tapegraph.environment import PROGRESS, switched
from tapegraph.errors import escaped

PATIENCE = 2.0  # seconds


@cache
def logger() -> Any:
    """Return the logger ``tapegraph``; importing `logging` takes long."""
    import logging

    found = logging.getLogger("tapegraph")
    found.addHandler(logging.NullHandler())
    return found


@contextmanager
def announce(what: str) -> Iterator[None]:
    """Announce the block's work once that takes long, and then the time it took."""
    stream = sys.stderr  # perhaps a test's or a notebook's
    what = escaped(what)
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
            logger().info("%s: %s", what, end)


@contextmanager
def counted(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a loop's progress once it takes long: a bar of tqdm's, or a line."""
    start, bars = time.perf_counter(), list[Any]()
    what = escaped(what)

    def tell(done: int) -> None:
        if not bars:
            if done == total or time.perf_counter() - start < PATIENCE:
                return
            try:
                from tqdm import tqdm
            except ModuleNotFoundError:
                bars.append(_Line(what, total))
            else:
                hidden = not _is_shown(sys.stderr)
                bars.append(tqdm(total=total, desc=f"tapegraph: {what}", disable=hidden))
        bars[0].update(done - bars[0].n)

    try:
        yield tell
    finally:
        for bar in bars:
            bar.close()


class _Line:
    def __init__(self, what: str, total: int) -> None:
        self.n = 0
        self._stream = sys.stderr
        _write(self._stream, f"tapegraph: {what}, {total} in all (pip install tqdm for a bar) ... ")

    def update(self, more: int) -> None:
        self.n += more

    def close(self) -> None:
        _write(self._stream, f"{self.n} done\n")


def _is_shown(stream: Any) -> bool:
    wish = switched(PROGRESS)  # 1 shows the line where stderr is no terminal too
    return stream.isatty() if wish is None else wish


def _write(stream: Any, text: str) -> None:
    with suppress(Exception):  # a closed stderr is no reason to fail
        if _is_shown(stream):
            stream.write(text)
            stream.flush()
