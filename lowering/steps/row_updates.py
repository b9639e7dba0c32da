"""Tables of which a step reads rows, and which it need only update there.

Where a parameter is read by its rows alone and changes by ``p - scale * gradient``, its gradient
stays the rows that were read, its variable is never read whole, and the update is a scatter.
"""

from __future__ import annotations

from tapegraph.lowering.translate import row_of
from tapegraph.recording.descents import Descent, descents
from tapegraph.recording.op import DERIVATIVES
from tapegraph.recording.program import Program


def tables(program: Program) -> dict[int, Descent]:
    """Return the updates of tables by the slot of the parameter."""
    readers = program.readers()
    return {
        leaf: descent
        for leaf, descent in descents(program).items()
        if leaf not in program.outputs
        and _reads_rows(program, leaf, readers[leaf] - {descent.difference, descent.gradient})
    }


def _reads_rows(program: Program, leaf: int, readers: set[int]) -> bool:
    """Tell whether these read rows of a parameter, and nothing else of it."""
    return bool(readers) and all(
        bool(program.inputs[slot])
        and program.ops[slot] not in DERIVATIVES
        and row_of(program.ops[slot], whole=True).reads_rows_with(program.attrs[slot])
        and program.inputs[slot][0] == leaf
        and leaf not in program.inputs[slot][1:]
        for slot in readers
    )
