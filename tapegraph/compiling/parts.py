"""A step that averages over processes, cut into programs at its all-reduces.

A run computes the gradients, exchanges them and continues with the average; the last program writes
all state. Each program chooses its own engine, and the native engine repeats a failed one without
another exchange.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from tapegraph.compiling.programs import Programs
from tapegraph.compiling.trace import Trace
from tapegraph.recording.op import ALL_REDUCE, GRADIENT, INPUT, NO_ATTRS, SCALAR
from tapegraph.recording.program import Program, Recording, between
from tapegraph.typed import Array, Xla


def programs_of(trace: Trace, name: str, xla: Xla) -> Programs:
    return Programs(_Last(trace, name, xla) if trace.averages else trace, name, xla)


@dataclass(slots=True)
class Computed:
    """A value that an earlier program of the run has computed."""

    slot: int

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        return read[-1][self.slot]


class _Part(Trace):
    """One program of a recorded step, with the values, state and sources of the whole."""

    def __init__(self, whole: Trace, program: Program) -> None:
        vars(self).update(vars(whole))
        recording = whole.recording
        self.recording = Recording(program, recording.values, recording.nodes)
        self.state = {slot: whole.state[slot] for slot in program.fed if slot in whole.state}
        computed = [slot for slot in program.fed if recording.program.inputs[slot]]
        self.sources = whole.sources | {slot: Computed(slot) for slot in computed}


class _Earlier(_Part):
    """A program that ends in an all-reduce: its results are the arrays that are read later."""

    def __init__(self, whole: Trace, program: Program) -> None:
        super().__init__(whole, program)
        self.count = len(program.outputs)
        self.found: list[Any] = []  # the values that this run has read and computed

    def read(self, given: list[Any]) -> list[Any]:
        return self.found

    def result(self, arrays: list[Array]) -> Any:
        return arrays

    def gradients_stored(self, arrays: list[Any]) -> list[Any]:
        return []


class _Last(_Part):
    """The last program, which gives the results and the new state."""

    def __init__(self, whole: Trace, name: str, xla: Xla) -> None:
        self._whole = whole.recording.program
        *earlier, last = cut_apart(self._whole)
        super().__init__(whole, last)
        self._parts = [_Earlier(whole, program) for program in earlier]
        self.earlier = [Programs(part, f"the gradients of {name}", xla) for part in self._parts]

    def read(self, given: list[Any]) -> list[Any]:
        """Return the values that the run reads anew, and then those of its earlier parts."""
        whole, computed = self._whole, dict[int, Any]()
        read = [*super().read(given), computed]
        for cut, part, programs in zip(_cuts(whole), self._parts, self.earlier, strict=True):
            part.found = read
            arrays = programs.run(given, deque())
            computed.update(zip(part.recording.program.outputs, arrays, strict=True))
            sent = [computed[slot] for slot in whole.inputs[cut]]
            computed[cut] = whole.ops[cut].forward(*sent, **whole.attrs[cut])
        return read


def cut_apart(program: Program) -> list[Program]:
    """Return the programs before, between and after a program's all-reduces.

    Their slots are those of the whole. A value computed earlier is an input, unless a later part
    differentiates through it: that part computes it again.
    """
    cuts = _cuts(program)
    wanted = [*(program.inputs[cut] for cut in cuts), (*program.outputs, *chain(*program.updates))]
    parts = []
    for start, stop, also in zip([-1, *cuts], [*cuts, len(program)], wanted, strict=True):
        slots = {slot for slot in range(start + 1, stop) if program.inputs[slot]}
        slots |= _differentiated(program, slots)
        read = {*also, *chain(*(program.inputs[slot] for slot in slots))}
        parts.append(_part(program, slots, sorted(read - slots)))
    for place, (part, cut) in enumerate(zip(parts, cuts, strict=False)):
        later = {i for after in parts[place + 1 :] for i in after.leaves if part.inputs[i]}
        part.outputs = (*program.inputs[cut], *sorted(later - {*program.inputs[cut]}))
    parts[-1].outputs, parts[-1].updates = program.outputs, program.updates
    return parts


def _cuts(program: Program) -> list[int]:
    return [slot for slot, op in enumerate(program.ops) if op is ALL_REDUCE]


def _differentiated(program: Program, slots: set[int]) -> set[int]:
    """Return the values computed at these slots that gradients flow through."""
    found: set[int] = set()
    for key in {program.backward_of(slot) for slot in slots if program.ops[slot] is GRADIENT}:
        targets = {program.inputs[slot][1] for slot in program.gradients_of(key)}
        inputs = [() if slot in targets else read for slot, read in enumerate(program.inputs)]
        flows = between(program, key[:1], targets, inputs)
        found.update(slot for slot, flow in enumerate(flows) if flow and inputs[slot])
    return found


def _part(program: Program, slots: set[int], leaves: list[int]) -> Program:
    computed = {slot for slot in leaves if program.inputs[slot]}
    known = {*slots, *leaves} - computed
    ops = [op if slot in known else SCALAR for slot, op in enumerate(program.ops)]
    return replace(
        program,
        ops=[INPUT if slot in computed else op for slot, op in enumerate(ops)],
        inputs=[read if slot in slots else () for slot, read in enumerate(program.inputs)],
        attrs=[attrs if slot in known else NO_ATTRS for slot, attrs in enumerate(program.attrs)],
        needs=[flows and slot in {*slots, *leaves} for slot, flows in enumerate(program.needs)],
        leaves=leaves,
        outputs=(),
        wanted=[],
        updates=(),
    )
