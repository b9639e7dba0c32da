"""What gradients through complex numbers cost, beside autograd, JAX and PyTorch.

    python -m benchmarks.complex_numbers [--rounds 15] [--only fft] [--native]

Value and gradient, on one thread, of what the examples with complex numbers minimise, and of a
Fourier transform of 2^20 numbers. Contenders agree first; they are in processes of their own and
take turns. Printed is the median over rounds of a contender's processor time, and of ours over
each peer's, with the quartiles, as Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from benchmarks import environment


def contest(name: str, rounds: int, native: bool) -> None:
    """Print a table of everybody who is installed."""
    import numpy as np

    from benchmarks import peers
    from benchmarks.protocol import ratio, spread, time_in_turns
    from benchmarks.report import quoted
    from benchmarks.waves import PEERS, WAYS, Timed

    without = native or peers.missing("tf.function")
    ours = [way for way in WAYS if not (without and "tensorflow" in way)]
    theirs = [peer for peer in PEERS if not peers.missing(peer)]
    every = {how: Timed(name, how) for how in (*ours, *theirs)}
    try:
        for one in every.values():
            for _ in range(4):  # which record and compile
                one.step()
        first = every[ours[0]].state()
        for one in every.values():
            for a, b in zip(one.state(), first, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())
        turns = time_in_turns(list(every.values()), rounds=rounds, warmups=2)
    finally:
        for one in every.values():
            one.end()
    seconds = {how: [turn.cpu for turn in turns[one.name]] for how, one in every.items()}
    for how in ours:
        ratios = (quoted(ratio(seconds[how], seconds[peer])) for peer in theirs)
        print(f"| {name}, {how} | {1e3 * spread(seconds[how]).median:.3g} | {' | '.join(ratios)} |")
    times = (f"{1e3 * spread(seconds[peer]).median:.3g} ms" for peer in theirs)
    print(f"| {name}, the other library | | {' | '.join(times)} |", flush=True)


def main(argv: Iterable[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.complex_numbers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--native", action="store_true", help="leave TensorFlow out")
    options = parser.parse_args(None if argv is None else list(argv))
    environment.settle(1)
    # Only from here on may NumPy be imported.
    from benchmarks import peers
    from benchmarks.waves import FUNCTIONS, PEERS

    theirs = [f"/ {peer}" for peer in PEERS if not peers.missing(peer)]
    print(f"| | ms | {' | '.join(theirs)} |")
    print(f"| --- | ---: |{' ---: |' * len(theirs)}")
    for name in options.only or FUNCTIONS:
        contest(name, options.rounds, options.native)
    return 0


if __name__ == "__main__":
    sys.exit(main())
