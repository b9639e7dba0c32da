"""Running a captured program again, as a plan does after a NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tapegraph.fallback.plan.compiler import InNumPy
from tapegraph.recording.program import Program


class Results(NamedTuple):
    """The outputs in the program's order; the new value of each leaf of state, by slot."""

    outputs: list[Any]
    updates: dict[int, Any]


def replay(program: Program, leaves: Mapping[int, Any]) -> Results:
    run = InNumPy(program)
    run.run(leaves)
    updates = {leaf: run.values[slot] for leaf, slot in program.updates}
    return Results([run.values[slot] for slot in program.outputs], updates)
