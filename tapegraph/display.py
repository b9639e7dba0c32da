"""What people see while and after code runs: a line while compiling takes long, and short HTML.

The line appears on stderr after two seconds on a terminal. With logging set up, the logger
``tapegraph`` has it at INFO. In HTML, for notebooks, all text is escaped.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np

from tapegraph.environment import PROGRESS, switched
from tapegraph.errors import escaped, escaped_lines

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

    def advance(done: int) -> None:
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
        yield advance
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


# Objects in notebooks

# No output is longer than a screen.
_MOST_LINES = 24
# Characters with a meaning in HTML.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def escape(text: str) -> str:
    """Escape a text as `html.escape`, whose tables take long to import."""
    return escaped_lines(text).translate(_ESCAPES)


def heading(kind: str, *facts: str) -> str:
    text = " · ".join(escape(fact) for fact in facts if fact)
    return f"<div><b>{escape(kind)}</b>{' · ' if text else ''}{text}</div>"


def html_text(lines: str, most: int = _MOST_LINES) -> str:
    shown = escape("\n".join(_abridged(lines.splitlines(), most, "… {:,} more lines …")))
    return f'<pre style="margin: 0.2em 0">{shown}</pre>'


def _abridged(lines: list[str], most: int, note: str) -> list[str]:
    """Return lines, with a note of how many more there are in place of the middle."""
    if len(lines) <= most:
        return lines
    first = (most - 1) * 2 // 3
    last = most - 1 - first
    return [*lines[:first], note.format(len(lines) - first - last), *lines[-last:]]


def array(values: Any, most: int) -> str:
    shown = np.array2string(values, separator=", ", threshold=200, edgeitems=3, precision=5)
    return html_text(shown, most)


def html_table(rows: Sequence[Sequence[str]], header: Sequence[str] = ()) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    columns = max(map(len, rows), default=1)
    lines = _abridged(lines, _MOST_LINES, f'<td colspan="{columns}">… {{:,}} more …</td>')
    body = "".join(f"<tr>{line}</tr>" for line in ([head] if header else []) + lines)
    return f"<table>{body}</table>"
