"""Graphs of a plain backward: traced once per structure and cached.

A graph is fed the large results that the tape kept, which is faster than computing them again.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import numpy as np

from tapegraph.arrays import keep_freed_memory
from tapegraph.differentiation.slopes import SLOPES
from tapegraph.engines.choice import CLOCK
from tapegraph.errors import kind_of, message
from tapegraph.interrupts import Lock
from tapegraph.kinds import Tensor
from tapegraph.lowering.calls import DirectCall, to_numpy, to_tensorflow
from tapegraph.lowering.rows import MetNaN, Result, by_slopes, own_gradient, taped
from tapegraph.lowering.runtime import GraphTensor, tensorflow, tf
from tapegraph.lowering.translate import Translator, check_lowers, specs
from tapegraph.recording.linearize import History
from tapegraph.recording.node import Node
from tapegraph.recording.op import SCALAR
from tapegraph.recording.program import Key, Program, Recording, scalar_bits, touches_complex
from tapegraph.row_sparse import RowSparse, has_nan
from tapegraph.typed import Array

# To hand an array over takes as long as to compute so many elements of a tanh.
LEAST_FED = 1 << 14


class Graph:
    """A concrete function from leaves, results, packed scalars and seeds to wanted gradients."""

    def __init__(
        self,
        recording: Recording,
        fed_scalars: Sequence[int] = (),
        *,
        results: Sequence[int] = (),
        strong_zero: bool = False,
    ) -> None:
        program = recording.program
        check_lowers(program)
        self.slots = [*program.fed, *results]
        self._fed_scalars, self._strong_zero = list(fed_scalars), strong_zero
        self._tables: list[tuple[int, ...] | None] = []

        def gradients(*feeds: GraphTensor) -> list[GraphTensor]:
            return self._flat(program, self._differentiated(recording, feeds))

        signature = specs(program, self.slots, len(fed_scalars))
        traced = tf.function(gradients, input_signature=signature, autograph=False)
        self.function = traced.get_concrete_function()
        self._call = DirectCall(self.function, len(program))

    def __call__(self, recording: Recording, seeds: Sequence[Array]) -> list[Any]:
        keep_freed_memory()
        tensors = [to_tensorflow(recording.value(slot)) for slot in self.slots]
        if self._fed_scalars:
            packed = [recording.values[slot] for slot in self._fed_scalars]
            tensors.append(tensorflow().constant(packed, dtype="float64"))
        outputs = iter(self._call([*tensors, *map(to_tensorflow, seeds)]))
        grads: list[Any] = []
        for table in self._tables:
            grads.append(to_numpy(next(outputs)))
            if table is not None:
                grads[-1] = RowSparse(grads[-1], to_numpy(next(outputs)), table)
        return grads

    def _differentiated(
        self, recording: Recording, feeds: Sequence[GraphTensor]
    ) -> list[GraphTensor]:
        program, arrived = recording.program, iter(feeds)
        leaves = {slot: next(arrived) for slot in self.slots}
        if self._fed_scalars:
            packed = next(arrived)
            for position, slot in enumerate(self._fed_scalars):
                leaves[slot] = packed[position]
        wanted = set(program.wanted)
        translator = Translator(recording, strong_zero=self._strong_zero)
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            for slot in translator.walk(leaves):
                tensors = translator.values
                if slot in leaves and program.inputs[slot]:
                    tensors[slot] = _standing_in(translator, slot, leaves[slot])
                if slot in wanted:
                    tape.watch(tensors[slot])
        ys, xs = ([tensors[s] for s in slots] for slots in (program.outputs, program.wanted))
        return taped(tape, ys, xs, list(arrived))

    def _flat(self, program: Program, found: list[GraphTensor]) -> list[GraphTensor]:
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
    """The graph of one structure, and the one with strong zeros, made when needed."""

    def __init__(self, recording: Recording, varying: Sequence[int]) -> None:
        start = CLOCK.now()
        self._fed_scalars = [recording.program.scalars[place] for place in varying]
        self.graph = Graph(recording, self._fed_scalars, results=results_fed(recording))
        self._strong: Graph | None = None
        self._lock = Lock()
        self.seconds = CLOCK.now() - start

    def run(self, recording: Recording, seeds: Sequence[Array]) -> list[Array]:
        """Return the wanted slots' gradients; raise MetNaN if a user's rule may lose zeros."""
        with np.errstate(all="ignore"):
            grads = self.graph(recording, seeds)
            if not any(map(has_nan, grads)):
                return grads
            try:
                with self._lock.held:
                    self._strong = self._strong or Graph(
                        recording, self._fed_scalars, strong_zero=True
                    )
                return self._strong(recording, seeds)
            except MetNaN as declined:
                declined.grads = grads
                raise


def results_fed(recording: Recording, least: int = LEAST_FED) -> list[int]:
    program = recording.program
    return [
        slot
        for slot, value in enumerate(recording.values)
        if program.inputs[slot]
        and not isinstance(value, Node)
        and slot not in program.outputs
        and not program.ops[slot].several
        and math.prod(program.shapes[slot]) >= least
    ]


def _standing_in(translator: Translator, slot: int, fed: GraphTensor) -> GraphTensor:
    """Return the fed value of a result; its gradient goes where the result's own would.

    Where the tape kept the result, but not all operands, that is the table's: TensorFlow's would
    compute the operands again.
    """
    program = translator.program
    op, inputs = program.ops[slot], program.inputs[slot]
    reads = reduce(or_, op.reads)
    whole = (2 << len(inputs)) - 1
    if op.name not in SLOPES or not reads & 1 or reads == whole or touches_complex(program, slot):
        return own_gradient(lambda y: (tf.identity(fed), lambda g: g), translator.values[slot])
    rule = by_slopes(op.name, lambda out, *xs, **attrs: tf.identity(fed))
    out = Result(program.shapes[slot], program.dtypes[slot].name)
    operands = translator.converted(slot, translator.values)
    return rule(out, *operands, **program.attrs[slot])


# ------------------------------------------------------------------ the cache


class CacheInfo(NamedTuple):
    """Counts of the compiled-graph cache since the last `cache_clear`."""

    hits: int
    misses: int
    size: int
    compiles: int
    evictions: int
    limit: int


class _CachedGraph:
    """The graph of one structure, and which of its scalars have changed."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.compiled: BackwardGraph | None = None
        self.bits: Any = None
        self.varying: set[int] = set()
        self.wiring: Any = None


