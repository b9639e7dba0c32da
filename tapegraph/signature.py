"""What makes two programs the same graph: structure, never values."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.ir import PARAM, SCALAR, Program

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
    key: list[Any] = []
    fed: list[int] = []
    scalars: list[float] = []
    values = program.values
    for slot, (op, inputs, attrs) in enumerate(
        zip(program.ops, program.inputs, program.attrs, strict=True)
    ):
        if inputs:
            key.append((op.name, inputs, tuple(attrs.items())) if attrs else (op.name, inputs))
        elif op is SCALAR:
            key.append(None)
            scalars.append(values[slot])
        else:
            array = values[slot]
            key.append((array.shape, array.dtype.char, op is PARAM))
            fed.append(slot)
    key.append(tuple(program.wanted))
    return tuple(key), fed, scalars


def scalar_bits(scalars: list[float]) -> Any:
    """Return scalars as int64 bit patterns: NaN equals itself, and -0.0 is not 0.0."""
    return np.array(scalars, dtype=np.float64).view(np.int64)
