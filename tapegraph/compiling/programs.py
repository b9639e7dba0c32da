"""A recorded step as engines run it: which one does, what follows where it cannot, and the commit.

The native plan is made at once, for it is what the others fall back to. Another engine's program is
made when that engine is first chosen for the step.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.capture.sgd_updates import RowUpdate
from tapegraph.compiling.inputs import GradientBefore
from tapegraph.compiling.scan import CallBlock, Results
from tapegraph.compiling.trace import Trace
from tapegraph.engines import registry
from tapegraph.engines.auto import EngineStats, advice, choice, costs
from tapegraph.engines.backend import LAST, get_backend
from tapegraph.engines.engine import Engine, EngineDeclined, Many, WholeProgram
from tapegraph.engines.fallback_policy import Failure, account
from tapegraph.engines.tuner import CLOCK, NEVER, POLICY
from tapegraph.errors import message
from tapegraph.interrupts import raise_interrupt
from tapegraph.progress import announce
from tapegraph.random import come_back
from tapegraph.recording.changes import (
    Change,
    Undo,
    all_new_numbers,
    make,
    set_changed,
    take_back,
    together,
)
from tapegraph.recording.node import next_seq
from tapegraph.recording.remote import RemoteArray, offloaded
from tapegraph.recording.watchers import COMPILING, ENGINE, WATCHING, AskReal, is_watched
from tapegraph.typed import Xla

# Seconds that a loop of an engine may take, how many runs the first one makes, and how many bytes
# of arguments and results it holds.
_LONGEST, _FIRST, _MOST_BYTES = 1.0, 16, 1 << 26
_ASKED = Failure("the backend was native")
_ALONE = Failure("auto: no other engine is registered")
_LOOKED_AT = Failure("tg.anomaly looks at each result, which the native engine alone shows")
_NUMBERS = Failure("Values are computed by the native engine, level by level")


class Programs:
    """One recorded step, ready to run."""

    def __init__(self, trace: Trace, name: str = "a step", xla: Xla = "auto") -> None:
        start = CLOCK.now()
        self._trace = trace
        self._length = len(trace.recording)
        self._name = name
        self._xla = xla
        with self._announced(registry.NATIVE):
            native = registry.engine(registry.NATIVE)
            self.native: Any = native.whole(trace.recording, trace.state)
        self.seconds = CLOCK.now() - start
        self._tell_compiled(registry.NATIVE, start)
        self._last: tuple[str, WholeProgram, str | None] = ("", self.native, None)
        self._others: dict[str, WholeProgram] = {}
        self._failed: dict[str, Failure] = {}
        self._setbacks = 0
        self._unlooped: set[str] = set()  # engines that run the step in no loop
        self._pace: dict[str, float] = {}  # seconds of a run in its loop
        self._structure: EngineStats | None = None
        self._alone: Failure | None = None  # why no other engine may run it
        self._tried_a_variant = False

    @property
    def parts(self) -> list[Programs]:
        """The programs of the step in the order in which they run, this one last."""
        return [*self._trace.earlier, self]

    @property
    def ran(self) -> str:
        """Which engine ran last, in which variant, and why the native one; ``""`` before."""
        name, program, reason = self._last
        return name + program.variant if reason is None else f"{name}: {reason}"

    def told(self) -> str:
        """Return what its buffers take, what making it took, and what ran it."""
        levels = self._trace.levels
        nbytes = self.native.nbytes + sum(part.nbytes for part in levels)
        line = f"{nbytes / 1e6:.3g} MB of native buffers, "
        if levels:
            calls = sum(part.calls for part in levels)
            line += f"{sum(map(len, levels))} numbers of Values in {calls} calls, "
        return line + f"made in {self.seconds:.3g} s, ran in {self.ran or 'none yet'}"

    def advice(self) -> str:
        """Return why it runs where it does, what other engines cost, and what to change."""
        if self._trace.numbers is not None:
            refused = dict.fromkeys(registry.rivals(), _NUMBERS.reason)
        else:
            self._rivals()
            refused = {name: failure.reason for name, failure in self._failed.items()}
        tuner = None if self._structure is None else self._structure.tuner
        told = costs(tuner, refused, self._last[0])
        return " ".join([choice(), *told, advice(refused, tuner)])

    def run(self, given: list[Any], undo: Undo) -> Any:
        """Run the step, and write state: a run that fails changes nothing."""
        name, failure = self._choose()
        if name == registry.NATIVE or name in self._others:
            return self._run(name, failure, given, undo)
        with self._announced(name):  # the first run counts: it prepares the graph
            return self._run(name, failure, given, undo)

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write the graph of the engine that has one."""
        for name in registry.rivals():
            program: Any = self._made(name)[0]
            if hasattr(program, "write"):
                program.write(folder)
                return
        received = f"{self._name}, which is no graph: {next(iter(self._failed.values())).reason}"
        raise RuntimeError(message("write", received, "a step that TensorFlow can run"))

    def _tell_compiled(self, name: str, start: float) -> None:
        for watcher in WATCHING.value():
            what = f"compiling {self._name} in {registry.engine(name).title}"
            watcher.passed(COMPILING, what, None, start, CLOCK.now() - start)

    def _announced(self, name: str) -> AbstractContextManager[None]:
        """Announce that it is compiled, where that takes long."""
        try:
            engine = registry.engine(name)
        except Exception as error:
            raise_interrupt(error)
            return nullcontext()  # what is wrong there, compiling will tell
        loading = "" if engine.loaded() else f"importing {engine.title} and "
        entries = f"{self._length} entries"
        return announce(f"{loading}compiling {self._name} in {engine.title}: {entries}")

    def _run(self, name: str, failure: Failure | None, given: list[Any], undo: Undo) -> Any:
        trace = self._trace
        program: WholeProgram | None = self.native
        imported = compiled = 0.0
        if name != registry.NATIVE:
            program, imported, compiled = self._made(name)
        if program is None:
            program, failure, name = self.native, self._failed[name], registry.NATIVE
        read = trace.read(given)
        start, compiling = CLOCK.now(), program.compile_seconds
        ran = program
        written: list[Any] = []
        then: list[Change] = [partial(written.append, 1), undo.clear]
        try:
            if program.keeps_state:
                values = self._values(program, given, read)
                outputs = program.run(values, partial(self._kept_by_an_engine, then))
                result = trace.result([out() for out in outputs[: trace.count]])
            else:
                result, changes = self._computed(program, given, read)
                make(together([*changes, *then]))
        except Exception as error:
            if written or program is self.native:
                raise
            # It raises an error of its own where what was given is at fault.
            result, changes = self._computed(self.native, given, read)
            failure = self._account(name, error)
            ran, name = self.native, registry.NATIVE
            make(together([*changes, undo.clear]))
        if ran is not self.native:
            self._setbacks = 0
        tried = program.compile_seconds - compiling  # a variant of the same program
        self._noted(name, ran, failure, start, compiled, imported, tried)
        return result

    def _noted(
        self,
        name: str,
        program: WholeProgram,
        failure: Failure | None,
        start: float,
        compiled: float,
        imported: float,
        tried: float,
        runs: int = 1,
    ) -> float:
        """Remember a run that ends now, or so many at once, and return the seconds it took.

        :param compiled, imported, tried: Seconds spent on making the program, on an import, and
            during the run on a variant of it.
        """
        took: float = CLOCK.now() - start - tried
        self.seconds += tried
        besides = imported + tried
        if self._structure is not None and get_backend() == registry.AUTO:
            counts = not getattr(program, "trying", False)
            self._structure.ran(name, took, compiled, besides=besides, runs=runs, counts=counts)
        reason = None if failure is None else failure.reason
        spent = compiled + besides
        self._last = (name, program, reason)
        LAST.set((name, reason, self._length, not spent, spent, took))
        if name != registry.NATIVE:
            title = registry.engine(name).title
            for watcher in WATCHING.value():
                watcher.passed(ENGINE, f"{self._name} in {title}", None, start, took)
        return took

    # Many runs

    def run_many(
        self, block: CallBlock, runs: int, ahead: int, undo: Undo, results: Results
    ) -> int:
        """Run the step so many times; return how many runs stand.

        Where that is fewer, the next one is to be called by itself: it fails, or only the native
        engine knows its numbers.

        :param block: The arguments.
        :param ahead: How many runs are still to come, these included, be they ready or not.
        :param results: Takes what the function returns.
        """
        done = 0
        while done < runs:
            name, failure = self._choose()
            if name == registry.NATIVE or name in self._unlooped:
                stood = self._run_next(name, failure, block.row(done), undo, results)
                wanted = 1
            else:
                most, pace = self._most_in_memory(), self._pace.get(name, NEVER)
                in_time = _FIRST if pace == NEVER else max(1, int(_LONGEST / pace))
                wanted = min(runs - done, in_time, most)
                part, later = block.part(done), min(ahead - done, most)
                stood = self._run_in_loop(name, part, wanted, later, undo, results)
            done += stood
            if stood < wanted and name not in self._unlooped:
                break
        return done

    def _run_next(
        self, name: str, failure: Failure | None, given: list[Any], undo: Undo, results: Results
    ) -> int:
        """Run the step once; return whether it stands, as a number."""
        if self._trace.draws:
            come_back(undo)
        try:
            result = self._run(name, failure, given, undo)
        except (ArithmeticError, LookupError, ValueError, AskReal) as error:  # it will say why
            raise_interrupt(error)
            take_back(undo)
            return 0
        results.add(result)
        return 1

    def _run_in_loop(
        self, name: str, block: CallBlock, runs: int, ahead: int, undo: Undo, results: Results
    ) -> int:
        """Run the loop of an engine; return how many runs stand."""
        trace, first = self._trace, name not in self._pace
        program: Any
        with self._announced(name) if first else nullcontext():
            program, imported, compiled = self._made(name)
        if program is None:
            return 0
        if not hasattr(program, "run_many"):
            self._unlooped.add(name)
            return 0
        many = Many(trace.count, trace.carried or {}, ahead)
        written: list[Any] = []
        then: list[Change] = [partial(written.append, 1), undo.clear]
        if trace.draws:
            come_back(undo)
        start, compiling = CLOCK.now(), program.compile_seconds
        try:
            values = self._rows(program, block, runs)
            outputs = program.run_many(values, runs, many, partial(self._kept_by_an_engine, then))
        except Exception as error:
            if written:
                raise
            if not isinstance(error, EngineDeclined):
                raise_interrupt(error)
            take_back(undo)
            if not isinstance(error, EngineDeclined):
                for run in range(runs):
                    if not self._run_next(registry.NATIVE, None, block.row(run), undo, results):
                        return run  # what was given was at fault
                self._account(name, error)
                return runs
            if error.runs_done is None:
                self._unlooped.add(name)
            if not error.runs_done:
                return 0
            return self._run_in_loop(name, block, error.runs_done, ahead, undo, results)
        self._setbacks = 0
        tried = program.compile_seconds - compiling  # with XLA
        took = self._noted(name, program, None, start, compiled, imported, tried, runs)
        if not first and not tried:
            self._pace[name] = min(self._pace[name], took / runs)
        self._pace.setdefault(name, NEVER)
        stacked = [out()[:runs] for out in outputs[: trace.count]]
        results.add(trace.result(stacked), runs)
        return runs

    def _most_in_memory(self) -> int:
        """Return how many runs may be made at once, so that what they hold is not too much."""
        program = self._trace.recording.program
        size = sum(
            math.prod(program.shapes[slot]) * program.dtypes[slot].itemsize
            for slot in (*self._trace.sources, *program.outputs[: self._trace.count])
        )
        return max(1, _MOST_BYTES // max(size, 1))

    def _rows(self, program: WholeProgram, block: CallBlock, runs: int) -> list[Any]:
        trace = self._trace
        read = trace.read_ahead(runs, block.row)
        values: list[Any] = []
        for slot in program.leaves:
            source = trace.sources.get(slot)
            if source is None:
                values.append(trace.state[slot])
            elif isinstance(source, GradientBefore):
                values.append(source([], []))
            else:
                values.append(block.column(source, read, runs))
        return values

    # Engines

    def _choose(self) -> tuple[str, Failure | None]:
        name = get_backend()
        if name == registry.NATIVE:
            return name, _ASKED
        if is_watched():
            return registry.NATIVE, _LOOKED_AT
        if self._trace.numbers is not None:
            return registry.NATIVE, _NUMBERS
        if name != registry.AUTO:
            return (registry.NATIVE, self._failed[name]) if name in self._failed else (name, None)
        if self._alone is not None:
            return registry.NATIVE, self._alone
        if self._structure is None:
            rivals = self._rivals()
            if not rivals:
                self._alone = next(iter(self._failed.values()), _ALONE)
                return registry.NATIVE, self._alone
            self._structure = EngineStats(self._trace.recording.program, rivals, compiled=True)
        decision = self._structure.choose()
        if self._structure.tuner.verdict and decision.engine == registry.NATIVE:
            if self._tries_a_variant(self._structure):
                decision = self._structure.choose()
        return decision.engine, decision.failure

    def _tries_a_variant(self, structure: EngineStats) -> bool:
        """Let a slower engine try another variant, once, where that pays; tell whether."""
        if self._tried_a_variant:
            return False
        limit = structure.tuner.account.surplus
        for name, program in self._others.items():
            if program.try_variant(limit):
                self._tried_a_variant = True
                structure.tuner.measure_again(structure.candidates[name])
        return self._tried_a_variant

    def _rivals(self) -> list[Engine]:
        return [registry.engine(name) for name in registry.rivals() if self._may_run(name)]

    def _may_run(self, name: str) -> bool:
        """Return whether an engine may be tried, and remember why where it may not."""
        try:
            registry.engine(name).check_whole(self._trace.recording.program)
        except Exception as error:
            if not isinstance(error, EngineDeclined):
                raise_interrupt(error)
            self._failed.setdefault(name, Failure(str(error)))
        return name not in self._failed

    def _made(self, name: str) -> tuple[WholeProgram | None, float, float]:
        """Return an engine's program, None where there is none; what importing and making it took.

        Both are 0 where it was there.
        """
        if name in self._others:
            return self._others[name], 0.0, 0.0
        start, imported = CLOCK.now(), 0.0
        try:
            engine = registry.engine(name)
            if not engine.loaded():
                engine.check_whole(self._trace.recording.program)
                engine.load()
                imported = CLOCK.now() - start
            made = engine.whole(self._trace.recording, self._trace.state, self._xla)
        except Exception as error:
            self._drop(name, account(name, error))
            return None, imported, 0.0
        took = CLOCK.now() - start
        self.seconds += took
        self._others[name] = made
        self._tell_compiled(name, start)
        return made, imported, took - imported

    def _account(self, name: str, error: Exception) -> Failure:
        """Return why an engine did not run what the native one did."""
        if isinstance(error, EngineDeclined):  # not with these numbers
            failure = Failure(str(error))
        else:
            failure = account(name, error)
            if not failure.transient:
                self._drop(name, failure)
                return failure
        self._setbacks += 1
        if self._setbacks >= POLICY.trials:
            self._drop(name, failure)
        return failure

    def _drop(self, name: str, failure: Failure) -> None:
        """Run this step natively from now on, where that engine is chosen."""
        self._failed[name] = failure
        self._others.pop(name, None)
        if self._structure is not None and name in self._structure.candidates:
            self._structure.failed(name, failure._replace(transient=False))

    # State

    def _values(self, program: WholeProgram, given: list[Any], read: list[Any]) -> list[Any]:
        trace = self._trace
        values = []
        for slot in program.leaves:
            if slot in trace.state:
                node = trace.state[slot]
                values.append(node if program.keeps_state else node._array)
            elif slot in trace.sources:
                values.append(trace.sources[slot](given, read))
            else:
                values.append(trace.constants[slot])
        return values

    def _computed(
        self, program: WholeProgram, given: list[Any], read: list[Any]
    ) -> tuple[Any, list[Change]]:
        """Return what the function returns, and what writes the state that changed."""
        trace = self._trace
        values = self._values(program, given, read)
        outputs, updates = program.run(values)
        seen = set(map(id, values))
        fed = [v for s, v in zip(program.leaves, values, strict=True) if s not in trace.state]
        del values  # whether a parameter's array is held by others decides where it is written

        def own(array: Any) -> Any:
            if isinstance(array, RowSparse):
                return array.apart(fed)
            if id(array) in seen or array.base is not None:
                array = array.copy()
            seen.add(id(array))
            return array

        count = trace.count
        results = [o.dense() if isinstance(o, RowSparse) else own(o) for o in outputs[:count]]
        changes = trace.gradients_stored([own(out) for out in outputs[count:]])
        leaves: list[Any] = []
        arrays: list[Any] = []
        for update, new in zip(trace.recording.program.updates, updates, strict=True):
            leaf = trace.state[update.leaf]
            if isinstance(new, RowUpdate):
                changes += new.of(leaf)
            else:
                leaves.append(leaf)
                arrays.append(own(new))
        if leaves:
            changes += all_new_numbers(leaves, arrays)
        return trace.result(results), changes

    def _kept_by_an_engine(
        self, then: list[Change], outputs: list[Any], updates: list[RemoteArray]
    ) -> Iterator[Any]:
        """Return what is written in one with the engine's own change of state."""
        trace = self._trace
        changes = trace.gradients_stored(outputs[trace.count :])
        for update, remote in zip(trace.recording.program.updates, updates, strict=True):
            leaf = trace.state[update.leaf]
            changes += [*offloaded(leaf, remote), partial(set_changed, leaf, next_seq())]
        return together([*changes, *then])
