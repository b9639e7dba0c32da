"""A captured program, run in TensorFlow with its state in variables."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from operator import is_
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import keep_freed_memory
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
from tapegraph.recording.program import Recording
from tapegraph.recording.remote import array_or_remote
from tapegraph.recording.subprogram import entries_in
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
        unnamed = {slot: f"state_{i}" for i, slot in enumerate(self._state)}
        unnamed |= {slot: f"input_{i}" for i, slot in enumerate(inputs)}
        self._names = {slot: recording.name(slot) or name for slot, name in unnamed.items()}
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
            tf.summary.graph(_renamed(function.graph.as_graph_def(), self._labels()))

    def _labels(self) -> dict[str, str]:
        function = self.graphs.graph.call.function
        slots = {id(self._state[slot].variable.handle): slot for slot in self._state}
        labels = {
            placeholder.op.name: f"{self._names[slots[id(handle)]]}/variable"
            for handle, placeholder in function.graph.captures
            if id(handle) in slots
        }
        inputs = self.leaves[len(self._state) :]
        fed = zip(inputs, function.inputs, strict=False)  # constants and captures may follow
        return labels | {tensor.op.name: self._names[slot] for slot, tensor in fed}

    def feeds(self, values: list[Any]) -> list[GraphTensor]:
        """Push state to its variables, and return the inputs of the graphs; as in `run`."""
        return [self._fed(i, array) for i, array in enumerate(self._pushed(values))]

    def _pushed(self, values: list[Any]) -> list[Array]:
        keep_freed_memory()
        count = len(self._variables)
        if not all(map(is_, map(array_or_remote, values[:count]), self._remotes)):
            for variable, node in zip(self._variables, values, strict=False):
                variable.push(node)
        arrays = zip(values[count:], self._dtypes, strict=True)
        return [np.asarray(array, dtype) for array, dtype in arrays]

    def _fed(self, position: int, array: Array) -> GraphTensor:
        """Return a tensor with its own memory, which a variable or gradient may share."""
        if array.ndim:
            return moved(array)
        bits = array.tobytes()  # a learning rate, say, is the same most of the time
        if self._numbers.get(position, (None,))[0] != bits:
            self._numbers[position] = bits, to_tensorflow(array)
        return self._numbers[position][1]

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


# ------------------------------------------------------------------ for TensorBoard


def _renamed(graph: Any, labels: Mapping[str, str]) -> Any:
    """Return a graph with renamed nodes; readers of a variable are named after it."""
    names = dict(labels)
    for node in graph.node:
        if node.op == "ReadVariableOp" and node.input[0] in labels:
            names[node.name] = labels[node.input[0]].removesuffix("variable") + "read"
    taken = {node.name for node in graph.node}
    for old, label in names.items():
        names[old] = _free(re.sub(r"[^A-Za-z0-9_./-]", "_", label).lstrip("_/-") or "value", taken)
    for node in graph.node:
        node.name = names.get(node.name, node.name)
        node.input[:] = [_input(text, names) for text in node.input]
    return graph


def _input(text: str, names: Mapping[str, str]) -> str:
    """Return a node's input, such as ``^name`` or ``name:1``, with new names."""
    control, name, output = re.fullmatch(r"(\^?)([^:]*)(.*)", text).groups()  # type: ignore[union-attr]
    return control + names.get(name, name) + output


def _free(name: str, taken: set[str]) -> str:
    count, found = 0, name
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found
