"""What many steps in one call cost, beside JAX's scan, a loop of TensorFlow's and eager loops.

    python -m benchmarks.scans [--rounds 15] [--only tiny] [--native]

Training, on one thread: `tiny`, 300 operations on 4x4 numbers, 200 steps a call, and the network
of `examples/digits.py`, an epoch of 44 batches a call. Contenders agree first; they are in
processes of their own and take turns. Printed is the median over rounds of a contender's processor
time for a step, of ours over each peer's, with the quartiles, and what the first call takes in a
fresh process, import and compiling included, as Markdown.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import Any

from benchmarks import environment

WARM_UPS = 12  # calls in which who chooses among loops by measuring has chosen


def contest(name: str, rounds: int, firsts: int, native: bool) -> None:
    """Print a table of everybody who is installed."""
    from benchmarks import peers
    from benchmarks.loops import OURS, THEIRS, WORKLOADS
    from benchmarks.protocol import ratio, spread, time_in_turns
    from benchmarks.report import as_markdown, quoted, significant

    without = native or peers.missing("tf.function")
    ours = [how for how in OURS if not (without and "tensorflow" in how)]
    theirs = [how for how in THEIRS if not peers.missing(peers.peer_of(how))]
    first: dict[str, list[float]] = {how: [] for how in (*ours, *theirs)}
    every: dict[str, Any] = {}
    try:
        for how, seconds in first.items():
            for again in range(firsts):
                if again:
                    every[how].end()
                every[how] = started(name, how)
                seconds.append(every[how].first())
        check(every)
        for how in ours:
            for _ in range(WARM_UPS):
                every[how].step()
        turns = time_in_turns(list(every.values()), rounds=rounds, warmups=2)
    finally:
        for one in every.values():
            one.end()
    steps = len(WORKLOADS[name].problem().data[0])
    seconds = {how: [turn.cpu / steps for turn in turns[how]] for how in every}
    head = [f"{name}, {steps} steps a call", "first call, s", "us a step"]
    rows = [[*head, *(f"{how} ÷ this" for how in ours)]]
    for how in every:
        ratios = [quoted(ratio(seconds[one], seconds[how])) for one in ours]
        compared = ratios if how in theirs else [""] * len(ours)
        once = significant(sorted(first[how])[firsts // 2])
        rows.append([how, once, significant(1e6 * spread(seconds[how]).median), *compared])
    print("\n".join(as_markdown(rows)), end="\n\n", flush=True)


def started(name: str, how: str) -> Any:
    from benchmarks.loops import Timed

    return Timed(name, how)


def check(every: dict[str, Any]) -> None:
    """Raise unless all losses and weights after the first call agree."""
    import numpy as np

    from benchmarks.protocol import TOLERANCE, Disagreement

    states = {how: one.state() for how, one in every.items()}
    (first, expected), *rest = states.items()
    for how, state in rest:
        for mine, its in zip(state, expected, strict=True):
            error, scale = np.abs(mine - its).max(), np.abs(its).max()
            if not error <= TOLERANCE[state[-1].dtype] * scale:  # so that NaN is an error too
                raise Disagreement(f"{how} and {first} differ by {error:.3g} of {scale:.3g}")


def main(argv: Iterable[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scans",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--firsts", type=int, default=3, help="fresh processes (%(default)s)")
    parser.add_argument("--only", action="append", metavar="NAME", help="tiny or digits")
    parser.add_argument("--native", action="store_true", help="leave TensorFlow out")
    options = parser.parse_args(None if argv is None else list(argv))
    environment.settle(1)
    # Only from here on may NumPy be imported.
    from benchmarks.loops import WORKLOADS

    for name in WORKLOADS:
        if options.only is None or any(name.startswith(only) for only in options.only):
            contest(name, options.rounds, options.firsts, options.native)
    return 0


if __name__ == "__main__":
    sys.exit(main())
