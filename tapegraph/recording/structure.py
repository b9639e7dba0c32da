"""What makes two programs the same graph: structure, never values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.recording.op import SCALAR
from tapegraph.recording.program import Program

Signature = tuple[Any, ...]


def signature(program: Program) -> tuple[Signature, list[int], list[float]]:
    """Return a program's `_signature`, made once."""
    made: tuple[Signature, list[int], list[float]] | None = program.signature
    if made is None:
        made = program.signature = _signature(program)
    return made


def _signature(program: Program) -> tuple[Signature, list[int], list[float]]:
    """Return a program's key, the slots to feed, and the values of its scalars.

    The key holds operations, wiring, attributes, the shapes and dtypes of leaves, and the wanted
    slots. Names of slots are positions, so equal keys mean equal programs.
    """
    fed: list[int] = []
    scalars: list[float] = []
    types: list[Any] = []
    ops, values = program.ops, program.values
    for slot in program.leaves:
        if ops[slot] is SCALAR:
            scalars.append(values[slot])
        else:
            fed.append(slot)
            types.append((values[slot].shape, values[slot].dtype.char))
    attrs = [
        (slot, *[(name, identity(value)) for name, value in given.items()])
        for slot, given in enumerate(program.attrs)
        if given
    ]
    columns: tuple[list[Any], ...] = (ops, program.inputs, attrs, types, program.wanted)
    return tuple(tuple(column) for column in columns), fed, scalars


def identity(value: Any) -> Any:
    """Return what two attributes share only where they are the same: 1, 1.0 and True are not.

    Python takes those for equal, as it does 0.0 and -0.0.
    """
    kind = type(value)
    if kind is tuple:
        return tuple(map(identity, value))
    if isinstance(value, (float, np.floating)):
        return kind, float(value).hex()
    return kind, value


def scalar_bits(scalars: list[float]) -> Any:
    """Return scalars as int64 bit patterns: NaN equals itself, and -0.0 is not 0.0."""
    return np.array(scalars, dtype=np.float64).view(np.int64)
