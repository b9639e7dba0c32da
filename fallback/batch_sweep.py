"""The reverse sweep for many cotangents at once: the rows of a Jacobian.

It runs the rules of the sweep on arrays, in the same order, on a `Batch` of cotangents. What they
compute of the recorded values alone is computed once for all rows, and a call of NumPy, with what
Python spends around it, serves as many rows as fit the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import RowSparse, has_nan
from tapegraph.fallback.batch import Batch, repeated
from tapegraph.fallback.rules import VJPS
from tapegraph.fallback.sweep import gradients, own_row, parts_of, unbroadcast
from tapegraph.interrupts import raise_interrupt
from tapegraph.recording.program import Recording
from tapegraph.typed import Array

# How many numbers the largest cotangents of a batch may hold: half a megabyte, of float64.
BLOCK = 1 << 16


def jacobian(recording: Recording) -> list[Array]:
    """Return the Jacobian of a program's one output by each wanted slot.

    Parameters
    ----------
    recording : Recording
        What was recorded.

    Returns
    -------
    list of ndarray
        One a wanted slot: along the first axis the gradient of each element of the output.

    Raises
    ------
    NotImplementedError
        An operation has no gradient rule.

    Notes
    -----
    Where a NaN comes out, which may be 0 * inf, the rows are swept one by one, as `gradients` does.
    """
    program = recording.program
    (output,) = program.outputs
    lengths, dtype = program.shapes[output], program.dtypes[output]
    size = math.prod(lengths)
    flows = zip(program.shapes, program.needs, strict=True)
    most = BLOCK // max(1, *(math.prod(lengths) for lengths, needed in flows if needed)) or 1
    found = [
        np.empty((size, *program.shapes[slot]), program.dtypes[slot]) for slot in program.wanted
    ]
    for start in range(0, size, most):
        stop = min(start + most, size)
        seeds = np.eye(stop - start, size, start, dtype).reshape(-1, *lengths)
        for jacobian, rows in zip(found, _rows(recording, seeds), strict=True):
            jacobian[start:stop] = rows
    return found


def _rows(recording: Recording, seeds: Array) -> list[Any]:
    """Return the gradients for some cotangents: at once, or else one by one."""
    grads = _sweep(recording, seeds) if len(seeds) > 1 else None
    if grads is not None and not any(map(has_nan, grads)):
        return grads
    each = [map(_dense, gradients(recording, [seed])) for seed in seeds]
    return [np.stack(rows) for rows in zip(*each, strict=True)]


def _sweep(recording: Recording, seeds: Array) -> list[Array]:
    program, count = recording.program, len(seeds)
    cotangents: list[Any] = [None] * len(program)
    wanted = set(program.wanted)

    def add(i: int, part: Any) -> None:
        part = unbroadcast(repeated(part, count), program.shapes[i])
        if part.dtype != program.dtypes[i]:
            part = part.astype(program.dtypes[i])
        held = cotangents[i]
        cotangents[i] = part if held is None else held + part

    (output,) = program.outputs
    add(output, Batch(seeds))
    with np.errstate(all="ignore"):
        for slot in range(len(program) - 1, -1, -1):
            g = cotangents[slot]
            if g is None or not program.inputs[slot]:
                continue
            if slot not in wanted:
                cotangents[slot] = None
            for i, part in _parts(recording, slot, g):
                add(i, part)
    return [
        np.zeros((count, *program.shapes[slot]), program.dtypes[slot])
        if cotangents[slot] is None
        else cotangents[slot].array
        for slot in program.wanted
    ]


def _parts(recording: Recording, slot: int, g: Batch) -> list[tuple[int, Any]]:
    """Return the gradients of inputs for a batch: at once, or else row by row."""
    row = VJPS.get(recording.program.ops[slot].name)
    if row is None:  # a user's own rule expects arrays
        return list(_one_by_one(recording, slot, own_row(recording, slot), g))
    try:
        found = list(parts_of(recording, slot, row, g))
    except Exception as error:
        raise_interrupt(error)
        found = []  # more than is known of batches; an error of the rule's own comes again
    if found and all(isinstance(part, (Batch, np.ndarray)) for _, part in found):
        return found
    return list(_one_by_one(recording, slot, row, g))


def _one_by_one(recording: Recording, slot: int, row: Any, g: Batch) -> Iterator[tuple[int, Any]]:
    shapes = recording.program.shapes
    for same in zip(*(parts_of(recording, slot, row, one) for one in g.array), strict=True):
        i = same[0][0]
        yield i, Batch(np.stack([unbroadcast(_dense(part), shapes[i]) for _, part in same]))


def _dense(part: Any) -> Array:
    return part.dense() if isinstance(part, RowSparse) else part
