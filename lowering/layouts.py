"""The layout of a step's images: channels first as recorded, or last for TensorFlow's kernels.

Layers of images compute channels last; element-wise operations, reductions and joins of their
results follow. Other readers get a transposed copy, once.
"""

from __future__ import annotations

from typing import Any

from tapegraph.lowering.rows import elementwise, nn
from tapegraph.lowering.rows.rules import (
    TO_FIRST,
    TO_LAST,
    Result,
    Rule,
    channels_last,
    reordered,
    reshaped,
)
from tapegraph.lowering.runtime import GraphTensor
from tapegraph.recording.op import GRADIENT, Attrs, Op, OpKind
from tapegraph.recording.program import Program

RANK = len(TO_LAST)


def emitted_last(op: Op, out: Result, rule: Rule, attrs: Attrs) -> tuple[Result, Rule, Attrs]:
    """Return an operation's result, rule and attributes where images lie channels last."""
    if len(out.shape) == RANK:
        out = Result(channels_last(out.shape), out.dtype)
    return out, nn.LAST_LOWERINGS.get(op.name, rule), _attrs_last(op, attrs) or attrs


def _attrs_last(op: Op, attrs: Attrs) -> Attrs | None:
    """Return the attributes for images channels last; None where the result would not lie so."""
    axis = attrs.get("axis")
    if op.kind in (OpKind.ALONG, OpKind.SHAPE) and isinstance(axis, int):
        return {**attrs, "axis": TO_FIRST[axis]}
    if op.kind is OpKind.REDUCTION and isinstance(axis, tuple):
        left = [TO_FIRST[a] for a in range(RANK) if a not in axis]
        if attrs["keepdims"] or left == sorted(left):
            return {**attrs, "axis": tuple(sorted(TO_FIRST[a] for a in axis))}
    return None


class LaidOut:
    """The tensor of each slot in its readers' layouts; as a list, channels first."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._first: list[Any] = [None] * len(program)
        self._last: dict[int, GraphTensor] = {}
        self._made_last: set[int] = set()

    def __getitem__(self, slot: int) -> GraphTensor:
        if self._first[slot] is None and slot in self._made_last:
            self._first[slot] = reordered(self._last[slot], TO_FIRST)
        return self._first[slot]

    def __setitem__(self, slot: int, tensor: GraphTensor) -> None:
        """Set the tensor of a slot, in the layout of `runs_last`."""
        if len(self._program.shapes[slot]) == RANK and self.runs_last(slot):
            self._last[slot] = tensor
            self._made_last.add(slot)
        else:
            self._first[slot] = tensor

    def as_made(self, slot: int) -> GraphTensor:
        """Return a slot's tensor in its original layout."""
        return self._last[slot] if slot in self._made_last else self._first[slot]

    def runs_last(self, slot: int) -> bool:
        """Return whether an entry is emitted channels last; a gradient as its target."""
        program, inputs = self._program, self._program.inputs[slot]
        if not inputs:
            return False
        (first, *rest), op = inputs, program.ops[slot]
        if op is GRADIENT:
            return rest[0] in self._made_last
        if op.name in nn.LAST_LOWERINGS:
            return first not in rest  # the image is no kernel
        if op.name in elementwise.LOWERINGS:
            images = len(program.shapes[slot]) == RANK
            return images and not self._made_last.isdisjoint((first, *rest))
        return (
            self._made_last.issuperset((first, *rest))
            and _attrs_last(op, program.attrs[slot]) is not None
        )

    def read_by(self, slot: int, *, last: bool) -> dict[int, GraphTensor]:
        """Return the tensors that an operation reads, by slot, in the layouts that it wants."""
        inputs = self._program.inputs[slot]
        if not last:
            return {i: self[i] for i in inputs}
        if self._program.ops[slot].name not in nn.LAST_LOWERINGS:
            return {i: self._beside_last(i) for i in inputs}
        return {inputs[0]: self._laid_last(inputs[0]), **{i: self[i] for i in inputs[1:]}}

    def _laid_last(self, slot: int) -> GraphTensor:
        if slot not in self._last:
            self._last[slot] = reordered(self._first[slot], TO_LAST)
        return self._last[slot]

    def _beside_last(self, slot: int) -> GraphTensor:
        """Return a tensor for channels-last images that broadcast to channels-first ones."""
        size = self._program.shapes[slot]
        if slot in self._made_last or self._first[slot] is None or not size:
            return self.as_made(slot)
        batch, channels, *pixels = full = (1,) * (RANK - len(size)) + size
        if all(n == 1 for n in (batch, *pixels)):  # as TensorFlow's biases are
            return reshaped(self._first[slot], (channels,))
        if size == full:
            return self._laid_last(slot)
        return reordered(reshaped(self._first[slot], full), TO_LAST)
