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

from tapegraph.arrays import keep_freed_memory
from tapegraph.engines.choice import CLOCK
from tapegraph.engines.engine import EngineDeclined, LoopRows, Many
from tapegraph.fallback.plan.codegen import NOTIFY
from tapegraph.fallback.plan.compiler import Compiler, InNumPy, NaNInPlan
from tapegraph.fallback.plan.records import Mismatch
from tapegraph.interrupts import raise_interrupt
from tapegraph.numpy_warnings import quietly
from tapegraph.recording.op import INPUT
from tapegraph.recording.program import Recording
from tapegraph.recording.watchers import COMPILING, ENGINE, WATCHING, Watcher
from tapegraph.typed import Array, Fun

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

    ``iterations`` runs it many times in C if it is records alone, with arrays for the leaves and
    then for the outputs; else it is None.
    """

    keeps_state = False
    compile_seconds = 0.0
    note = ""

    def __init__(self, recording: Recording, compiler: Compiler | None = None) -> None:
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
                source = (compiler or Compiler(recording, looks=True)).compile()
            except NaNInPlan:  # here a zero does absorb
                source = Compiler(recording).compile()
        self.source, self.nbytes = source.text, source.nbytes
        self._plain, self._body, self._names = source.plain, source.body, source.names
        file = f"{PLAN} {next(_numbers)}>"
        self._run = self._made(self.source, file, self._names)
        # Tracebacks, debuggers and profilers ask there for lines; without a time it is kept.
        lines = self.source.splitlines(keepends=True)
        linecache.cache[file] = (len(self.source), None, lines, file)
        finalize(self, linecache.cache.pop, file, None)
        self.iterations = source.segments.iterations(source.leaves, source.results)
        self._is_dense = all(isinstance(v.value, _ARRAYS) for v in source.results)
        self._watched_plan: tuple[Fun, dict[str, Any]] | None = None

    def _made(self, text: str, file: str, names: dict[str, Any]) -> Fun:
        exec(compile(text, file, "exec"), names)
        plan: Fun = names["plan"]
        return plan

    def in_python(self) -> Fun:
        """Switch to lines of Python for good, because records do not fit an array (`Mismatch`)."""
        file = f"{PLAN}, in Python alone>"
        self._run = self._made(self._plain, file, dict(self._names))
        return self._run

    def run(self, values: list[Any], changes: object = None) -> tuple[list[Array], list[Array]]:
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

    def _computed(self, arrays: list[Array]) -> tuple[list[Array], list[Array]]:
        """Return the same as `run`, without a plan."""
        again = InNumPy(self._program)
        again.run(self._numbers | dict(zip(self.leaves, arrays, strict=True)))
        slots = self._program.outputs, [update.slot for update in self._program.updates]
        outputs, updates = ([np.array(again.values[slot]) for slot in part] for part in slots)
        return outputs, updates

    def run_many(self, values: list[Any], runs: int, many: Many) -> tuple[list[Array], list[Array]]:
        """Return the outputs of many runs, and the new values of state after the last.

        Each finds what the one before has left. Runs are iterations in C where the plan has them.
        One that finds a NaN there is made in Python, which looks again; so are all runs of other
        plans.

        :param values: The value of each leaf; of an input that is not carried a row for each run.
        :raises EngineDeclined: A run fails, after ``runs_done``.
        """
        if not self._is_dense:
            raise EngineDeclined("rows of a table are changed one run after another")
        arrays = list(map(_as_array, values, *self._types))
        program = self._program
        slots = [*program.outputs, *(update.slot for update in program.updates)]
        types = [(program.shapes[slot], program.dtypes[slot]) for slot in slots]
        stacks = [np.empty((runs, *shape), dtype) for shape, dtype in types[: many.results]]
        # What each run leaves, the last one for good, and which leaves the next run finds there.
        kept = [np.empty(shape, dtype) for shape, dtype in types[many.results :]]
        places = {update.leaf: i for i, update in enumerate(program.updates, len(program.outputs))}
        places |= {slot: place for slot, place in many.carried.items() if place is not None}
        found = [places[slot] - many.results if slot in places else None for slot in self.leaves]
        for place, array in zip(found, arrays, strict=True):
            if place is not None:
                kept[place] = array
        steps = [int(program.ops[s] is INPUT and s not in many.carried) for s in self.leaves]
        sources = list(zip(found, arrays, steps, strict=True))
        iterations, done = self.iterations, 0
        try:
            while done < runs:
                if iterations is not None:
                    kept = list(map(np.array, kept))  # copies: iterations write into them
                    reads = [
                        LoopRows(array, done * by, by) if place is None else LoopRows(kept[place])
                        for place, array, by in sources
                    ]
                    writes = [*(LoopRows(stack, done, 1) for stack in stacks), *map(LoopRows, kept)]
                    try:
                        done += iterations(runs - done, reads, writes)
                    except Mismatch:
                        iterations = None
                if done < runs:
                    values = [
                        kept[place] if place is not None else array[done, ...] if by else array
                        for place, array, by in sources
                    ]
                    outputs, updates = self.run(values)
                    results = [*outputs, *updates]
                    for stack, result in zip(stacks, results, strict=False):
                        stack[done] = result
                    kept = results[many.results :]
                    done += 1
        except Exception as error:
            raise_interrupt(error)
            declined = EngineDeclined(str(error))
            declined.runs_done = done
            raise declined from error
        last = len(kept) - len(program.updates)
        return [*stacks, *kept[:last]], kept[last:]

    def _run_watched(self, watchers: tuple[Watcher, ...], arrays: list[Array]) -> Any:
        """Run the plan as one that reports each line to watchers, made on first use."""
        if self._watched_plan is None:
            start, names, lines = CLOCK.now(), dict(self._names), []
            for number, line in enumerate(self._body):
                lines.append(line.text)
                if line.names:
                    lines.append(f"    {NOTIFY}({number}, {', '.join(line.names)})")
            text = "\n".join(lines) + "\n"
            made = self._made(text, f"{PLAN}, watched>", names)
            self._watched_plan = made, names
            for watcher in watchers:
                what = "compiling a plan that reports each line"
                watcher.passed(COMPILING, what, start=start, seconds=CLOCK.now() - start)
        run, names = self._watched_plan

        def notify(number: int, *results: object) -> None:
            line = self._body[number]
            for watcher in watchers:
                watcher.passed(ENGINE, line.op or _REST, line.place, results=results)

        for watcher in watchers:
            watcher.begins(ENGINE, _REST, "")
        names[NOTIFY] = notify
        try:
            return quietly(run, *arrays)
        finally:
            del names[NOTIFY]
            for watcher in watchers:
                watcher.ends()
