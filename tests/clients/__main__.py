"""Run test suites that were written for autograd on tapegraph.autograd, and print what passes.

The source distributions of the clients are fetched from the package index into a cache folder, with
a virtual environment for them. Each client's own tests are run twice there: with autograd, and with
tapegraph.autograd under the name autograd. A test counts if it passes with autograd; how many of
them differentiate a complex value is counted too. What is left out, and which failures are known,
is in tests/clients/suites.py, with the reason.

Exits with status 1 if a test fails that is not known there, or one passes that is.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .environment import Environment, default_cache
from .runs import CHECKOUT, Comparison, compare
from .suites import CLIENTS, KNOWN, LAST_BITS, known

PAGE = CHECKOUT / "docs" / "autograd.md"
BEGIN, END = "<!-- clients: made by python -m tests.clients --write -->", "<!-- clients: end -->"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.clients",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=default_cache(),
        metavar="DIR",
        help="where sources and the environment are kept (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=[client.label for client in CLIENTS],
        help="run this client; may be given several times (default: all)",
    )
    parser.add_argument(
        "--failures",
        action="store_true",
        help="print every test that fails with tapegraph.autograd, and the first line of why",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="for one run of one client's tests (default: %(default)s)",
    )
    parser.add_argument(
        "--write", action="store_true", help="write the table into docs/autograd.md; needs all"
    )
    options = parser.parse_args(argv)
    if options.write and options.only:
        parser.error("--write needs all clients; leave --only away")
    chosen = [client for client in CLIENTS if client.label in (options.only or client.label)]
    say = progress()
    try:
        environment = Environment(options.cache, say)
        suites = {client: environment.add(client) for client in CLIENTS}  # some need others
        found = [
            compare(client, environment.python, suites[client], say, options.timeout)
            for client in chosen
        ]
        versions = environment.versions()
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    text = f"{table(found)}\n\n{notes(found, versions)}"
    print(text)
    if options.failures:
        print(failures(found))
    if options.write:
        write(text)
    surprises = [line for comparison in found for line in surprising(comparison)]
    print(*surprises, sep="\n", file=sys.stderr)
    return 1 if surprises else 0


def progress() -> Callable[[str], None]:
    """Return what prints a line of progress; of lines that come fast, one in five seconds."""
    last = [0.0]

    def say(text: str) -> None:
        now = time.monotonic()
        if now - last[0] > 5.0 or not text.endswith("%"):
            print(text, file=sys.stderr, flush=True)
            last[0] = now

    return say


def table(found: Sequence[Comparison]) -> str:
    """Return the table of the clients."""
    lines = [
        "| client | pass with autograd | of these complex | pass with the drop-in | percent |",
        "|---|---|---|---|---|",
    ]
    for one in found:
        name = f"{one.client.label} {one.client.version}"
        numbers = f"{one.passing} | {len(one.complex_ones)} | {one.passed} | {one.percent:.1f}"
        lines.append(f"| {name} | {numbers} |")
    return "\n".join(lines)


def notes(found: Sequence[Comparison], versions: dict[str, str]) -> str:
    """Return what a reader of the table should know."""
    used = ", ".join(f"{title} {versions[title.lower()]}" for title in ("NumPy", "SciPy"))
    told = [f"- {one.client.label}: {one.client.note}." for one in found if one.client.note]
    lines = [f"With {used}. A test is complex if it differentiates a complex value.", "", *told]
    missing = [
        f"- {one.client.label}, `{start.rpartition('::')[2]}`: {why}."
        for one in found
        for start, why in KNOWN.get(one.client.label, {}).items()
        if any(test.startswith(start) for test in one.failures)
    ]
    if missing:
        lines += ["", "What fails with the drop-in, and why:", "", *missing]
    return "\n".join(lines)


def failures(found: Sequence[Comparison]) -> str:
    """Return each failing test with the first line of why."""
    lines = [""]
    for one in found:
        lines += [f"{one.client.label}: {test}\n    {why}" for test, why in one.failures.items()]
        lines.append(f"{one.client.label}: {one.entries} entries were recorded")
    return "\n".join(lines)


def surprising(one: Comparison) -> list[str]:
    """Return a line for each test that fails unexpectedly, or passes so."""
    lines = [
        f"{one.client.label}: {test} fails: {why}"
        for test, why in one.failures.items()
        if known(one.client.label, test) is None
    ]
    passing = [test for test in one.wanted if test not in one.failures]
    for start, why in KNOWN.get(one.client.label, {}).items():
        if why.startswith(LAST_BITS):
            continue
        failed = any(test.startswith(start) for test in one.failures)
        if not failed and any(test.startswith(start) for test in passing):
            lines.append(f"{one.client.label}: {start} passes; take it out of suites.py")
    return lines


def write(text: str) -> None:
    """Put the table between its marks in the page of the docs."""
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise RuntimeError(f"{PAGE.name} has no place for the table: {BEGIN} and {END}")
    PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