_lock = Lock()
_entries: OrderedDict[Key, _CachedGraph] = OrderedDict()
_info = CacheInfo(0, 0, 0, 0, 0, limit=128)


def graph_of(recording: Recording) -> tuple[BackwardGraph, float | None]:
    """Return a structure's graph and the seconds that compiling it took, if it did."""
    global _info
    key = recording.program.key
    with _lock.held:
        entry = _entries.get(key) or _entries.setdefault(key, _CachedGraph())
        _entries.move_to_end(key)
        _shrink()
    try:
        with entry.lock.held:
            found, is_new = _compiled(entry, recording)
    except BaseException:
        with _lock.held:
            if _entries.get(key) is entry and entry.compiled is None:
                del _entries[key]
        raise
    with _lock.held:
        made = _info.compiles + is_new
        _info = _info._replace(hits=_info.hits + (not is_new), misses=made, compiles=made)
    return found, found.seconds if is_new else None


def _compiled(entry: _CachedGraph, recording: Recording) -> tuple[BackwardGraph, bool]:
    program, scalars = recording.program, recording.scalars
    bits = scalar_bits(scalars)
    if entry.compiled is None:
        entry.wiring = tuple(zip(program.ops, program.inputs, strict=True))
        with _lock.held:  # what varies does so in all programs of the same wiring
            alike = [e.varying for e in _entries.values() if e.wiring == entry.wiring]
        entry.varying = set().union(*alike)
    else:
        changed = {int(i) for i in np.nonzero(bits != entry.bits)[0]} - entry.varying
        if not changed:
            return entry.compiled, False
        # Scalars that change one after the other would compile each time: the second time, all
        # of them are fed.
        entry.varying = set(range(len(scalars))) if entry.varying else changed
    entry.compiled = BackwardGraph(recording, sorted(entry.varying))
    entry.bits = bits
    return entry.compiled, True


