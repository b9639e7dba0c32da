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
from tapegraph.engines.engine import EngineDeclined, Many
from tapegraph.fallback.plan.codegen import TELL, telling
from tapegraph.fallback.plan.compiler import Compiler, InNumPy
from tapegraph.fallback.plan.looks import NaNInPlan
from tapegraph.fallback.plan.many import run_many
from tapegraph.fallback.plan.records import Mismatch
from tapegraph.numpy_warnings import quietly
from tapegraph.recording.program import Recording
from tapegraph.recording.watchers import COMPILING, ENGINE, WATCHING, Watcher
from tapegraph.typed import Fun

# The file that a plan's lines are of.
PLAN = "<tapegraph plan"
_REST = "the rest of a plan"
_numbers = itertools.count(1)
_as_array: Any = np.asarray  # NumPy's types do not know an order that varies
_ARRAYS = (np.ndarray, np.generic)


class Plan:
    """A function of the values of a program's leaves, as readable Python.

    It owns the buffers it writes into, so that one thread at a time may run it; it never writes to
    its results again. ``leaves`` are the slots whose values it takes, in order: all but Python
    numbers.

    ``rounds`` runs it many times in C if it is records alone, with arrays for the leaves and then
    for the outputs; else it is None.
    """

    keeps_state = False
    compile_seconds = 0.0
    note = ""

    def __init__(
        self, recording: Recording, compiler: Compiler | None = None, *, looks: bool = True
    ) -> None:
        keep_freed_memory()
        self._program = recording.program
        self._numbers = {slot: recording.values[slot] for slot in recording.program.scalars}
        self.variants: dict[str, float] = {}
        self.leaves = recording.program.fed
        values = [recording.values[slot] for slot in self.leaves]
        # How a sum is rounded depends on the order in memory; a real call takes arguments in C's.
        orders = ["C" if v.flags.c_contiguous else "K" for v in values]
        self._types = [v.dtype for v in values], orders
        with np.errstate(all="ignore"):
            try:
                source = (compiler or Compiler(recording, looks=looks)).compile()
            except NaNInPlan:  # here a zero does absorb
                source = Compiler(recording).compile()
        self.source, self.nbytes = source.text, source.nbytes
        self._plain, self._body, self._names = source.plain, source.body, source.names
        self._plain_is_long = source.plain_is_long
        file = f"{PLAN} {next(_numbers)}>"
        self._run = self._made(self.source, file, self._names, source.long)
        # Tracebacks, debuggers and profilers ask there for lines; without a time it is kept.
        lines = self.source.splitlines(keepends=True)
        linecache.cache[file] = (len(self.source), None, lines, file)
        finalize(self, linecache.cache.pop, file, None)
        self.rounds = source.segments.rounds(source.leaves, source.results)
        self._is_dense = all(isinstance(v.value, _ARRAYS) for v in source.results)
        self._watched_plan: tuple[Fun, dict[str, Any]] | None = None

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
        arrays = list(map(_as_array, values, *self._types))
        watchers = WATCHING.value()
        try:
            if watchers:
                return self._run_watched(watchers, arrays)
            return quietly(self._run, *arrays)
        except Mismatch:
            return quietly(self.in_python(), *arrays)
        except NaNInPlan:
            return quietly(self._computed, arrays)

    def _computed(self, arrays: list[Any]) -> tuple[list[Any], list[Any]]:
        """Return what `run` does, without a plan."""
        again = InNumPy(self._program)
        again.run(self._numbers | dict(zip(self.leaves, arrays, strict=True)))
        slots = self._program.outputs, [update.slot for update in self._program.updates]
        outputs, updates = ([np.array(again.values[slot]) for slot in part] for part in slots)
        return outputs, updates

    def run_many(self, values: list[Any], runs: int, many: Many) -> tuple[list[Any], list[Any]]:
        """Run it so many times; return the outputs, and the state after the last.

        In C, where all of it is records. What each run leaves for the next lies in arrays of this
        call's own until then.
        """
        if not self._is_dense:
            raise EngineDeclined("rows of a table are changed one run after another")
        return run_many(self, self._program, list(map(_as_array, values, *self._types)), runs, many)

    def _run_watched(self, watchers: tuple[Watcher, ...], arrays: list[Any]) -> Any:
        """Run the plan as one that tells watchers of each line, made on first use."""
        if self._watched_plan is None:
            start, names = CLOCK.now(), dict(self._names)
            self._watched_plan = (
                self._made(telling(self._body), f"{PLAN}, watched>", names, self._plain_is_long),
                names,
            )
            for watcher in watchers:
                what = "compiling a plan that tells of its lines"
                watcher.passed(COMPILING, what, start=start, seconds=CLOCK.now() - start)
        run, names = self._watched_plan

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
