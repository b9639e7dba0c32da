"""Programs: a recorded computation as a function of its leaves, in columns without values.

The cache's key, the printer and the engines read them. A `Recording` adds the values of a run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tapegraph import display
from tapegraph.errors import escaped, line_of
from tapegraph.interrupts import Lock
from tapegraph.recording.node import Node
from tapegraph.recording.op import GRADIENT, INPUT, NO_ATTRS, PART, SCALAR, Attrs, Op, OpKind
from tapegraph.recording.values import value_of
from tapegraph.typed import Array, DType, Fun

Key = tuple[Any, ...]


class Update(NamedTuple):
    """A new value of state: the leaf that takes it, and the slot that computes it."""

    leaf: int
    slot: int


_HEADER = ("slot", "op", "inputs", "attrs", "shape", "dtype", "grad", "name", "where")


class Entry(NamedTuple):
    """A row of a tape: an operation, its input slots, attributes, result's type and ``file:line``.

    ``held`` is the array computed when recorded, a number, or the entry that can compute it again.
    """

    slot: int
    op: str
    inputs: tuple[int, ...]
    attrs: Attrs
    shape: tuple[int, ...]
    dtype: DType
    requires_grad: bool
    name: str | None
    where: str
    held: Any

    @property
    def value(self) -> Any:
        """The array computed when recorded, or a number."""
        return value_of(self.held) if isinstance(self.held, Node) else self.held

    def cells(self) -> tuple[str, ...]:
        """Return the row as text; a scalar shows its value in place of attributes."""
        attrs = ", ".join(f"{k}={v}" for k, v in self.attrs.items())
        several = [str(dtype) for dtype, *_ in (self.dtype.fields or {}).values()]
        return (
            f"%{self.slot}",
            self.op,
            " ".join(f"%{i}" for i in self.inputs),
            repr(self.held) if self.op == SCALAR.name else attrs,
            "" if several else str(self.shape),
            ", ".join(several) or str(self.dtype),
            "yes" if self.requires_grad else "",
            self.name or "",
            self.where,
        )


@dataclass(slots=True, eq=False, repr=False)
class Program:
    """Operations in the order of execution, as parallel columns indexed by slot.

    :param ops: The operation; for a leaf, its kind: ``INPUT``, ``PARAM``, ``CONSTANT``, ``SCALAR``.
    :param inputs: The slots each operation reads; every slot comes before its readers.
    :param attrs: Hashable attributes, never an array.
    :param shapes, dtypes: The type of each result; a scalar is of shape () and weak. An entry with
        several outputs has a record of their dtypes, and no shape.
    :param needs: Whether a gradient flows through the slot.
    :param leaves, outputs: The slots that read nothing; the results, in the order of the request.
    :param wanted: The slots whose gradients are wanted: parameters and retained results.
    :param updates: The state that a run changes.
    """

    ops: list[Op]
    inputs: list[tuple[int, ...]]
    attrs: list[dict[str, Any]]
    shapes: list[tuple[int, ...]]
    dtypes: list[DType]
    needs: list[bool]
    leaves: list[int]
    outputs: tuple[int, ...]
    wanted: list[int]
    updates: tuple[Update, ...] = ()
    _key: Key | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.ops)

    @property
    def fed(self) -> list[int]:
        return [slot for slot in self.leaves if self.ops[slot] is not SCALAR]

    @property
    def scalars(self) -> list[int]:
        return [slot for slot in self.leaves if self.ops[slot] is SCALAR]

    @property
    def key(self) -> Key:
        """The structure of the program: equal only for programs that are the same function.

        Slots are positions, and the types of results follow from those of leaves.
        """
        if self._key is None:
            attrs = tuple(
                (slot, *((name, identity(value)) for name, value in given.items()))
                for slot, given in enumerate(self.attrs)
                if given
            )
            types = tuple((self.shapes[slot], self.dtypes[slot].char) for slot in self.fed)
            columns = (tuple(self.ops), tuple(self.inputs), attrs, types, tuple(self.wanted))
            self._key = (*columns, self.outputs, self.updates)
        return self._key

    def readers(self) -> list[set[int]]:
        found: list[set[int]] = [set() for _ in self.ops]
        for slot, inputs in enumerate(self.inputs):
            for i in inputs:
                found[i].add(slot)
        return found

    def backward_of(self, slot: int) -> tuple[int, ...]:
        """Return a gradient's result and cotangent, the key of one backward's gradients."""
        y, _, *seed = self.inputs[slot]
        return (y, *seed)

    def gradients_of(self, backward: tuple[int, ...]) -> list[int]:
        """Return the slots of one backward's gradients, by the key of `backward_of`."""
        return [
            slot
            for slot, op in enumerate(self.ops)
            if op is GRADIENT and self.backward_of(slot) == backward
        ]


class _Origin:
    """The description of a freed object, for messages."""

    __slots__ = ("_code", "_lasti", "name")

    def __init__(self, node: Node) -> None:
        self.name = node.name
        self._code = getattr(node, "_code", None)
        self._lasti = getattr(node, "_lasti", 0)


