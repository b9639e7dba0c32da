"""Programs inside programs: the body of a loop, a branch of a choice.

An entry holds its inner programs as attributes. A `SubProgram` is a program with a list of inputs
and of outputs and no array: what the function read from outside is an input as well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegraph.interrupts import Lock
from tapegraph.recording.op import INPUT, NO_ATTRS
from tapegraph.recording.program import Program, Recording, identity

# How many inner programs are remembered, with what engines have made of them.
MOST_KNOWN = 512


class SubProgram:
    """A program as an attribute of an entry: equal to another that computes the same.

    :ivar recording: The program, with Python numbers, names and lines, and without arrays. Every
        leaf but a Python number is an `INPUT`, and ``program.needs`` says through which slots a
        gradient flows.
    :ivar inputs: The slot of each input, in the order in which an entry passes them.
    :ivar made: What was made of it, by who made it: derivatives, plans.
    """

    __slots__ = ("_hash", "inputs", "key", "made", "recording")

    def __init__(self, recording: Recording, inputs: Sequence[int]) -> None:
        program = recording.program
        for slot in program.fed:
            program.ops[slot] = INPUT
            program.attrs[slot] = NO_ATTRS
        program.wanted[:] = []
        recording.forget(())
        self.recording = recording
        self.inputs = tuple(inputs)
        numbers = tuple(map(identity, recording.scalars))
        self.key = (program.key, self.inputs, tuple(program.needs), numbers)
        self.made: dict[Any, Any] = {}
        self._hash = hash(self.key)

    @property
    def program(self) -> Program:
        """The program."""
        return self.recording.program

    @property
    def outputs(self) -> tuple[int, ...]:
        """The slot of each output."""
        return self.program.outputs

    def types(self, slots: Sequence[int]) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Return shape and dtype of some slots."""
        return [(self.program.shapes[slot], self.program.dtypes[slot]) for slot in slots]

    def make(self, key: Any, maker: Callable[..., Any], *args: Any) -> Any:
        """Return what was made before by this key, or make it."""
        if key not in self.made:
            self.made[key] = maker(*args)
        return self.made[key]

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, SubProgram) and self.key == other.key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"<{len(self.program)} entries>"


_known: OrderedDict[SubProgram, SubProgram] = OrderedDict()
_lock = Lock()


def interned(found: SubProgram) -> SubProgram:
    """Return the first program that was equal to this one, with what was made of it."""
    with _lock():
        found = _known.setdefault(found, found)
        _known.move_to_end(found)
        if len(_known) > MOST_KNOWN:
            _known.popitem(last=False)
    return found


def subprograms(attrs: Any) -> list[SubProgram]:
    """Return the inner programs among the attributes of an entry."""
    found: list[SubProgram] = []
    for value in attrs.values():
        parts = value if isinstance(value, tuple) else (value,)
        found += [part for part in parts if isinstance(part, SubProgram)]
    return found
