"""One run of a program: what it computed, and the objects that recorded it."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from tapegraph.errors import line_of
from tapegraph.recording.op import SCALAR
from tapegraph.recording.program import HEADER, Entry, Program, table
from tapegraph.typed import Array


class _Origin:
    """What messages say of a recorded object that is gone."""

    __slots__ = ("_code", "_lasti", "name")

    def __init__(self, node: Any) -> None:
        self.name = node.name
        self._code = getattr(node, "_code", None)
        self._lasti = getattr(node, "_lasti", 0)


class Recording:
    """A program with the values of one run, and the names and source lines of its entries.

    Attributes
    ----------
    program : Program
        The structure alone.
    values : list
        The ndarray each slot gave, or the Python number of a scalar leaf.
    nodes : list
        The recorded objects (scalars: None), for names and source lines.
    """

    __slots__ = ("nodes", "program", "values")

    def __init__(self, program: Program, values: list[Any], nodes: list[Any]) -> None:
        self.program = program
        self.values = values
        self.nodes = nodes

    def saved(self, slot: int) -> Any:
        """Return what the slot's operation saved for its gradient: its further outputs."""
        return self.nodes[slot]._saved

    @property
    def scalars(self) -> list[float]:
        """The values of the scalar leaves, in order."""
        return [self.values[slot] for slot in self.program.scalars]

    def seeds(self) -> list[Array]:
        """Return the outputs' values, to which cotangents are to fit."""
        return [self.values[slot] for slot in self.program.outputs]

    def forget(self, kept: Collection[int]) -> None:
        """Let go of the arrays of all slots but some; of results names and lines stay."""
        numbers = set(self.program.scalars)
        for slot, node in enumerate(self.nodes):
            if slot not in kept and slot not in numbers:
                self.values[slot] = None
            if node is not None:
                self.nodes[slot] = _Origin(node)

    def __len__(self) -> int:
        return len(self.program)

    def where(self, slot: int) -> str:
        """Return the user's ``file:line`` that recorded a slot, or ``""``."""
        node = self.nodes[slot]
        code = getattr(node, "_code", None)
        return "" if code is None else line_of(code, node._lasti)

    def name(self, slot: int) -> str | None:
        """Return the name the user gave."""
        node = self.nodes[slot]
        return None if node is None else node.name

    def entry(self, slot: int) -> Entry:
        """Return one slot as a readable row."""
        known = {"name": self.name(slot), "where": self.where(slot), "value": self.values[slot]}
        return self.program.entry(slot)._replace(**known)

    def __iter__(self) -> Iterator[Entry]:
        return (self.entry(slot) for slot in range(len(self)))

    def describe(self, slot: int) -> str:
        """Name a slot for a message: operation, name or shape, and the user's line."""
        program, name, place = self.program, self.name(slot), self.where(slot)
        label = program.ops[slot].name + (f" '{name}'" if name else "")
        return f"{label} of shape {program.shapes[slot]}" + (
            f" recorded at {place}" if place else ""
        )

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [(*HEADER, "name", "where")]
        for slot, row in enumerate(self.program.rows()):
            if self.program.ops[slot] is SCALAR:  # its value stands where attributes do
                row = (*row[:3], repr(self.values[slot]), *row[4:])
            rows.append((*row, self.name(slot) or "", self.where(slot)))
        return table(rows)
