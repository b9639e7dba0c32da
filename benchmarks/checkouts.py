"""Two checkouts of tapegraph against each other: did a change make steps slower?

    python -m benchmarks.checkouts ../before [--only tiny --only mlp] [--compiled] [--rounds 40]

Both run the workloads of this checkout, each with its own tapegraph. Printed is the median over
rounds of this checkout's time over the other's, with the quartiles: processor time with ``--cpu``,
as on a machine that does other work, else that of the clock on the wall.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks import environment
from benchmarks.processes import ROOT

WORKLOADS = ("tiny", "mlp", "transformer", "cnn", "embedding", "gpt", "small")
ENGINES = ("native", "tensorflow")


def compared(other: Path, workload: str, options: argparse.Namespace) -> list[list[float]]:
    """Return the seconds of a step of this checkout, and of the other, round by round."""
    from benchmarks.contenders import COMPILED, OURS, Remote, Task
    from benchmarks.contest import CHOOSING, Settings
    from benchmarks.protocol import time_in_turns

    settling = Settings().settling_seconds if options.engine in CHOOSING else 0.0
    name = COMPILED if options.compiled else OURS
    task = Task(workload, name, options.engine, options.threads, settling)
    checkouts = {"this": ROOT, "other": other}
    steppers = [Remote(task, checkout, label) for label, checkout in checkouts.items()]
    try:
        for stepper in steppers:
            for _ in range(3):  # which record and compile
                stepper.step()
        turns = time_in_turns(steppers, rounds=options.rounds, warmups=3)
    finally:
        for stepper in steppers:
            stepper.end()
    return [
        [turn.cpu if options.cpu else turn.wall for turn in turns[label]] for label in checkouts
    ]


def main(argv: Iterable[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.checkouts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="may be repeated")
    parser.add_argument("--engine", choices=ENGINES, default="native")
    parser.add_argument("--compiled", action="store_true", help="the step by tg.compile")
    parser.add_argument("--cpu", action="store_true", help="processor time")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args(None if argv is None else list(argv))
    options.threads = environment.available_threads()
    environment.settle(options.threads)
    # Only from here on may NumPy be imported.
    from benchmarks.protocol import ratio, spread
    from benchmarks.report import quoted

    print(f"{'workload':12}  {'ms a step':>9}  this / other (quartiles)")
    for workload in options.only or WORKLOADS:
        mine, theirs = compared(options.other.resolve(), workload, options)
        print(
            f"{workload:12}  {1e3 * spread(mine).median:9.3f}  {quoted(ratio(mine, theirs))}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
