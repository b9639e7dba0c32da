"""`profile`: where the time goes, by operation and by line of the user's code."""

from __future__ import annotations

import linecache
import os
import threading
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple

from tapegraph import display
from tapegraph.errors import escaped, user_line
from tapegraph.recording.watchers import (
    COMPILING,
    ENGINE,
    FORWARD,
    TAPE,
    UPDATE,
    Watched,
    Watcher,
)

_ELSEWHERE = "elsewhere"
# The parts of the time, in the order of the table.
_PARTS = (FORWARD, TAPE, ENGINE, UPDATE, COMPILING, _ELSEWHERE)
# A trace holds no more events than a browser shows.
MOST_EVENTS = 200_000
# As many as fit a screen.
_ROWS, _WIDTH = 12, 60


class Label(NamedTuple):
    """Work to time: its part, its operation, and the user's line."""

    part: str
    operation: str = ""
    line: str = ""


class Spent(NamedTuple):
    """Seconds spent on one operation or line, in how many calls."""

    name: str
    seconds: float
    calls: int


class profile(Watched):
    """Context manager: measures where the time goes, by operation and by line of the user's code.

    Every moment of the block belongs to one part: *forward*, NumPy computing results; *recording*,
    keeping them for a gradient; *engine*, backwards and the programs of compiled steps; *update*,
    steps of optimizers; *compiling*, of graphs and of steps; and *elsewhere*, the user's own code
    and the overhead of calls. The cost of measuring belongs to none. Printed, it is a table of the
    largest.

    A native backward is split by the operations whose gradients it computes, and a compiled step's
    program by its lines. TensorFlow's work is one entry per graph.

    It applies to its thread or asyncio task as `no_grad` does.

    :ivar parts: They add up to ``seconds``.
    :ivar operations, lines: ``.name``, ``.seconds`` and ``.calls``, the longest first.

    >>> w = tg.param(np.ones((8, 8)), name="w")
    >>> with tg.profile() as p:
    ...     tg.sum(tg.tanh(w @ w)).backward()
    >>> sorted(spent.name for spent in p.operations)[:3]
    ['backward of matmul', 'backward of sum', 'backward of tanh']
    >>> abs(sum(p.parts.values()) - p.seconds) < 1e-9
    True
    """

    def __init__(self) -> None:
        self._log = _Log()
        super().__init__(self._log)

    def __enter__(self) -> profile:
        super().__enter__()
        self._log.begin()
        return self

    def __exit__(self, *exception: object) -> None:
        self._log.end()
        super().__exit__(*exception)

    @property
    def seconds(self) -> float:
        """Seconds of the block, without the time of measuring."""
        return sum(self.parts.values())

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by part."""
        return {
            part: sum(s for label, (s, _) in self._log.spent.items() if label.part == part)
            for part in _PARTS
        }

    @property
    def operations(self) -> list[Spent]:
        """Time by operation, forward or backward, the longest first."""
        return self._by("operation")

    @property
    def lines(self) -> list[Spent]:
        """Time by the user's line that recorded the operation, the longest first."""
        return self._by("line")

    def _by(self, field: str) -> list[Spent]:
        found: dict[str, tuple[float, int]] = {}
        for label, spent in self._log.spent.items():
            if (name := getattr(label, field)) and label.part != TAPE:
                _add(found, name, *spent)
        spent_on = [Spent(name, *total) for name, total in found.items()]
        return sorted(spent_on, key=lambda one: -one.seconds)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a trace that ``chrome://tracing`` and ui.perfetto.dev show.

        :param path: Path-like of the JSON file, which is replaced.
        """
        import json  # which is not loaded for everybody

        with open(path, "w", encoding="utf-8") as file:
            json.dump({"displayTimeUnit": "ms", "traceEvents": self._log.trace()}, file)

    def _summary(self) -> str:
        shares = [
            f"{part} {_seconds(seconds)} ({_percent(seconds, self.seconds)})"
            for part, seconds in self.parts.items()
            if seconds
        ]
        return f"{_seconds(self.seconds)}: {', '.join(shares)}"

    def _tables(self) -> Iterator[list[tuple[str, ...]]]:
        """Yield the header and the rows of each table that has rows."""
        for header, spent in (("operation", self.operations), ("line", self.lines)):
            if spent:
                yield [("time", "share", "calls", header), *_rows(self.seconds, spent)]

    def __str__(self) -> str:
        lines = [self._summary()]
        for rows in self._tables():
            widths = [max(len(row[i]) for row in rows) for i in range(3)]
            lines.append("")
            for *numbers, name in rows:
                cells = [cell.rjust(w) for cell, w in zip(numbers, widths, strict=True)]
                lines.append("  ".join([*cells, name]).rstrip())
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        tables = [display.html_table(rows, header) for header, *rows in self._tables()]
        return display.heading("profile", self._summary()) + "".join(tables)


def _add(found: dict[Any, tuple[float, int]], key: object, seconds: float, calls: int) -> None:
    before = found.get(key, (0.0, 0))
    found[key] = before[0] + seconds, before[1] + calls


class _Log(Watcher):
    """The running label, and the seconds and calls of each label so far."""

    def __init__(self) -> None:
        self.spent: dict[Label, tuple[float, int]] = {}
        self._events: list[tuple[Label, float, float, int]] = []
        self._open: list[tuple[Label, float]] = []  # open labels, each inside the one before
        self._computed: Label | None = None  # the result that may be recorded next
        self._since = 0.0  # up to when everything has been accounted for

    def begin(self) -> None:
        self._open = [(Label(_ELSEWHERE), 0.0)]
        self._since = perf_counter()

    def end(self) -> None:
        self._pause(perf_counter())
        self._open = []

    def _pause(self, now: float) -> None:
        _add(self.spent, self._open[-1][0], now - self._since, 0)
        self._since = perf_counter()

    def _event(self, label: Label, start: float, end: float) -> None:
        if len(self._events) < MOST_EVENTS:
            self._events.append((label, start, end - start, threading.get_ident()))

    def trace(self) -> list[dict[str, Any]]:
        first = min((start for _, start, _, _ in self._events), default=0.0)
        return [
            {
                "name": label.operation,
                "cat": label.part,
                "args": {"line": label.line},
                "ph": "X",
                "ts": (start - first) * 1e6,  # in microseconds
                "dur": seconds * 1e6,
                "pid": os.getpid(),
                "tid": thread,
            }
            for label, start, seconds, thread in self._events
        ]

    def begins(self, part: str, what: str, place: str | None = None) -> None:
        self._pause(perf_counter())
        self._computed = None
        label = Label(part, what, user_line() if place is None else place)
        self._since = perf_counter()
        self._open.append((label, self._since))

    def ends(self) -> None:
        now = perf_counter()
        label, start = self._open.pop()
        _add(self.spent, label, now - self._since, 1)
        self._event(label, start, now)
        self._computed = label if label.part == FORWARD else None
        self._since = perf_counter()

    def passed(
        self,
        part: str,
        what: str,
        place: str | None = None,
        *,
        start: float | None = None,
        seconds: float = 0.0,
        results: Sequence[object] = (),
    ) -> None:
        now = perf_counter()
        if part == TAPE:
            if self._computed is None:
                return
            label, self._computed = self._computed._replace(part=TAPE), None
        else:
            label = Label(part, what, user_line() if place is None else place)
        if start is None:
            start, seconds = self._since, now - self._since
        if seconds:
            _add(self.spent, label, seconds, 1)
            self._event(label, start, start + seconds)
            self._since += seconds
        self._pause(now)


# Tables of the operations and lines that took longest


def _rows(whole: float, spent: Sequence[Spent]) -> Iterator[tuple[str, ...]]:
    rest = spent[_ROWS:]
    for name, seconds, calls in spent[:_ROWS]:
        yield _seconds(seconds), _percent(seconds, whole), str(calls), escaped(_shown(name))
    if rest:
        seconds, calls = sum(s.seconds for s in rest), sum(s.calls for s in rest)
        yield _seconds(seconds), _percent(seconds, whole), str(calls), f"{len(rest)} more"


def _shown(name: str) -> str:
    """Return an operation unchanged, and a line of a file with its text."""
    file, _, number = name.rpartition(":")
    if not number.isdigit():
        return name
    source = linecache.getline(file, int(number)).strip()
    place = f"{os.path.basename(file)}:{number}"
    source = source if len(source) <= _WIDTH else source[: _WIDTH - 3] + "..."
    return f"{place}  {source}".rstrip()


def _percent(seconds: float, whole: float) -> str:
    return f"{100 * seconds / whole:.0f}%" if whole else "0%"


def _seconds(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= 0.9995 * factor:  # and not 1e+03 us
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
