"""The native plan: a captured program compiled to straight-line NumPy, one call a line.

Running the program once makes the plan: it finds the sums and conversions, views and memory
layouts. A plan computes bit for bit what the eager engine does.
"""

from __future__ import annotations

import itertools
import linecache
from typing import Any
from weakref import finalize

import numpy as np

from tapegraph.arrays.buffers import keep_freed_memory
from tapegraph.engines.choice import CLOCK
from tapegraph.fallback.plan.codegen import TELL, telling
from tapegraph.fallback.plan.compiler import Compiler
from tapegraph.fallback.plan.records import Mismatch
from tapegraph.fallback.plan.segments import Rounds
from tapegraph.numpy_warnings import quietly
from tapegraph.recording.program import Recording
from tapegraph.recording.watchers import COMPILING, ENGINE, WATCHING, Watcher
from tapegraph.typed import Fun

# The file that a plan's lines are of.
PLAN = "<tapegraph plan"
_REST = "the rest of a plan"
_numbers = itertools.count(1)
_as_array: Any = np.asarray  # NumPy's types do not know an order that varies


class Plan:
    """A function of the values of a program's leaves, as readable Python.

    It owns the buffers it writes into, so that one thread at a time may run it; it never writes to
    its results again. ``leaves`` are the slots whose values it takes, in order: all but Python
    numbers.

    :param in_rounds: It is the body of a loop: ``rounds`` runs it many times in C if it is records
        alone, with arrays for the leaves and then for the outputs; else it is None.
    """

    keeps_state = False
    compile_seconds = 0.0
    note = ""

    def __init__(
        self,
        recording: Recording,
        compiler: Compiler | None = None,
        *,
        in_rounds: bool = False,
    ) -> None:
        keep_freed_memory()
        self.variants: dict[str, float] = {}
        self.leaves = recording.program.fed
        values = [recording.values[slot] for slot in self.leaves]
        # How a sum is rounded depends on the order in memory; a real call takes arguments in C's.
        self._types = [(v.dtype, "C" if v.flags.c_contiguous else "K") for v in values]
        with np.errstate(all="ignore"):
            source = (compiler or Compiler(recording)).compile()
        self.source, self.nbytes = source.text, source.nbytes
        self._plain, self._body, self._names = source.plain, source.body, source.names
        self._plain_is_long = source.plain_is_long
        file = f"{PLAN} {next(_numbers)}>"
        self._run = self._made(self.source, file, self._names, source.long)
        # Tracebacks, debuggers and profilers ask there for lines; without a time it is kept.
        lines = self.source.splitlines(keepends=True)
        linecache.cache[file] = (len(self.source), None, lines, file)
        finalize(self, linecache.cache.pop, file, None)
        self.rounds: Rounds | None = None
        if in_rounds:
            self.rounds = source.segments.rounds(source.leaves, source.results)
        self._told: tuple[Fun, dict[str, Any]] | None = None

    def _made(self, text: str, file: str, names: dict[str, Any], long: bool) -> Fun:
        exec(compile(text, file, "exec"), names)
        plan = names["plan"]
        return (lambda *a: next(plan(*a))) if long else plan

    def in_python(self) -> Fun:
        """Switch to lines of Python for good, because records do not fit an array (`Mismatch`)."""
        file = f"{PLAN}, in Python alone>"
        self._run = self._made(self._plain, file, dict(self._names), self._plain_is_long)
        return self._run

    def run(self, values: list[Any], changes: Any = None) -> tuple[list[Any], list[Any]]:
        """Return the outputs, and the new values of the state that changes."""
        typed = zip(values, self._types, strict=True)
        arrays = [_as_array(v, dtype, order) for v, (dtype, order) in typed]
        watchers = WATCHING.value()
        if watchers:
            return self._run_watched(watchers, arrays)
        try:
            return quietly(self._run, *arrays)
        except Mismatch:
            return quietly(self.in_python(), *arrays)

    def _run_watched(self, watchers: tuple[Watcher, ...], arrays: list[Any]) -> Any:
        """Run the plan as one that tells watchers of each line, made on first use."""
        if self._told is None:
            start, names = CLOCK.now(), dict(self._names)
            self._told = (
                self._made(telling(self._body), f"{PLAN}, watched>", names, self._plain_is_long),
                names,
            )
            for watcher in watchers:
                what = "compiling a plan that tells of its lines"
                watcher.passed(COMPILING, what, start=start, seconds=CLOCK.now() - start)
        run, names = self._told

        def tell(number: int, *results: Any) -> None:
            line = self._body[number]
            for watcher in watchers:
                watcher.passed(ENGINE, line.op or _REST, line.place, results=results)

        for watcher in watchers:
            watcher.begins(ENGINE, _REST, "")
        names[TELL] = tell
        try:
            return quietly(run, *arrays)
        finally:
            del names[TELL]
            for watcher in watchers:
                watcher.ends()
