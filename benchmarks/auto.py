"""Whether ``auto`` pays: the first steps under each engine, each time in a fresh process.

Everything a user waits for counts: importing the engine, compiling, running. A second set of
rows has TensorFlow imported beforehand, as in a program that uses it anyway.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks import peers
from benchmarks.contenders import OURS, load
from benchmarks.protocol import Spread, ratio, spread

ENGINES = ("native", "tensorflow", "auto")
STEPS = 200


class Start(NamedTuple):
    """One process's first steps: seconds of the first and of all, and the engine of the last."""

    first: float
    total: float
    ran: str


class Row(NamedTuple):
    """One workload: every engine's starts, one a round."""

    workload: str
    imported: bool
    starts: dict[str, list[Start]]

    def total(self, engine: str) -> Spread:
        return spread([s.total for s in self.starts[engine]])

    @property
    def over_better(self) -> Spread:
        """The total of ``auto`` over that of the better of the two engines."""
        better = [
            min(s.total for s in pair)
            for pair in zip(self.starts["native"], self.starts["tensorflow"], strict=True)
        ]
        return ratio([s.total for s in self.starts["auto"]], better)

    @property
    def first_over_native(self) -> Spread:
        """The first step of ``auto`` over native's."""
        return ratio(*([s.first for s in self.starts[e]] for e in ("auto", "native")))


def takes_part(workload: str) -> bool:
    """Tell whether a workload runs on the engines."""
    return OURS in getattr(load(workload), "CONTENDERS", ())


def run(
    workload: str,
    *,
    rounds: int,
    steps: int = STEPS,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> list[Row]:
    """Measure one workload, the engines taking turns."""
    installed = peers.missing("tf.function") is None
    rows = [
        Row(workload, imported, {engine: [] for engine in ENGINES})
        for imported in ([False, True] if installed else [False])
    ]
    for turn in progress(range(rounds)):
        for row in rows:
            # Every engine leads once in a while: what ran before leaves the memory cold or warm.
            for i in range(len(ENGINES)):
                engine = ENGINES[(turn + i) % len(ENGINES)]
                row.starts[engine].append(_start(row, engine, steps))
    return rows


def _start(row: Row, engine: str, steps: int) -> Start:
    command = [sys.executable, "-m", "benchmarks.first_steps", row.workload, engine, str(steps)]
    if row.imported:
        command.append("--import-tensorflow")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    return Start(**json.loads(done.stdout.splitlines()[-1]))


def as_json(rows: Sequence[Row], steps: int) -> dict[str, Any]:
    """Return everything measured, as plain data."""
    return {
        "steps": steps,
        "auto": [
            {
                "workload": row.workload,
                "tensorflow_imported": row.imported,
                "starts": {e: [s._asdict() for s in starts] for e, starts in row.starts.items()},
                "over_better": row.over_better._asdict(),
                "first_over_native": row.first_over_native._asdict(),
            }
            for row in rows
        ],
    }
