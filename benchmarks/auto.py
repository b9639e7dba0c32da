"""Whether ``auto`` pays: the first steps under each engine, each time in a fresh process.

Everything a user waits for counts: importing the engine, compiling, running. A second set of
rows has TensorFlow imported beforehand, as in a program that uses it anyway.

``python -m benchmarks.auto`` has compiled steps, for half a minute: how many are done after how
long natively, in TensorFlow, in TensorFlow with XLA, and under ``auto``.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from benchmarks import curves, environment, peers
from benchmarks.contenders import COMPILED, OURS, load
from benchmarks.curves import AUTO, Curve
from benchmarks.protocol import Spread, ratio, spread
from benchmarks.workloads import WORKLOADS

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


# Compiled steps, for a while


class Race(NamedTuple):
    """One workload: every contender's curves, one a round; of XLA none where it may not."""

    workload: str
    curves: dict[str, list[Curve]]

    def rounds(self) -> list[dict[str, Curve]]:
        return [
            dict(zip(self.curves, curves, strict=True))
            for curves in zip(*self.curves.values(), strict=True)
        ]

    def figures(self, moment: float) -> dict[str, float]:
        """Return medians over rounds: seconds of a step, and how far ``auto`` is from the best."""
        found: dict[str, list[float]] = {}
        for curves_of in self.rounds():
            auto = curves_of[AUTO]
            engines = {name: c for name, c in curves_of.items() if name != AUTO}
            best = min(c.last_step for c in engines.values())
            worst, at = curves.over_best(auto, list(engines.values()))
            row = {name: c.last_step for name, c in engines.items()}
            row |= {"later": auto.step(moment) / best, "worst": worst, "at": at}
            row["since"] = curves.settled_after(auto, best)
            for name, number in row.items():
                found.setdefault(name, []).append(number)
        return {name: median(numbers) for name, numbers in found.items()}


def race(
    workload: str,
    options: argparse.Namespace,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Race:
    """Let every contender step for a while in a process of its own, one after the other."""
    found: dict[str, list[Curve]] = {name: [] for name in (*curves.ENGINES, AUTO)}
    for _ in progress(range(options.rounds)):
        for name in list(found):
            curve = _curve(workload, name, options)
            if curve.steps:
                found[name].append(curve)
            else:
                del found[name]
    return Race(workload, found)


def _curve(workload: str, engine: str, options: argparse.Namespace) -> Curve:
    command = [sys.executable, "-m", "benchmarks.curves", workload, engine, str(options.seconds)]
    threads = dict.fromkeys(environment.THREADS, str(options.threads))
    variables = os.environ | environment.CPU_ONLY | environment.QUIET | threads
    command += ["--clock", options.clock]
    done = subprocess.run(command, capture_output=True, text=True, env=variables)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{done.stderr}")
    return Curve(**json.loads(done.stdout.splitlines()[-1]))


def race_cells(races: Sequence[Race], moment: float) -> list[list[str]]:
    """Return the table of races: a row a workload."""
    from benchmarks.report import significant

    engines = [f"{name}, ms" for name in curves.ENGINES]
    head = ["workload", *engines, f"auto from {moment:g} s / best", "within 1.2 from, s"]
    rows = [[*head, "all time / best's, at most", "at, s"]]
    for one in races:
        figures = one.figures(moment)
        steps = [f"{1e3 * figures[e]:.3g}" if e in figures else "" for e in curves.ENGINES]
        since = figures["since"]
        rows.append(
            [
                *(one.workload, *steps, significant(figures["later"])),
                "never" if since == math.inf else f"{since:.1f}",
                *(significant(figures["worst"]), f"{figures['at']:.1f}"),
            ]
        )
    return rows


def draw(path: str, races: Sequence[Race], clock: str) -> None:
    """Draw the steps done over time, a panel a workload; of several rounds, the first."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    styles = {"native": "C0", "tensorflow": "C1", curves.WITH_XLA: "C2", AUTO: "black"}
    columns = min(3, len(races))
    rows = -(-len(races) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4 * columns, 0.6 + 3 * rows), layout="constrained", squeeze=False
    )
    for ax in axes.flat[len(races) :]:
        ax.set_visible(False)
    for ax, one in zip(axes.flat, races, strict=False):
        for name, (curve, *_) in one.curves.items():
            line = {"linestyle": "--", "linewidth": 2} if name == AUTO else {"linewidth": 1.5}
            ax.plot([0, *curve.seconds], [0, *curve.steps], color=styles[name], **line)
        ax.set_title(one.workload, loc="left", fontsize="medium", fontweight="bold")
        ax.set_xlim(0)
        ax.set_ylim(0)
        ax.grid(alpha=0.3)
    figure.supxlabel(
        {"wall": "seconds", "cpu": "processor seconds"}[clock] + " since the first call"
    )
    figure.supylabel("steps done")
    handles = [
        plt.Line2D([], [], color=c, linestyle="--" if n == AUTO else "-") for n, c in styles.items()
    ]
    figure.legend(handles, list(styles), loc="outside upper center", ncols=4, frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    from benchmarks.report import as_markdown, as_text

    compiled = [name for name in WORKLOADS if takes_part_compiled(name)]
    p = argparse.ArgumentParser(prog="python -m benchmarks.auto", description=__doc__)
    p.add_argument("--only", action="append", metavar="NAME", choices=compiled)
    p.add_argument("--seconds", type=float, default=30.0, metavar="S", help="of a contender (30)")
    p.add_argument("--rounds", type=int, default=1, metavar="N", help="medians of so many (1)")
    p.add_argument("--threads", type=int, default=environment.available_threads(), metavar="N")
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="cpu: processor time")
    p.add_argument("--markdown", action="store_true", help="print a Markdown table")
    p.add_argument("--json", metavar="FILE", help="write every curve")
    p.add_argument("--png", metavar="FILE", help="draw them")
    p.add_argument("--read", metavar="FILE", help="tell of these curves again, measuring nothing")
    options = p.parse_args(argv)
    if options.read:
        races = read(options.read)
    else:
        reason = peers.missing("tf.function")
        if reason is not None:
            p.error(f"TensorFlow is one of the engines: {reason}")
        races = [race(name, options) for name in options.only or compiled]
    rows = race_cells(races, moment=10.0)
    print("\n".join((as_markdown if options.markdown else as_text)(rows)))
    if options.json:
        found = {one.workload: one.curves for one in races}
        Path(options.json).write_text(json.dumps(found) + "\n", encoding="utf-8")
    if options.png:
        draw(options.png, races, options.clock)
    return 0


def takes_part_compiled(workload: str) -> bool:
    """Tell whether a workload has a compiled step that runs on the engines."""
    return COMPILED in getattr(load(workload), "CONTENDERS", ()) and takes_part(workload)


def read(path: str) -> list[Race]:
    """Return the races that a file of ``--json`` tells of."""
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    return [
        Race(workload, {name: [Curve(*curve) for curve in rounds] for name, rounds in one.items()})
        for workload, one in found.items()
    ]


if __name__ == "__main__":
    sys.exit(main())
