"""Two checkouts of tapegraph against each other: did a change make eager steps slower?

    python -m benchmarks.checkouts ../before [--only tiny --only mlp] [--rounds 40]

Each checkout runs in a process of its own, and they take turns through pipes: while one steps, the
other sleeps in a read. Printed is the median over rounds of this checkout's time over the other's,
with the quartiles.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from statistics import median, quantiles

WORKLOADS = ("tiny", "mlp", "transformer", "cnn", "embedding")
HERE = Path(__file__).parents[1]
# A burst of steps per request; its least time counts, as noise only adds.
STEPPER = """
import importlib, sys, time
import tapegraph as tg
tg.set_backend("native")
workload = importlib.import_module("benchmarks.workloads." + sys.argv[1])
step = workload.with_tapegraph(workload.problem()).step
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    print(min(times), flush=True)
"""
STEPS = {"tiny": 10, "embedding": 20}


class Stepper:
    """A checkout's process, which steps when it is asked to."""

    def __init__(self, checkout: Path, workload: str) -> None:
        self.steps = STEPS.get(workload, 2)
        self.process = subprocess.Popen(
            [sys.executable, "-c", STEPPER, workload],
            cwd=checkout,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def took(self) -> float:
        self.process.stdin.write(f"{self.steps}\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def compared(other: Path, workload: str, rounds: int) -> tuple[list[float], float]:
    """Return this checkout's time over the other's, round by round, and its own in seconds."""
    steppers = [Stepper(HERE, workload), Stepper(other, workload)]
    try:
        for _ in range(3):
            for stepper in steppers:
                stepper.took()
        times = []
        for i in range(rounds):
            order = steppers if i % 2 else steppers[::-1]
            took = {stepper: stepper.took() for stepper in order}
            times.append([took[stepper] for stepper in steppers])
    finally:
        for stepper in steppers:
            stepper.close()
    return [mine / theirs for mine, theirs in times], median(mine for mine, _ in times)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.checkouts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("other", type=Path, help="the folder of the other checkout")
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="may be repeated")
    parser.add_argument("--rounds", type=int, default=40)
    options = parser.parse_args()
    print(f"{'workload':12}  {'ms a step':>9}  this / other (quartiles)")
    for workload in options.only or WORKLOADS:
        ratios, own = compared(options.other.resolve(), workload, options.rounds)
        low, _, high = quantiles(ratios, n=4)
        print(
            f"{workload:12}  {own * 1e3:9.3f}  {median(ratios):.3f} ({low:.3f} to {high:.3f})",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
