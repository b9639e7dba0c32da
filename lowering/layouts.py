"""Where a step's images lie: channels first as recorded, or last as TensorFlow's kernels want them.

A layer of images takes them channels last and gives them so; element-wise operations, reductions
and joins of what lies so follow. Only what reads them otherwise has them transposed, once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegraph.lowering.rows import elementwise, nn, reduce, shape
from tapegraph.lowering.rows.rules import (
    TO_FIRST,
    TO_LAST,
    Result,
    Rule,
    channels_last,
    reordered,
    reshaped,
)
from tapegraph.recording.op import GRADIENT, Attrs
from tapegraph.recording.program import Program

RANK = len(TO_LAST)
# Of what can be emitted channels last: its attributes then, or None where it cannot with these.
_ATTRS: dict[str, Callable[[Attrs], Attrs | None]] = {
    **dict.fromkeys((*elementwise.LOWERINGS, *nn.LAST_LOWERINGS), dict),
    **reduce.LAST_ATTRS,
    **shape.LAST_ATTRS,
}


def emitted_last(name: str, out: Result, rule: Rule, attrs: Attrs) -> tuple[Result, Rule, Attrs]:
    """Return an operation's result, rule and attributes where images lie channels last."""
    if len(out.shape) == RANK:
        out = Result(channels_last(out.shape), out.dtype)
    return out, nn.LAST_LOWERINGS.get(name, rule), _ATTRS[name](attrs) or attrs


class LaidOut:
    """The tensor of each slot in the layouts that readers want; as a list, channels first."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._first: list[Any] = [None] * len(program)
        self._last: dict[int, Any] = {}
        self._made_last: set[int] = set()

    def __getitem__(self, slot: int) -> Any:
        if self._first[slot] is None and slot in self._made_last:
            self._first[slot] = reordered(self._last[slot], TO_FIRST)
        return self._first[slot]

    def __setitem__(self, slot: int, tensor: Any) -> None:
        """Take the tensor of a slot, of images as the slot `runs_last` or not."""
        if len(self._program.shapes[slot]) == RANK and self.runs_last(slot):
            self._last[slot] = tensor
            self._made_last.add(slot)
        else:
            self._first[slot] = tensor

    def lies_last(self, slot: int) -> bool:
        """Return whether a slot's tensor was made channels last."""
        return slot in self._made_last

    def as_made(self, slot: int) -> Any:
        """Return the tensor of a slot in the layout in which it was made."""
        return self._last[slot] if slot in self._made_last else self._first[slot]

    def runs_last(self, slot: int) -> bool:
        """Return whether an entry is to be emitted channels last; a gradient as what it is of."""
        program, inputs = self._program, self._program.inputs[slot]
        if not inputs:
            return False
        (first, *rest), name = inputs, program.ops[slot].name
        if program.ops[slot] is GRADIENT:
            return rest[0] in self._made_last
        if name in nn.LAST_LOWERINGS:
            return first not in rest  # the image is no kernel
        if name in elementwise.LOWERINGS:
            images = len(program.shapes[slot]) == RANK
            return images and not self._made_last.isdisjoint((first, *rest))
        translate = _ATTRS.get(name)
        return (
            translate is not None
            and self._made_last.issuperset((first, *rest))
            and translate(program.attrs[slot]) is not None
        )

    def read_by(self, slot: int, *, last: bool) -> dict[int, Any]:
        """Return the tensors that an operation reads, by slot, in the layouts that it wants.

        A layer wants its images channels last; any other operation what broadcasts to images.
        """
        inputs = self._program.inputs[slot]
        if not last:
            return {i: self[i] for i in inputs}
        if self._program.ops[slot].name not in nn.LAST_LOWERINGS:
            return {i: self._beside_last(i) for i in inputs}
        return {inputs[0]: self._laid_last(inputs[0]), **{i: self[i] for i in inputs[1:]}}

    def _laid_last(self, slot: int) -> Any:
        if slot not in self._last:
            self._last[slot] = reordered(self._first[slot], TO_LAST)
        return self._last[slot]

    def _beside_last(self, slot: int) -> Any:
        """Return what broadcasts to images as it does to those channels last."""
        size = self._program.shapes[slot]
        if slot in self._made_last or self._first[slot] is None or not size:
            return self.as_made(slot)
        batch, channels, *pixels = full = (1,) * (RANK - len(size)) + size
        if all(n == 1 for n in (batch, *pixels)):  # as TensorFlow's biases are
            return reshaped(self._first[slot], (channels,))
        if size == full:
            return self._laid_last(slot)
        return reordered(reshaped(self._first[slot], full), TO_LAST)
