"""The leaves of a captured call for its arguments, and where a run finds their values."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegraph.capture.capture import Capture
from tapegraph.compiling.arguments import LeafSpec
from tapegraph.compiling.float_arithmetic import FloatArithmetic, FloatProgram
from tapegraph.recording import stored
from tapegraph.recording.node import Node
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
        return stored.read(self.leaf)


@dataclass(slots=True)
class Converted:
    """The value of another source in another dtype."""

    source: Reader
    dtype: Any

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        return np.asarray(self.source(given, read), self.dtype)


class Inputs:
    """The leaves of a captured call that stand for its arguments.

    :param given: The arguments' arrays and floats.
    :param may_be_read: The number of trailing floats, those from a closure or an attribute, that
        may become plain numbers.
    :ivar sources: The source of each leaf's value in a run.
    :ivar positions: The argument that a leaf stands for, by the leaf's id.
    :ivar numbers: The floats, and the numbers that Python computes from them.
    """

    def __init__(self, capture: Capture, given: list[Any], may_be_read: int = 0) -> None:
        self.capture = capture
        self.sources: list[tuple[Reader, Any]] = []
        self.positions: dict[int, int] = {}
        self.numbers = FloatArithmetic()
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
        return RunFloat(self, self.numbers.argument(position, value))

    # Requests of the floats

    def python(self, name: str, operands: tuple[Any, ...]) -> int | None:
        """Compute with numbers as Python does, or raise NotReal; None if one is not from here."""
        places = []
        for x in operands:
            if type(x) is RunFloat and x.source is self:
                places.append(x.place)
            elif type(x) in (float, int, bool):
                places.append(self.numbers.constant(x))
            else:
                return None
        return self.numbers.computed(name, places[0], places[-1])

    def number(self, place: int) -> Any:
        return self.numbers.values[place]

    def may_be_read(self, place: int) -> bool:
        """Return whether a number may become a plain one after all."""
        return not self.numbers.arguments[place] & ~self._readable

    def read(self, place: int) -> None:
        """Record that the function has read a number as a plain one."""
        self._was_read |= self.numbers.arguments[place]

    def origin(self, place: int) -> str:
        """Return where a number comes from, for a message."""
        return f"a float argument ({self.number(place)!r}), whose number may differ in every call"

    def was_read(self, position: int) -> bool:
        """Return whether the function has read an argument, or a number computed from it."""
        return bool(self._was_read >> position & 1)

    def leaf(self, place: int, dtype: Any) -> Any:
        """Return a number as a leaf of the program, one for each dtype."""
        key = (dtype, place)
        if key not in self._floats:
            leaf = self._floats[key] = self.capture.input(
                np.asarray(self.numbers.values[place], dtype)
            )
            leaf._attrs = {"number": place}  # two recordings must agree on it
            made_by, position = self.numbers.made_by[place][:2]
            if made_by == "argument":
                self.positions[id(leaf)] = position
        return self._floats[key]

    def float_program(self, leaves: Container[int], readings: int) -> FloatProgram | None:
        """Return the program of leaves' numbers in a run, or None; enter where they read them."""
        kept = [(key, leaf) for key, leaf in self._floats.items() if id(leaf) in leaves]
        for i, (_, leaf) in enumerate(kept):
            leaf._attrs["number"] = i
            self.sources.append((Reading(readings + i), leaf))
        results = [(place, dtype) for (dtype, place), _ in kept]
        return self.numbers.program(results) if results else None
