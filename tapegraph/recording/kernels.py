"""What computes forwards: NumPy, unless an engine's kernels have been chosen for large arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegraph.recording.op import NO_ATTRS, Attrs, Op

# Of an operation, its arrays and attributes: the result, or None where NumPy is to compute it.
Kernels = Callable[[Op, tuple[Any, ...], Attrs], Any]
# Empty until others than NumPy's are first chosen: this is asked at every operation.
OTHERS: list[Kernels] = []


def computed(op: Op, arrays: tuple[Any, ...], attrs: Attrs = NO_ATTRS) -> Any:
    """Return an operation's result by the kernels that are chosen here."""
    out = OTHERS[-1](op, arrays, attrs)
    return op.forward(*arrays, **attrs) if out is None else out
