"""A step eagerly and by `tg.compile`, natively, in turns: what recording costs, and no longer does.

python -m benchmarks.compiled [--only tiny] [--rounds 30]
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from statistics import median, quantiles
from typing import Any

from benchmarks import trainers
from benchmarks.protocol import Problem, Trainer

WORKLOADS = ("tiny", "mlp", "transformer", "cnn")


def compiled(problem: Problem, loss: trainers.Loss) -> Trainer:
    """The step of `trainers.tapegraph`, compiled."""
    import tapegraph as tg

    weights = [tg.param(w) for w in problem.weights]
    optimizer = tg.SGD(weights, lr=problem.rate)

    @tg.compile
    def step(*data: Any) -> Any:
        optimizer.zero_grad()
        value = loss(*weights, *data)
        value.backward()
        optimizer.step()
        return value

    return Trainer(lambda: step(*problem.data).item(), lambda: [w.numpy() for w in weights])


def took(step: Any) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def main() -> int:
    import tapegraph as tg

    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.compiled",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="may be repeated")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    tg.set_backend("native")
    print(f"{'workload':12}  {'eager ms':>9}  {'compiled ms':>11}  compiled / eager (quartiles)")
    for name in options.only or WORKLOADS:
        workload = importlib.import_module(f"benchmarks.workloads.{name}")
        problem = workload.problem()
        eager = workload.with_tapegraph(problem).step
        usual, trainers.tapegraph = trainers.tapegraph, compiled
        try:
            step = workload.with_tapegraph(problem).step
        finally:
            trainers.tapegraph = usual
        for _ in range(4):
            if eager() != step():
                sys.exit(f"{name}: the two steps give other losses")
        times = [(took(eager), took(step)) for _ in range(options.rounds)]
        ratios = [b / a for a, b in times]
        low, _, high = quantiles(ratios, n=4)
        one, two = (median(t[i] for t in times) * 1e3 for i in (0, 1))
        print(
            f"{name:12}  {one:9.3f}  {two:11.3f}  {median(ratios):.3f} ({low:.3f} to {high:.3f})",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
