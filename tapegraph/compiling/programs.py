"""A recorded step as engines run it: the choice, the fallback to the native plan, the commit."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from tapegraph.compiling.inputs import GradientBefore
from tapegraph.compiling.scan import CallBlock, Results
from tapegraph.compiling.trace import Trace
from tapegraph.display import announce
from tapegraph.engines import registry
from tapegraph.engines.auto import advice, backend_in_force, costs, pace, way_of
from tapegraph.engines.backend import LAST, Failure, account, get_backend
from tapegraph.engines.choice import (
    ALONE,
    ASKED,
    CLOCK,
    LOOKED_AT,
    NATIVELY,
    NEVER,
    Choice,
    Decision,
    Ledger,
    Way,
    milliseconds,
    too_dear,
)
from tapegraph.engines.engine import EngineDeclined, Many, RowUpdate, WholeProgram
from tapegraph.errors import sentence
from tapegraph.interrupts import raise_interrupt
from tapegraph.random import come_back
from tapegraph.recording.op import ALL_REDUCE, GRADIENT, INPUT, NO_ATTRS, SCALAR
from tapegraph.recording.program import Program, Recording, between, entries_in
from tapegraph.recording.values import (
    Change,
    RemoteArray,
    Undo,
    all_new_numbers,
    make,
    new_numbers_away,
    take_back,
    together,
)
from tapegraph.recording.watchers import COMPILING, ENGINE, WATCHING, AskReal, is_watched
from tapegraph.row_sparse import RowSparse
from tapegraph.typed import Array, Xla

# How many runs the first loop of an engine makes; how many seconds a later one may take; and how
# many bytes of arguments and results it holds. Natively an interrupt takes all of it back, and more
# at once is no gain.
_FIRST, _LONGEST, _MOST_BYTES = 16, 1.0, 1 << 26
_LONGEST_NATIVELY, _MOST_BYTES_NATIVELY = 0.05, 1 << 18
_OF_VALUES = Failure("Values are computed by the native engine, level by level")
_NUMBERS = Decision(NATIVELY, _OF_VALUES)


class Runner:
    """Runs a program in place of the function that was traced."""

    def __init__(self, trace: Trace, program: WholeProgram) -> None:
        self.program: Any = program
        self._trace = trace
        places = list(enumerate(program.leaves))
        self._sources = [(i, trace.sources[slot]) for i, slot in places if slot in trace.sources]
        self._state = [(i, trace.state[slot]) for i, slot in places if slot in trace.state]
        self._constants = [(i, slot) for i, slot in places if slot in trace.constants]
        self._fed = [i for i, _ in (*self._sources, *self._constants)]
        self._updated = [trace.state[u.leaf] for u in trace.recording.program.updates]

    def run(self, given: list[Any], read: list[Any], variant: str, then: list[Change]) -> Any:
        """Run it, write state and make the changes of ``then`` in one; return the results."""
        if self.program.keeps_state:
            left = partial(self._left, then)
            outputs = self.program.run(self._values(given, read), left, variant)
            return self._trace.result([out() for out in outputs[: self._trace.count]])
        values = self._values(given, read)
        result, changes = self._found(self.program.run(values), values)
        make(together([*changes, *then]))
        return result

    def run_many(
        self, block: CallBlock, runs: int, many: Many, variant: str, then: list[Change]
    ) -> Any:
        """Run it several times, with `run`'s writes after the last; return results in rows."""
        values = self._rows(block, runs)
        if self.program.keeps_state:
            left = partial(self._left, then)
            outputs = self.program.run_many(values, runs, many, left, variant)
            return self._trace.result([out()[:runs] for out in outputs[: self._trace.count]])
        results, changes = self._found(self.program.run_many(values, runs, many), values)
        make(together([*changes, *then]))
        return results

    def computed(self, given: list[Any], read: list[Any]) -> tuple[Any, list[Change]]:
        """Return the function's results, and the changes of state."""
        values = self._values(given, read)
        return self._found(self.program.run(values), values)

    def _found(
        self, found: tuple[list[Any], list[Any]], values: list[Any]
    ) -> tuple[Any, list[Change]]:
        trace, (outputs, updates) = self._trace, found
        results = [o.dense() if isinstance(o, RowSparse) else o for o in outputs[: trace.count]]
        gradients = outputs[trace.count :]
        # Nobody else may hold the arrays: not their givers, and none is returned twice.
        seen, owned = set(map(id, values)), []
        for array in (*results, *gradients, *updates):
            if isinstance(array, RowSparse):
                array = array.apart([values[i] for i in self._fed])
            elif not isinstance(array, RowUpdate):
                if id(array) in seen or array.base is not None:
                    array = array.copy()
                seen.add(id(array))
            owned.append(array)
        arrays = iter(owned)
        values.clear()  # who else holds a parameter's array decides where it is written
        results = [next(arrays) for _ in results]
        changes = trace.gradients_stored([next(arrays) for _ in gradients])
        leaves = []
        numbers = []
        for leaf, new in zip(self._updated, arrays, strict=True):
            if isinstance(new, RowUpdate):
                changes += new.of(leaf)
            else:
                leaves.append(leaf)
                numbers.append(new)
        if leaves:
            changes += all_new_numbers(leaves, numbers)
        return trace.result(results), changes

    def _values(self, given: list[Any], read: list[Any]) -> list[Any]:
        values = self._kept()
        for i, source in self._sources:
            values[i] = source(given, read)
        return values

    def _rows(self, block: CallBlock, runs: int) -> list[Any]:
        read, values = self._trace.read_ahead(runs, block.row), self._kept()
        for i, source in self._sources:
            first = isinstance(source, GradientBefore)
            values[i] = source([], []) if first else block.column(source, read, runs)
        return values

    def _kept(self) -> list[Any]:
        values: list[Any] = [None] * len(self.program.leaves)
        keeps_state, constants = self.program.keeps_state, self._trace.constants
        for i, leaf in self._state:
            values[i] = leaf if keeps_state else leaf._array
        for i, slot in self._constants:
            values[i] = constants[slot]
        return values

    def _left(
        self, then: list[Change], outputs: list[Any], updates: list[RemoteArray]
    ) -> Iterator[Any]:
        changes = self._trace.gradients_stored(outputs[self._trace.count :])
        return together([*changes, *new_numbers_away(self._updated, updates), *then])


