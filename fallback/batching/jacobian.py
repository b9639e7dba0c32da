"""The reverse sweep for many cotangents at once: all rows of a Jacobian.

It runs the rules of the sweep, in the same order, on a `Batch` of cotangents. Values that depend
only on the recording are computed once, and one NumPy call serves as many rows as fit the cache.
"""

# ruff: noqa: D102 - the sweep has what `Arrays` has

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import RowSparse, has_nan
from tapegraph.fallback.batching.batch import Batch, repeated
from tapegraph.fallback.sweep import Arrays, gradients, unbroadcast
from tapegraph.recording.program import Recording
from tapegraph.typed import Array

# How many numbers the largest cotangents of a batch may hold: half a megabyte, of float64.
BLOCK = 1 << 16

# Operations whose rules take one cotangent: they call functions that have no rule for a `Batch`.
ROW_BY_ROW = frozenset(
    "avg_pool2d cholesky conv2d convolve cumprod eig eigh einsum fft gather ifft index irfft "
    "max_pool2d qr rfft softmax_crossentropy solve svd".split()
)


def jacobian(recording: Recording) -> list[Array]:
    """Return the Jacobian of the one output for each wanted slot, output axes first.

    If a NaN comes out, which may be 0 * inf, the rows are swept one by one, as `gradients` does.
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
        for block, rows in zip(found, _rows(recording, seeds), strict=True):
            block[start:stop] = rows
    return found


def _rows(recording: Recording, seeds: Array) -> list[Any]:
    """Return the gradients for some cotangents: at once, or else one by one."""
    if len(seeds) > 1:
        with np.errstate(all="ignore"):
            swept = BatchSweep(recording, len(seeds)).swept([Batch(seeds)])
        grads = [found.array for found in swept]
        if not any(map(has_nan, grads)):
            return grads
    each = [map(_dense, gradients(recording, [seed])) for seed in seeds]
    return [np.stack(rows) for rows in zip(*each, strict=True)]


class BatchSweep(Arrays):
    """The arithmetic of many cotangents at once."""

    def __init__(self, recording: Recording, count: int) -> None:
        super().__init__(recording)
        self._count = count

    def parts(self, slot: int, g: Any) -> Iterator[tuple[int, Any]]:
        op = self.program.ops[slot]
        batched = op.rules is None and op.name not in ROW_BY_ROW  # a user's rule expects arrays
        return super().parts(slot, g) if batched else self._one_by_one(slot, g)

    def _one_by_one(self, slot: int, g: Any) -> Iterator[tuple[int, Any]]:
        one = Arrays(self.recording)
        rows = g.array if isinstance(g, Batch) else zip(*map(_rows_of, g), strict=False)
        for same in zip(*(one.parts(slot, row) for row in rows), strict=True):
            i = same[0][0]
            shape = self.program.shapes[i]
            yield i, Batch(np.stack([unbroadcast(_dense(part), shape) for _, part in same]))

    def fitted(self, slot: int, part: Any) -> Any:
        return super().fitted(slot, repeated(part, self._count))

    def total(self, slot: int, held: Any, part: Any) -> Any:
        return held + part

    def zeros(self, slot: int) -> Any:
        return repeated(super().zeros(slot), self._count)


def _rows_of(g: Batch | None) -> Any:
    """Return the cotangents of one of several outputs."""
    return repeat(None) if g is None else g.array


def _dense(part: Any) -> Array:
    return part.dense() if isinstance(part, RowSparse) else part
