"""The array API standard's own test suite, run on `tapegraph.array_api`.

``python -m tests.array_api PATH`` from the checkout's root. PATH is a checkout of the suite,
data-apis/array-api-tests, with its submodule: it is on no package index. It needs ndindex and
pytest-json-report. What follows PATH is for pytest. The tests that are known to fail are listed in
array_api_failures.txt, by reason. Exits with status 1 if another test fails, or one of them passes.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

FAILURES = Path(__file__).with_name("array_api_failures.txt")
# Repeatable, and a few minutes: the suite's own default is 100 examples for each test.
OPTIONS = (
    "--max-examples=20",
    "--derandomize",
    "--disable-deadline",
    "-q",
    "-p",
    "no:cacheprovider",
)


class Outcomes:
    """A plugin that counts the suite's outcomes, and notes the surprising ones."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.surprises: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a test once: where it was called, or where it was not, set up."""
        if report.when == "call" or (report.when == "setup" and not report.passed):
            known = hasattr(report, "wasxfail")
            self.counts["known" if known else report.outcome] += 1
            if report.passed if known else report.failed:
                self.surprises.append(f"{report.nodeid} {'passes' if known else 'fails'}")


def main(path: str, *options: str) -> int:
    """Run the suite and return the exit status."""
    os.environ["ARRAY_API_TESTS_MODULE"] = "tapegraph.array_api"
    os.chdir(path)
    outcomes = Outcomes()
    arguments = [*OPTIONS, f"--xfails-file={FAILURES}", *options, "array_api_tests"]
    status = pytest.main(arguments, plugins=[outcomes])
    counts = outcomes.counts
    ran = counts["passed"] + counts["failed"] + counts["known"]
    share = counts["passed"] / max(ran, 1)
    print(f"{counts['passed']} of {ran} pass, {share:.1%}; {counts['skipped']} are not for it")
    print(*outcomes.surprises, sep="\n", end="")
    return int(status) or bool(outcomes.surprises)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
