"""Many runs of a step in one graph: a loop whose state lies in loop variables.

State is read before the first run and assigned after the last one, if all runs are valid: a run
whose gradient holds a NaN ends the loop, and nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tapegraph.arrays import aligned_empty
from tapegraph.engines.engine import Many
from tapegraph.lowering.calls import to_tensorflow
from tapegraph.lowering.rows.rules import raw
from tapegraph.lowering.runtime import GraphTensor, tensorflow
from tapegraph.lowering.steps import xla
from tapegraph.lowering.steps.step_graph import Changes, Output, StepGraph, Writer
from tapegraph.recording.op import INPUT
from tapegraph.typed import Array

# The minimum capacity of a loop compiled with XLA.
_ROOM = 64


class Loop:
    """Many runs of a step in one call.

    The graph without XLA takes any number of runs. XLA fixes the lengths of its arrays: they have
    room for more runs than one call may make, and an input is the number of runs.

    :ivar done: The number of valid runs, if a later one was invalid.
    """

    def __init__(
        self,
        trace: Callable[..., StepGraph],
        entries: int,
        many: Many,
        pay: Callable[[float], None],
        *,
        asked: bool,
    ) -> None:
        trace = partial(trace, writer=partial(_LoopWriter, many=many))
        what = f"compiling a loop with XLA: {entries} entries"
        self.graphs = xla.Graphs(trace, what, pay, asked=asked)
        self._room = 0  # for so many runs XLA has compiled it
        self._counts: tuple[tuple[int, int], list[Any]] = (0, 0), []  # how many runs, as tensors
        self.done = 0

    def run(
        self,
        feeds: list[tuple[Array, bool]],
        runs: int,
        ahead: int,
        changes: Changes,
        *,
        with_xla: bool,
    ) -> list[Output] | None:
        """Make several runs; return None if not all are valid: then nothing has changed."""

        def call(graph: StepGraph, changes: Changes) -> list[Output] | None:
            if graph.with_xla and self._room < runs:
                self._room = max(_ROOM, 1 << (ahead - 1).bit_length())
            fed = self._fed(feeds, runs, self._room if graph.with_xla else runs)
            outputs = graph(fed, changes)
            self.done = runs if outputs is not None else int(graph.refused)
            return outputs

        recompiles = self._room < runs
        return self.graphs.run(call, changes, with_xla=with_xla, recompiles=recompiles)

    def _fed(self, feeds: list[tuple[Array, bool]], runs: int, room: int) -> list[GraphTensor]:
        if self._counts[0] != (runs, room):
            counts: list[Array] = [np.array(runs, np.int32), np.zeros(room, np.int8)]
            self._counts = (runs, room), list(map(to_tensorflow, counts))
        arrays = []
        for array, has_rows in feeds:
            if has_rows:  # a copy with extra rows of zeros, which TensorFlow need not copy
                longer = aligned_empty((room, *array.shape[1:]), array.dtype)
                longer[: len(array)] = array
                longer[len(array) :] = 0
                array = longer
            arrays.append(array)
        return [*self._counts[1], *map(to_tensorflow, arrays)]


class _LoopWriter(Writer):
    """Emits a step's function in a loop.

    Its inputs are the number of runs; an array of the length of the inputs' arrays, for XLA; and
    for each input an array with a row for each run, or the first run's value of a carried one. Its
    outputs: whether all runs are valid, the first outputs of all runs, the others of the last run,
    and the number of valid runs.
    """

    def __init__(self, *arguments: Any, many: Many, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._results = many.results
        self._carried = many.carried

    def signature(self, inputs: list[int]) -> list[GraphTensor]:
        tf, program = tensorflow(), self.program
        lengths = {i: () if i in self._carried else (None,) for i in inputs}
        fed = [tf.TensorSpec((*lengths[i], *program.shapes[i]), program.dtypes[i]) for i in inputs]
        return [tf.TensorSpec((), tf.int32), tf.TensorSpec((None,), tf.int8), *fed]

    def step(self, *feeds: GraphTensor) -> list[GraphTensor]:
        """Return whether all runs are valid, the outputs, and the number of valid runs."""
        tf, program = tensorflow(), self.program
        count, places, *given = feeds
        fixed = self.read()
        state = {update.leaf: fixed.pop(update.leaf) for update in program.updates}
        fed = [(min(slots, default=None), x) for slots, x in zip(self._fed, given, strict=True)]
        carried = {slot: x for slot, x in fed if slot in self._carried}
        types = [(program.shapes[slot], program.dtypes[slot]) for slot in program.outputs]
        rows = [
            tf.TensorArray(dtype, size=tf.shape(places)[0], element_shape=shape)
            for shape, dtype in types[: self._results]
        ]
        last = [tf.zeros(shape, dtype) for shape, dtype in types[self._results :]]

        def body(
            run: GraphTensor, stands: GraphTensor, state: Any, carried: Any, rows: Any, last: object
        ) -> tuple[Any, ...]:
            inputs = [self._of_run(run, slot, x, carried) for slot, x in fed]
            stands, outputs, new = self.run_of(inputs, {**fixed, **state})
            carried = {slot: self._left(slot, x, outputs) for slot, x in carried.items()}
            rows = [row.write(run, x) for row, x in zip(rows, outputs, strict=False)]
            state = {slot: tf.ensure_shape(new[slot], x.shape) for slot, x in state.items()}
            stood = run + tf.cast(stands, tf.int32)
            return stood, stands, state, carried, rows, outputs[self._results :]

        done, stand, new, _, rows, last = tf.while_loop(
            lambda run, stands, *_: tf.logical_and(stands, run < count),
            body,
            (tf.constant(0), tf.constant(True), state, carried, rows, last),
            parallel_iterations=1,
        )
        outputs = [*(row.stack() for row in rows), *last]
        self.shapes = [None] * len(outputs)
        self.assign(stand, outputs, new)
        return [stand, *outputs, done]

    def _of_run(
        self,
        run: GraphTensor,
        slot: int | None,
        given: GraphTensor,
        carried: dict[int, GraphTensor],
    ) -> Any:
        if slot is None or self.program.ops[slot] is not INPUT:
            return given
        if slot in carried:
            return carried[slot]
        return raw.GatherV2(params=given, indices=run, axis=0)

    def _left(self, slot: int, before: GraphTensor, outputs: list[GraphTensor]) -> Any:
        place = self._carried[slot]
        return before if place is None else outputs[place]