@dataclass(slots=True, eq=False, repr=False)
class Recording:
    """A program with the values of one run, and the names and source lines of its entries."""

    program: Program
    values: list[Any]
    nodes: list[Any]

    def value(self, slot: int) -> Any:
        """Return the array of a slot, computed again if it was freed, or the number."""
        value = self.values[slot]
        if isinstance(value, Node):
            self.values[slot] = value = value_of(value)
        return value

    def saved(self, slot: int) -> Any:
        return self.nodes[slot]._saved

    def converted(self, slot: int) -> tuple[DType | None, ...]:
        """Return the dtype to which NumPy converts each input of an entry, or None."""
        program = self.program
        kinds = [
            self.values[i] if program.ops[i] is SCALAR else program.dtypes[i]
            for i in program.inputs[slot]
        ]
        return program.ops[slot].converts(kinds, program.dtypes[slot])

    @property
    def scalars(self) -> list[float]:
        return [self.values[slot] for slot in self.program.scalars]

    def seeds(self) -> list[Array]:
        return [self.value(slot) for slot in self.program.outputs]

    def forget(self, kept: Collection[int]) -> None:
        """Free the arrays of all slots but some; names and lines stay."""
        numbers = set(self.program.scalars)
        for slot, node in enumerate(self.nodes):
            if slot not in kept and slot not in numbers:
                self.values[slot] = None
            if node is not None:
                self.nodes[slot] = _Origin(node)

    def __len__(self) -> int:
        return len(self.program)

    def where(self, slot: int) -> str:
        node = self.nodes[slot]
        code = getattr(node, "_code", None)
        return "" if code is None else line_of(code, node._lasti)

    def name(self, slot: int) -> str | None:
        node = self.nodes[slot]
        return None if node is None else node.name

    def entry(self, slot: int) -> Entry:
        program = self.program
        return Entry(
            slot=slot,
            op=program.ops[slot].name,
            inputs=program.inputs[slot],
            attrs=MappingProxyType(program.attrs[slot]),
            shape=program.shapes[slot],
            dtype=program.dtypes[slot],
            requires_grad=program.needs[slot],
            name=self.name(slot),
            where=self.where(slot),
            held=self.values[slot],
        )

    def __iter__(self) -> Iterator[Entry]:
        return map(self.entry, range(len(self)))

    def describe(self, slot: int) -> str:
        """Name a slot for a message: operation, name or shape, and the user's line."""
        program, name, place = self.program, self.name(slot), self.where(slot)
        op = program.ops[program.inputs[slot][0] if program.ops[slot] is PART else slot]
        label = op.name + (f" {name!r}" if name else "")
        if not program.ops[slot].several:
            label += f" of shape {program.shapes[slot]}"
        return label + (f" recorded at {place}" if place else "")

    def __str__(self) -> str:
        rows = [_HEADER, *(tuple(map(escaped, entry.cells())) for entry in self)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [map(str.ljust, row, widths) for row in rows]
        return "\n".join("  ".join(line).rstrip() for line in lines)

    def _repr_html_(self) -> str:
        rows = [entry.cells() for entry in self]
        title = display.heading("Recording", f"{len(self):,} entries")
        return title + display.html_table(rows, _HEADER)


class Interpreter:
    """Computes the slots of a program in order; a subclass defines an entry's result.

    :ivar values: The value of each slot; None for a number that is constant in its reader's dtype.
    """

    values: Any  # a list, or an object that reads and assigns like one

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.program = recording.program

    def run(self, leaves: Mapping[int, object], end: int | None = None) -> None:
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

    def cast(self, value: object, dtype: DType) -> Any:
        raise NotImplementedError


def between(
    program: Program,
    outputs: Iterable[int],
    targets: Iterable[int],
    inputs: Sequence[tuple[int, ...]] | None = None,
) -> list[bool]:
    """Return, for each slot, whether a gradient flows from an output through it to a target."""
    inputs = program.inputs if inputs is None else inputs
    reached, flows = set(outputs), [False] * len(inputs)
    for target in targets:
        flows[target] = True
    for slot, read in enumerate(inputs):
        if read and program.needs[slot] and not flows[slot]:
            carries = program.ops[slot].differentiable
            flows[slot] = any(
                flows[i] for i in (read if carries is None else compress(read, carries))
            )
    for slot in range(len(inputs) - 1, -1, -1):
        flows[slot] = flows[slot] and slot in reached
        if flows[slot]:
            reached.update(inputs[slot])
    return flows


def touches_complex(program: Program, slot: int) -> bool:
    dtypes = (program.dtypes[i] for i in (slot, *program.inputs[slot]))
    return any(field[1][1] == "c" for dtype in dtypes for field in dtype.descr)


def identity(value: Any) -> Any:
    """Return a key of an attribute that tells 1, 1.0 and True, and 0.0 and -0.0, apart."""
    kind = type(value)
    if kind is tuple:
        return tuple(map(identity, value))
    if isinstance(value, (float, np.floating)):
        return kind, float(value).hex()
    return kind, repr(value) if kind is complex else value


def scalar_bits(scalars: list[float]) -> Array:
    """Return scalars as int64 bit patterns: NaN equals itself, and -0.0 is not 0.0."""
    return np.array(scalars, dtype=np.float64).view(np.int64)


# Programs inside programs, which an entry holds as attributes: a loop's body, a branch


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
    program._key = None
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
