"""A traced gradient graph and how it is called."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import nullcontext
from statistics import median
from typing import Any

from tapegraph.arrays.buffers import keep_freed_memory
from tapegraph.arrays.row_sparse import RowSparse, has_nan
from tapegraph.differentiation.tuner import SHARE
from tapegraph.locks import Lock
from tapegraph.lowering import quiet
from tapegraph.lowering.gaps import MetNaN
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.transfer import to_numpy, to_tensorflow
from tapegraph.lowering.translate import emit, specs
from tapegraph.recording.program import Program
from tapegraph.recording.recorded import Recording
from tapegraph.typed import Array

# Grappler's time grows faster than the graph; past this many entries it costs more than it saves.
GRAPPLER_LIMIT = 250
# To compute these again in the graph costs no more than to feed their results.
_FREE = frozenset("reshape transpose add sub mul div neg where".split())
# Operations whose alternatives agree over all their cases, NaN and ties included. XLA's max, for
# one, does not keep a NaN, so what is not listed runs in its first graph alone.
INTERCHANGEABLE = frozenset(
    (
        "add sub mul div pow neg sin cos tan exp log sqrt tanh sigmoid relu abs gelu silu "
        "matmul batch_matmul transpose sum mean softmax reshape tensor_slice concat gather where "
        "getitem index softmax_crossentropy mse_loss"
    ).split()
)
# Runs by which a graph is judged, after the one that prepares it.
TRIALS = 5
# A graph is known by the median of its latest runs: the best of a few is luck.
LATEST = 9
# Seconds per entry, about, to compile an alternative and run it for the first time.
ALTERNATIVE = 5e-3
# XLA never frees what it compiled, so a process compiles no more than this.
XLA_LIMIT = 32
_xla_compiles = 0
_xla_lock = Lock()


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
        Compile with XLA.

    Attributes
    ----------
    function : tf.types.experimental.ConcreteFunction
        Takes the leaves, the results, the packed scalars if any, and the seeds.
    slots : list of int
        The leaves and results, in the order of the function's inputs.
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
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        config.graph_options.rewrite_options.disable_meta_optimizer = len(program) > GRAPPLER_LIMIT
        self._attrs = ("executor_type", "", "config_proto", config.SerializeToString())
        self._compiles = xla  # at its first run

    def feeds(self, recording: Recording, seeds: Sequence[Array]) -> list[Any]:
        """Return the function's inputs for a recording of its structure."""
        keep_freed_memory()
        values = recording.values
        tensors = [to_tensorflow(values[slot]) for slot in self.slots]
        if self._fed_scalars:
            packed = [values[slot] for slot in self._fed_scalars]
            tensors.append(tensorflow().constant(packed, dtype="float64"))
        return [*tensors, *map(to_tensorflow, seeds)]

    def _execute(self, feeds: list[Any]) -> Any:
        from tensorflow.python.eager import context, execute

        name, outputs = self.function.name, len(self.function.outputs)
        compiles, self._compiles = self._compiles, False
        with quiet.compiling() if compiles else nullcontext():
            return execute.execute(name, outputs, feeds, self._attrs, context.context())

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
        """Return the gradients, as NumPy arrays and `RowSparse`.

        The function is called as an op of its own name: at a fraction of what a Python call of it
        costs, with graph optimisation set for this call alone, and with kernels that TensorFlow
        drops together with the function. Those of ``PartitionedCall`` it would keep for good.
        """
        outputs = iter(self._execute(feeds))
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
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch([tensors[s] for s in program.wanted if tensors[s] is not None])
        emit(
            tf,
            program,
            tensors,
            constants,
            stand_ins=stand_ins,
            strong_zero=strong_zero,
            describe=recording.describe,
        )
    return tape.gradient(  # type: ignore[no-any-return]
        [tensors[s] for s in program.outputs],
        [tensors[s] for s in program.wanted],
        output_gradients=list(arrived),
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )


