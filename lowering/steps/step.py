"""A captured program in TensorFlow, run once, or many times in one graph with a loop.

Such a loop reads state before the first run and assigns it after the last one, if all runs are
valid: a run whose gradient holds a NaN ends the loop, and nothing changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from operator import is_
from typing import Any

import numpy as np

from tapegraph.arrays import aligned_empty, keep_freed_memory
from tapegraph.engines.engine import Many
from tapegraph.lowering.calls import moved, to_tensorflow
from tapegraph.lowering.rows import NotLowered, raw
from tapegraph.lowering.runtime import GraphTensor, tf
from tapegraph.lowering.steps import xla
from tapegraph.lowering.steps.step_graph import (
    Changes,
    Output,
    StepGraph,
    Writer,
    tables,
    variable_of,
)
from tapegraph.recording.node import Node
from tapegraph.recording.op import INPUT
from tapegraph.recording.program import Recording, entries_in
from tapegraph.recording.values import array_or_remote
from tapegraph.typed import Array, Xla


class MayHaveLostZeros(NotLowered):
    """A gradient, or a pooled image, held a NaN or an infinity: the native engine decides."""

    def __init__(self, variant: str, runs_done: int = 0) -> None:
        zeros = (
            "a gradient held a NaN, or a pooled image another number that is not finite, "
            "and only the native engine keeps zeros in a step"
        )
        super().__init__("its numbers may not have been the graph's" if variant else zeros)
        self.runs_done = runs_done


class Step:
    """A whole program in TensorFlow; ``option`` is `compile`'s ``xla``."""

    keeps_state = True

    def __init__(
        self, recording: Recording, state: Mapping[int, Node], option: Xla = "auto"
    ) -> None:
        program = recording.program
        self._state = {slot: variable_of(node) for slot, node in state.items()}
        inputs = [slot for slot in program.fed if program.ops[slot] is INPUT]
        self.leaves = [*self._state, *inputs]
        self._dtypes = [program.dtypes[slot] for slot in inputs]
        self._variables = list(self._state.values())
        self._remotes = [variable.remote for variable in self._variables]
        self._updated = [self._state[update.leaf].remote for update in program.updates]
        self._program = program
        variables = {slot: state.variable for slot, state in self._state.items()}
        self._trace = partial(StepGraph, recording, variables, inputs)
        refused = xla.refusal(recording, option)
        self._note = f"; not with XLA: {refused}" if refused else ""
        entries = entries_in(program)
        self.variants = {} if refused or option is True else {"XLA": xla.seconds(entries)}
        what = f"compiling a step with XLA: {entries} entries"
        self.compile_seconds = 0.0  # with XLA, in its runs
        self.graphs = xla.Graphs(self._trace, what, self._pay, asked=option is True)
        if option is not True:
            self.graphs.graph  # noqa: B018 - it is made now
        self._loop: Loop | None = None
        # The last fed bytes, and their tensor.
        self._numbers: dict[int, tuple[bytes, GraphTensor]] = {}

    def _pay(self, seconds: float) -> None:
        self.compile_seconds += seconds

    @property
    def note(self) -> str:
        every = [self.graphs] if self._loop is None else [self.graphs, self._loop.graphs]
        failures = [graphs.failure for graphs in every if graphs.failure]
        if failures:
            return f"; not with XLA: {failures[0]}"
        return " with XLA" if self.graphs.asked else self._note

    def write(self, folder: str | os.PathLike[str]) -> None:
        function = self.graphs.graph.call.function
        with tf.summary.create_file_writer(os.fspath(folder)).as_default():
            tf.summary.graph(function.graph)

    def feeds(self, values: list[Any]) -> list[GraphTensor]:
        """Push state to its variables, and return the inputs of the graphs."""
        feeds = []
        for position, array in enumerate(self._pushed(values)):
            if array.ndim:  # memory of its own, which a variable or gradient may share
                feeds.append(moved(array))
                continue
            bits = array.tobytes()  # a learning rate, say, is the same most of the time
            if self._numbers.get(position, (None,))[0] != bits:
                self._numbers[position] = bits, to_tensorflow(array)
            feeds.append(self._numbers[position][1])
        return feeds

    def _pushed(self, values: list[Any]) -> list[Array]:
        keep_freed_memory()
        count = len(self._variables)
        if not all(map(is_, map(array_or_remote, values[:count]), self._remotes)):
            for variable, node in zip(self._variables, values, strict=False):
                variable.push(node)
        arrays = zip(values[count:], self._dtypes, strict=True)
        return [np.asarray(array, dtype) for array, dtype in arrays]

    def run(self, values: list[Any], changes: Any = None, variant: str = "") -> list[Output]:
        """Return functions that return the outputs, computed with state in its variables."""
        feeds = self.feeds(values)
        outputs = self.graphs.run(
            lambda graph, changes: graph(feeds, changes),
            lambda outputs: changes(outputs, self._updated),
            with_xla=bool(variant),
        )
        if outputs is None:
            raise MayHaveLostZeros(variant)
        return outputs

    def run_many(
        self, values: list[Any], runs: int, many: Many, changes: Any, variant: str = ""
    ) -> list[Output]:
        """Return the outputs of many runs: rows for those of each run, else the last run's."""
        if self._loop is None:
            if tables(self._program):
                raise NotLowered("every run of a loop would copy a table that changes by its rows")
            self._loop = Loop(self, many)
        outputs = self._loop.run(
            self._pushed(values),
            runs,
            many.ahead,
            lambda outputs: changes(outputs, self._updated),
            with_xla=bool(variant),
        )
        if outputs is None:
            raise MayHaveLostZeros(variant, self._loop.done)
        return outputs


