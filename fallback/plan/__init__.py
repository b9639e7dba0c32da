"""The native plan: a captured program compiled to straight-line NumPy, one call a line.

The plan is made by running it once: what has to be summed back or converted, what is a view of
what, and how everything lies in memory is found then, and the lines say so. It computes bit for
bit what the eager engine does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import keep_freed_memory
from tapegraph.fallback.plan.compiler import compile_plan
from tapegraph.numpy_warnings import quietly
from tapegraph.recording.program import Recording

as_array: Any = np.asarray  # NumPy's types do not know an order that varies


class Plan:
    """A function of the values of a program's leaves, as readable Python.

    It owns the buffers it writes into, so that one thread at a time may run it; what it returns
    is never written to again.

    ``leaves`` are the slots whose values it takes, in order: all but Python numbers.
    """

    keeps_state = False
    compile_seconds = 0.0
    variant = ""

    def __init__(self, recording: Recording) -> None:
        keep_freed_memory()
        self.leaves = recording.program.fed
        values = [recording.values[slot] for slot in self.leaves]
        # How a sum is rounded depends on the order in memory; a real call takes arguments in C's.
        self._types = [(v.dtype, "C" if v.flags.c_contiguous else "K") for v in values]
        with np.errstate(all="ignore"):
            source = compile_plan(recording)
        self.source, self.nbytes = source.text, source.nbytes
        exec(compile(self.source, "<tapegraph plan>", "exec"), source.names)
        plan = source.names["plan"]
        self._run: Callable[..., Any] = (lambda *a: next(plan(*a))) if source.long else plan

    def try_variant(self, limit: float) -> bool:
        """Return whether another variant was tried: there is but one."""
        return False

    def run(self, values: list[Any], changes: Any = None) -> tuple[list[Any], list[Any]]:
        """Return the outputs, and the new values of the state that changes."""
        typed = zip(values, self._types, strict=True)
        arrays = [as_array(v, dtype, order) for v, (dtype, order) in typed]
        return quietly(self._run, *arrays)  # type: ignore[no-any-return]
