"""Results of each iteration, kept for the backward, which need not compute them again then."""

from __future__ import annotations

from dataclasses import replace

from tapegraph.recording.op import GRADIENT, OpKind
from tapegraph.recording.subprogram import SubProgram, interned

# Computing these again takes no longer than reading them from memory.
_CHEAP = ("add", "sub", "neg", "mul")


def with_residuals(body: SubProgram, consts: int) -> SubProgram:
    """Return a body with further outputs: the results that its backward reads.

    :param consts: How many of its inputs, the first ones, are the same in every iteration.
    """

    def extended() -> SubProgram:
        kept = _kept(body, consts)
        return _with_outputs(body, (*body.outputs, *kept)) if kept else body

    return body.make(("with residuals", consts), extended)


def without_residuals(body: SubProgram, residuals: int) -> SubProgram:
    """Return a body without those outputs, so many, which a native backward alone reads."""
    outputs = body.outputs[: len(body.outputs) - residuals]
    return body.make(("without residuals", residuals), _with_outputs, body, outputs)


def _with_outputs(body: SubProgram, outputs: tuple[int, ...]) -> SubProgram:
    return interned(body.with_program(replace(body.program, outputs=outputs)))


def _kept(body: SubProgram, consts: int) -> tuple[int, ...]:
    """Return the slots of results that the backward reads, and that take a while to compute.

    What is the same in every iteration is none of them.
    """
    program = body.program
    if GRADIENT in program.ops:
        return ()
    read = _read(body)
    differs, dear = set(body.inputs[consts:]), list[bool]()
    kept = []
    for slot, (op, inputs) in enumerate(zip(program.ops, program.inputs, strict=True)):
        cheap = op.kind in (OpKind.SHAPE, OpKind.INDEX) or op.name in _CHEAP
        dear.append(bool(inputs) and (not cheap or any(dear[i] for i in inputs)))
        if not differs.isdisjoint(inputs):
            differs.add(slot)
        if dear[slot] and slot in read and slot in differs and not (op.saves or op.several):
            dear[slot] = False  # for those that are computed from it
            kept.append(slot)
    return tuple(kept)


def _read(body: SubProgram) -> set[int]:
    """Return the slots whose values the backward reads; of an entry that runs again, its inputs."""
    program, found = body.program, set[int]()
    for slot, (op, inputs) in enumerate(zip(program.ops, program.inputs, strict=True)):
        if not inputs or not program.needs[slot]:
            continue
        if op.saves or op.several:
            found.update(inputs)
            continue
        bits = 0
        for place, i in enumerate(inputs):
            if program.needs[i]:
                bits |= op.reads[min(place, len(op.reads) - 1)]
        found.update(i for place, i in enumerate(inputs) if bits >> 1 + place & 1)
        if bits & 1:
            found.add(slot)
    return found
