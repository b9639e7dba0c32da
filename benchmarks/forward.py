"""Where TensorFlow's eager kernels pay in the forward: one operation, eagerly, by either.

    python -m benchmarks.forward

prints microseconds a call, medians of rounds in which both take turns.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

import tapegraph as tg

SIZES = (64, 10**3, 10**4, 10**5, 10**6)
OPERATIONS = {
    "exp": tg.exp,
    "tanh": tg.tanh,
    "mul": lambda x: x * x,
    "gelu": tg.gelu,
    "transpose": lambda x: tg.transpose(x) * 1.0,
    "matmul": lambda x: tg.matmul(x, x),
}
SQUARE = {"transpose", "matmul"}
SECONDS = 0.4  # for one cell


def medians(call, ways) -> list[float]:
    """Return the median microseconds of a call in each way."""
    taken: list[list[float]] = [[] for _ in ways]
    stop = time.perf_counter() + SECONDS
    while time.perf_counter() < stop or len(taken[0]) < 5:
        for found, way in zip(taken, ways, strict=True):
            with tg.use_forward(way, threshold=0):
                start = time.perf_counter()
                call()
                found.append(time.perf_counter() - start)
    return [1e6 * float(np.median(found[2:])) for found in taken]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="elements")
    args = parser.parse_args()
    print("| operation | " + " | ".join(f"{n:,}" for n in args.sizes) + " |")
    print("|---|" + "---|" * len(args.sizes))
    for name, operation in OPERATIONS.items():
        cells = []
        for n in args.sizes:
            shape = (int(n**0.5),) * 2 if name in SQUARE else (n,)
            x = tg.param(np.random.default_rng(0).normal(size=shape).astype(np.float32))
            ours, theirs = medians(lambda f=operation, x=x: f(x), ("numpy", "tensorflow"))
            cells.append(f"{ours:.3g} / {theirs:.3g}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