def results_read(recording: Recording, fed_scalars: Sequence[int]) -> list[int]:
    """Return the results that the gradient reads, and that would save work if they were fed."""
    tf = tensorflow()
    program, fed = recording.program, recording.program.fed
    offered = [
        slot
        for slot, op in enumerate(program.ops)
        if program.inputs[slot] and slot not in program.outputs and op.name not in _FREE
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


class Compiled:
    """The graphs of one structure, of which the fastest measured one runs.

    The first recomputes the forward. Once compiling another one would take a tenth of what running
    this one has, the next is tried: one that is fed what NumPy has already computed, and that one
    compiled with XLA. One with strong zeros is kept for after a NaN.

    Attributes
    ----------
    seconds : float
        What compiling the first graph took.
    """

    def __init__(self, recording: Recording, varying: Sequence[int]) -> None:
        start = time.perf_counter()
        program = recording.program
        self._fed_scalars = [program.scalars[position] for position in varying]
        self._lock = Lock()
        self._measured: list[_Measured] = [_Measured(Graph(recording, self._fed_scalars))]
        operations = {op.name for op, i in zip(program.ops, program.inputs, strict=True) if i}
        known = operations <= INTERCHANGEABLE
        self._untried = [_fed_results, _fed_results_with_xla] if known else []
        self._spent = 0.0
        self._settled: _Measured | None = None
        self._results: list[int] | None = None
        self._strong_zero: Graph | None = None
        self.seconds = time.perf_counter() - start

    @property
    def graph(self) -> Graph:
        """The graph that recomputes the forward."""
        return self._measured[0].graph

    def run(self, recording: Recording, seeds: Sequence[Array]) -> list[Any]:
        """Return the gradients of the wanted slots."""
        with self._lock:
            chosen = self._choose(recording)
        start = time.perf_counter()
        try:
            grads = chosen.graph(chosen.graph.feeds(recording, seeds))
        except Exception:
            if chosen is self._measured[0]:
                raise
            chosen.give_up()  # an alternative that does not run is no failure
            self._settled = None
            chosen = self._measured[0]
            grads = chosen.graph(chosen.graph.feeds(recording, seeds))
        seconds = time.perf_counter() - start
        with self._lock:
            chosen.took(seconds)
            self._spent += seconds
        if any(has_nan(g) for g in grads):  # it may be 0 * inf
            try:
                return self._run_strong_zero(recording, seeds)
            except MetNaN as declined:
                declined.grads = grads
                raise
        return grads

    def _choose(self, recording: Recording) -> _Measured:
        if self._settled is not None:
            return self._settled
        for measured in self._measured:
            if measured.runs <= TRIALS:
                return measured
        while self._untried and SHARE * self._spent >= ALTERNATIVE * len(recording):
            self._spent = 0.0
            try:
                graph = self._untried.pop(0)(self, recording)
            except Exception:  # an alternative that cannot be traced is no failure
                graph = None
            if graph is not None:
                self._measured.append(_Measured(graph))
                return self._measured[-1]
        best = min(self._measured, key=lambda m: m.typical)
        if not self._untried:  # measured at different times, they would take turns for ever
            self._settled = best
        return best

    def results(self, recording: Recording) -> list[int]:
        """Return the results worth feeding, found once."""
        if self._results is None:
            self._results = results_read(recording, self._fed_scalars)
        return self._results

    def traced(self, recording: Recording, **options: Any) -> Graph:
        """Trace another graph of this structure."""
        return Graph(recording, self._fed_scalars, **options)

    def _run_strong_zero(self, recording: Recording, seeds: Sequence[Array]) -> list[Any]:
        with self._lock:
            if self._strong_zero is None:
                self._strong_zero = self.traced(recording, strong_zero=True)
        return self._strong_zero(self._strong_zero.feeds(recording, seeds))


class _Measured:
    """A graph and its latest times; the first run prepares it and is not counted."""

    __slots__ = ("graph", "latest", "runs", "typical")

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.runs = 0
        self.latest: deque[float] = deque(maxlen=LATEST)
        self.typical = float("inf")

    def took(self, seconds: float) -> None:
        self.runs += 1
        if self.runs > 1:
            self.latest.append(seconds)
            self.typical = median(self.latest)

    def give_up(self) -> None:
        self.runs = TRIALS + 1
        self.typical = float("inf")


def _fed_results(compiled: Compiled, recording: Recording) -> Graph | None:
    results = compiled.results(recording)
    return compiled.traced(recording, results=results) if results else None


def _fed_results_with_xla(compiled: Compiled, recording: Recording) -> Graph | None:
    """Try XLA only on fed results: it has none but arithmetic to simplify."""
    global _xla_compiles
    # It turns a / b / b, the gradient with respect to a divisor, into a / (b * b), which overflows.
    divides = any(op.name == "div" for op in recording.program.ops)
    if divides or len(recording) > GRAPPLER_LIMIT:
        return None
    with _xla_lock:
        if _xla_compiles >= XLA_LIMIT:
            return None
        _xla_compiles += 1
    return compiled.traced(recording, results=compiled.results(recording), xla=True)