# The minimum capacity of a loop compiled with XLA.
_ROOM = 64


class Loop:
    """Many runs of a step in one call.

    XLA fixes the lengths of arrays: they have room for more runs than one call may make.

    :ivar done: The number of valid runs, if a later one was invalid.
    """

    def __init__(self, step: Step, many: Many) -> None:
        trace = partial(step._trace, writer=partial(_LoopWriter, many=many))
        what = f"compiling a loop with XLA: {entries_in(step._program)} entries"
        self.graphs = xla.Graphs(trace, what, step._pay, asked=step.graphs.asked)
        self._has_rows = [slot not in many.carried for slot in step.leaves[len(step._state) :]]
        self._room = 0  # for so many runs XLA has compiled it
        self._counts: tuple[tuple[int, int], list[Any]] = (0, 0), []  # how many runs, as tensors
        self.done = 0

    def run(
        self, feeds: list[Array], runs: int, ahead: int, changes: Changes, *, with_xla: bool
    ) -> list[Output] | None:
        def call(graph: StepGraph, changes: Changes) -> list[Output] | None:
            if graph.with_xla and self._room < runs:
                self._room = max(_ROOM, 1 << (ahead - 1).bit_length())
            fed = self._fed(feeds, runs, self._room if graph.with_xla else runs)
            outputs = graph(fed, changes)
            self.done = runs if outputs is not None else int(graph.refused)
            return outputs

        recompiles = self._room < runs
        return self.graphs.run(call, changes, with_xla=with_xla, recompiles=recompiles)

    def _fed(self, feeds: list[Array], runs: int, room: int) -> list[GraphTensor]:
        if self._counts[0] != (runs, room):
            counts: list[Array] = [np.array(runs, np.int32), np.zeros(room, np.int8)]
            self._counts = (runs, room), list(map(to_tensorflow, counts))
        arrays = []
        for array, has_rows in zip(feeds, self._has_rows, strict=True):
            if has_rows:  # a copy with extra rows of zeros, which TensorFlow need not copy
                longer = aligned_empty((room, *array.shape[1:]), array.dtype)
                longer[: len(array)] = array
                longer[len(array) :] = 0
                array = longer
            arrays.append(array)
        return [*self._counts[1], *map(to_tensorflow, arrays)]


class _LoopWriter(Writer):
    """Emits a step's function in a loop.

    Its inputs are the number of runs; an array as long as the others, for XLA; and for each input
    an array with a row for each run, or the first run's value of a carried one. Its outputs:
    whether all runs are valid, the first outputs of all runs, the others of the last run, and the
    number of valid runs.
    """

    def __init__(self, *arguments: Any, many: Many, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._results, self._carried = many.results, many.carried

    def signature(self, inputs: list[int]) -> list[GraphTensor]:
        program = self.program
        lengths = {i: () if i in self._carried else (None,) for i in inputs}
        fed = [tf.TensorSpec((*lengths[i], *program.shapes[i]), program.dtypes[i]) for i in inputs]
        return [tf.TensorSpec((), tf.int32), tf.TensorSpec((None,), tf.int8), *fed]

    def step(self, *feeds: GraphTensor) -> list[GraphTensor]:
        program = self.program
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
            inputs = [
                carried[slot]
                if slot in carried
                else raw.GatherV2(params=x, indices=run, axis=0)
                if slot is not None and program.ops[slot] is INPUT
                else x
                for slot, x in fed
            ]
            stands, outputs, new = self.run_of(inputs, {**fixed, **state})
            carried = {
                slot: x if (place := self._carried[slot]) is None else outputs[place]
                for slot, x in carried.items()
            }
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
