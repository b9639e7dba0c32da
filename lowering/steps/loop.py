"""A step run many times in one graph: a loop whose state lies in loop variables.

State is read before the first run and assigned after the last one, if all of them stand: a run
whose gradient holds a NaN ends the loop, and nothing has been changed.
"""

from __future__ import annotations

from typing import Any

from tapegraph.engines.engine import Carried
from tapegraph.lowering.rows.rules import raw
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.steps.step_graph import StepGraph, Writer
from tapegraph.lowering.steps.variables import tables
from tapegraph.lowering.unsupported import NotLowered
from tapegraph.recording.op import ALL_REDUCE, INPUT
from tapegraph.recording.program import Program


def check_loops(program: Program) -> None:
    """Refuse what would be another computation, or a slow one, in a loop of the graph.

    - Raises NotLowered: It averages over processes, or changes a table by its rows.
    """
    if ALL_REDUCE in program.ops:
        raise NotLowered("an average over processes is no part of a loop")
    if tables(program):
        raise NotLowered("a table that changes by its rows would be copied by every run of a loop")


class LoopGraph(StepGraph):
    """A step's function, run as often as it is told.

    It is fed how often; an array of the length of the arrays of inputs, which tells that to XLA;
    and of each input an array with a row for each run, or the first one's of what is carried from
    run to run. It gives whether all runs stand, how many do, the ``results`` first outputs of all
    runs, and the others of the last run.

    - carried: By the slot of an input, which output a run leaves there for the next; None for what
      stays.
    - done (int): How many runs stood of those that ended with one that does not.
    """

    results_from = 2  # after whether all stand, and how many do

    def __init__(self, *arguments: Any, results: int, carried: Carried, **options: Any) -> None:
        self._results = results
        self._carried = carried
        self.done = 0
        super().__init__(*arguments, **options)

    def _writer(self, *arguments: Any, **options: Any) -> Writer:
        return _LoopWriter(*arguments, results=self._results, carried=self._carried, **options)

    def _signature(self, program: Program, inputs: list[int]) -> list[Any]:
        tf = tensorflow()
        rows = [
            tf.TensorSpec(
                program.shapes[i] if i in self._carried else (None, *program.shapes[i]),
                program.dtypes[i],
            )
            for i in inputs
        ]
        return [tf.TensorSpec((), tf.int32), tf.TensorSpec((None,), tf.int8), *rows]

    def _refused(self, ran: list[Any]) -> None:
        self.done = int(ran[1])


class _LoopWriter(Writer):
    """Emits the loop, and a program's nodes in it."""

    def __init__(self, *arguments: Any, results: int, carried: Carried, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._results = results
        self._carried = carried

    def step(self, *feeds: Any) -> list[Any]:
        """Return whether all runs stand, how many do, and the outputs."""
        tf, program = tensorflow(), self._program
        count, places, *given = feeds
        fixed = self.read()
        state = {update.leaf: fixed.pop(update.leaf) for update in program.updates}
        fed = [(slots[0], x) for slots, x in zip(self._fed, given, strict=True)]
        carried = {slot: x for slot, x in fed if slot in self._carried}
        types = [(program.shapes[slot], program.dtypes[slot]) for slot in program.outputs]
        rows = [
            tf.TensorArray(dtype, size=tf.shape(places)[0], element_shape=shape)
            for shape, dtype in types[: self._results]
        ]
        last = [tf.zeros(shape, dtype) for shape, dtype in types[self._results :]]

        def body(
            run: Any, stands: Any, state: Any, carried: Any, rows: Any, last: Any
        ) -> tuple[Any, ...]:
            inputs = [self._of_run(run, slot, x, carried) for slot, x in fed]
            stands, outputs, new = self.run(inputs, {**fixed, **state})
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
        if new:
            with tf.control_dependencies([stand, *outputs]):
                tf.cond(stand, lambda: self._assign(new), lambda: tf.constant(False))
        return [stand, done, *outputs]

    def _of_run(self, run: Any, slot: int, given: Any, carried: dict[int, Any]) -> Any:
        """Return what a run is given of a feed; constants are the same in all of them."""
        if self._program.ops[slot] is not INPUT:
            return given
        if slot in carried:
            return carried[slot]
        return raw.GatherV2(params=given, indices=run, axis=0)

    def _left(self, slot: int, before: Any, outputs: list[Any]) -> Any:
        """Return what a run leaves for the next one to read."""
        place = self._carried[slot]
        return before if place is None else outputs[place]
