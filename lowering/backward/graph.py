"""The graph of one structure's gradients, traced once, and how it is called.

It is fed the large results that NumPy has computed already: to copy them takes less than to compute
them again. Another one, in which zeros absorb, is traced when a gradient holds a NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import keep_freed_memory
from tapegraph.arrays.row_sparse import RowSparse, has_nan
from tapegraph.engines.tuner import CLOCK
from tapegraph.interrupts import Lock
from tapegraph.lowering.calls import DirectCall, to_numpy, to_tensorflow
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.translate import emit, specs
from tapegraph.lowering.unsupported import MetNaN
from tapegraph.recording.program import Program, Recording
from tapegraph.typed import Array

# To hand an array over takes as long as to compute so many elements of a tanh.
LEAST_FED = 1 << 14


class Graph:
    """One concrete function that gives the gradients of a program's wanted slots.

    Its function takes the leaves, the ``results`` that are inputs instead of being computed again,
    the scalars of the slots ``fed_scalars`` packed as one float64 vector, and the seeds.
    """

    def __init__(
        self,
        recording: Recording,
        fed_scalars: Sequence[int] = (),
        *,
        results: Sequence[int] = (),
        strong_zero: bool = False,
    ) -> None:
        tf = tensorflow()
        program = recording.program
        self.slots = [*program.fed, *results]
        self._fed_scalars = list(fed_scalars)
        self._tables: list[tuple[int, ...] | None] = []

        def gradients(*feeds: Any) -> list[Any]:
            found = _differentiated(recording, feeds, fed_scalars, results, strong_zero)
            return self._flat(tf, program, found)

        signature = specs(tf, program, self.slots, len(fed_scalars))
        traced = tf.function(gradients, input_signature=signature, autograph=False)
        self.function = traced.get_concrete_function()
        self._call = DirectCall(self.function, len(program))

    def __call__(self, recording: Recording, seeds: Sequence[Array]) -> list[Any]:
        """Return the gradients of a recording of its structure, as NumPy arrays and `RowSparse`."""
        outputs = iter(self._call(self._feeds(recording, seeds)))
        grads: list[Any] = []
        for table in self._tables:
            first = to_numpy(next(outputs))
            grads.append(
                first if table is None else RowSparse(first, to_numpy(next(outputs)), table)
            )
        return grads

    def _feeds(self, recording: Recording, seeds: Sequence[Array]) -> list[Any]:
        keep_freed_memory()
        values = recording.values
        tensors = [to_tensorflow(values[slot]) for slot in self.slots]
        if self._fed_scalars:
            packed = [values[slot] for slot in self._fed_scalars]
            tensors.append(tensorflow().constant(packed, dtype="float64"))
        return [*tensors, *map(to_tensorflow, seeds)]

    def _flat(self, tf: Any, program: Program, found: list[Any]) -> list[Any]:
        """Return the graph's outputs: a leaf of which rows were gathered gives rows and values."""
        outputs = []
        for slot, grad in zip(program.wanted, found, strict=True):
            if isinstance(grad, tf.IndexedSlices) and not program.inputs[slot]:
                self._tables.append(program.shapes[slot])
                outputs += [grad.indices, grad.values]
            else:
                self._tables.append(None)
                outputs.append(tf.convert_to_tensor(grad))
        return outputs


class BackwardGraph:
    """The graph of one structure, and the one with strong zeros once that was needed.

    ``varying`` says which of the scalars are fed, by their place among them; ``seconds`` is what
    compiling took.
    """

    def __init__(self, recording: Recording, varying: Sequence[int]) -> None:
        start = CLOCK.now()
        program = recording.program
        self._fed_scalars = [program.scalars[place] for place in varying]
        self.graph = Graph(recording, self._fed_scalars, results=results_fed(program))
        self._with_strong_zeros: Graph | None = None
        self._lock = Lock()
        self.seconds = CLOCK.now() - start

    def run(self, recording: Recording, seeds: Sequence[Array]) -> list[Array]:
        """Return the gradients of the wanted slots.

        Raise `MetNaN` where a gradient holds a NaN that may be 0 * inf, and an operation is of the
        user's.
        """
        with np.errstate(all="ignore"):
            grads = self.graph(recording, seeds)
            if any(has_nan(g) for g in grads):
                try:
                    return self._strong_zeros(recording)(recording, seeds)
                except MetNaN as declined:
                    declined.grads = grads
                    raise
        return grads

    def _strong_zeros(self, recording: Recording) -> Graph:
        with self._lock():
            if self._with_strong_zeros is None:
                self._with_strong_zeros = Graph(recording, self._fed_scalars, strong_zero=True)
            return self._with_strong_zeros


def results_fed(program: Program, least: int = LEAST_FED) -> list[int]:
    """Return the results of so many elements, which take longer to compute again than to copy."""
    return [
        slot
        for slot in range(len(program))
        if program.inputs[slot]
        and slot not in program.outputs
        and math.prod(program.shapes[slot]) >= least
    ]


def _differentiated(
    recording: Recording,
    feeds: Sequence[Any],
    fed_scalars: Sequence[int],
    results: Sequence[int],
    strong_zero: bool,
) -> list[Any]:
    """Emit a program and its gradient; return the gradients of the wanted slots."""
    tf, program, arrived = tensorflow(), recording.program, iter(feeds)
    tensors: list[Any] = [None] * len(program)
    for slot in program.fed:
        tensors[slot] = next(arrived)
    stand_ins = {slot: next(arrived) for slot in results}
    if fed_scalars:
        packed = next(arrived)
        for position, slot in enumerate(fed_scalars):
            tensors[slot] = packed[position]
    constants = {slot: recording.values[slot] for slot in program.scalars}
    wanted = set(program.wanted)
    with tf.GradientTape(watch_accessed_variables=False) as tape:

        def watch(slot: int) -> None:
            if slot in wanted:
                tape.watch(tensors[slot])

        emit(
            tf,
            program,
            tensors,
            constants,
            stand_ins=stand_ins,
            strong_zero=strong_zero,
            emitted=watch,
            describe=recording.describe,
        )
    return tape.gradient(  # type: ignore[no-any-return]
        [tensors[s] for s in program.outputs],
        [tensors[s] for s in program.wanted],
        output_gradients=list(arrived),
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
