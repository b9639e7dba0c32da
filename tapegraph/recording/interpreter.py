"""The walk over a program that computers, compilers and translators of programs share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tapegraph.recording.op import GRADIENT
from tapegraph.recording.program import Recording
from tapegraph.typed import DType


class Interpreter:
    """Computes the slots of a program in order, each from its inputs.

    A subclass defines an entry's result: an array, a value of a plan, a node of a graph.

    :ivar values: The value of each slot; None for a number that is a constant in its reader's
        dtype.
    """

    values: Any  # a list, or an object that reads and assigns like one

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.program = recording.program

    def run(self, leaves: Mapping[int, object], end: int | None = None) -> None:
        """Compute all slots, or those before an end."""
        for _ in self.walk(leaves, end):
            pass

    def walk(self, leaves: Mapping[int, object], end: int | None = None) -> Iterator[int]:
        """Compute slot after slot from the leaves, and yield each with its value."""
        program = self.program
        self.values = self.no_values()
        derivatives = {}
        for slot, op in enumerate(program.ops[:end]):
            inputs = program.inputs[slot]
            if not inputs:
                self.values[slot] = leaves.get(slot)
            elif op is GRADIENT:
                backward = program.backward_of(slot)
                if backward not in derivatives:
                    derivatives[backward] = self.derivatives(slot)
                self.values[slot] = derivatives[backward][inputs[1]]
            else:
                self.values[slot] = self.operation(slot)
            yield slot

    def no_values(self) -> Any:
        return [None] * len(self.program)

    def operation(self, slot: int) -> Any:
        raise NotImplementedError

    def derivatives(self, slot: int) -> Mapping[int, Any]:
        """Return the gradients or Jacobians that the backward of a slot computes, by target."""
        raise NotImplementedError

    def operands(self, slot: int) -> list[Any]:
        """Return the inputs of an entry."""
        return [self.values[i] for i in self.program.inputs[slot]]

    def converted(self, slot: int, values: Any) -> list[Any]:
        """Return an entry's inputs in NumPy's dtypes, numbers as constants, in ``values`` too."""
        program, operands = self.program, []
        for i, dtype in zip(program.inputs[slot], self.recording.converted(slot), strict=True):
            if values[i] is None:
                number = self.recording.values[i]
                values[i] = self.constant(number, dtype or program.dtypes[slot])
            operands.append(values[i] if dtype is None else self.cast(values[i], dtype))
        return operands

    def constant(self, number: float, dtype: DType) -> Any:
        raise NotImplementedError

    def cast(self, value: Any, dtype: DType) -> Any:
        raise NotImplementedError
