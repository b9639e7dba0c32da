"""The one intermediate representation: operations, and programs of them as plain columns.

Engines, the tape's table and every later consumer read a `Program`; nothing else walks a graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tapegraph.errors import line_of

Array = npt.NDArray[Any]
Attrs = Mapping[str, Any]

NO_ATTRS: dict[str, Any] = {}


class Rules(NamedTuple):
    """What an operation registered by `tapegraph.defop` brings along, where ours are in tables.

    Each has the form of a row of its table: ``vjp(needs, g, y, *inputs, **attrs)`` gives a
    gradient per input, ``jvp(tangents, y, *inputs, **attrs)`` the tangent of the result, and
    ``lowering(out, *inputs, **attrs)`` the graph tensor.
    """

    vjp: Callable[..., Any]
    jvp: Callable[..., Any] | None
    lowering: Callable[..., Any] | None


class Op:
    """An operation: its name in the table, and its forward on NumPy arrays.

    Parameters
    ----------
    name : str
        The name in the op table; rules of every engine are found by it.
    forward : callable
        Arrays positional, attributes by keyword, returns the result array.
    saves : bool
        The forward returns ``(result, saved)``; ``saved`` is handed to the backward rule.
    differentiable : tuple of bool, optional
        Which of the leading inputs can carry a gradient, and none after them; all where not given.
    rules : Rules, optional
        Its own rules, of an operation that is not in the library's tables.
    """

    __slots__ = ("differentiable", "forward", "name", "rules", "saves")

    def __init__(
        self,
        name: str,
        forward: Callable[..., Any] | None = None,
        *,
        saves: bool = False,
        differentiable: tuple[bool, ...] | None = None,
        rules: Rules | None = None,
    ) -> None:
        self.name = name
        self.forward: Callable[..., Any] = forward if forward is not None else _no_forward
        self.saves = saves
        self.differentiable = differentiable
        self.rules = rules
        if forward is None:
            return
        table = OPS if rules is None else DEFINED
        if name in OPS or name in DEFINED:
            raise ValueError(f"Op: the name {name!r} is taken; expected a new one")
        table[name] = self

    def __repr__(self) -> str:
        return f"Op({self.name!r})"


def _no_forward(*arrays: Any, **attrs: Any) -> Any:
    raise NotImplementedError("a leaf has no forward")


# The library's operations, and those that users have registered.
OPS: dict[str, Op] = {}
DEFINED: dict[str, Op] = {}

PARAM = Op("param")
CONSTANT = Op("constant")
SCALAR = Op("scalar")
CLEARED = Op("cleared")


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
        What `tapegraph.signature` made of it, once it has.
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
