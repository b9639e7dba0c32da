"""Programs: operations as plain columns, the one intermediate representation.

Engines, the tape's table and every later consumer read a `Program`; nothing else walks a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from tapegraph.errors import line_of
from tapegraph.recording.op import Attrs, Op


class Entry(NamedTuple):
    """One row of a tape: an operation, the slots it reads, its attributes and its result's type.

    ``where`` is the user's own ``file:line``; ``value`` is the array computed when recorded.
    """

    slot: int
    op: str
    inputs: tuple[int, ...]
    attrs: Attrs
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    requires_grad: bool
    name: str | None
    where: str
    value: Any


class Program:
    """A recorded graph in execution order, as parallel columns indexed by slot.

    Attributes
    ----------
    ops : list of Op
    inputs : list of tuple of int
        The slots each operation reads; every slot comes before its readers.
    attrs : list of dict
        Hashable attributes, never an array.
    values : list
        The ndarray each operation gave, or the Python number of a scalar leaf.
    needs : list of bool
        Whether a gradient flows through the slot.
    nodes : list
        The recorded objects (scalars: None), for names and source lines.
    leaves : list of int
        The slots that read nothing, scalars included.
    root : int
        The slot to differentiate.
    wanted : list of int
        The slots whose gradients are asked for: parameters and retained results.
    signature : tuple or None
        What `tapegraph.recording.structure` made of it, once it has.
    """

    __slots__ = (
        "attrs",
        "inputs",
        "leaves",
        "needs",
        "nodes",
        "ops",
        "root",
        "signature",
        "values",
        "wanted",
    )

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.inputs: list[tuple[int, ...]] = []
        self.attrs: list[dict[str, Any]] = []
        self.values: list[Any] = []
        self.needs: list[bool] = []
        self.nodes: list[Any] = []
        self.leaves: list[int] = []
        self.root = -1
        self.wanted: list[int] = []
        self.signature: Any = None

    def __len__(self) -> int:
        return len(self.ops)

    def entry(self, slot: int) -> Entry:
        """Return one slot as a readable row."""
        node, value = self.nodes[slot], self.values[slot]
        array = np.asarray(value)
        return Entry(
            slot=slot,
            op=self.ops[slot].name,
            inputs=self.inputs[slot],
            attrs=MappingProxyType(self.attrs[slot]),
            shape=array.shape,
            dtype=array.dtype,
            requires_grad=self.needs[slot],
            name=None if node is None else node.name,
            where="" if node is None else self.where(slot),
            value=value,
        )

    def where(self, slot: int) -> str:
        """Return the user's ``file:line`` that recorded a slot, or ``""``."""
        node = self.nodes[slot]
        code = getattr(node, "_code", None)
        return "" if code is None else line_of(code, node._lasti)

    def __iter__(self) -> Iterator[Entry]:
        return (self.entry(slot) for slot in range(len(self.ops)))

    def describe(self, slot: int) -> str:
        """Name a slot for a message: operation, name or shape, and the user's line."""
        node = self.nodes[slot]
        label = self.ops[slot].name
        if node is not None and node.name:
            label += f" '{node.name}'"
        place = self.where(slot)
        return f"{label} of shape {np.shape(self.values[slot])}" + (
            f" recorded at {place}" if place else ""
        )

    def __str__(self) -> str:
        rows = [("slot", "op", "inputs", "attrs", "shape", "dtype", "grad", "name", "where")]
        for e in self:
            attrs = ", ".join(f"{k}={v}" for k, v in e.attrs.items())
            inputs = " ".join(f"%{i}" for i in e.inputs)
            if e.op == "scalar":
                attrs = repr(e.value)
            rows.append(
                (
                    f"%{e.slot}",
                    e.op,
                    inputs,
                    attrs,
                    str(e.shape),
                    str(e.dtype),
                    "yes" if e.requires_grad else "",
                    e.name or "",
                    e.where,
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        )