def _shrink() -> None:
    global _info
    while len(_entries) > _info.limit:
        _entries.popitem(last=False)
        _info = _info._replace(evictions=_info.evictions + 1)


def cache_info() -> CacheInfo:
    """Return the counts of the compiled-graph cache; ``misses`` are graphs not found or outgrown.

    :returns: ``hits``, ``misses``, ``size`` in structures, ``compiles``, ``evictions``, ``limit``.
    """
    with _lock.held:
        return _info._replace(size=len(_entries))


def cache_clear() -> None:
    """Drop every compiled graph and set the counts to zero."""
    global _info
    with _lock.held:
        _entries.clear()
        _info = CacheInfo(0, 0, 0, 0, 0, _info.limit)


def set_cache_limit(limit: int) -> None:
    """Bound how many structures the cache holds; the least recently used leave first.

    :param limit: At least 1.
    :raises ValueError: The limit is less than 1.
    """
    global _info
    if limit < 1:
        raise ValueError(message("set_cache_limit", str(limit), "at least 1"))
    with _lock.held:
        _info = _info._replace(limit=int(limit))
        _shrink()


# ------------------------------------------------------------------ looking at a graph


class Input(NamedTuple):
    """One input of a lowered graph: the slot it feeds, its kind, type and present value."""

    slot: int
    op: str
    name: str | None
    shape: tuple[int, ...]
    dtype: str
    value: GraphTensor


@dataclass(frozen=True)
class Lowered:
    """A lowered graph.

    :ivar program: The structure of its tape.
    :ivar node_types: The TensorFlow nodes of each tape entry, in tape order, without constant
        operands such as axes and shapes.
    :ivar graph_def: The forward graph and its gradient, a ``tf.compat.v1.GraphDef``.
    :ivar inputs: The fed values, in order; the seed comes after them.
    :ivar tf_function: Takes the inputs and the seed, returns one gradient per wanted leaf.
    """

    program: Program
    node_types: list[list[str]]
    graph_def: Any
    inputs: list[Input]
    tf_function: Any

    def write(self, logdir: str) -> None:
        """Write the graph to a folder: ``tensorboard --logdir LOGDIR`` shows it."""
        with tf.summary.create_file_writer(logdir).as_default():
            tf.summary.graph(self.tf_function.graph)


def lower(y: Tensor) -> Lowered:
    """Lower the tape of a result to TensorFlow without running it.

    :param y: A recorded result.
    :raises NotLowered: An entry has no lowering; names the operation.
    :raises Unavailable: TensorFlow cannot be used.
    :raises RuntimeError: ``y`` needs no gradient.
    """
    if not isinstance(y, Node) or not y._requires_grad:
        raise RuntimeError(message("lower", kind_of(y), "a recorded Tensor"))
    recording = History([y]).recording
    program = recording.program
    program.wanted.sort()  # in tape order
    function = Graph(recording).function
    fed, entries = program.fed, map(recording.entry, program.fed)
    inputs = [Input(e.slot, e.op, e.name, e.shape, e.dtype.name, e.value) for e in entries]
    types = [["Const"] if op is SCALAR else ["Placeholder"] for op in program.ops]
    graph = tf.Graph()
    with graph.as_default():
        placeholder = tf.compat.v1.placeholder
        found = zip(fed, specs(program, fed, 0), strict=False)  # seeds follow
        leaves = {slot: placeholder(spec.dtype, spec.shape) for slot, spec in found}
        seen = len(graph.get_operations())
        for slot in Translator(recording).walk(leaves):
            operations = graph.get_operations()
            if program.inputs[slot]:
                types[slot] = [op.type for op in operations[seen:] if op.type != "Const"]
            seen = len(operations)
    return Lowered(program, types, function.graph.as_graph_def(), inputs, function)
