"""Seed faults into a copy of the library one by one, and print which tests notice.

Each fault first meets the tests most likely to notice, then the whole quick suite: a fault that is
killed costs seconds, one that survives the whole suite. Exits with status 1 if one survives that is
not named with a reason.
"""

from __future__ import annotations

import argparse
import importlib.util
import queue
import shlex
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .check import Verdict, applied, copied, failing, judge
from .faults import FAULTS, Fault


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", action="append", metavar="TEXT", help="faults whose KIND/NAME holds this"
    )
    parser.add_argument("--list", action="store_true", help="name the faults and stop")
    parser.add_argument(
        "--jobs", type=int, default=1, metavar="N", help="try N faults at a time, each in a copy"
    )
    options = parser.parse_args(argv)
    chosen = [f for f in FAULTS if any(text in label(f) for text in options.only or [""])]
    if not chosen:
        parser.error(f"no fault is called like {' or '.join(options.only)}; see --list")
    if options.list:
        print("\n".join(f"{label(f):60} {f.within}" for f in chosen))
        return 0
    try:
        return check(chosen, options.jobs)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2


def check(faults: list[Fault], jobs: int) -> int:
    """Print the verdict of every fault, ``jobs`` at a time; return the exit status."""
    if importlib.util.find_spec("tensorflow") is None:
        needing = [f for f in faults if f.tensorflow]
        faults = [f for f in faults if not f.tensorflow]
        if needing:
            print(f"{len(needing)} faults left out, which are seen with TensorFlow alone\n")
    verdicts = []
    with tempfile.TemporaryDirectory() as folder:
        checkout = copied(Path(folder))
        for fault in faults:
            with applied(fault, checkout):
                pass  # all texts are there before the first test runs
        sound(faults, checkout)
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        free.put(checkout)
        for n in range(1, jobs):
            free.put(copied(Path(folder) / str(n)))

        def verdict(fault: Fault) -> Verdict:
            place = free.get()
            try:
                return judge(fault, place)
            finally:
                free.put(place)

        with ThreadPoolExecutor(jobs) as pool:
            for found in with_progress(pool.map(verdict, faults), len(faults)):
                verdicts.append(found)
                print(line(found), flush=True)
    surprises = [v for v in verdicts if not v.as_expected]
    killed = sum(v.killed_by is not None for v in verdicts)
    print(f"\n{killed} of {len(verdicts)} killed, {sum(v.seconds for v in verdicts):.0f} s")
    for v in surprises:
        print(f"{label(v.fault)}: {'SURVIVED' if v.killed_by is None else 'no longer survives'}")
    return 1 if surprises else 0


def sound(faults: list[Fault], checkout: Path) -> None:
    """Run the likely tests without any fault: they must pass.

    :raises RuntimeError: One fails.
    """
    files = dict.fromkeys(
        word for f in faults for word in shlex.split(f.likely) if word.startswith("tests/")
    )
    already = failing(tuple(files), checkout)
    if already is not None:
        raise RuntimeError(f"{already} fails without any fault: mend it first")


def label(fault: Fault) -> str:
    return f"{fault.kind}/{fault.name}"


def line(verdict: Verdict) -> str:
    """Return a row of the table."""
    survived = f"SURVIVED {verdict.fault.survives and '(' + verdict.fault.survives + ')'}"
    return f"{label(verdict.fault):60} {verdict.seconds:6.1f} s  {verdict.killed_by or survived}"


def with_progress(verdicts: Iterable[Verdict], total: int) -> Iterable[Verdict]:
    """Show a bar on a terminal where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return verdicts
    return tqdm(verdicts, total=total, desc="faults", unit="fault", disable=None)


if __name__ == "__main__":
    sys.exit(main())
