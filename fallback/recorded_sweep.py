"""The reverse sweep on Tensors: the gradients are results like any other, and differentiable.

It runs the same rules as the sweep on arrays, in the same order. What it computes is on the tape,
so it is differentiated again, drawn, replayed or lowered to a graph as anything there is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tapegraph.fallback.rules import Joint, Row, recorded_row
from tapegraph.fallback.strong_tensor import StrongTensor, tensor
from tapegraph.fallback.sweep import unbroadcast
from tapegraph.fallback.transposed import transposed
from tapegraph.recording import capture_mode
from tapegraph.recording.node import constant
from tapegraph.recording.op import Op
from tapegraph.recording.program import Recording


def recorded_gradients(recording: Recording, seeds: Sequence[Any]) -> list[Any]:
    """Return the gradients of a program's outputs with respect to its wanted slots, as Tensors.

    Parameters
    ----------
    recording : Recording
        What was recorded, with the tensors that recorded it.
    seeds : sequence of Tensor
        A cotangent per output, of its shape.

    Returns
    -------
    list of Tensor
        One a wanted slot, of that slot's shape and dtype.

    Raises
    ------
    NotImplementedError
        An operation has no gradient, or one that cannot be recorded; names it and its line.

    Notes
    -----
    As on arrays, a NaN in a result may be 0 * inf, and asks for a second sweep with strong zeros.
    A program that is captured cannot ask: there the zeros are strong from the first.
    """
    with np.errstate(all="ignore"):
        if capture_mode.is_captured(*recording.nodes):
            return _sweep(recording, seeds, strong_zero=True)
        grads = _sweep(recording, seeds)
        if any(np.isnan(g._array).any() for g in grads):
            grads = _sweep(recording, seeds, strong_zero=True)
    return grads


def _sweep(recording: Recording, seeds: Sequence[Any], strong_zero: bool = False) -> list[Any]:
    program, needs = recording.program, recording.program.needs
    cotangents: dict[int, Any] = {}
    wanted = set(program.wanted)

    def add(slot: int, part: Any) -> None:
        part = tensor(part)
        if isinstance(part, np.ndarray):  # of a user's rule that depends on nothing recorded
            part = constant(part)
        if part.shape != program.shapes[slot]:
            part = unbroadcast(part, program.shapes[slot])
        if part.dtype != program.dtypes[slot]:
            part = part.astype(program.dtypes[slot])
        held = cotangents.get(slot)
        cotangents[slot] = part if held is None else held + part

    for slot, seed in zip(program.outputs, seeds, strict=True):
        add(slot, seed)
    for slot in range(len(program) - 1, -1, -1):
        if slot not in cotangents or not needs[slot] or not program.inputs[slot]:
            continue
        g = cotangents[slot] if slot in wanted else cotangents.pop(slot)
        for i, part in _parts(recording, slot, StrongTensor(g) if strong_zero else g):
            add(i, part)
    return [
        constant(np.zeros(program.shapes[slot], program.dtypes[slot]))
        if slot not in cotangents
        else cotangents[slot]
        for slot in program.wanted
    ]


def _parts(recording: Recording, slot: int, g: Any) -> Iterator[tuple[int, Any]]:
    """Yield the gradient of each input that needs one."""
    program, nodes = recording.program, recording.nodes
    try:
        row = _row(program.ops[slot])
    except NotImplementedError as error:
        raise NotImplementedError(f"gradients: {error} ({recording.describe(slot)})") from None
    slots, attrs = program.inputs[slot], program.attrs[slot]
    needed = [program.needs[i] for i in slots]
    if program.ops[slot].rules is not None:
        g = tensor(g)
        if program.ops[slot].saves:
            attrs = {**attrs, "saved": recording.saved(slot)}
    operands = [recording.values[i] if nodes[i] is None else nodes[i] for i in slots]
    if isinstance(row, Joint):
        parts = row.rule(needed, g, nodes[slot], *operands, **attrs)
    else:
        parts = [
            rule(g, nodes[slot], *operands, **attrs) if wanted and rule is not None else None
            for rule, wanted in zip(row, needed, strict=False)
        ]
    for i, wanted, part in zip(slots, needed, parts, strict=False):
        if wanted and part is not None:
            yield i, part


def _row(op: Op) -> Row:
    """Return the row on Tensors: of a user's operation, made of its tangent rule."""
    rules = op.rules
    if rules is not None and rules.recorded is None and rules.jvp is not None:
        return transposed(rules.jvp)
    return recorded_row(op)
