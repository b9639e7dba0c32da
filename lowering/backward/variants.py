"""The graphs of one structure: variants that give the same numbers, of which the fastest runs.

The first recomputes the forward. The next is fed those results that NumPy has computed already,
and the last is that one compiled with XLA. One more, in which zeros absorb, is kept for when a
gradient holds a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import has_nan
from tapegraph.engines import tuner
from tapegraph.engines.tuner import CLOCK, Candidate, Tuner
from tapegraph.interrupts import raise_interrupt
from tapegraph.locks import Lock
from tapegraph.lowering.backward.graph import Graph, differentiated
from tapegraph.lowering.calls import GRAPPLER_LIMIT
from tapegraph.lowering.rows.rules import FED, XLA
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.steps import xla
from tapegraph.lowering.translate import row_of, specs
from tapegraph.lowering.unsupported import MetNaN
from tapegraph.recording.program import Program, Recording
from tapegraph.typed import Array

# Seconds per entry, about, to compile a variant and run it for the first time.
VARIANT = 5e-3

# Traces a variant for a recording, or returns None where there is none.
Trace = Callable[[Recording], Graph | None]


class Compiled:
    """The graphs of one structure.

    Parameters
    ----------
    recording : Recording
        What to compile; of its values, only those of the scalars that are not fed are kept.
    varying : sequence of int
        Which of its scalars are fed.

    Attributes
    ----------
    seconds : float
        What compiling the first graph took.
    tuner : Tuner
        Chooses among the variants.
    """

    def __init__(self, recording: Recording, varying: Sequence[int]) -> None:
        start = CLOCK.now()
        program = recording.program
        self._fed_scalars = [program.scalars[position] for position in varying]
        self._lock = Lock()
        self._results: list[int] | None = None
        self._with_strong_zeros: Graph | None = None
        traces: dict[str, Trace] = {FED: self._fed_results, XLA: self._fed_results_with_xla}
        agreeing = variants(program)
        first = Candidate(Graph(recording, self._fed_scalars))
        price = partial(VARIANT.__mul__, len(program))
        others = [Candidate(traces[name], price) for name in (FED, XLA) if name in agreeing]
        trials = tuner.POLICY.variant_trials
        self.tuner = Tuner([first, *others], trials=trials, horizon=0)
        self.seconds = CLOCK.now() - start

    @property
    def graph(self) -> Graph:
        """The graph that recomputes the forward."""
        return self.tuner.first.way  # type: ignore[no-any-return]

    def run(self, recording: Recording, seeds: Sequence[Array]) -> list[Array]:
        """Return the gradients of the wanted slots."""
        with np.errstate(all="ignore"):
            grads = self._run_fastest(recording, seeds)
            if any(has_nan(g) for g in grads):  # it may be 0 * inf
                try:
                    return self._run_with_strong_zeros(recording, seeds)
                except MetNaN as declined:
                    declined.grads = grads
                    raise
        return grads

    def _run_fastest(self, recording: Recording, seeds: Sequence[Array]) -> list[Array]:
        with self._lock():
            chosen = self._choose(recording)
        graph: Graph = chosen.way
        prepared = graph.ran  # the first run prepares it, and is no measurement
        start = CLOCK.now()
        try:
            grads = graph(graph.feeds(recording, seeds))
        except Exception as error:
            if graph is self.graph:
                raise
            raise_interrupt(error)
            self.tuner.drop(chosen)  # a variant that does not run is no failure
            return self.graph(self.graph.feeds(recording, seeds))
        self.tuner.took(chosen, CLOCK.now() - start, counts=prepared)
        return grads

    def _choose(self, recording: Recording) -> Candidate:
        """Return the candidate to run, traced."""
        while True:
            chosen, _ = self.tuner.choose()
            if isinstance(chosen.way, Graph):
                return chosen
            try:
                graph = chosen.way(recording)
            except Exception as error:
                raise_interrupt(error)
                graph = None  # a variant that cannot be traced is no failure
            if graph is None:
                self.tuner.drop(chosen)
            else:
                chosen.way = graph

    def _traced(self, recording: Recording, **options: Any) -> Graph:
        """Trace another graph of this structure."""
        return Graph(recording, self._fed_scalars, **options)

    def _read(self, recording: Recording) -> list[int]:
        """Return the results worth feeding, found once."""
        if self._results is None:
            self._results = results_read(recording, self._fed_scalars)
        return self._results

    def _fed_results(self, recording: Recording) -> Graph | None:
        results = self._read(recording)
        return self._traced(recording, results=results) if results else None

    def _fed_results_with_xla(self, recording: Recording) -> Graph | None:
        """Try XLA only on fed results: it has none but arithmetic to simplify."""
        if len(recording) > GRAPPLER_LIMIT or not xla.claim():
            return None
        return self._traced(recording, results=self._read(recording), xla=True)

    def _run_with_strong_zeros(self, recording: Recording, seeds: Sequence[Array]) -> list[Array]:
        with self._lock():
            if self._with_strong_zeros is None:
                self._with_strong_zeros = self._traced(recording, strong_zero=True)
        return self._with_strong_zeros(self._with_strong_zeros.feeds(recording, seeds))


def variants(program: Program) -> frozenset[str]:
    """Return the variants that agree with the first graph in every operation of a program."""
    rows = {row_of(op) for op, read in zip(program.ops, program.inputs, strict=True) if read}
    return frozenset.intersection(frozenset((FED, XLA)), *(row.variants for row in rows))


def results_read(recording: Recording, fed_scalars: Sequence[int]) -> list[int]:
    """Return the results that the gradient reads, and that would save work if they were fed."""
    tf = tensorflow()
    program, fed = recording.program, recording.program.fed
    offered = [
        slot
        for slot, op in enumerate(program.ops)
        if program.inputs[slot] and slot not in program.outputs and not row_of(op).cheap
    ]
    with tf.Graph().as_default():
        inputs = [
            tf.compat.v1.placeholder(spec.dtype, spec.shape)
            for spec in specs(tf, program, [*fed, *offered], len(fed_scalars))
        ]
        found = differentiated(tf, recording, inputs, fed_scalars, offered, strong_zero=False)
        pending = [tf.convert_to_tensor(g).op for g in found]
        reached = set()
        while pending:
            operation = pending.pop()
            if operation.name not in reached:
                reached.add(operation.name)
                pending.extend(tensor.op for tensor in operation.inputs)
    placeholders = inputs[len(fed) : len(fed) + len(offered)]
    return [s for s, p in zip(offered, placeholders, strict=True) if p.op.name in reached]
