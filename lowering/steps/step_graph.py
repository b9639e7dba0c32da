"""A whole program as one concrete function, with its state in variables that all steps share.

It holds the forward, the gradients by ``GradientTape``, the optimizer's updates and their
assignment, which follows only if no gradient holds a NaN. If a parameter is read only by rows and
changes by ``p - scale * gradient``, its gradient stays row-sparse, and the update is a scatter.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np

from tapegraph.engines.engine import SgdUpdate, sgd_updates
from tapegraph.interrupts import Lock
from tapegraph.lowering.calls import DirectCall, copied, public
from tapegraph.lowering.rows import raw
from tapegraph.lowering.runtime import GraphTensor, tensorflow, tf
from tapegraph.lowering.translate import Whole, fed_numbers, row_of
from tapegraph.recording.node import Node
from tapegraph.recording.op import GRADIENT
from tapegraph.recording.program import Program, Recording, subprograms
from tapegraph.recording.values import RemoteArray, is_remote, make
from tapegraph.row_sparse import RowSparse
from tapegraph.typed import Array

# Constants of up to so many elements are part of the graph, which may fold them.
_SMALL = 1024
# Returns the changes for `make`, given the functions that return the outputs.
Changes = Callable[[list["Output"]], Iterator[Any]]
_TRUE = np.array(True).data
_ALL = slice(None)
_lock = Lock()
_known: dict[tuple[int, tuple[int, ...], str], StateVariable] = {}


class StepGraph:
    """A step's function.

    :param careful: With XLA, a run is invalid if its numbers may differ from the graph's.
    :ivar refused: The last tensor of an invalid run.
    """

    def __init__(
        self,
        recording: Recording,
        variables: Mapping[int, Any],
        inputs: list[int],
        *,
        with_xla: bool = False,
        careful: bool = True,
        writer: Callable[..., Writer] | None = None,
    ) -> None:
        program = recording.program
        # XLA would join constants, so it is fed them, after the inputs.
        hidden = _fed_constants(recording, variables, inputs) if with_xla else {}
        self._fed_constants = [tf.constant(value) for value, _ in hidden.values()]
        fed = [*([slot] for slot in inputs), *(slots for _, slots in hidden.values())]
        numbers = {i: key for i, key in enumerate(hidden, len(inputs)) if isinstance(key, tuple)}
        emits = (writer or Writer)(
            recording, variables, fed, numbers, xla=with_xla, careful=careful
        )
        types = [tf.TensorSpec(h.shape, h.dtype) for h in self._fed_constants]
        traced = tf.function(
            emits.step,
            input_signature=[*emits.signature(inputs), *types],
            autograph=False,
            jit_compile=True if with_xla else None,
        )
        with np.errstate(all="ignore"):
            self.call = DirectCall(traced.get_concrete_function(), len(program), xla=with_xla)
        self._shapes = emits.shapes
        self.with_xla = with_xla
        self.refused: Any = None

    def __call__(self, feeds: list[GraphTensor], changes: Changes) -> list[Output] | None:
        """Run it and make further changes together; return None, with no change, for a NaN."""
        ran: list[GraphTensor] = []
        outputs, place = [], 1
        for shape in self._shapes:
            stop = place + (1 if shape is None else 2)
            outputs.append(Output(ran, slice(place, stop), shape))
            place = stop
        writes = changes(outputs)
        flag: Iterator[Any] = islice(map(memoryview, ran), 1)  # type: ignore[arg-type]
        result = self.call.begin([*feeds, *self._fed_constants])
        try:
            right = self.call.apart(_commit, result, ran, flag, writes)
        except Exception as error:
            raise public(error) from None
        if right != _TRUE:
            self.refused = ran[-1]
            return None
        for output in outputs:
            output.settle()
        return outputs


def _commit(
    result: Iterator[object], ran: list[GraphTensor], flag: Iterator[object], writes: Any
) -> Any:
    """Run the graph, make the changes if the run is valid, and return whether it is.

    No Python function is called between the graph's assignments and ours: no signal is handled.
    """
    ran[:] = result
    (right,) = flag
    if right == _TRUE:
        make(writes)
    return right


class Output:
    """Returns one output of a run as an array that nobody else holds."""

    __slots__ = ("_place", "_ran", "_shape")

    def __init__(self, ran: list[GraphTensor], place: slice, shape: tuple[int, ...] | None) -> None:
        self._ran, self._place, self._shape = ran, place, shape

    def settle(self) -> None:
        """Keep only the tensors of this output."""
        self._ran, self._place = self._ran[self._place], _ALL

    def __call__(self) -> Array:
        tensors = self._ran[self._place]
        if self._shape is None:
            return np.array(tensors[0])
        rows, values = map(np.asarray, tensors)
        return RowSparse(rows, values, self._shape).dense()


class Writer(Whole):
    """Emits a step's nodes while its function is being traced."""

    def __init__(
        self,
        recording: Recording,
        variables: Mapping[int, Any],
        fed: list[list[int]],
        numbers: Mapping[int, GraphTensor],
        *,
        xla: bool,
        careful: bool,
    ) -> None:
        super().__init__(recording, whole=True, xla=xla, careful=careful)
        self._variables = variables
        self._fed = fed  # the slots of each feed
        self._fed_numbers = numbers  # the feeds that are numbers, and the key of each
        self._inputs = set(chain.from_iterable(fed))
        self._tables = tables(self.program)
        changed = ((t, slot) for t in self._tables.values() for slot in (t.product, t.difference))
        self._of_tables = {slot: table for table, slot in changed}
        # The shape of each output that comes as rows and their values.
        self.shapes: list[tuple[int, ...] | None] = []
        # Large constants stay outside the graph.
        self._constants = {
            slot: tf.constant(recording.values[slot])
            for slot in _constants(self.program, variables, self._inputs)
            if recording.values[slot].size > _SMALL
        }

    def signature(self, inputs: list[int]) -> list[GraphTensor]:
        spec, program = tf.TensorSpec, self.program
        names = [node_name(self.recording.name(i) or f"input_{n}") for n, i in enumerate(inputs)]
        named = zip(inputs, names, strict=True)
        return [spec(program.shapes[i], program.dtypes[i], name=name) for i, name in named]

    def step(self, *feeds: GraphTensor) -> list[GraphTensor]:
        right, outputs, new = self.run_of(feeds, self.read())
        self.assign(right, outputs, new)
        return [right, *outputs]

    def read(self) -> dict[int, GraphTensor]:
        found, graph = {}, tf.compat.v1.get_default_graph()
        for slot, variable in self._variables.items():
            name, handle = variable.name.partition(":")[0], variable.handle
            graph.capture(handle, name=f"{name}/variable")
            if slot not in self._tables:
                dtype = self.program.dtypes[slot]
                found[slot] = raw.ReadVariableOp(resource=handle, dtype=dtype, name=f"{name}/read")
        return found

    def run_of(
        self, feeds: Sequence[GraphTensor], state: Mapping[int, GraphTensor]
    ) -> tuple[Any, list[Any], dict[int, Any]]:
        program = self.program
        leaves = {
            slot: tf.convert_to_tensor(self._constants.get(slot, self.recording.values[slot]))
            for slot in _constants(program, self._variables, self._inputs)
        }
        leaves.update((slot, self._variables[slot]) for slot in self._tables)
        leaves.update(state)
        leaves.update((i, x) for slots, x in zip(self._fed, feeds, strict=True) for i in slots)
        self._numbers = {key: feeds[i] for i, key in self._fed_numbers.items()}
        self.emit(leaves)
        outputs = []
        self.shapes = []
        for slot in program.outputs:
            tensor = self.values[slot]
            if isinstance(tensor, tf.IndexedSlices):
                outputs += [tf.identity(tensor.indices), tf.identity(tensor.values)]
                self.shapes.append(program.shapes[slot])
            else:
                outputs.append(tf.identity(tensor))
                self.shapes.append(None)
                if self._careful and tensor.dtype.is_floating:
                    self._look_at(tensor)
        new = {u.leaf: self.values[u.slot] for u in program.updates}
        return self.stands(), outputs, new

    def operation(self, slot: int) -> Any:
        return self._by_rows(slot) if slot in self._of_tables else super().operation(slot)

    def _by_rows(self, slot: int) -> Any:
        """Return the scaled rows, which `assign` subtracts from a table."""
        table = self._of_tables[slot]
        if slot == table.difference:
            return None
        grad, scale = self.values[table.gradient], self.values[table.scale]
        by_rows = isinstance(grad, tf.IndexedSlices)
        values = grad.values if by_rows else grad
        number = self.recording.values[table.scale]
        scaled = values * (number if scale is None else tf.cast(scale, values.dtype))
        return tf.IndexedSlices(scaled, grad.indices) if by_rows else scaled

    def assign(
        self, stands: GraphTensor, outputs: list[GraphTensor], new: dict[int, GraphTensor]
    ) -> None:

        def assigned() -> GraphTensor:
            for update in self.program.updates:
                variable, table = self._variables[update.leaf], self._tables.get(update.leaf)
                if table is None:
                    raw.AssignVariableOp(resource=variable.handle, value=new[update.leaf])
                elif isinstance(self.values[table.product], tf.IndexedSlices):
                    variable.scatter_sub(self.values[table.product])
                else:
                    variable.assign_sub(self.values[table.product], read_value=False)
            return tf.constant(True)

        if new:
            with tf.control_dependencies([stands, *outputs]):
                tf.cond(stands, assigned, lambda: tf.constant(False))


