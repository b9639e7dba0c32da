"""Tables of which a step reads rows, and which it need only update there.

Where a parameter is read by its rows alone and changes by ``p - scale * gradient``, its gradient
stays the rows that were read, its variable is never read whole, and the update is a scatter.
"""

from __future__ import annotations

from typing import NamedTuple

from tapegraph.lowering.rules import READS_ROWS, SCALES, SUBTRACTS
from tapegraph.lowering.translate import row_of
from tapegraph.recording.op import GRADIENT
from tapegraph.recording.program import Program


class Table(NamedTuple):
    """One such parameter, by slots: of its gradient, of what scales that, and of both results."""

    gradient: int
    scale: int
    product: int
    difference: int


def tables(program: Program) -> dict[int, Table]:
    """Return the tables of a program by the slot of the parameter."""
    readers: list[set[int]] = [set() for _ in program.ops]
    for slot, inputs in enumerate(program.inputs):
        for i in inputs:
            readers[i].add(slot)
    found = {}
    for leaf, difference in program.updates:
        table = _table(program, readers, leaf, difference)
        if table is not None:
            found[leaf] = table
    return found


def _table(program: Program, readers: list[set[int]], leaf: int, difference: int) -> Table | None:
    if not _plays(program, difference, SUBTRACTS) or readers[difference]:
        return None
    minuend, product = program.inputs[difference]
    if minuend != leaf or not _plays(program, product, SCALES) or readers[product] != {difference}:
        return None
    inputs = program.inputs[product]
    gradients = [i for i in inputs if program.ops[i] is GRADIENT and program.inputs[i][1] == leaf]
    scales = [i for i in inputs if program.shapes[i] == () and i not in gradients]
    if len(gradients) != 1 or len(scales) != 1 or readers[gradients[0]] != {product}:
        return None
    reading = readers[leaf] - {difference, gradients[0]}
    by_rows = all(
        _plays(program, slot, READS_ROWS)
        and program.inputs[slot][0] == leaf
        and leaf not in program.inputs[slot][1:]
        for slot in reading
    )
    outside = {leaf, product, difference} & set(program.outputs)
    changes = [update.slot for update in program.updates]
    if not (by_rows and reading) or outside or changes.count(difference) > 1:
        return None
    return Table(gradients[0], scales[0], product, difference)


def _plays(program: Program, slot: int, role: str) -> bool:
    op = program.ops[slot]
    if not program.inputs[slot] or op is GRADIENT:
        return False
    return row_of(op, whole=True).plays(role, program.attrs[slot])
