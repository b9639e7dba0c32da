"""Python's arithmetic with float arguments of a step: one instruction per number.

Instructions name the places of their operands, so that recording, comparing and running take linear
time in the number of Python's operations.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegraph.recording.program import identity
from tapegraph.recording.watchers import AskReal


class NotReal(AskReal):
    """A run computes a complex number where the recorded call computed a float."""


def _power(base: Any, exponent: Any) -> Any:
    power = base**exponent
    if type(power) is complex:
        raise NotReal
    return power


# Each takes two numbers; unary functions ignore the second.
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv")},
    "mod": operator.mod,
    "pow": _power,
    "neg": lambda x, _: -x,
    "abs": lambda x, _: abs(x),
    "round": round,
}
# The origin of a number: an argument, a constant, or an operation and its operands' places.
Instruction = tuple[Any, ...]
_GIVEN, _CONSTANT = "argument", "constant"


class FloatArithmetic:
    """The floats of a captured call, and the numbers that Python computes from them.

    :ivar values: This call's numbers, by place.
    :ivar arguments: The arguments that each number depends on, as bits.
    """

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.arguments: list[int] = []
        self.made_by: list[Instruction] = []
        self._places: dict[Instruction, int] = {}

    def argument(self, position: int, value: float) -> int:
        return self._enter((_GIVEN, position), value, 1 << position)

    def constant(self, value: object) -> int:
        return self._enter((_CONSTANT, identity(value)), value, 0)

    def computed(self, name: str, one: int, other: int) -> int:
        """Compute a number from those of two places, and return its place, or raise NotReal."""
        instruction = (name, one, other)
        place = self._places.get(instruction)
        if place is None:
            value = _ARITHMETIC[name](self.values[one], self.values[other])
            bits = self.arguments[one] | self.arguments[other]
            place = self._enter(instruction, value, bits)
        return place

    def _enter(self, instruction: Instruction, value: object, arguments: int) -> int:
        place = self._places.setdefault(instruction, len(self.values))
        if place == len(self.values):
            self.values.append(value)
            self.arguments.append(arguments)
            self.made_by.append(instruction)
        return place

    def program(self, results: Sequence[tuple[int, Any]]) -> FloatProgram:
        """Return a program that computes some places, each as an array of a dtype."""
        needed = {place for place, _ in results}
        for place in range(len(self.values) - 1, -1, -1):
            if place in needed and self.made_by[place][0] not in (_GIVEN, _CONSTANT):
                needed.update(self.made_by[place][1:])
        # Inputs come first, as a run begins with them.
        read = [p for p in sorted(needed) if self.made_by[p][0] in (_GIVEN, _CONSTANT)]
        computed = [p for p in sorted(needed) if self.made_by[p][0] not in (_GIVEN, _CONSTANT)]
        new = {place: i for i, place in enumerate([*read, *computed])}
        made_by = [self.made_by[p] for p in read]
        made_by += [(name, new[a], new[b]) for name, a, b in (self.made_by[p] for p in computed)]
        return FloatProgram(
            made_by,
            [self.values[p] for p in read],
            [(new[place], dtype) for place, dtype in results],
        )


class FloatProgram:
    """Computes numbers from the floats of a run, as the recorded call did.

    :param made_by: The instruction of each number; arguments and constants come first.
    :param read: The recorded call's arguments and constants.
    :param results: The places to return, and the dtype of each.
    """

    def __init__(
        self, made_by: list[Instruction], read: list[Any], results: list[tuple[int, Any]]
    ) -> None:
        self.made_by = made_by
        self.results = results
        self._read = read
        self._given = [(i, of[1]) for i, of in enumerate(made_by) if of[0] == _GIVEN]
        self._steps = [(_ARITHMETIC[name], a, b) for name, a, b in made_by[len(read) :]]

    def __call__(self, given: Sequence[object]) -> list[Any]:
        """Return an array for each result, or raise NotReal for a complex number."""
        values = self._read.copy()
        for place, position in self._given:
            values[place] = given[position]
        append = values.append
        for compute, a, b in self._steps:
            append(compute(values[a], values[b]))
        arrays = []
        for place, dtype in self.results:
            arrays.append(np.asarray(values[place], dtype))
        return arrays

    def differs_from(self, other: FloatProgram) -> str | None:
        """Return how another recording's arithmetic differs, or None."""
        for i in range(max(len(self.made_by), len(other.made_by))):
            if self.made_by[i : i + 1] != other.made_by[i : i + 1]:
                return f"the number {self._text(i)}, and then {other._text(i)}"
        for (i, _), (k, _) in zip(self.results, other.results, strict=False):
            if i != k:
                return f"the number {self._text(i)}, and then {other._text(k)}"
        return None

    def _text(self, place: int) -> str:
        """Return a number's instruction as text: the operation and its operands."""
        if place >= len(self.made_by):
            return "none"
        name, *operands = self.made_by[place]
        if name == _CONSTANT:
            return repr(self._read[place])
        if name == _GIVEN:
            return f"float argument {operands[0]}"
        first = len(self._read)
        texts = [self._text(a) if a < first else "a computed one" for a in operands]
        return f"{name}({', '.join(texts)})"
