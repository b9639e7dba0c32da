"""Many runs of a step in one call: which loop runs, and what it is fed.

There is a loop for any number of runs, and one compiled with XLA, which knows the lengths of its
arrays: what it is fed has room for more runs than one call may make, and it is told how many to
make. XLA is tried, and the faster loop stays, as for a single run.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import aligned
from tapegraph.engines import tuner
from tapegraph.engines.tuner import CLOCK, Candidate, Tuner
from tapegraph.interrupts import raise_interrupt
from tapegraph.lowering.calls import to_tensorflow
from tapegraph.lowering.steps import xla
from tapegraph.lowering.steps.loop import LoopGraph
from tapegraph.lowering.steps.step_graph import Changes, Output, noted
from tapegraph.lowering.unsupported import NotLowered
from tapegraph.progress import announce
from tapegraph.typed import Array

# A loop of XLA's has room for at least so many runs.
_ROOM = 64


class ManyRuns:
    """The loops of one step.

    - trace: Makes a loop: ``trace(with_xla=True)``.
    - when: XLA is to compile it.
    """

    def __init__(self, trace: Callable[..., LoopGraph], entries: int, when: xla.When) -> None:
        self._entries = entries
        self._trace = trace
        self._at_once = when is xla.When.AT_ONCE
        with_xla = partial(trace, with_xla=True, careful=not self._at_once)
        self._with_xla = Candidate(with_xla, lambda: xla.price(entries))
        self._choose_among(*xla.candidates(when, lambda: self._graph, self._with_xla))
        self._setbacks = 0
        self._room = 0  # for so many runs XLA has compiled it
        self._told: tuple[tuple[int, int], list[Any]] = (0, 0), []  # how many runs, as tensors
        self.compile_seconds = 0.0
        self.latest: LoopGraph | None = None
        self.done = 0  # of runs that did not all stand

    def _choose_among(self, *candidates: Candidate) -> None:
        self._tuner = Tuner(candidates, trials=tuner.POLICY.trials, horizon=0)

    @cached_property
    def _graph(self) -> LoopGraph:
        """The loop without XLA."""
        return self._trace(with_xla=False)

    def run(
        self, feeds: list[tuple[Array, bool]], runs: int, ahead: int, changes: Changes
    ) -> list[Output] | None:
        """Run the step so many times; None where not all stand: then nothing has been changed.

        - feeds: Of each input an array, and whether it has a row for each run.
        - ahead: How many runs are still to come, with these: what XLA is to have room for.
        """
        chosen, _ = self._tuner.choose()
        graph = chosen.way
        prepared = isinstance(graph, LoopGraph) and graph.ran
        start, before = CLOCK.now(), self.compile_seconds
        if chosen is self._with_xla:
            outputs = self._run_with_xla(chosen, feeds, runs, ahead, changes)
            self._setbacks = 0 if outputs is not None else self._setbacks + 1
            if self._setbacks >= tuner.POLICY.trials and not self._at_once:
                self._tuner.drop(chosen)  # its numbers are not the other's time and again
        else:
            outputs = self._looped(self._graph, feeds, runs, runs, changes)
        prepared = prepared and self.compile_seconds == before
        self._tuner.took(chosen, CLOCK.now() - start, counts=prepared, runs=runs)
        return outputs

    def _looped(
        self,
        graph: LoopGraph,
        feeds: list[tuple[Array, bool]],
        runs: int,
        room: int,
        changes: Changes,
    ) -> list[Output] | None:
        self.latest = graph
        arrays = [_with_room(a, room) if has_rows else a for a, has_rows in feeds]
        if self._told[0] != (runs, room):
            told: list[Array] = [np.array(runs, np.int32), np.zeros(room, np.int8)]
            self._told = (runs, room), list(map(to_tensorflow, told))
        outputs = graph([*self._told[1], *map(to_tensorflow, arrays)], changes)
        self.done = graph.done
        return outputs

    def _run_with_xla(
        self,
        candidate: Candidate,
        feeds: list[tuple[Array, bool]],
        runs: int,
        ahead: int,
        changes: Changes,
    ) -> list[Output] | None:
        """Run XLA's loop, or where it cannot be made or fails, the other one."""
        start, compiles = CLOCK.now(), self._room < runs
        what = f"compiling a loop with XLA: {self._entries} entries"
        written: list[Any] = []
        try:
            with announce(what) if compiles else nullcontext():
                if compiles:
                    if not xla.claim() and not self._at_once:
                        raise NotLowered(f"this process has compiled {xla.LIMIT} programs with it")
                    self._room = max(_ROOM, 1 << (ahead - 1).bit_length())
                    if not isinstance(candidate.way, LoopGraph):
                        candidate.way = candidate.way()
                return self._looped(
                    candidate.way,
                    feeds,
                    runs,
                    self._room,
                    lambda outputs: chain(changes(outputs), noted(written)),
                )
        except Exception as error:  # what XLA cannot compile is no failure: the other loop runs
            if written:
                raise
            raise_interrupt(error)
            self._tuner.drop(candidate)
            if self._at_once:
                self._at_once = False
                self._choose_among(Candidate(self._graph))
                xla.failed_at_once(xla.reason(error))
            return self._looped(self._graph, feeds, runs, runs, changes)
        finally:
            if compiles:
                self.compile_seconds += CLOCK.now() - start


def _with_room(array: Array, room: int) -> Array:
    """Return a copy of an array, with rows of zeros besides, which TensorFlow need not copy."""
    longer = aligned((room, *array.shape[1:]), array.dtype)
    longer[: len(array)] = array
    longer[len(array) :] = 0
    return longer
