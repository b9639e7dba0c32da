"""Programs inside programs, which an entry holds as attributes: a loop's body, a branch."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph.interrupts import Lock
from tapegraph.recording.op import INPUT, NO_ATTRS, Attrs, OpKind
from tapegraph.recording.program import Program, Recording, identity
from tapegraph.typed import DType, Fun

# The number of inner programs to remember, with their plans and graphs.
MOST_KNOWN = 512


class SubProgram:
    """A program without arrays as an attribute, equal to another that computes the same.

    :ivar inputs: The slot of each input, as an entry passes them: what the function read outside
        is one too.
    :ivar made: Derivatives and plans made of it, by maker.
    """

    __slots__ = ("_hash", "inputs", "key", "made", "recording")

    def __init__(self, recording: Recording, inputs: Sequence[int]) -> None:
        program = recording.program
        recording.forget(())
        self.recording = recording
        self.inputs = tuple(inputs)
        numbers = tuple(map(identity, recording.scalars))
        self.key = (program.key, self.inputs, tuple(program.needs), numbers)
        self.made: dict[Any, Any] = {}
        self._hash = hash(self.key)

    @property
    def program(self) -> Program:
        return self.recording.program

    @property
    def outputs(self) -> tuple[int, ...]:
        return self.program.outputs

    def with_program(self, program: Program) -> SubProgram:
        """Return one of another program, of the same slots, whose numbers are the same."""
        known = self.recording
        return SubProgram(Recording(program, known.values, known.nodes), self.inputs)

    def types(self, slots: Sequence[int]) -> list[tuple[tuple[int, ...], DType]]:
        return [(self.program.shapes[slot], self.program.dtypes[slot]) for slot in slots]

    def make(self, key: object, maker: Fun, *args: object) -> Any:
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
# By structure: the first floats that stood in it, and the slots of those that have changed since.
_floats: OrderedDict[Any, tuple[dict[int, Any], set[int]]] = OrderedDict()
_lock = Lock()


def interned(found: SubProgram) -> SubProgram:
    """Return the first program equal to this one, with the objects made of it and these lines."""
    with _lock.held:
        first: SubProgram = _remembered(_known, found, found)
        first.recording.nodes[:] = found.recording.nodes
        return first


def _remembered(known: OrderedDict[Any, Any], key: object, value: object) -> Any:
    found = known.setdefault(key, value)
    known.move_to_end(key)
    if len(known) > MOST_KNOWN:
        known.popitem(last=False)
    return found


def feed_changed_floats(recording: Recording) -> None:
    """Make each leaf an input, and floats that have changed arrays: new ones find the old plan."""
    program = recording.program
    for slot in program.fed:
        program.ops[slot] = INPUT
        program.attrs[slot] = NO_ATTRS
    program.wanted[:] = []
    found = _dtypes_of_floats(recording)
    numbers = {slot: identity(recording.values[slot]) for slot in found}
    key = (program.key, *map(type, recording.scalars))
    with _lock.held:
        first, changed = _remembered(_floats, key, (numbers, set()))
        changed.update(slot for slot in numbers if numbers[slot] != first[slot])
        fed = sorted(changed)
    program.forget_key()
    for slot in fed:
        program.ops[slot] = INPUT
        program.dtypes[slot] = found[slot]
        recording.values[slot] = np.array(recording.values[slot], found[slot])


def _dtypes_of_floats(recording: Recording) -> dict[int, DType]:
    program = recording.program
    dtypes: dict[int, Any] = {
        slot: None for slot in program.scalars if type(recording.values[slot]) is float
    }
    for slot, inputs in enumerate(program.inputs):
        if dtypes.keys().isdisjoint(inputs):
            continue
        op = program.ops[slot]
        elementwise = op.kind in (OpKind.ELEMENTWISE, OpKind.COMPARISON) and op.rules is None
        for i, dtype in zip(inputs, recording.converted(slot), strict=True):
            # NumPy has shorter ways for some powers, which it takes by the number.
            if i in dtypes and (not elementwise or dtype is None or op.name == "pow"):
                del dtypes[i]
            elif i in dtypes:
                dtypes[i] = dtype
    return {slot: dtype for slot, dtype in dtypes.items() if dtype is not None}


def subprograms(attrs: Attrs) -> list[SubProgram]:
    """Return the inner programs among an entry's attributes."""
    found: list[SubProgram] = []
    for value in attrs.values():
        parts = value if isinstance(value, tuple) else (value,)
        found += [part for part in parts if isinstance(part, SubProgram)]
    return found


def entries_in(program: Program) -> int:
    """Return the number of a program's entries, with those of inner programs."""
    inner = (body for attrs in program.attrs for body in subprograms(attrs))
    return len(program) + sum(entries_in(body.program) for body in inner)
