"""The leaves of a captured call for its arguments, and where a run finds their values.

Python's arithmetic with float arguments is a list of instructions, one per number, which name the
places of their operands: recording, comparing and running take time in proportion to its length.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegraph.capture import Capture
from tapegraph.compiling.arguments import LeafSpec
from tapegraph.recording.node import Node
from tapegraph.recording.program import identity
from tapegraph.recording.tape import read_gradient
from tapegraph.recording.watchers import AskReal
from tapegraph.tensors.run_float import RunFloat

# Returns a leaf's value in a run, from the arguments and the run's readings.
Reader = Callable[[list[Any], list[Any]], Any]


@dataclass(slots=True)
class Argument:
    """An argument's array or float."""

    position: int

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        return given[self.position]


@dataclass(slots=True)
class Reading:
    """A value that every run reads anew, such as a learning rate or random numbers."""

    position: int

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        return read[self.position]


@dataclass(slots=True)
class GradientBefore:
    """The gradient of a leaf at the beginning of a run."""

    leaf: Node

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        return read_gradient(self.leaf)


@dataclass(slots=True)
class Converted:
    """The value of another source in another dtype."""

    source: Reader
    dtype: Any

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        return np.asarray(self.source(given, read), self.dtype)


class Inputs:
    """The leaves of a captured call for its arguments, and Python's arithmetic with floats.

    The last ``may_be_read`` floats, from a closure or an attribute, may become plain numbers.
    """

    def __init__(self, capture: Capture, given: list[Any], may_be_read: int) -> None:
        self.capture = capture
        self.sources: list[tuple[Reader, Any]] = []  # of leaves' values in a run
        self.positions: dict[int, int] = {}  # of the arguments, by the id of their leaves
        # The floats, and the numbers that Python computes from them, by place: this call's value,
        # the arguments that it depends on, as bits, and its origin.
        self._values: list[Any] = []
        self._arguments: list[int] = []
        self._made_by: list[Instruction] = []
        self._places: dict[Instruction, int] = {}
        self._readable = (1 << len(given)) - (1 << (len(given) - may_be_read))  # of arguments, bits
        self._was_read = 0
        self._floats: dict[tuple[Any, int], Any] = {}  # leaves, by dtype and place
        self._given = given
        self._left = iter(range(len(given)))

    def argument(self, leaf: LeafSpec) -> Any:
        position = next(self._left)
        if type(self._given[position]) is float:
            return self.float(position)
        tensor = self.capture.input(self._given[position])
        self.sources.append((Argument(position), tensor))
        self.positions[id(tensor)] = position
        if leaf.kind[0] == "array":
            self.capture.caller_arrays.add(id(tensor))
        elif leaf.kind[0] == "tensor":
            self.capture.caller_tensors.add(id(tensor))
        return tensor

    def float(self, position: int) -> RunFloat:
        value = float(self._given[position])  # in an attribute, it may be another capture's
        return RunFloat(self, self._enter((_GIVEN, position), value, 1 << position))

    # Requests of the floats

    def python(self, name: str, operands: tuple[object, ...]) -> int | None:
        """Compute as Python does, or raise NotReal; None if a number is not from here."""
        places = []
        for x in operands:
            if type(x) is RunFloat and x.source is self:
                places.append(x.place)
            elif type(x) in (float, int, bool):
                places.append(self._enter((_CONSTANT, identity(x)), x, 0))
            else:
                return None
        one, other = places[0], places[-1]
        place = self._places.get((name, one, other))
        if place is None:
            value = _ARITHMETIC[name](self._values[one], self._values[other])
            bits = self._arguments[one] | self._arguments[other]
            place = self._enter((name, one, other), value, bits)
        return place

    def _enter(self, instruction: Instruction, value: object, arguments: int) -> int:
        place = self._places.setdefault(instruction, len(self._values))
        if place == len(self._values):
            self._values.append(value)
            self._arguments.append(arguments)
            self._made_by.append(instruction)
        return place

    def number(self, place: int) -> Any:
        return self._values[place]

    def may_be_read(self, place: int) -> bool:
        """Return whether a number may become a plain one after all."""
        return not self._arguments[place] & ~self._readable

    def read(self, place: int) -> None:
        self._was_read |= self._arguments[place]

    def origin(self, place: int) -> str:
        return f"a float argument ({self.number(place)!r}), whose number may differ in every call"

    def was_read(self, position: int) -> bool:
        """Return whether the function has read an argument, or a number computed from it."""
        return bool(self._was_read >> position & 1)

    def leaf(self, place: int, dtype: Any) -> Any:
        """Return a number as a leaf of the program, one for each dtype."""
        key = (dtype, place)
        if key not in self._floats:
            leaf = self._floats[key] = self.capture.input(np.asarray(self._values[place], dtype))
            leaf._attrs = {"number": place}  # two recordings must agree on it
            made_by, position = self._made_by[place][:2]
            if made_by == _GIVEN:
                self.positions[id(leaf)] = position
        return self._floats[key]

    def float_program(self, leaves: Container[int], readings: int) -> FloatProgram | None:
        """Return the program of leaves' numbers in a run, or None; enter where they read them."""
        kept = [(key, leaf) for key, leaf in self._floats.items() if id(leaf) in leaves]
        if not kept:
            return None
        for i, (_, leaf) in enumerate(kept):
            leaf._attrs["number"] = i
            self.sources.append((Reading(readings + i), leaf))
        made_by = self._made_by
        needed = {place for (_, place), _ in kept}
        for place in range(len(made_by) - 1, -1, -1):
            if place in needed and made_by[place][0] not in (_GIVEN, _CONSTANT):
                needed.update(made_by[place][1:])
        # Inputs come first, as a run begins with them.
        read = [p for p in sorted(needed) if made_by[p][0] in (_GIVEN, _CONSTANT)]
        computed = sorted(needed.difference(read))
        new = {place: i for i, place in enumerate([*read, *computed])}
        steps = [(name, new[a], new[b]) for name, a, b in (made_by[p] for p in computed)]
        return FloatProgram(
            [*(made_by[p] for p in read), *steps],
            [self._values[p] for p in read],
            [(new[place], dtype) for (dtype, place), _ in kept],
        )


# Python's arithmetic with floats


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


class FloatProgram:
    """Computes numbers from the floats of a run, as the recorded call did.

    Arguments and constants, which the recorded call ``read``, come first among the instructions.
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