def _fed_constants(
    recording: Recording, variables: Mapping[int, object], inputs: list[int]
) -> dict[Any, tuple[Array, list[int]]]:
    """Return the constants that XLA is fed, by slot or by the key of a number, and their slots."""
    constants = _constants(recording.program, variables, inputs)
    found: dict[Any, Any] = {slot: (recording.values[slot], [slot]) for slot in constants}
    waiting = [recording]
    for each in waiting:  # grows while it is walked
        for slot, (key, number) in fed_numbers(each).items():
            _, slots = found.setdefault(key, (number, []))
            if each is recording:
                slots.append(slot)
        waiting += (body.recording for attrs in each.program.attrs for body in subprograms(attrs))
    return found


def _constants(
    program: Program, variables: Mapping[int, object], inputs: Container[int]
) -> list[int]:
    return [slot for slot in program.fed if slot not in variables and slot not in inputs]


# State


class StateVariable:
    """A tensor's variable, and the NumPy array known to hold the same numbers."""

    __slots__ = ("_array", "_changed", "_node", "remote", "variable")

    def __init__(self, node: Node) -> None:
        array = node._array
        with tf.init_scope():
            name = node_name(node.name or "state")
            self.variable = tf.Variable(copied(array), trainable=False, name=name)
        self.remote = RemoteArray(self.fetch, node)
        self._node = weakref.ref(node)
        self._remember(node, array)

    def _remember(self, node: Node, array: Array) -> None:
        self._array = array
        self._changed = getattr(node, "_changed", 0)

    def push(self, node: Node) -> None:
        if is_remote(node):
            return
        array = node._array
        if array is not self._array or getattr(node, "_changed", 0) != self._changed:
            self.variable.assign(copied(array))
            self._remember(node, array)

    def fetch(self) -> Array:
        """Return the numbers as an array that nobody else holds."""
        with tensorflow().init_scope():  # a graph that is being traced may need the numbers
            array = np.array(self.variable.read_value())
        node = self._node()
        if node is not None:
            self._remember(node, array)
        return array


def node_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_./-]", "_", name).lstrip("_/-") or "value"


def variable_of(node: Node) -> StateVariable:
    """Return a tensor's variable, made at the first call and freed with the tensor."""
    key = (id(node), node._array.shape, node._array.dtype.str)
    with _lock.held:
        found = _known.get(key)
        if found is None:
            found = StateVariable(node)
            weakref.finalize(node, _known.pop, key, None)
            _known[key] = found
        return found


def tables(program: Program) -> dict[int, SgdUpdate]:
    """Return the updates of tables by the slot of the parameter."""
    all_readers, found = program.readers(), {}
    for leaf, update in sgd_updates(program).items():
        readers = all_readers[leaf] - {update.difference, update.gradient}
        by_rows = all(
            program.ops[slot] is not GRADIENT
            and row_of(program.ops[slot], whole=True).reads_rows(**program.attrs[slot])
            and program.inputs[slot].index(leaf) == 0
            and program.inputs[slot].count(leaf) == 1
            for slot in readers
        )
        if readers and by_rows and leaf not in program.outputs:
            found[leaf] = update
    return found
