"""Measure tapegraph against its peers, and print one table a workload.

Each contender runs in a process of its own. They first prove that they compute the same loss and
gradients, then take turns round by round: while one steps, the others sleep. Quoted is the median
over rounds of tapegraph's time over the peer's, with quartiles; a time is one whole step: forward,
backward, update, loss read as a float. Below 1 is faster. With --ops, single operations.
"""

from __future__ import annotations

import argparse
import importlib.util
import platform
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from benchmarks import environment, peers
from benchmarks.workloads import WORKLOADS

ENGINES = ("native", "tensorflow", "auto")
SPINNING = """\
NumPy's OpenBLAS keeps its threads spinning for some 25 ms after each product, and they fight
TensorFlow's threads for the processors: --openblas-timeout 14 sends them to sleep after 2^14
cycles, some microseconds, for this process alone. Set OPENBLAS_THREAD_TIMEOUT=14 before NumPy is
imported to have the same in yours."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=SPINNING,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option, names in (("workload", WORKLOADS), ("peer", peers.PEERS), ("engine", ENGINES)):
        p.add_argument(
            f"--{option}",
            action="append",
            metavar="NAME",
            choices=names,
            help=f"only this one, may be repeated: {', '.join(names)}",
        )
    p.add_argument("--ops", action="store_true", help="every operation of the table, by itself")
    p.add_argument(
        "--only",
        action="append",
        metavar="NAME",
        help="only this workload, or with --ops this operation, may be repeated; or by themselves "
        "batches: vmap, or loops: gradients through loops inside of functions",
    )
    p.add_argument("--rounds", type=int, metavar="N", help="timed rounds (15; with --auto 3)")
    p.add_argument("--turn", type=float, metavar="S", help="seconds of a contender's turn (0.02)")
    p.add_argument("--threads", type=int, metavar="N", help="of every library (all processors)")
    p.add_argument("--openblas-timeout", type=int, metavar="N", help="see below (OpenBLAS's own)")
    p.add_argument(
        "--clock",
        choices=("wall", "cpu"),
        default="wall",
        help="cpu: processor time, for a busy machine and --threads 1",
    )
    p.add_argument("--quick", action="store_true", help="ends within a minute; rough figures")
    p.add_argument("--auto", action="store_true", help="the first 200 steps, engine by engine")
    p.add_argument("--markdown", action="store_true", help="print Markdown tables")
    p.add_argument("--json", metavar="FILE", help="write everything measured")
    p.add_argument("--png", metavar="FILE", help="draw the ratios")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    p = parser()
    options = p.parse_args(argv)
    if options.rounds is not None and options.rounds < 2:
        p.error("--rounds must be at least 2, for there are no quartiles of one")
    if options.auto and (options.png or options.clock == "cpu"):
        p.error("--auto draws no --png, and times what a user waits, not --clock cpu")
    if options.png and importlib.util.find_spec("matplotlib") is None:
        p.error(f"--png needs matplotlib: {peers.INSTALL.format('bench')}")
    if options.ops and (options.auto or options.png or options.workload or options.peer):
        p.error("--ops stands alone: --only takes operations, the peer is torch, there is no --png")
    if options.ops and "auto" in (options.engine or ()):
        p.error("--ops runs natively or in tensorflow, not in --engine auto")
    if options.only == ["batches"]:
        environment.settle(1)
        from benchmarks import batches

        return batches.main(options.rounds)
    if options.only == ["loops"]:
        environment.settle(1)
        from benchmarks import recurrences

        return recurrences.main(options.rounds or 9)
    if options.only and not options.ops:
        for name in options.only:
            if name not in WORKLOADS:
                p.error(f"--only: no workload {name!r}; expected one of {', '.join(WORKLOADS)}")
        options.workload = [*(options.workload or ()), *options.only]
    options.threads = options.threads or environment.available_threads()
    environment.settle(options.threads, options.openblas_timeout)
    # Only from here on may NumPy be imported.
    if options.ops:
        return operations(options)
    return first_steps(options) if options.auto else contests(options)


def contests(options: argparse.Namespace) -> int:
    """Measure the chosen workloads against the chosen peers."""
    from benchmarks import contest, processes, protocol, report

    settings = contest.Settings(
        engines=options.engine or contest.Settings().engines,
        peers=options.peer or tuple(peers.PEERS),
        clock=options.clock,
        threads=options.threads,
    )
    if options.quick:
        settings = settings._replace(
            rounds=3, warmups=1, turn_seconds=0.005, settling_seconds=0.5, budget_seconds=4.0
        )
    if options.rounds is not None:
        settings = settings._replace(rounds=options.rounds)
    if options.turn is not None:
        settings = settings._replace(turn_seconds=options.turn)
    context = told_context(options)
    results = []
    for workload in options.workload or WORKLOADS:
        try:
            result = contest.run(workload, settings, progress(workload))
        except protocol.Disagreement as error:
            print(f"{workload}: {error}", file=sys.stderr)
            return 1
        except processes.Failed as error:
            print(f"{workload}: {error.kind}: {error}\n{error.trace}", file=sys.stderr)
            return 1
        print(report.table(result, markdown=options.markdown), end="\n\n", flush=True)
        results.append(result)
    if options.json:
        context["settings"] = settings._asdict()
        report.write_json(options.json, report.as_json(results, context))
    if options.png:
        report.write_png(options.png, results)
    return 0


def operations(options: argparse.Namespace) -> int:
    """Measure single operations."""
    from benchmarks import ops, report
    from benchmarks.operations import ROWS

    known = {row.op for row in ROWS}
    for name in options.only or ():
        if name not in known:
            print(f"--only: the table has no operation {name!r}", file=sys.stderr)
            return 2
    reason = peers.missing("torch")
    if reason is not None:
        print(f"--ops compares with PyTorch: {reason}", file=sys.stderr)
        return 1
    engines = options.engine or ["native", "tensorflow"]
    if peers.missing("tf.function") is not None:
        engines = ["native"]
    context = told_context(options)
    measured = ops.run(
        options.only or (),
        engines,
        rounds=options.rounds or (3 if options.quick else 15),
        threads=options.threads,
        clock=options.clock,
        warmups=1 if options.quick else 3,
        turn_seconds=options.turn or 0.01,
        progress=progress("operations"),
    )
    for engine in engines:
        print(ops.table(measured, f"tapegraph {engine}", markdown=options.markdown), end="\n\n")
    print("\n".join(ops.remarks(measured)), flush=True)
    if options.json:
        report.write_json(options.json, context | ops.as_json(measured))
    return 0


def first_steps(options: argparse.Namespace) -> int:
    """Measure what ``auto`` costs before it has settled."""
    from benchmarks import auto, report

    steps = 20 if options.quick else auto.STEPS
    rounds = options.rounds or (2 if options.quick else 3)
    context = told_context(options)
    rows = []
    for workload in filter(auto.takes_part, options.workload or WORKLOADS):
        new = auto.run(workload, rounds=rounds, steps=steps, progress=progress(workload))
        print(report.auto_table(new, steps, markdown=options.markdown), end="\n\n", flush=True)
        rows += new
    if options.json:
        report.write_json(options.json, context | auto.as_json(rows, steps))
    return 0


def told_context(options: argparse.Namespace) -> dict[str, Any]:
    """Print what the figures depend on, and return it."""
    versions = peers.versions()
    print(", ".join(f"{name} {version}" for name, version in versions.items()))
    clock = {"wall": "", "cpu": "; processor time, of all threads together"}[options.clock]
    print(f"threads: {options.threads} for every library{clock}\n", flush=True)
    return {
        "versions": versions,
        "machine": f"{platform.system()} {platform.machine()}",
        "processors": environment.available_threads(),
        "threads": options.threads,
        "openblas_timeout": options.openblas_timeout,
    }


def progress(label: str) -> Callable[[Iterable[int]], Iterable[int]]:
    """Return what wraps rounds in a progress bar, on a terminal."""
    try:
        from tqdm import tqdm
    except ImportError:
        return iter
    return lambda rounds: tqdm(rounds, desc=label, leave=False, disable=None)


if __name__ == "__main__":
    sys.exit(main())
