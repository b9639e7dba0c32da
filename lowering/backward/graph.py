"""A traced gradient graph and how it is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegraph.arrays.buffers import keep_freed_memory
from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.lowering.calls import DirectCall, to_numpy, to_tensorflow
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.steps.xla import hidden_numbers
from tapegraph.lowering.translate import emit, specs
from tapegraph.recording.program import Program, Recording
from tapegraph.typed import Array


class Graph:
    """One concrete function that gives the gradients of a program's wanted slots.

    Parameters
    ----------
    recording : Recording
        What to differentiate; of its values, only those of the scalars that are not fed are kept.
    fed_scalars : sequence of int
        The slots of the scalars that are inputs too, packed as one float64 vector.
    results : sequence of int
        Results of the forward that are inputs too, instead of being computed again.
    strong_zero : bool
        Zero cotangents absorb what they meet.
    xla : bool
        Compile with XLA, which is fed numbers too.

    Attributes
    ----------
    function : tf.types.experimental.ConcreteFunction
        Takes the leaves, the results, the packed scalars if any, and the seeds.
    slots : list of int
        The leaves and results, in the order of the function's inputs.
    ran : bool
        Whether it has run: the first time takes longer.
    """

    def __init__(
        self,
        recording: Recording,
        fed_scalars: Sequence[int],
        *,
        results: Sequence[int] = (),
        strong_zero: bool = False,
        xla: bool = False,
    ) -> None:
        tf = tensorflow()
        program = recording.program
        self.slots = [*program.fed, *results]
        if xla:
            fed_scalars = sorted({*fed_scalars, *hidden_numbers(recording)})
        self._fed_scalars = list(fed_scalars)
        self._tables: list[tuple[int, ...] | None] = []

        def gradients(*feeds: Any) -> list[Any]:
            found = differentiated(
                tf, recording, feeds, fed_scalars, results, strong_zero=strong_zero
            )
            return self._flat(tf, program, found)

        traced = tf.function(
            gradients,
            input_signature=specs(tf, program, self.slots, len(fed_scalars)),
            autograph=False,
            jit_compile=True if xla else None,
        )
        self.function = traced.get_concrete_function()
        self._call = DirectCall(self.function, len(program), xla=xla)
        self.ran = False

    def feeds(self, recording: Recording, seeds: Sequence[Array]) -> list[Any]:
        """Return the function's inputs for a recording of its structure."""
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

    def __call__(self, feeds: list[Any]) -> list[Any]:
        """Return the gradients, as NumPy arrays and `RowSparse`."""
        outputs = iter(self._call(feeds))
        self.ran = True
        grads: list[Any] = []
        for table in self._tables:
            first = to_numpy(next(outputs))
            grads.append(
                first if table is None else RowSparse(first, to_numpy(next(outputs)), table)
            )
        return grads


def differentiated(
    tf: Any,
    recording: Recording,
    feeds: Sequence[Any],
    fed_scalars: Sequence[int],
    results: Sequence[int],
    *,
    strong_zero: bool,
) -> list[Any]:
    """Emit a program and its gradient; return the gradients of the wanted slots."""
    program, arrived = recording.program, iter(feeds)
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
