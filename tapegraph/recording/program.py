"""Programs: a recorded computation as a function of its leaves, in plain columns.

A program holds no value and no live object. The cache's key, the printer and the engines read
programs; none of them walks a graph. A `Recording` adds the values of one run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tapegraph import display
from tapegraph.errors import escaped, line_of
from tapegraph.recording.node import Node
from tapegraph.recording.op import GRADIENT, PART, SCALAR, Attrs, Op
from tapegraph.recording.values import value_of
from tapegraph.typed import Array, DType

Key = tuple[Any, ...]


class Update(NamedTuple):
    """A new value of state: the leaf that takes it, and the slot that computes it."""

    leaf: int
    slot: int


_HEADER = ("slot", "op", "inputs", "attrs", "shape", "dtype", "grad", "name", "where")


class Entry(NamedTuple):
    """One row of a tape: an operation, its input slots, its attributes and its result's type.

    ``where`` is the user's ``file:line``; ``value`` is the array computed when recorded. If that
    was freed, ``held`` is the entry that can compute it again.
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

    :param ops: The operation; for a leaf, its kind: ``INPUT``, ``PARAM``, ``CONSTANT`` or
        ``SCALAR``.
    :param inputs: The slots each operation reads; every slot comes before its readers.
    :param attrs: Hashable attributes, never an array.
    :param shapes, dtypes: The type of each result; a scalar is of shape () and weak.
    :param needs: Whether a gradient flows through the slot.
    :param leaves: The slots that read nothing.
    :param outputs: The results, in the order of the request.
    :param wanted: The slots whose gradients are wanted: parameters and retained results.
    :param updates: The state that a run changes.

    An operation may save something for its gradient, which a recording holds beside its values. An
    An entry with several outputs has a record of their dtypes, and no shape.
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
        """The leaves that are arrays, in order."""
        return [slot for slot in self.leaves if self.ops[slot] is not SCALAR]

    @property
    def scalars(self) -> list[int]:
        """The leaves that are Python numbers, in order."""
        return [slot for slot in self.leaves if self.ops[slot] is SCALAR]

    @property
    def key(self) -> Key:
        """The structure of the program: equal only for programs that are the same function.

        It holds operations, wiring, attributes, and types of leaves. Slots are positions, and the
        types of results follow from those of leaves.
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

    def forget_key(self) -> None:
        self._key = None

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
