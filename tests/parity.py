"""The parity table: every op case through both engines, one row per operation and dtype.

``python -m tests.parity`` from the checkout's root. Exits with status 1 if a gradient differs, and
with 2 without TensorFlow.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

import tapegraph as tg
from tapegraph import lowering
from tapegraph.__main__ import printed_table
from tapegraph.testing import check_parity

from .cases import CASES, Case


@dataclass
class Row:
    """What the cases of one operation in one dtype came to."""

    op: str
    dtype: str
    cases: int = 0
    nodes: list[str] = field(default_factory=list)
    worst_abs: float = 0.0
    worst_rel: float = 0.0
    engines: set[str] = field(default_factory=set)
    reason: str = ""
    failures: list[str] = field(default_factory=list)

    def cells(self) -> tuple[str, ...]:
        """Return the row as text."""
        verdict = f"{len(self.failures)} MISMATCH" if self.failures else "ok"
        return (
            self.op,
            self.dtype,
            str(self.cases),
            " ".join(self.nodes) or "-",
            f"{self.worst_abs:.1e}",
            f"{self.worst_rel:.1e}",
            "+".join(sorted(self.engines)),
            self.reason,
            verdict,
        )


HEADER = ("op", "dtype", "cases", "nodes", "worst abs", "worst rel", "engine", "why", "result")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.parity",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--op", action="append", help="only this operation; may be repeated")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    options = parser.parse_args(argv)
    return run(options.op, markdown=options.markdown)


def run(ops: list[str] | None, *, markdown: bool) -> int:
    """Print the table and return 0, or 1 if any gradient differs, or 2 without TensorFlow."""
    try:
        lowering.tensorflow()
    except lowering.Unavailable as error:
        print(f"parity needs both engines: {error}", file=sys.stderr)
        return 2
    unknown = set(ops or ()) - {case.op for case in CASES}
    if unknown:
        print(f"no cases for {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [case for case in CASES if ops is None or case.op in ops]
    rows: dict[tuple[str, str], Row] = {}
    for case in _with_progress(chosen):
        for dtype in ("float64", "float32"):
            compare(case, rows.setdefault((case.op, dtype), Row(case.op, dtype)))
    print(printed_table([HEADER, *(row.cells() for row in rows.values())], markdown=markdown))
    failures = [line for row in rows.values() for line in row.failures]
    print("\n".join(failures) if failures else f"\n{len(chosen)} cases agree in both dtypes.")
    return 1 if failures else 0


def _with_progress(cases: list[Case]) -> Iterable[Case]:
    """Show a bar on a terminal where tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return cases
    return tqdm(cases, desc="parity", unit="case", disable=None)


def compare(case: Case, row: Row) -> None:
    """Run one case through both engines and add what came of it to its row."""
    row.cases += 1
    f, arrays = case.function(row.dtype), case.arrays(row.dtype)
    with np.errstate(all="ignore"):
        try:
            report = check_parity(f, *arrays)
        except AssertionError as error:
            row.failures.append(f"{case.id} ({row.dtype}): {error}")
            return
        row.engines.add(report.backend)
        row.reason = report.reason or row.reason
        row.worst_abs = max(row.worst_abs, report.max_abs_difference)
        row.worst_rel = max(row.worst_rel, report.max_rel_difference)
        if report.backend == "tensorflow":
            row.nodes.extend(n for n in _nodes(case, row.dtype) if n not in row.nodes)


def _nodes(case: Case, dtype: str) -> list[str]:
    """Return the TensorFlow nodes of the case's own operation."""
    out = case.function(dtype)(*map(tg.param, case.arrays(dtype)))
    lowered = lowering.lower(out)
    pairs = zip(lowered.program.ops, lowered.node_types, strict=True)
    return [node for op, nodes in pairs if op.name == case.op for node in nodes]


if __name__ == "__main__":
    sys.exit(main())
