"""What the gradients of simulations written with `np.roll` cost, against autograd's.

    python -m benchmarks.simulation [--rounds 15] [--threads 1]

Value and gradient of 50 rolls of a square grid, and of 40 steps of a wave equation on one: by
eager calls and compiled, both natively. Contenders agree first; they are in processes of their own
and take turns. Printed is the median over rounds of one's processor time over the other's, with
the quartiles.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from benchmarks import environment


def contest(name: str, side: int, rounds: int) -> str:
    """Return autograd's milliseconds and the ratio of each of ours, or why there are none."""
    import numpy as np

    from benchmarks.processes import Failed
    from benchmarks.protocol import ratio, spread, time_in_turns
    from benchmarks.report import quoted
    from benchmarks.rolled import WAYS, Timed

    every = [Timed(name, side, how) for how in ("autograd", *WAYS)]
    try:
        for one in every:
            for _ in range(3):  # which record and compile
                one.step()
        theirs = every[0].state()
        for one in every[1:]:
            for a, b in zip(one.state(), theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())
        turns = time_in_turns(every, rounds=rounds, warmups=3)
    except Failed as error:
        return f"left out: {error}"
    finally:
        for one in every:
            one.end()
    seconds = [[turn.cpu for turn in turns[one.name]] for one in every]
    ratios = (f"{quoted(ratio(ours, seconds[0])):24}" for ours in seconds[1:])
    return f"{1e3 * spread(seconds[0]).median:9.3f}  {'  '.join(ratios)}".rstrip()


def main(argv: Iterable[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.simulation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(None if argv is None else list(argv))
    environment.settle(options.threads)
    # Only from here on may NumPy be imported.
    from benchmarks.rolled import SIDES, WAYS

    titles = "  ".join(f"{f'{how} / autograd':24}" for how in WAYS)
    print(f"{'':14}  {'ms':>9}  {titles}".rstrip())
    for name, sides in SIDES.items():
        for side in sides:
            title = f"{name} {side}x{side}"
            print(f"{title:14}  {contest(name, side, options.rounds)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
