"""One run of a client's tests, with autograd or with the drop-in, and what two runs tell."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .suites import Client

HERE = Path(__file__).parent
CHECKOUT = HERE.parent.parent
LIBRARIES = ("autograd", "tapegraph.autograd")


class Comparison(NamedTuple):
    """What a client's tests gave with autograd, and with the drop-in.

    :ivar client: Whose.
    :ivar passing: How many tests pass with autograd.
    :ivar complex_ones: Those of them in which a complex value is differentiated.
    :ivar wanted: All that pass with autograd.
    :ivar failures: Those of them that fail with the drop-in, and the first line of why.
    :ivar entries: How many entries the drop-in recorded.
    """

    client: Client
    passing: int
    complex_ones: list[str]
    wanted: list[str]
    failures: dict[str, str]
    entries: int

    @property
    def passed(self) -> int:
        """How many of the wanted tests pass with the drop-in."""
        return len(self.wanted) - len(self.failures)

    @property
    def percent(self) -> float:
        """The same in percent."""
        return 100.0 * self.passed / len(self.wanted)


def compare(
    client: Client, python: Path, suite: Path, say: Callable[[str], None], timeout: float
) -> Comparison:
    """Run a client's tests with both libraries.

    :raises RuntimeError: pytest broke off, no test passes with autograd, or the drop-in was not
        what was imported.
    """
    theirs, ours = (run(client, library, python, suite, say, timeout) for library in LIBRARIES)
    passing = [test for test, (outcome, _) in theirs["tests"].items() if outcome == "passed"]
    wanted = passing
    if not wanted:
        raise RuntimeError(f"{client.label}: no test passes with autograd itself")
    failures = {}
    for test in wanted:
        outcome, why = ours["tests"].get(test, ("missing", "it was not collected"))
        if outcome != "passed":
            failures[test] = why or outcome
    set_aside = [test for test in passing if test in theirs["complex"]]
    return Comparison(client, len(passing), set_aside, wanted, failures, ours["entries"])


def run(
    client: Client,
    library: str,
    python: Path,
    suite: Path,
    say: Callable[[str], None],
    timeout: float,
) -> dict[str, Any]:
    """Run a client's tests with one library; return what the plugin reports of them."""
    report = suite / f"{library}.json"
    report.unlink(missing_ok=True)
    settings = suite / "pytest.ini"
    settings.write_text("[pytest]\n")  # the client's own asks for plugins
    call = [str(python), "-m", "pytest", "-v", "-c", str(settings), "--rootdir", str(suite)]
    call += ["-p", "client_report", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    call += [] if client.conftest else ["--noconftest"]
    call += [f"--ignore={name}" for name in client.ignored] + [*client.tests]
    start = time.monotonic()
    with subprocess.Popen(
        call,
        cwd=suite,
        env=_environment(library, report),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        printed = []
        for line in _until(process, start + timeout):
            printed.append(line)
            if line.rstrip().endswith("%]"):
                share = line.rpartition("[")[2].rstrip().rstrip("]").strip()
                say(f"{client.label} with {library}: {share}")
    if not report.exists():
        tail = "".join(printed[-30:])
        raise RuntimeError(f"{client.label} with {library}: pytest broke off\n{tail}")
    found: dict[str, Any] = json.loads(report.read_text())
    if found["broken"]:
        raise RuntimeError(f"{client.label} with {library}: {found['broken']}")
    passed = sum(outcome == "passed" for outcome, _ in found["tests"].values())
    seconds = time.monotonic() - start
    say(f"{client.label} with {library}: {passed} of {len(found['tests'])} pass, {seconds:.0f} s")
    return found


def _until(process: subprocess.Popen[str], end: float) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        if time.monotonic() > end:
            process.kill()
            return
        yield line


def _environment(library: str, report: Path) -> dict[str, str]:
    """Return the variables of a run: what is found first is the shim, where it is asked for."""
    dropped = ("PYTHON", "PYTEST", "TAPEGRAPH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    path = [HERE / "inside", *([HERE / "shim", CHECKOUT] if library != "autograd" else [])]
    return kept | {
        "CLIENT_LIBRARY": library,
        "CLIENT_REPORT": str(report),
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": os.pathsep.join(map(str, path)),
    }
