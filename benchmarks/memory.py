"""What a step takes of memory, natively: ``python -m benchmarks.memory [WORKLOAD ...]``.

Each step runs in a process of its own. Counted is what NumPy and Python hold at most during a step,
by ``tracemalloc``, parameters and buffers included, once five steps have been taken.
"""

from __future__ import annotations

import argparse
import gc
import tracemalloc

from benchmarks.contenders import COMPILED, OURS, load
from benchmarks.processes import Process

WORKLOADS = ("mlp", "transformer", "cnn", "gpt")


class Measured:
    """A contender that counts its memory."""

    def __init__(self, workload: str, contender: str) -> None:
        import tapegraph as tg

        tg.set_backend("native")
        module = load(workload)
        problem = module.problem()
        tracemalloc.start()
        self._step = module.CONTENDERS[contender](problem).step

    def peak(self) -> int:
        """Return the bytes at the highest point of a step."""
        for _ in range(5):
            self._step()
        gc.collect()
        tracemalloc.reset_peak()
        self._step()
        return tracemalloc.get_traced_memory()[1]


def peak(workload: str, contender: str) -> int:
    """Return the bytes at the highest point of a step, in a process of its own."""
    process = Process("benchmarks.memory:Measured", workload, contender)
    try:
        process.made()
        return process.ask("peak")  # type: ignore[no-any-return]
    finally:
        process.end()


def main() -> None:
    p = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    p.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(WORKLOADS)}")
    for workload in p.parse_args().workloads or WORKLOADS:
        eager, compiled = (peak(workload, contender) / 1e6 for contender in (OURS, COMPILED))
        print(f"{workload:12} eager {eager:6.1f} MB   compiled {compiled:6.1f} MB")


if __name__ == "__main__":
    main()
