"""One fault at a time: a copy of the checkout, the edit, and the tests that fail of it."""

from __future__ import annotations

import ast
import contextlib
import functools
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .faults import Fault

ROOT = Path(__file__).parents[2]
LIBRARY = ("tapegraph", "fallback", "lowering")
LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "build", "dist", "*.egg-info")
HANGS = 1200  # seconds
ONE_PROCESS = ("-n", "0")
ALL_OTHERS = ("--ignore=tests/whole/test_mutations.py",)  # it says that the fault is in the code

_edits = itertools.count(1).__next__


@dataclass(frozen=True)
class Verdict:
    """What became of a fault: ``killed_by`` a test, or by nothing (None)."""

    fault: Fault
    killed_by: str | None
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether a fault was killed, or survived and is named with a reason; not both."""
        return (self.killed_by is None) == bool(self.fault.survives)


def copied(folder: Path) -> Path:
    """Copy the checkout, without what is built or cached."""
    return Path(shutil.copytree(ROOT, folder / "checkout", ignore=LEFT_OUT))


@contextlib.contextmanager
def applied(fault: Fault, checkout: Path) -> Iterator[None]:
    """Hold one fault in a copy of the checkout.

    :raises ValueError: The fault's old text is not there exactly once.
    """
    path, start, end = located(fault, checkout)
    sound = path.read_text()
    _write(path, sound[:start] + fault.new.strip() + sound[end:])
    try:
        yield
    finally:
        _write(path, sound)


def located(fault: Fault, checkout: Path) -> tuple[Path, int, int]:
    """Return the file that holds a fault's old text, and where the text begins and ends in it.

    The text is looked for in the fault's function, wherever in the library that stands now, and
    however its lines are broken.

    :raises ValueError: The old text is not there exactly once.
    """
    file, _, name = fault.within.partition(":")
    words = map(re.escape, re.findall(r"\w+|[^\w\s]", fault.old))
    closing = {r"\)", r"\]", r"\}"}  # in front of which the formatter may put a comma
    old = re.compile(r"\s*".join(rf",?\s*{word}" if word in closing else word for word in words))
    found = [(checkout / file, span) for span in spans(checkout / file, name)]
    if not found:  # it has moved
        library = [path for folder in LIBRARY for path in sorted((checkout / folder).rglob("*.py"))]
        found = [(path, span) for path in library for span in spans(path, name)]
    places = [
        (path, *match.span())
        for path, (start, end) in found
        for match in old.finditer(path.read_text(), start, end)
    ]
    if len(places) != 1:
        raise ValueError(
            f"{fault.kind}/{fault.name}: its old text stands {len(places)} times in "
            f"{fault.within}; expected once. Renew the entry in tests/mutations/faults.py."
        )
    return places[0]


def spans(path: Path, name: str) -> list[tuple[int, int]]:
    """Return where a function, class or table of a name stands in a file; without one, the file."""
    if not path.exists():
        return []
    text = path.read_text()
    return _definitions(text).get(name, []) if name else [(0, len(text))]


@functools.lru_cache(maxsize=1024)
def _definitions(text: str) -> dict[str, list[tuple[int, int]]]:
    starts = [0, *itertools.accumulate(map(len, text.splitlines(keepends=True)))]
    statements = [("", node) for node in ast.parse(text).body]
    found: dict[str, list[tuple[int, int]]] = {}
    for scope, node in statements:  # grows while it is walked
        targets = getattr(node, "targets", [getattr(node, "target", node)])
        for target in targets:
            called = scope + getattr(target, "name", getattr(target, "id", ""))
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
            found.setdefault(called, []).append((starts[first - 1], starts[node.end_lineno]))
            inner = f"{called}." if called != scope else scope
            statements += [(inner, child) for child in getattr(node, "body", ())]
    return found


def _write(path: Path, text: str) -> None:
    """Write a file at a time of its own: Python knows compiled files by the second and size."""
    path.write_text(text)
    at = time.time() + 10 * _edits()
    os.utime(path, (at, at))


def judge(fault: Fault, checkout: Path) -> Verdict:
    """Run the tests that are likely to notice, then the whole suite, until one fails."""
    start = time.perf_counter()
    with applied(fault, checkout):
        killed_by = failing((*ONE_PROCESS, *shlex.split(fault.likely)), checkout)
        if killed_by is None:
            killed_by = failing(ALL_OTHERS, checkout)
    return Verdict(fault, killed_by, time.perf_counter() - start)


def failing(arguments: tuple[str, ...], checkout: Path) -> str | None:
    """Return the first test that fails, or None if all pass.

    :raises RuntimeError: No test ran.
    """
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    hidden = ("PYTHONPATH", "TAPEGRAPH_BACKEND", "TAPEGRAPH_STRICT")
    environment = {k: v for k, v in os.environ.items() if k not in hidden}
    try:
        done = subprocess.run(
            command,
            cwd=checkout,
            env={"OPENBLAS_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=HANGS,
        )
    except subprocess.TimeoutExpired:
        return f"a hang of {HANGS} s"
    if done.returncode == 0:
        return None
    if done.returncode not in (1, 2) and done.returncode > 0:
        raise RuntimeError(f"{shlex.join(command)}: exit status {done.returncode}\n{done.stdout}")
    named = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return named[1] if named else f"exit status {done.returncode}"
