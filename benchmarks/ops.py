"""Single operations against PyTorch's: who agrees, who took how long, and the tables of that."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from benchmarks.libraries import GRAPH, TORCH
from benchmarks.operations import ROWS, Row
from benchmarks.processes import Process
from benchmarks.protocol import TOLERANCE, Array, Spread, ratio, spread
from benchmarks.report import as_markdown, as_text, significant

LIBRARIES = "benchmarks.libraries"
DTYPES = ("float32", "float64")
WHATS = ("forward", "gradient")


class Timing(NamedTuple):
    """One operation, one dtype, forward or with its gradient: seconds by library and round."""

    row: Row
    dtype: str
    what: str
    seconds: dict[str, list[float]]

    def ratio(self, ours: str) -> Spread:
        """Our time over PyTorch's."""
        return ratio(self.seconds[ours], self.seconds[TORCH])


@dataclass
class Measured:
    """What a run gave."""

    timings: list[Timing] = field(default_factory=list)
    # What has no counterpart in PyTorch, and what has no nodes; and why.
    without: dict[str, str] = field(default_factory=dict)
    not_lowered: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def ratios(self, ours: str) -> dict[tuple[str, str, str], Spread]:
        """Return the ratios of a library of ours, by label, what and dtype.

        A view in PyTorch touches no number, and takes a hundredth of the call of a graph: of those
        the graph counts with their gradient alone.
        """
        return {
            (t.row.label, t.what, t.dtype): t.ratio(ours)
            for t in self.timings
            if ours in t.seconds and not (ours == GRAPH and t.row.view and t.what == "forward")
        }

    def geometric_mean(self, ours: str) -> float:
        """Return the geometric mean of the median ratios; of none it is NaN."""
        medians = [found.median for found in self.ratios(ours).values()]
        return math.exp(sum(map(math.log, medians)) / len(medians)) if medians else math.nan


def run(
    names: Iterable[str],
    engines: Iterable[str],
    *,
    rounds: int,
    threads: int,
    clock: str = "wall",
    warmups: int = 3,
    turn_seconds: float = 0.01,
    budget_seconds: float = 10.0,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Measured:
    """Measure operations, the libraries taking turns.

    No round of an operation after the fifth is begun once its budget is spent.
    """
    chosen, measured = set(names), Measured()
    numbers = [i for i, row in enumerate(ROWS) if not chosen or row.op in chosen]
    for row in (ROWS[i] for i in numbers):
        if isinstance(row.theirs, str):
            measured.without[row.label] = row.theirs
    numbers = [i for i in numbers if ROWS[i].label not in measured.without]
    libraries = {
        name: Process(f"{LIBRARIES}:serving", name, threads, clock)
        for name in (*(f"tapegraph {engine}" for engine in engines), TORCH)
    }
    try:
        if GRAPH in libraries:
            empty = 1e6 * libraries[GRAPH].ask("empty")
            measured.notes.append(f"of every time in the graph, {empty:.0f} us is the call")
        for number in progress(numbers):
            for dtype in DTYPES:
                here = _prepared(libraries, number, dtype, measured)
                end = time.perf_counter() + budget_seconds
                taken: list[dict[str, dict[str, float]]] = []
                for i in range(-warmups, rounds):
                    turns = {n: lib.ask("turn", turn_seconds) for n, lib in here.items()}
                    if i >= 0:
                        taken.append(turns)
                    if i >= 4 and time.perf_counter() > end:
                        break
                for what in WHATS:
                    seconds = {n: [t[n][what] for t in taken] for n in here if what in taken[0][n]}
                    if len(seconds) > 1 and TORCH in seconds:
                        measured.timings.append(Timing(ROWS[number], dtype, what, seconds))
    except KeyboardInterrupt:
        measured.notes.append("interrupted: what comes later in the table was not measured")
    finally:
        for library in libraries.values():
            library.end()
    return measured


def _prepared(
    libraries: dict[str, Process], number: int, dtype: str, measured: Measured
) -> dict[str, Process]:
    """Return the libraries that have an operation, and note where they do not agree."""
    row, found = ROWS[number], {}
    for name, library in libraries.items():
        given, reason = library.ask("prepare", number, dtype)
        if reason is None:
            found[name] = given
        else:
            measured.not_lowered[row.label] = reason
    for name in (n for n in found if n != TORCH):
        for what in (w for w in row.agrees if w in found[name] and w in found[TORCH]):
            worst = max(map(_difference, found[name][what], found[TORCH][what]))
            if not worst <= TOLERANCE[np.dtype(dtype)]:
                measured.notes.append(
                    f"{row.label}, {dtype}: the {what} of {name} and PyTorch's differ by "
                    f"{worst:.1g} of the largest number"
                )
    return {name: libraries[name] for name in found}


def _difference(a: Array, b: Array) -> float:
    if a.shape != b.shape:
        return math.inf
    scale = float(np.max(np.abs(b), initial=0.0))
    return float(np.max(np.abs(a - b), initial=0.0)) / scale if scale else float(np.abs(a).max())


def rows_of(measured: Measured, ours: str) -> list[list[str]]:
    """Return the table of one library of ours, the slowest operation first."""
    ratios = measured.ratios(ours)
    columns = [(what, dtype) for what in WHATS for dtype in DTYPES]
    by_label: dict[str, list[float | None]] = {}
    for label in dict.fromkeys(label for label, _, _ in ratios):
        medians = [ratios.get((label, *column)) for column in columns]
        by_label[label] = [None if m is None else m.median for m in medians]
    worst = {label: max(m for m in found if m is not None) for label, found in by_label.items()}
    table = [[f"{ours} / torch", *(f"{what} {dtype}" for what, dtype in columns)]]
    for label in sorted(by_label, key=lambda label: -worst[label]):
        table.append([label, *("" if m is None else significant(m) for m in by_label[label])])
    return table


def table(measured: Measured, ours: str, *, markdown: bool = False) -> str:
    """Return the table of one library of ours with its geometric mean."""
    mean = measured.geometric_mean(ours)
    slow = sum(found.median > 2 for found in measured.ratios(ours).values())
    lines = (as_markdown if markdown else as_text)(rows_of(measured, ours))
    count = len(measured.ratios(ours))
    return "\n".join(
        [*lines, "", f"geometric mean of {count}: {significant(mean)}; beyond 2: {slow}"]
    )


def remarks(measured: Measured) -> list[str]:
    """Return what is missing, and notes."""
    lines = [f"{label} has no counterpart: {why}" for label, why in measured.without.items()]
    lines += [f"{label} has no node: {why}" for label, why in measured.not_lowered.items()]
    return [f"- {line}" for line in (*lines, *measured.notes)]


def as_json(measured: Measured) -> dict[str, Any]:
    """Return everything measured, as plain data; times are in seconds."""
    ours = list(dict.fromkeys(n for t in measured.timings for n in t.seconds if n != TORCH))
    return {
        "operations": [
            {
                "op": t.row.op,
                "label": t.row.label,
                "dtype": t.dtype,
                "what": t.what,
                "rounds": len(t.seconds[TORCH]),
                "seconds": {name: spread(s)._asdict() for name, s in t.seconds.items()},
                "ratios": {n: t.ratio(n)._asdict() for n in ours if n in t.seconds},
            }
            for t in measured.timings
        ],
        "geometric_means": {name: measured.geometric_mean(name) for name in ours},
        "without_counterpart": measured.without,
        "not_lowered": measured.not_lowered,
        "notes": measured.notes,
    }
