"""What the cases record of an operation, and finite differences of rules that run on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import tapegraph as tg
from tapegraph.recording.linearize import linearize
from tests.cases import CASES

Entry = tuple[Any, list[Any], dict[str, Any]]


def entries(op: str, dtype: type = np.float64, *, smooth: bool = False) -> Iterator[Entry]:
    """Yield result, inputs and attributes of the operation wherever its cases record it."""
    for case in CASES:
        if case.op != op or (smooth and not case.smooth):
            continue
        arrays = case.arrays(dtype)
        out = case.run(*map(tg.param, arrays), *case.fixed(arrays[0].dtype))
        recording = linearize([out])
        program, values = recording.program, list(map(recording.value, range(len(recording))))
        for slot, found in enumerate(program.ops):
            if found.name == op and program.inputs[slot]:
                yield values[slot], [values[i] for i in program.inputs[slot]], program.attrs[slot]


def difference(f: Any, inputs: list[Any], j: int) -> np.ndarray:
    """The derivative of the sum of ``f`` with respect to one input, element by element."""
    out = np.zeros(np.shape(inputs[j]))
    for k in np.ndindex(out.shape):
        ends = []
        h = 1e-5 * min(1.0, abs(inputs[j][k]) or 1.0)  # singular points are at 0
        for sign in (1.0, -1.0):
            moved = inputs[j].copy()
            moved[k] += sign * h
            ends.append(f(*inputs[:j], moved, *inputs[j + 1 :]))
        out[k] = np.sum(ends[0] - ends[1]) / (2.0 * h)
    return out
