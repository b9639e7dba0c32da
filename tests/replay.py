"""Running a captured program again, as a plan does after a NaN."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tapegraph.fallback.plan.compiler import interpret
from tapegraph.recording.program import Program


class Results(NamedTuple):
    """The outputs in the program's order; the new value of each leaf of state, by slot."""

    outputs: list[Any]
    updates: dict[int, Any]


def replay(program: Program, leaves: Mapping[int, Any]) -> Results:
    values = interpret(program, leaves).values
    updates = {leaf: values[slot] for leaf, slot in program.updates}
    return Results([values[slot] for slot in program.outputs], updates)
