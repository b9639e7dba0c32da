"""What one all-reduce of gradients costs as parameters and ranks grow, and a model of it.

    python -m benchmarks.allreduce

starts 2, 4 and 8 ranks on this machine, one number after the other, and prints a table: the medians
of MPI's all-reduce alone and of the whole of `DataParallel.all_reduce` (flatten, weigh, all-reduce,
divide, give back), of the slowest rank; and the model

    seconds = 2 log2(ranks) latency + 2 (1 - 1/ranks) bytes / bandwidth

(halving and doubling, which MPI libraries choose for large messages) with the latency and bandwidth
that fit the measurements on two ranks. Where there are more ranks than processors they take turns,
and the model's seconds count as many times as a processor has ranks.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
TENSORS = 10
RANKS = (2, 4, 8)
ITEM = 4  # bytes of a float32
SECONDS = 1.5  # for one size
# Seconds, and bytes a second: what clusters' networks are sold with, at the level of MPI.
NETWORKS = {
    "10 Gbit/s Ethernet": (30e-6, 1.1e9),
    "100 Gbit/s Ethernet": (10e-6, 11e9),
    "200 Gbit/s InfiniBand": (2e-6, 23e9),
}


def model(ranks: int, parameters: int, latency: float, bandwidth: float) -> float:
    """Return the seconds of one all-reduce of float32 gradients."""
    volume = 2 * (1 - 1 / ranks) * parameters * ITEM
    return 2 * math.log2(ranks) * latency + volume / bandwidth


def fitted(measured: dict[int, float], ranks: int) -> tuple[float, float]:
    """Return the latency and the bandwidth that fit best, relative to each measurement."""
    sizes, seconds = np.array(list(measured)), np.array(list(measured.values()))
    columns = [np.full(len(sizes), model(ranks, 0, 1.0, np.inf)), model_bytes(ranks, sizes)]
    (latency, inverse), *_ = np.linalg.lstsq(np.transpose(columns / seconds), np.ones(len(sizes)))
    return latency, 1 / inverse


def model_bytes(ranks: int, sizes: np.ndarray) -> np.ndarray:
    return 2 * (1 - 1 / ranks) * sizes * ITEM


# On every rank


def median(comm, call) -> float:
    """Return the median time of a call, of the rank where it is longest."""
    taken, start = [], time.perf_counter()
    while True:
        comm.Barrier()
        before = time.perf_counter()
        call()
        taken.append(time.perf_counter() - before)
        done = len(taken) >= 5 and time.perf_counter() - start > SECONDS / 2
        if comm.bcast(done):
            return max(comm.allgather(float(np.median(taken[1:]))))


def measure(sizes) -> None:
    """Measure on this rank, and print what rank 0 has found."""
    from mpi4py import MPI

    import tapegraph as tg

    comm, found = MPI.COMM_WORLD, {}
    for size in sizes:
        send, receive = np.ones(size, np.float32), np.empty(size, np.float32)
        alone = median(comm, lambda a=send, b=receive: comm.Allreduce(a, b))
        params = [tg.param(np.ones(size // TENSORS, np.float32)) for _ in range(TENSORS)]
        parallel = tg.distributed.DataParallel(tg.SGD(params, 0.1), comm, check_every=None)
        for p in params:
            p.grad = np.ones(p.shape, np.float32)
        found[size] = alone, median(comm, parallel.all_reduce)
    if comm.rank == 0:
        print(json.dumps(found))


# Outside


def on(ranks: int, sizes) -> dict[int, tuple[float, float]]:
    """Return what so many ranks measure, by the number of parameters."""
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else "mpiexec"
    here = [sys.executable, "-m", "mpi4py", "-m", "benchmarks.allreduce", "--measure"]
    done = subprocess.run(
        [mpiexec, "-n", str(ranks), *here, "--sizes", *map(str, sizes)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return {int(size): tuple(pair) for size, pair in json.loads(done.stdout).items()}


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="parameters")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(args.sizes)
        return
    measured = {ranks: on(ranks, args.sizes) for ranks in args.ranks}
    first = min(measured)
    latency, bandwidth = fitted({n: alone for n, (alone, _) in measured[first].items()}, first)
    print(f"fitted on {first} ranks: {1e6 * latency:.3g} us, {bandwidth / 1e9:.3g} GB/s\n")
    print("| ranks | parameters | all-reduce, ms | model, ms | `all_reduce()`, ms |")
    print("|---|---|---|---|---|")
    for ranks, found in measured.items():
        turns = max(1.0, ranks / (os.cpu_count() or 1))
        for size, (alone, whole) in found.items():
            computed = turns * model(ranks, size, latency, bandwidth)
            cells = map(milliseconds, (alone, computed, whole))
            print(f"| {ranks} | {size:,} |", " | ".join(cells), "|")
    print(
        "\n| 1,000 ranks by | 1 million, ms | 100 million, ms | 1 billion, ms |\n|---|---|---|---|"
    )
    for name, network in NETWORKS.items():
        cells = (milliseconds(model(1000, n, *network)) for n in (10**6, 10**8, 10**9))
        print(f"| {name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    main()
