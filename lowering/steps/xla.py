"""A graph, and the same compiled with XLA: which of the two runs, and how many are compiled.

XLA is tried once enough time has passed for it to pay, and the faster one stays. Where a run with
XLA finds that its numbers may not be the graph's, it has changed nothing, and the graph runs. So
does a run that fails: it changes nothing.

Where the user asks for XLA, the graph with it is the only one, unless XLA does not compile it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from tapegraph.engines import tuner
from tapegraph.engines.tuner import CLOCK, Candidate, Stage, Tuner
from tapegraph.errors import message, warn
from tapegraph.interrupts import Lock, raise_interrupt
from tapegraph.lowering.rows.rules import NotLowered
from tapegraph.lowering.runtime import is_transient
from tapegraph.lowering.steps import agreement
from tapegraph.lowering.steps.step_graph import Changes, Output, StepGraph
from tapegraph.progress import announce
from tapegraph.recording.lost_gradients import strict
from tapegraph.recording.program import Recording
from tapegraph.typed import Xla

# XLA never frees what it compiled, so a process compiles no more than this.
LIMIT = 32
# Seconds, about, to compile any step and run it for the first time, and each entry of it.
STEP, STEP_ENTRY = 0.2, 6e-3

_compiles = 0
_lock = Lock()


def _claim() -> bool:
    global _compiles
    with _lock():
        if _compiles >= LIMIT:
            return False
        _compiles += 1
        return True


class Use(NamedTuple):
    """When a program is compiled with XLA.

    :ivar at_once: In place of the graph; else once that can pay, and it stays where it is faster.
    :ivar refused: Why never.
    """

    at_once: bool = False
    refused: str = ""


def use(recording: Recording, option: Xla) -> Use:
    """Return what the option of `compile` means for a whole program."""
    if option == "auto":
        return Use(refused=agreement.refusal(recording))
    return Use(at_once=True) if option else Use(refused="it was compiled with xla=False")


# Runs a graph: gives its outputs, or None where they do not stand and nothing has been changed.
Call: TypeAlias = Callable[[Any, Changes], "list[Output] | None"]


class Variants:
    """The two graphs of a step, or of a loop of it.

    :param trace: Makes one: ``trace(with_xla=True, careful=True)``.
    :param what: How compiling it is announced; None where it is already.
    :param trials: How often each runs before it is judged.
    :ivar compile_seconds: What its runs have spent compiling with XLA.
    :ivar trying: The latest run was made to measure a graph, whichever is the faster one.
    """

    def __init__(
        self,
        trace: Callable[..., StepGraph],
        entries: int,
        use: Use,
        *,
        what: str | None,
        trials: int,
    ) -> None:
        self._trace = trace
        self._what = what
        self._trials = trials
        self._at_once, self._without_xla = use
        with_xla = partial(trace, with_xla=True, careful=not self._at_once)
        self._with_xla = Candidate(with_xla, lambda: STEP + STEP_ENTRY * entries)
        tried = [] if use.refused else [self._with_xla]
        self._choose_among(tried if self._at_once else [Candidate(self.graph), *tried])
        self._setbacks = 0
        self._latest: StepGraph | None = None
        self.compile_seconds = 0.0
        self.trying = False

    def _choose_among(self, candidates: list[Candidate]) -> None:
        self.tuner = Tuner(candidates, trials=self._trials, horizon=0)

    @cached_property
    def graph(self) -> StepGraph:
        """The graph without XLA."""
        return self._trace()

    @property
    def told(self) -> str:
        """Which graph ran last, and what is known of the other."""
        text = " with XLA" if self._latest is not None and self._latest.with_xla else ""
        if self._without_xla:
            return f"{text}; not with XLA: {self._without_xla}"
        if len(self.tuner.verdict) > 1:
            (_, plain), (_, compiled) = self.tuner.verdict
            text += f"; {1e3 * compiled:.3g} ms with XLA, {1e3 * plain:.3g} ms without"
        return text

    def try_next(self, limit: float) -> bool:
        """Compile it with XLA next, if that costs at most so many seconds; return whether."""
        untried = self.tuner.untried
        if not untried or untried[0].price() > limit:
            return False
        self.tuner.try_next()
        return True

    def run(
        self, call: Call, changes: Changes, *, recompiles: bool = False, runs: int = 1
    ) -> list[Output] | None:
        """Run one of them; None where what it gives does not stand: nothing has been changed.

        :param recompiles: What XLA is fed has another shape, which it has to compile again.
        :param runs: Of the step, in this call.
        """
        chosen, stage = self.tuner.choose()
        self.trying = stage in (Stage.TRIAL, Stage.AGAIN)
        uses_xla = chosen is self._with_xla
        compiles = uses_xla and (recompiles or not isinstance(chosen.way, StepGraph))
        prepared = not compiles and chosen.way.ran  # the first run is no measurement
        start = CLOCK.now()
        if uses_xla:
            outputs = self._run_with_xla(call, changes, compiles)
        else:
            outputs = self._run_graph(call, changes)
        self.tuner.took(chosen, CLOCK.now() - start, counts=prepared, runs=runs)
        return outputs

    def _run_graph(self, call: Call, changes: Changes) -> list[Output] | None:
        self._latest = self.graph
        return call(self.graph, changes)

    def _run_with_xla(self, call: Call, changes: Changes, compiles: bool) -> list[Output] | None:
        """Run the graph with XLA; where it cannot be made, fails or is not sure, the other."""
        candidate, start = self._with_xla, CLOCK.now()
        written: list[Any] = []
        try:
            with announce(self._what) if compiles and self._what else nullcontext():
                if compiles and not _claim() and not self._at_once:
                    raise NotLowered(f"this process has compiled {LIMIT} programs with it")
                if not isinstance(candidate.way, StepGraph):
                    candidate.way = candidate.way()
                self._latest = candidate.way
                outputs = call(
                    candidate.way, lambda o: chain(changes(o), map(written.append, [True]))
                )
            if outputs is not None or self._at_once:
                self._setbacks = 0
                return outputs
            self._set_back("its numbers may not have been the graph's")
        except Exception as error:  # what XLA cannot compile is no failure: the graph runs
            if written:
                raise
            raise_interrupt(error)
            if compiles or not is_transient(error):
                self._drop(_in_a_line(error))
            else:
                self._set_back(_in_a_line(error))
        finally:
            if compiles:
                self.compile_seconds += CLOCK.now() - start
        return self._run_graph(call, changes)

    def _set_back(self, reason: str) -> None:
        """Note that the graph has to run instead; after a few times in a row it stays."""
        self._setbacks += 1
        if self._setbacks >= tuner.POLICY.trials:
            self._drop(reason)

    def _drop(self, reason: str) -> None:
        """Do without XLA from now on; where it was asked for, warn, or raise in strict mode."""
        self.tuner.drop(self._with_xla)
        self._without_xla = reason
        if self._at_once:
            self._at_once = False
            self._choose_among([Candidate(self.graph)])
            received = f"a step that fails with XLA: {reason}"
            text = message("compile(xla=True)", received, "what it compiles", "It runs without.")
            if strict():
                raise RuntimeError(text)
            warn(text, RuntimeWarning)


def _in_a_line(error: Exception) -> str:
    text = str(error)
    missing = re.findall(r"(\w+) \(No registered", text)
    if missing:
        return "it has no " + " and no ".join(dict.fromkeys(missing))
    return text.partition("\n")[0]
