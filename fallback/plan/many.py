"""Many runs of a plan in one call: each finds what the one before has left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegraph.engines.engine import EngineDeclined, Many, RoundRows
from tapegraph.fallback.plan.records import Mismatch
from tapegraph.interrupts import raise_interrupt
from tapegraph.recording.op import INPUT
from tapegraph.recording.program import Program

if TYPE_CHECKING:
    from tapegraph.fallback.plan import Plan


def run_many(
    plan: Plan, program: Program, arrays: Sequence[Any], runs: int, many: Many
) -> tuple[list[Any], list[Any]]:
    """Return the outputs, and the new values of state after the last run.

    Runs are rounds in C where the plan has them. One that finds a NaN there is made in Python,
    which looks again; so are all runs of other plans.

    :param arrays: The value of each leaf; of an input that is not carried a row for each run.
    :raises EngineDeclined: A run fails, after ``runs_done``.
    """
    slots = [*program.outputs, *(update.slot for update in program.updates)]
    types = [(program.shapes[slot], program.dtypes[slot]) for slot in slots]
    stacks = [np.empty((runs, *shape), dtype) for shape, dtype in types[: many.results]]
    # What each run leaves anew, the last one for good, and which leaves the next run finds there.
    kept: list[Any] = [np.empty(shape, dtype) for shape, dtype in types[many.results :]]
    places = {update.leaf: i for i, update in enumerate(program.updates, len(program.outputs))}
    places |= {slot: place for slot, place in many.carried.items() if place is not None}
    found = [places[slot] - many.results if slot in places else None for slot in plan.leaves]
    for place, array in zip(found, arrays, strict=True):
        if place is not None:
            kept[place] = array
    steps = [int(program.ops[s] is INPUT and s not in many.carried) for s in plan.leaves]
    sources = list(zip(found, arrays, steps, strict=True))
    rounds, done = plan.rounds, 0
    try:
        while done < runs:
            if rounds is not None:
                kept = list(map(np.array, kept))  # arrays of their own, which rounds write into
                reads = [
                    RoundRows(array, done * by, by) if place is None else RoundRows(kept[place])
                    for place, array, by in sources
                ]
                writes = [*(RoundRows(stack, done, 1) for stack in stacks), *map(RoundRows, kept)]
                try:
                    done += rounds(runs - done, reads, writes)
                except Mismatch:
                    rounds = None
            if done < runs:
                values = [
                    kept[place] if place is not None else array[done, ...] if by else array
                    for place, array, by in sources
                ]
                outputs, updates = plan.run(values)
                results = [*outputs, *updates]
                for stack, result in zip(stacks, results, strict=False):
                    stack[done] = result
                kept = results[many.results :]
                done += 1
    except Exception as error:
        raise_interrupt(error)
        declined = EngineDeclined(str(error))
        declined.runs_done = done
        raise declined from error
    last = len(kept) - len(program.updates)
    return [*stacks, *kept[:last]], kept[last:]
