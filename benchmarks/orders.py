"""What derivatives of second order cost.

    python -m benchmarks.orders [--rounds 15] [--threads 1]

Hessians of functions of 200 variables against autograd's; the Hessian of a wave, compiled, and the
first calls of that, against eager calls; and Hessian-vector products of the workload `mlp` against
its gradient, by each engine. Contenders are in processes of their own and take turns. Printed is
the median over rounds of one's processor time over the other's, with the quartiles.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from benchmarks import environment


def contest(ours: tuple[str, ...], theirs: tuple[str, ...], rounds: int, *, equal: bool) -> str:
    """Return milliseconds and ratio of two contenders, or why there are none."""
    import numpy as np

    from benchmarks.processes import Failed
    from benchmarks.protocol import ratio, spread, time_in_turns
    from benchmarks.report import quoted
    from benchmarks.second_order import Timed

    both = Timed(*ours), Timed(*theirs)
    try:
        for one in both:
            for _ in range(3):  # which record and compile
                one.step()
        if equal:
            for a, b in zip(*(one.state() for one in both), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9 * np.abs(b).max())
        turns = time_in_turns(both, rounds=rounds, warmups=3)
        engine, reason = both[0].ran_in()
        if ours[-1] == "tensorflow" != engine:
            return f"left out: it ran natively: {reason}"
    except Failed as error:
        return f"left out: {error}"
    finally:
        for one in both:
            one.end()
    mine, others = ([turn.cpu for turn in turns[one.name]] for one in both)
    return f"{1e3 * spread(mine).median:9.3f}  {quoted(ratio(mine, others))}"


def main(argv: Iterable[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.orders",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(None if argv is None else list(argv))
    environment.settle(options.threads)
    # Only from here on may NumPy be imported.
    from benchmarks.second_order import FUNCTIONS, VARIABLES

    print(f"{f'hessian of {VARIABLES} variables':26}  {'ms':>9}  ours / autograd (quartiles)")
    for name in FUNCTIONS:
        ours, theirs = (("hessian", name, library) for library in ("tapegraph", "autograd"))
        print(f"{name:26}  {contest(ours, theirs, options.rounds, equal=True)}", flush=True)
    print(f"{'hessian of a wave':26}  {'ms':>9}  compiled / eager (quartiles)")
    for title, how in (("compiled", "compiled"), ("first three calls", "first")):
        mine, eager = ("wave_hessian", how), ("wave_hessian", "eager")
        print(f"{title:26}  {contest(mine, eager, options.rounds, equal=True)}", flush=True)
    print(f"{'hvp of mlp':26}  {'ms':>9}  hvp / gradient (quartiles)")
    for engine in ("native", "tensorflow"):
        hvp, gradient = (("mlp_derivative", what, engine) for what in ("hvp", "gradient"))
        print(f"{engine:26}  {contest(hvp, gradient, options.rounds, equal=False)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