class Programs:
    """One recorded step, ready to run."""

    def __init__(self, trace: Trace, name: str = "a step", xla: Xla = "auto") -> None:
        start = CLOCK.now()
        self.seconds = 0.0  # of making it and other engines' programs
        self._trace = trace
        self._length = len(trace.recording)
        self._entries = entries_in(trace.recording.program)
        self._name = name
        self._xla = xla
        with self._announced(registry.NATIVE):
            native = registry.engine(registry.NATIVE)
            self.native: Any = native.whole(trace.recording, trace.state)
        self._made(registry.NATIVE, start)
        self._natively = Runner(trace, self.native)
        self._runners = {registry.NATIVE: self._natively}
        self._failed: dict[str, Failure] = {}  # why engines do not run it
        # How the ways to run it were chosen, by backend and whether in loops.
        self._choices: dict[tuple[str, bool], Choice | Decision] = {}
        self._one_by_one: set[str] = set()  # the engines that do not run it in loops
        self._pace = NEVER  # seconds of a run, natively
        self._ran: Decision | None = None

    @property
    def parts(self) -> list[Programs]:
        """The programs of the step in order, this one last."""
        return [*self._trace.earlier, self]

    @property
    def title(self) -> str:
        """The engine that ran last, and its variant; ``""`` before."""
        return "" if self._ran is None else self._ran.way.title

    @property
    def ran(self) -> str:
        """The engine that ran last, its variant, and why the native one; ``""`` before."""
        if self._ran is None:
            return ""
        way, failure, choice = self._ran
        if failure is not None:
            return f"{way.engine}: {failure.reason}"
        program = self._runners[way.engine].program
        text = f"{way.engine} with {way.variant}" if way.variant else way.engine
        text += program.note
        if choice is None:
            return text
        ways = {w.variant: w for w in (choice.stands, *choice.others) if w.engine == way.engine}
        for variant in program.variants:
            tried = ways.get(variant)
            if tried is None and choice.failure is not None:
                text += f"; not with {variant}: {choice.failure.reason}"
            elif tried is not None and tried.times and ways[""].times:
                took, without = milliseconds(tried.run), milliseconds(ways[""].run)
                text += f"; {took} with {variant}, {without} without"
        return text

    def description(self) -> str:
        """Return the size of its buffers, the time of making it, and the engine that ran it."""
        levels = self._trace.levels
        nbytes = self.native.nbytes + sum(part.nbytes for part in levels)
        line = f"{nbytes / 1e6:.3g} MB of native buffers, "
        if levels:
            calls = sum(part.calls for part in levels)
            line += f"{sum(map(len, levels))} numbers of Values in {calls} calls, "
        return line + f"made in {self.seconds:.3g} s, ran in {self.ran or 'none yet'}"

    def advice(self) -> str:
        """Return why it runs where it does, the cost of other engines, and what to change."""
        if self._trace.numbers is not None:
            refused = dict.fromkeys(registry.rivals(), _OF_VALUES.reason)
        else:
            self._rivals()
            refused = {name: failure.reason for name, failure in self._failed.items()}
        way, _, choice = self._ran or Decision(NATIVELY)
        found = [x for x in (choice, *self._choices.values()) if isinstance(x, Choice)]
        lines = costs(found, refused, way.engine, self._entries, self._xla)
        return " ".join([backend_in_force(), *lines, advice(choice, refused)])

    def run(self, given: list[Any], undo: Undo) -> Any:
        """Run the step, and write state: a run that fails changes nothing."""
        decision = self._choose()
        if decision.way.engine in self._runners:
            return self._run(decision, given, undo)
        with self._announced(decision.way.engine):  # the first run counts: it prepares the graph
            return self._run(decision, given, undo)

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write the graph of the engine that has one."""
        for name in registry.rivals():
            runner = self._runners.get(name) or self._make(Decision(Way(name)))[0]
            if runner is not None and hasattr(runner.program, "write"):
                runner.program.write(folder)
                return
        reason = next(iter(self._failed.values())).reason
        raise RuntimeError(sentence("write", f"{self._name} has no TensorFlow graph: {reason}"))

    def _made(self, name: str, start: float) -> float:
        """Count the seconds of making a program, and return them."""
        seconds = CLOCK.now() - start
        self.seconds += seconds
        for watcher in WATCHING.value():
            what = f"compiling {self._name} in {registry.engine(name).title}"
            watcher.passed(COMPILING, what, start=start, seconds=seconds)
        return seconds

    def _announced(self, name: str) -> AbstractContextManager[None]:
        """Announce the compilation if it takes long."""
        try:
            engine = registry.engine(name)
        except Exception as error:
            raise_interrupt(error)
            return nullcontext()  # compiling will raise the error
        loading = "" if engine.loaded() else f"importing {engine.title} and "
        entries = f"{self._length} entries"
        return announce(f"{loading}compiling {self._name} in {engine.title}: {entries}")

    def _run(self, decision: Decision, given: list[Any], undo: Undo) -> Any:
        way, _, choice = decision
        began, preparing = CLOCK.now(), 0.0
        runner = self._runners.get(way.engine)
        if runner is None:
            runner, preparing = self._make(decision)
        if runner is None:
            why = self._failed.get(way.engine) or Failure(too_dear(way))
            decision, runner = Decision(NATIVELY, why), self._natively
        read = self._trace.read(given)
        start, compiling = CLOCK.now(), runner.program.compile_seconds
        written: list[Any] = []
        then: list[Change] = [partial(written.append, 1), undo.clear]
        try:
            result = runner.run(given, read, way.variant, then)
        except Exception as error:
            if written or runner is self._natively:
                raise
            if choice is not None:
                choice.pay(CLOCK.now() - began)
            # It raises the error if the arguments are at fault.
            result, changes = self._natively.computed(given, read)
            decision = Decision(NATIVELY, self._account(decision, error))
            make(together([*changes, undo.clear]))
        self._noted(decision, start, preparing, runner.program.compile_seconds - compiling)
        return result

    def _noted(
        self, decision: Decision, start: float, made: float, compiled: float, runs: int = 1
    ) -> None:
        """Remember one or several runs that end now, and the seconds of making and compiling."""
        way, failure, choice = self._ran = decision
        took: float = CLOCK.now() - start - compiled
        spent = made + compiled
        self.seconds += compiled
        if way.engine == registry.NATIVE:
            self._pace = took / runs
        if choice is not None:
            choice.took(way, took, spent, runs)
        reason = None if failure is None else failure.reason
        LAST.set((way.engine, reason, self._length, not spent, spent, took))
        if way.engine != registry.NATIVE:
            for watcher in WATCHING.value():
                what = f"{self._name} in {registry.engine(way.engine).title}"
                watcher.passed(ENGINE, what, start=start, seconds=took)

    # Many runs

    def run_many(self, block: CallBlock, runs: int, undo: Undo, results: Results) -> int:
        """Run the step several times; return how many runs stand. The next must run by itself."""
        done = 0
        while done < runs:
            decision = self._choose(looped=not self._one_by_one)
            at_once = min(self._at_once(decision.way), self._most_in_memory(decision.way))
            wanted = min(runs - done, at_once)
            if wanted:
                stood = self._run_in_loop(decision, block.part(done), wanted, undo, results)
            else:
                stood = self._run_next(decision, block.row(done), undo, results)
            done += stood
            has_no_loop = wanted and decision.way.engine in self._one_by_one
            if stood < max(wanted, 1) and not has_no_loop:
                break
        return done

    def _at_once(self, way: Way) -> int:
        """Return how many runs an engine makes in a loop; 0 where it makes them one by one."""
        if way.engine in self._one_by_one:
            return 0
        if way.engine != registry.NATIVE:
            return _FIRST if way.run == NEVER else max(1, int(_LONGEST / way.run))
        if WATCHING.value() or self._trace.numbers is not None:
            return 0
        runs = int(_LONGEST_NATIVELY / max(self._pace, 1e-9))
        return runs if runs > 1 else 0

    def _run_next(self, decision: Decision, given: list[Any], undo: Undo, results: Results) -> int:
        """Run the step once; return 1 if it stands, else 0."""
        if self._trace.draws:
            come_back(undo)
        try:
            result = self._run(decision, given, undo)
        except (ArithmeticError, LookupError, ValueError, AskReal) as error:  # it will say why
            raise_interrupt(error)
            take_back(undo)
            return 0
        results.add(result)
        return 1

    def _run_in_loop(
        self, decision: Decision, block: CallBlock, runs: int, undo: Undo, results: Results
    ) -> int:
        """Run an engine's loop; return how many runs stand."""
        trace, (way, _, choice) = self._trace, decision
        preparing, began = 0.0, CLOCK.now()
        runner = self._runners.get(way.engine)
        if runner is None:
            with self._announced(way.engine):
                runner, preparing = self._make(decision)
        if runner is None:
            return 0
        program = runner.program
        if not hasattr(program, "run_many"):
            self._one_by_one.add(way.engine)
            return 0
        ahead = min(block.ahead, self._most_in_memory(way))
        many = Many(trace.count, trace.carried or {}, ahead)
        written: list[Any] = []
        then: list[Change] = [partial(written.append, 1), undo.clear]
        if trace.draws:
            come_back(undo)
        start, compiling = CLOCK.now(), program.compile_seconds
        try:
            stacked = runner.run_many(block, runs, many, way.variant, then)
        except Exception as error:
            if written:
                raise
            if not isinstance(error, EngineDeclined):
                raise_interrupt(error)
            take_back(undo)
            if choice is not None:
                choice.pay(CLOCK.now() - began)
            if not isinstance(error, EngineDeclined):
                for run in range(runs):
                    if not self._run_next(Decision(NATIVELY), block.row(run), undo, results):
                        return run  # the arguments were at fault
                if runner is self._natively:
                    raise
                self._account(decision, error)
                return runs
            if way.variant:  # the engine itself may run them
                self._account(decision, error)
                plain = Decision(choice.plain(way), None, choice)  # type: ignore[union-attr]
                return self._run_in_loop(plain, block, runs, undo, results)
            if error.runs_done is None:
                self._one_by_one.add(way.engine)
            if not error.runs_done:
                return 0
            return self._run_in_loop(decision, block, error.runs_done, undo, results)
        self._noted(decision, start, preparing, program.compile_seconds - compiling, runs)
        results.add(stacked, runs)
        return runs

    def _most_in_memory(self, way: Way) -> int:
        """Return how many runs may be made at once within memory."""
        program = self._trace.recording.program
        size = sum(
            math.prod(program.shapes[slot]) * program.dtypes[slot].itemsize
            for slot in (*self._trace.sources, *program.outputs[: self._trace.count])
        )
        most = _MOST_BYTES_NATIVELY if way.engine == registry.NATIVE else _MOST_BYTES
        return max(1, most // max(size, 1))

    # Engines

    def _choose(self, *, looped: bool = False) -> Decision:
        name = get_backend()
        if name == registry.NATIVE:
            return ASKED
        if is_watched():
            return LOOKED_AT
        if self._trace.numbers is not None:
            return _NUMBERS
        choice = self._choices.get((name, looped))
        if choice is None:
            choice = self._choices[name, looped] = self._ways(name)
        return choice if isinstance(choice, Decision) else choice.choose()

    def _ways(self, backend: str) -> Choice | Decision:
        """Return the choice among the ways to run it, or the only one."""
        if backend in self._failed:
            return Decision(NATIVELY, self._failed[backend])
        names = self._rivals() if backend == registry.AUTO else [backend]
        ways = [way_of(registry.engine(name), self._entries, self._xla) for name in names]
        if not ways:
            return Decision(NATIVELY, next(iter(self._failed.values()), ALONE))
        if backend == registry.AUTO:
            choice = Choice(Way(registry.NATIVE), ways)
        else:
            choice = Choice(ways[0], process=Ledger())
        for name in self._runners.keys() & set(names):
            self._add_variants(choice, name)
        return choice

    def _add_variants(self, choice: Choice, name: str) -> None:
        for variant, estimate in self._runners[name].program.variants.items():
            choice.add(Way(name, variant, partial(_at_pace, estimate)))

    def _rivals(self) -> list[str]:
        """Return the engines that may be tried; remember why not the others."""
        for name in registry.rivals():
            try:
                registry.engine(name).check_whole(self._trace.recording.program)
            except Exception as error:
                if not isinstance(error, EngineDeclined):
                    raise_interrupt(error)
                self._failed.setdefault(name, Failure(str(error)))
        return [name for name in registry.rivals() if name not in self._failed]

    def _make(self, decision: Decision) -> tuple[Runner | None, float]:
        """Return an engine's runner, if it has one now, and what making it took."""
        way, _, choice = decision
        name, start = way.engine, CLOCK.now()
        try:
            engine = registry.engine(name)
            if not engine.loaded():
                engine.check_whole(self._trace.recording.program)
                engine.load()
                if choice is not None and choice.is_early(way, CLOCK.now() - start):
                    return None, 0.0
            made = engine.whole(self._trace.recording, self._trace.state, self._xla)
        except Exception as error:
            self._drop(name, account(name, error))
            return None, CLOCK.now() - start
        took = self._made(name, start)
        self._runners[name] = runner = Runner(self._trace, made)
        for found in self._choices.values():
            if isinstance(found, Choice):
                self._add_variants(found, name)
        return runner, took

    def _account(self, decision: Decision, error: Exception) -> Failure:
        """Return why an engine did not run a program that the native one did."""
        way, _, choice = decision
        if isinstance(error, EngineDeclined):  # not with these numbers
            failure = Failure(str(error), transient=True)
        elif way.variant:  # the engine runs it
            transient = registry.engine(way.engine).is_transient(error)
            failure = Failure(str(error), transient=transient)
        else:
            failure = account(way.engine, error)
        if choice is not None and choice.failed(way, failure) and not way.variant:
            self._drop(way.engine, failure)
        return failure

    def _drop(self, name: str, failure: Failure) -> None:
        """Run this step natively from now on where that engine is chosen."""
        self._failed[name] = failure
        self._runners.pop(name, None)
        self._choices.clear()


def _at_pace(estimate: float) -> float:
    return estimate * pace()


# A step that averages over processes, cut into programs at its all-reduces: a run computes the
# gradients, exchanges them and continues with the average; the last program writes all state. Each
# program chooses its own engine, and the native one repeats a failed run without a new exchange.


def programs_of(trace: Trace, name: str, xla: Xla) -> Programs:
    return Programs(_Last(trace, name, xla) if trace.averages else trace, name, xla)


@dataclass(slots=True)
class Computed:
    """A value that an earlier program of the run has computed."""

    slot: int

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        return read[-1][self.slot]


class _Part(Trace):
    """One program of a recorded step, with the values, state and sources of the whole."""

    def __init__(self, whole: Trace, program: Program) -> None:
        vars(self).update(vars(whole))
        recording = whole.recording
        self.recording = Recording(program, recording.values, recording.nodes)
        self.state = {slot: whole.state[slot] for slot in program.fed if slot in whole.state}
        computed = [slot for slot in program.fed if recording.program.inputs[slot]]
        self.sources = whole.sources | {slot: Computed(slot) for slot in computed}


class _Earlier(_Part):
    """A program that ends in an all-reduce: its results are the arrays that are read later."""

    def __init__(self, whole: Trace, program: Program) -> None:
        super().__init__(whole, program)
        self.count = len(program.outputs)
        self.found: list[Any] = []  # the values that this run has read and computed

    def read(self, given: list[Any]) -> list[Any]:
        return self.found

    def result(self, arrays: list[Array]) -> Any:
        return arrays

    def gradients_stored(self, arrays: list[Any]) -> list[Any]:
        return []


class _Last(_Part):
    """The last program, which gives the results and the new state."""

    def __init__(self, whole: Trace, name: str, xla: Xla) -> None:
        self._whole = whole.recording.program
        *earlier, last = cut_apart(self._whole)
        super().__init__(whole, last)
        self._parts = [_Earlier(whole, program) for program in earlier]
        self.earlier = [Programs(part, f"the gradients of {name}", xla) for part in self._parts]

    def read(self, given: list[Any]) -> list[Any]:
        """Return what the run reads anew, and what its earlier parts compute."""
        whole, computed = self._whole, dict[int, Any]()
        read = [*super().read(given), computed]
        for cut, part, programs in zip(_cuts(whole), self._parts, self.earlier, strict=True):
            part.found = read
            arrays = programs.run(given, deque())
            computed.update(zip(part.recording.program.outputs, arrays, strict=True))
            sent = [computed[slot] for slot in whole.inputs[cut]]
            computed[cut] = whole.ops[cut].forward(*sent, **whole.attrs[cut])
        return read


def cut_apart(program: Program) -> list[Program]:
    """Return the programs before, between and after a program's all-reduces, with its slots.

    A value computed earlier is an input, unless a later part differentiates through it.
    """
    cuts = _cuts(program)
    wanted = [*(program.inputs[cut] for cut in cuts), (*program.outputs, *chain(*program.updates))]
    parts = []
    for start, stop, also in zip([-1, *cuts], [*cuts, len(program)], wanted, strict=True):
        slots = {slot for slot in range(start + 1, stop) if program.inputs[slot]}
        slots |= _differentiated(program, slots)
        read = {*also, *chain(*(program.inputs[slot] for slot in slots))}
        parts.append(_part(program, slots, sorted(read - slots)))
    for place, (part, cut) in enumerate(zip(parts, cuts, strict=False)):
        later = {i for after in parts[place + 1 :] for i in after.leaves if part.inputs[i]}
        part.outputs = (*program.inputs[cut], *sorted(later - {*program.inputs[cut]}))
    parts[-1].outputs, parts[-1].updates = program.outputs, program.updates
    return parts


def _cuts(program: Program) -> list[int]:
    return [slot for slot, op in enumerate(program.ops) if op is ALL_REDUCE]


def _differentiated(program: Program, slots: set[int]) -> set[int]:
    """Return the values computed at these slots that gradients flow through."""
    found: set[int] = set()
    for key in {program.backward_of(slot) for slot in slots if program.ops[slot] is GRADIENT}:
        targets = {program.inputs[slot][1] for slot in program.gradients_of(key)}
        inputs = [() if slot in targets else read for slot, read in enumerate(program.inputs)]
        flows = between(program, key[:1], targets, inputs)
        found.update(slot for slot, flow in enumerate(flows) if flow and inputs[slot])
    return found


def _part(program: Program, slots: set[int], leaves: list[int]) -> Program:
    computed = {slot for slot in leaves if program.inputs[slot]}
    known = {*slots, *leaves} - computed
    ops = [op if slot in known else SCALAR for slot, op in enumerate(program.ops)]
    return replace(
        program,
        ops=[INPUT if slot in computed else op for slot, op in enumerate(ops)],
        inputs=[read if slot in slots else () for slot, read in enumerate(program.inputs)],
        attrs=[attrs if slot in known else NO_ATTRS for slot, attrs in enumerate(program.attrs)],
        needs=[flows and slot in {*slots, *leaves} for slot, flows in enumerate(program.needs)],
        leaves=leaves,
        outputs=(),
        wanted=[],
        updates=(),
    )
