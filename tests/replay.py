"""Running a program again: the forward of each operation, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tapegraph.recording.program import Program


class Results(NamedTuple):
    """What one run of a program gave.

    Attributes
    ----------
    outputs : list of ndarray
        In the program's order.
    updates : dict of int to ndarray
        The new value of each leaf of state that changed, by slot.
    """

    outputs: list[Any]
    updates: dict[int, Any]


def replay(program: Program, leaves: Mapping[int, Any]) -> Results:
    """Compute a program from the values of its leaves, in NumPy.

    Parameters
    ----------
    program : Program
        What to compute.
    leaves : mapping of int to ndarray or number
        A value per leaf, by slot, of the shape and dtype that the program has for it.
    """
    values: list[Any] = [None] * len(program)
    for slot, op in enumerate(program.ops):
        slots = program.inputs[slot]
        if not slots:
            values[slot] = leaves[slot]
            continue
        out = op.forward(*(values[i] for i in slots), **program.attrs[slot])
        values[slot] = out[0] if op.saves else out
    updates = {leaf: values[slot] for leaf, slot in program.updates}
    return Results([values[slot] for slot in program.outputs], updates)
