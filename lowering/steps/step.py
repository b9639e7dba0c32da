"""A captured program, run in TensorFlow with its state in variables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from operator import is_
from typing import Any

import numpy as np

from tapegraph.arrays import keep_freed_memory
from tapegraph.engines.engine import Many
from tapegraph.lowering.calls import moved, to_tensorflow
from tapegraph.lowering.rows.rules import NotLowered
from tapegraph.lowering.runtime import GraphTensor, tensorflow
from tapegraph.lowering.steps import xla
from tapegraph.lowering.steps.loop import Loop
from tapegraph.lowering.steps.step_graph import Output, StepGraph
from tapegraph.lowering.steps.variables import tables, variable_of
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
        """Whether XLA runs it, if that is not measured."""
        every = [self.graphs] if self._loop is None else [self.graphs, self._loop.graphs]
        failures = [graphs.failure for graphs in every if graphs.failure]
        if failures:
            return f"; not with XLA: {failures[0]}"
        return " with XLA" if self.graphs.asked else self._note

    def write(self, folder: str | os.PathLike[str]) -> None:
        tf, function = tensorflow(), self.graphs.graph.call.function
        with tf.summary.create_file_writer(os.fspath(folder)).as_default():
            tf.summary.graph(function.graph)

    def feeds(self, values: list[Any]) -> list[GraphTensor]:
        """Push state to its variables, and return the inputs of the graphs; as in `run`."""
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
            self._loop = Loop(
                self._trace, entries_in(self._program), many, self._pay, asked=self.graphs.asked
            )
        has_rows = [slot not in many.carried for slot in self.leaves[len(self._state) :]]
        fed = list(zip(self._pushed(values), has_rows, strict=True))
        outputs = self._loop.run(
            fed,
            runs,
            many.ahead,
            lambda outputs: changes(outputs, self._updated),
            with_xla=bool(variant),
        )
        if outputs is None:
            raise MayHaveLostZeros(variant, self._loop.done)
        return outputs
