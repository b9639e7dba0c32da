"""Seed faults into a copy of the library one by one, and print which tests notice.

Each fault first meets the tests most likely to notice, then the whole quick suite: a fault that is
killed costs seconds, one that survives the whole suite. Exits with status 1 if one survives that is
not named with a reason.
"""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import sys
import tempfile
from collections.abc import Iterable, Sequence
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
    options = parser.parse_args(argv)
    chosen = [f for f in FAULTS if any(text in label(f) for text in options.only or [""])]
    if not chosen:
        parser.error(f"no fault is called like {' or '.join(options.only)}; see --list")
    if options.list:
        print("\n".join(f"{label(f):60} {f.within}" for f in chosen))
        return 0
    try:
        return check(chosen)
    except (RuntimeError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2


def check(faults: list[Fault]) -> int:
    """Print the verdict of every fault; return the exit status."""
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
        for fault in with_progress(faults):
            verdicts.append(judge(fault, checkout))
            print(line(verdicts[-1]), flush=True)
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


def with_progress(faults: list[Fault]) -> Iterable[Fault]:
    """Show a bar on a terminal where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return faults
    return tqdm(faults, desc="faults", unit="fault", disable=None)


if __name__ == "__main__":
    sys.exit(main())
