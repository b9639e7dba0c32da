"""A graph, the same graph compiled with XLA, and the fallback if XLA fails.

Under ``"auto"``, operations whose numbers differ with XLA, by their rows' flags, keep a step from
it. It rounds ``x * y + z`` once: a run whose numbers are not finite changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

from tapegraph.display import announce
from tapegraph.engines.choice import CLOCK
from tapegraph.errors import sentence, warn
from tapegraph.interrupts import Lock, raise_interrupt
from tapegraph.lowering.rows import LOOPS, LOWERINGS
from tapegraph.lowering.rows.nn import WHOLE_LOWERINGS
from tapegraph.lowering.runtime import is_transient
from tapegraph.lowering.steps.step_graph import Changes, Output, StepGraph
from tapegraph.recording.lost_gradients import strict
from tapegraph.recording.op import GRADIENT
from tapegraph.recording.program import Recording, entries_in, subprograms
from tapegraph.typed import Xla

# XLA never frees its programs, so a process compiles no more than this under "auto".
LIMIT = 32
# Seconds, about, to compile any step and run it for the first time, and each entry of it.
STEP, STEP_ENTRY = 0.2, 6e-3
# XLA's time grows faster than the program; this many entries take some 20 s.
ENTRIES = 3000

_compiles = 0
_lock = Lock()


def refusal(recording: Recording, option: Xla) -> str:
    """Return why a whole program does not run with XLA, or ``""``."""
    if option is True:
        return ""
    if option is False:
        return "it was compiled with xla=False"
    entries = entries_in(recording.program)
    if entries > ENTRIES:
        return f"{entries} entries are more than {ENTRIES}"
    return _differing(recording)


def seconds(entries: int) -> float:
    return STEP + STEP_ENTRY * entries


def _differing(recording: Recording) -> str:
    """Return an entry not known to give the same with XLA, also in an inner program."""
    program = recording.program
    if any(dtype is not None and dtype.kind == "c" for dtype in program.dtypes):
        return "complex numbers are not known to give the same there"
    for slot, op in enumerate(program.ops):
        if not program.inputs[slot] or op is GRADIENT:
            continue
        if op.name in LOOPS:
            if op.name == "while_loop" and program.attrs[slot]["max_steps"] is None:
                return "while_loop has no max_steps, which its backward needs there"
            found = [_differing(body.recording) for body in subprograms(program.attrs[slot])]
            if any(found):
                return next(filter(None, found))
            continue
        row = LOWERINGS.get(op.name) or WHOLE_LOWERINGS.get(op.name)
        agrees = row is not None and op.rules is None and row.xla
        if not (agrees(recording, slot) if callable(agrees) else agrees):
            return f"{op.name} is not known to give the same there"
    return ""


class XlaFailed(Exception):
    """XLA does not compile or run a program; the graph does."""


# Runs a graph: returns its outputs, or None for an invalid run, which changes nothing.
Call: TypeAlias = Callable[[StepGraph, Changes], "list[Output] | None"]


class Graphs:
    """The graph of a step or of a loop, and the same with XLA, each made at its first run.

    :param trace: Makes one: ``trace(with_xla=True, careful=True)``.
    :param what: The text that announces compiling with XLA.
    :param pay: Called with the seconds that a run has spent compiling with XLA.
    :param asked: The user chose XLA; ``failure`` says why it does not run all the same.
    """

    def __init__(
        self, trace: Callable[..., StepGraph], what: str, pay: Callable[[float], None], asked: bool
    ) -> None:
        self._trace, self._what, self._pay = trace, what, pay
        self.asked, self.failure = asked, ""

    @cached_property
    def graph(self) -> StepGraph:
        return self._trace()

    @cached_property
    def with_xla(self) -> StepGraph:
        return self._trace(with_xla=True, careful=not self.asked)

    def run(
        self, call: Call, changes: Changes, *, with_xla: bool, recompiles: bool = False
    ) -> list[Output] | None:
        """Run one of them; return None for an invalid run, or raise XlaFailed, with no change."""
        global _compiles
        if not (with_xla or self.asked):
            return call(self.graph, changes)
        compiles = recompiles or "with_xla" not in vars(self)
        written: list[bool] = []
        try:

            def noting(outputs: list[Output]) -> Iterator[Any]:
                return chain(changes(outputs), map(written.append, (True,)))

            if not compiles:
                return call(self.with_xla, noting)
            start = CLOCK.now()
            try:
                with _lock.held:
                    if _compiles >= LIMIT and not self.asked:
                        raise XlaFailed(f"this process has compiled {LIMIT} programs with it")
                    _compiles += 1
                with announce(self._what):
                    return call(self.with_xla, noting)
            finally:
                self._pay(CLOCK.now() - start)
        except Exception as error:  # not a failure: the graph runs
            if written or (not compiles and is_transient(error)):
                raise
            raise_interrupt(error)
            self._give_up(error)
        return call(self.graph, changes)

    def _give_up(self, error: Exception) -> None:
        """Run without XLA from now on; if the user chose XLA, warn, or raise in strict mode."""
        text = str(error)
        missing = re.findall(r"(\w+) \(No registered", text)
        reason = text.partition("\n")[0]
        if missing:
            reason = "it has no " + " and no ".join(dict.fromkeys(missing))
        if not self.asked:
            raise XlaFailed(reason) from error
        self.asked, self.failure = False, reason
        said = sentence("compile(xla=True)", f"XLA fails: {reason}. The step runs without XLA.")
        if strict():
            raise RuntimeError(said) from error
        warn(said, RuntimeWarning)
