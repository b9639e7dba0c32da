"""The reverse sweep on Tensors: the gradients are results like any other, and differentiable.

It runs the same rules as the sweep on arrays, in the same order. What it computes is on the tape,
so it is differentiated again, drawn, replayed or lowered to a graph as anything there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph.fallback.rules import Row, recorded_row
from tapegraph.fallback.strong_tensor import StrongTensor, as_tensor
from tapegraph.fallback.sweep import Arrays
from tapegraph.fallback.transposed import transposed_jvp
from tapegraph.recording.capture_mode import is_captured
from tapegraph.recording.node import as_leaf
from tapegraph.recording.op import Op
from tapegraph.recording.program import Recording


def recorded_gradients(recording: Recording, seeds: Sequence[Any]) -> list[Any]:
    """Return the gradients by the wanted slots as Tensors, given a Tensor per output.

    As on arrays, a NaN in a result may be 0 * inf, and asks for a second sweep with strong zeros.
    A captured program cannot ask: there the zeros are strong from the first.
    """
    with np.errstate(all="ignore"):
        if is_captured(*recording.nodes):
            return StrongTensors(recording).swept(seeds)
        grads = Tensors(recording).swept(seeds)
        if any(np.isnan(g._array).any() for g in grads):
            grads = StrongTensors(recording).swept(seeds)
    return grads


class Tensors(Arrays):
    """The arithmetic of Tensors: what a sweep computes is recorded."""

    def row(self, slot: int) -> Row:
        """Return the rules on Tensors: of a user's operation, made of its tangent rule."""
        op = self.program.ops[slot]
        rules = op.rules
        if rules is not None and rules.recorded is None and rules.jvp is not None:
            return transposed_jvp(rules.jvp)
        try:
            return recorded_row(op)
        except NotImplementedError as error:
            described = self.recording.describe(slot)
            raise NotImplementedError(f"gradients: {error} ({described})") from None

    def takes_saved(self, op: Op) -> bool:
        """Return whether a rule is given what the operation saved: a user's."""
        return op.saves and op.rules is not None

    def operand(self, slot: int) -> Any:
        """Return the tensor of a slot, or the Python number."""
        node = self.recording.nodes[slot]
        return self.recording.values[slot] if node is None else node

    def fitted(self, slot: int, part: Any) -> Any:
        """Return a gradient as a tensor in the shape and dtype of a slot."""
        part = as_tensor(part)
        if isinstance(part, np.ndarray):  # of a user's rule that depends on nothing recorded
            part = as_leaf(part)
        return super().fitted(slot, part)

    def total(self, slot: int, held: Any, part: Any) -> Any:
        """Return the sum of two gradients."""
        return held + part

    def zeros(self, slot: int) -> Any:
        """Return the gradient of a slot that no cotangent has reached."""
        return as_leaf(np.zeros(self.program.shapes[slot], self.program.dtypes[slot]))


class StrongTensors(Tensors):
    """The same with strong zeros."""

    def cotangent(self, slot: int, g: Any) -> Any:
        """Return a cotangent whose zeros absorb, but for a user's own rule."""
        return g if self.program.ops[slot].rules is not None else StrongTensor(g)
