"""A program that was captured, run in TensorFlow with its state in variables.

It runs as one graph. Once enough time has passed for it to pay, that graph is compiled with XLA
too, and the faster one stays. Where a run with XLA finds that its numbers may not be the graph's,
it has changed nothing, and the graph runs. So does a run that fails: it changes nothing.

Where the user asks for XLA, the graph with it is the only one, unless XLA does not compile it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import keep_freed_memory
from tapegraph.engines import tuner
from tapegraph.engines.engine import Many
from tapegraph.engines.tuner import CLOCK, Candidate, Tuner
from tapegraph.interrupts import raise_interrupt
from tapegraph.lowering.calls import moved, to_tensorflow
from tapegraph.lowering.runtime import is_transient
from tapegraph.lowering.steps import board, xla
from tapegraph.lowering.steps.loop import LoopGraph, check_loops
from tapegraph.lowering.steps.many import ManyRuns
from tapegraph.lowering.steps.step_graph import Changes, StepGraph, noted
from tapegraph.lowering.steps.variables import variable_of
from tapegraph.lowering.unsupported import NotLowered
from tapegraph.progress import announce
from tapegraph.recording.node import Node
from tapegraph.recording.op import INPUT
from tapegraph.recording.program import Recording
from tapegraph.typed import Array, Xla


class MayHaveLostZeros(NotLowered):
    """A gradient held a NaN, which may be 0 * inf: the native engine knows. Nothing was changed."""

    def __init__(self, runs_done: int = 0) -> None:
        super().__init__("a gradient held a NaN, and only the native engine keeps zeros in a step")
        self.runs_done = runs_done


class Step:
    """A whole program in TensorFlow.

    ``leaves`` are the slots whose values `run` takes, in order; of state it takes the tensors.
    ``option`` is `compile`'s about XLA.
    """

    keeps_state = True

    def __init__(
        self, recording: Recording, state: Mapping[int, Node], option: Xla = "auto"
    ) -> None:
        program = recording.program
        self._entries = len(program)
        self._state = {slot: variable_of(node) for slot, node in state.items()}
        inputs = [slot for slot in program.fed if program.ops[slot] is INPUT]
        self.leaves = [*self._state, *inputs]
        unnamed = {slot: f"state_{i}" for i, slot in enumerate(self._state)}
        unnamed |= {slot: f"input_{i}" for i, slot in enumerate(inputs)}
        self._names = {slot: recording.name(slot) or name for slot, name in unnamed.items()}
        self._dtypes = [program.dtypes[slot] for slot in inputs]
        self._updated = [self._state[update.leaf] for update in program.updates]
        variables = {slot: v.variable for slot, v in self._state.items()}
        self._trace = partial(StepGraph, recording, variables, inputs)
        self._looped = partial(LoopGraph, recording, variables, inputs)
        self._program = program
        self._many: ManyRuns | None = None
        self._when, self._without_xla = xla.use(recording, option)  # and why
        self._at_once = self._when is xla.When.AT_ONCE
        price = xla.price(self._entries)
        with_xla = partial(self._trace, with_xla=True, careful=not self._at_once)
        self._with_xla = Candidate(with_xla, lambda: price)
        self._choose_among(*xla.candidates(self._when, lambda: self._graph, self._with_xla))
        self.compile_seconds = 0.0
        self._setbacks = 0
        self._numbers: dict[int, tuple[bytes, Any]] = {}  # what was fed last, and its tensor
        self._latest: StepGraph | None = None

    def _choose_among(self, *candidates: Candidate) -> None:
        self.tuner = Tuner(candidates, trials=tuner.POLICY.variant_trials, horizon=0)

    @cached_property
    def _graph(self) -> StepGraph:
        """The graph without XLA."""
        return self._trace()

    @property
    def variant(self) -> str:
        """Which graph ran last, and what is known of the other."""
        text = " with XLA" if self._latest is not None and self._latest.with_xla else ""
        if self._without_xla:
            return f"{text}; not with XLA: {self._without_xla}"
        if len(self.tuner.verdict) > 1:
            (_, plain), (_, compiled) = self.tuner.verdict
            text += f"; {1e3 * compiled:.3g} ms with XLA, {1e3 * plain:.3g} ms without"
        return text

    def write(self, folder: str | os.PathLike[str]) -> None:
        """Write the graph for TensorBoard, under the names of parameters and inputs."""
        board.write(folder, self._graph.call.function, self._labels())

    def _labels(self) -> dict[str, str]:
        """Return the names of parameters and inputs, by those of the graph's placeholders."""
        function = self._graph.call.function
        slots = {id(self._state[slot].variable.handle): slot for slot in self._state}
        labels = {
            placeholder.op.name: f"{self._names[slots[id(handle)]]}/variable"
            for handle, placeholder in function.graph.captures
            if id(handle) in slots
        }
        inputs = self.leaves[len(self._state) :]
        fed = zip(inputs, function.inputs, strict=False)  # constants and captures may follow
        return labels | {tensor.op.name: self._names[slot] for slot, tensor in fed}

    def try_variant(self, limit: float) -> bool:
        """Compile it with XLA next, if that costs at most so many seconds; return whether."""
        untried = self.tuner.untried
        if not untried or untried[0].price() > limit:
            return False
        self.tuner.try_next()
        return True

    def feeds(self, values: list[Any]) -> list[Any]:
        """Bring state to its variables, and return what the graphs are fed; as in `run`."""
        return [self._fed(i, array) for i, array in enumerate(self._pushed(values))]

    def _pushed(self, values: list[Any]) -> list[Array]:
        """Bring state to its variables, and return the arrays of inputs."""
        keep_freed_memory()
        for variable, node in zip(self._state.values(), values, strict=False):
            variable.push(node)
        arrays = zip(values[len(self._state) :], self._dtypes, strict=True)
        return [np.asarray(array, dtype) for array, dtype in arrays]

    def _fed(self, position: int, array: Array) -> Any:
        """Return a tensor of memory of its own: a variable or a gradient may share it for long."""
        if array.ndim:
            return moved(array)
        bits = array.tobytes()  # a learning rate, say, is the same most of the time
        if self._numbers.get(position, (None,))[0] != bits:
            self._numbers[position] = bits, to_tensorflow(array)
        return self._numbers[position][1]

    def run(self, values: list[Any], changes: Any = None) -> list[Any]:
        """Compute the outputs, and the new numbers of state in its variables.

        Each function returned gives an output as an array that nobody else holds. Raise
        `MayHaveLostZeros` where a gradient holds a NaN.
        """
        feeds = self.feeds(values)
        written = partial(_with, changes, [variable.remote for variable in self._updated])
        chosen, _ = self.tuner.choose()
        graph = chosen.way
        prepared = isinstance(graph, StepGraph) and graph.ran  # the first run is no measurement
        start = CLOCK.now()
        outputs = None
        if chosen is self._with_xla:
            outputs = self._run_with_xla(chosen, feeds, written)
        if outputs is None:
            self._latest = self._graph
            outputs = self._graph(feeds, written)
        self.tuner.took(chosen, CLOCK.now() - start, counts=prepared)
        if outputs is None:
            raise MayHaveLostZeros
        return outputs

    def run_many(self, values: list[Any], runs: int, many: Many, changes: Any) -> list[Any]:
        """Compute the outputs of many runs: those of each in rows, and the last one's of others."""
        if self._many is None:
            check_loops(self._program)
            trace = partial(self._looped, results=many.results, carried=many.carried)
            self._many = ManyRuns(trace, self._entries, self._when)
        feeds = self._pushed(values)
        has_rows = (slot not in many.carried for slot in self.leaves[len(self._state) :])
        written = partial(_with, changes, [variable.remote for variable in self._updated])
        before = self._many.compile_seconds
        fed = list(zip(feeds, has_rows, strict=True))
        outputs = self._many.run(fed, runs, many.ahead, written)
        self.compile_seconds += self._many.compile_seconds - before
        self._latest = self._many.latest
        if outputs is None:
            raise MayHaveLostZeros(self._many.done)
        return outputs

    def _run_with_xla(
        self, candidate: Candidate, feeds: list[Any], changes: Changes
    ) -> list[Any] | None:
        """Return the outputs, or None: then nothing has been changed, and the graph is to run."""
        start, compiles = CLOCK.now(), not isinstance(candidate.way, StepGraph)
        outputs = None
        what = f"compiling a step with XLA: {self._entries} entries"
        written: list[Any] = []
        try:
            # The first run of all is announced already.
            with announce(what) if compiles and not self._at_once else nullcontext():
                if compiles:
                    if not xla.claim() and not self._at_once:
                        raise NotLowered(f"this process has compiled {xla.LIMIT} programs with it")
                    candidate.way = candidate.way()
                self._latest = candidate.way
                outputs = candidate.way(feeds, lambda o: chain(changes(o), noted(written)))
        except Exception as error:  # what XLA cannot compile is no failure: the graph runs
            if written:
                raise
            raise_interrupt(error)
            reason = xla.reason(error)
            if compiles or not is_transient(error):
                self._drop(candidate, reason)
            else:
                self._set_back(candidate, reason)
        else:
            if outputs is None and self._at_once:
                raise MayHaveLostZeros
            if outputs is None:
                self._set_back(candidate, "its numbers may not have been the graph's")
            else:
                self._setbacks = 0
        finally:
            if compiles:
                self.compile_seconds += CLOCK.now() - start
        return outputs

    def _set_back(self, candidate: Candidate, reason: str) -> None:
        """Note that the graph has to run instead; after a few times in a row it stays."""
        self._setbacks += 1
        if self._setbacks >= tuner.POLICY.trials:
            self._drop(candidate, reason)

    def _drop(self, candidate: Candidate, reason: str) -> None:
        self.tuner.drop(candidate)
        self._without_xla = reason
        if self._at_once:
            self._at_once = False
            self._choose_among(Candidate(self._graph))
            xla.failed_at_once(reason)


def _with(changes: Any, remote: list[Any], outputs: list[Any]) -> Iterator[Any]:
    return changes(outputs, remote)  # type: ignore[no-any-return]
