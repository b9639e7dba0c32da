"""A whole program as one concrete function, with its state in variables.

It holds the forward, the gradients by ``GradientTape``, the optimizer's updates and their
assignment, which follows only if no gradient holds a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import numpy as np

from tapegraph.arrays import RowSparse
from tapegraph.lowering.calls import DirectCall, public
from tapegraph.lowering.rows.rules import raw
from tapegraph.lowering.runtime import GraphTensor, tensorflow
from tapegraph.lowering.steps.variables import node_name, tables
from tapegraph.lowering.translate import Whole, fed_numbers
from tapegraph.recording.program import Program, Recording, subprograms
from tapegraph.recording.values import make
from tapegraph.typed import Array

# Constants of up to so many elements are part of the graph, which may fold them.
_SMALL = 1024
# Returns the changes for `make`, given the functions that return the outputs.
Changes = Callable[[list["Output"]], Iterator[Any]]
_TRUE = np.array(True).data
_ALL = slice(None)


class StepGraph:
    """A step's function.

    :param careful: With XLA, a run is invalid if its numbers may differ from the graph's.
    :param writer: Makes the emitter of its nodes.
    :ivar ran: Whether it has run: the first run takes longer.
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
        tf, program = tensorflow(), recording.program
        # XLA would join constants, so it is fed them, after the inputs.
        hidden = _fed_constants(recording, variables, inputs) if with_xla else []
        self._fed_constants = [tf.constant(each.value) for each in hidden]
        fed = [*([slot] for slot in inputs), *(each.slots for each in hidden)]
        numbers = {i: each.key for i, each in enumerate(hidden, len(inputs)) if each.key}
        emits = (writer or Writer)(
            recording, variables, fed, numbers, xla=with_xla, careful=careful
        )
        traced = tf.function(
            emits.step,
            input_signature=[
                *emits.signature(inputs),
                *(tf.TensorSpec(h.shape, h.dtype) for h in self._fed_constants),
            ],
            autograph=False,
            jit_compile=True if with_xla else None,
        )
        with np.errstate(all="ignore"):
            self.call = DirectCall(traced.get_concrete_function(), len(program), xla=with_xla)
        self._shapes = emits.shapes
        self.with_xla = with_xla
        self.ran = False
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
        self.ran = True
        stands = right == _TRUE
        self.refused = None if stands else ran[-1]
        if not stands:
            return None
        for output in outputs:
            output.settle()
        return outputs


def _commit(
    result: Iterator[object], ran: list[GraphTensor], flag: Iterator[object], writes: Any
) -> Any:
    """Run the graph, make the changes if the run is valid, and return whether it is.

    No Python function is called, and no call of C code returns, between the graph and `make`: no
    signal is handled between the graph's assignments and ours.
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
        self._ran = ran
        self._place = place
        self._shape = shape

    def settle(self) -> None:
        """Keep only the tensors of this output."""
        tensors = self._ran[self._place]
        self._ran, self._place = tensors, _ALL

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
        self._of_tables = {
            slot: table
            for table in self._tables.values()
            for slot in (table.product, table.difference)
        }
        # The shape of each output that comes as rows and their values.
        self.shapes: list[tuple[int, ...] | None] = []
        # Large constants stay outside the graph.
        self._constants = {
            slot: tensorflow().constant(recording.values[slot])
            for slot in _constants(self.program, variables, self._inputs)
            if recording.values[slot].size > _SMALL
        }

    def signature(self, inputs: list[int]) -> list[GraphTensor]:
        spec, program = tensorflow().TensorSpec, self.program
        names = [node_name(self.recording.name(i) or f"input_{n}") for n, i in enumerate(inputs)]
        return [
            spec(program.shapes[i], program.dtypes[i], name=name)
            for i, name in zip(inputs, names, strict=True)
        ]

    def step(self, *feeds: GraphTensor) -> list[GraphTensor]:
        """Return whether the run is valid, and the outputs."""
        right, outputs, new = self.run_of(feeds, self.read())
        self.assign(right, outputs, new)
        return [right, *outputs]

    def read(self) -> dict[int, GraphTensor]:
        """Return the numbers of state, except tables, which are read by rows."""
        found, graph = {}, tensorflow().compat.v1.get_default_graph()
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
        tf, program = tensorflow(), self.program
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
        """Emit the update of a table: the scaled rows, which `assign` subtracts."""
        tf, table = tensorflow(), self._of_tables[slot]
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
        """Assign the new numbers of state after everything else, if the run is valid."""
        tf = tensorflow()

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


class _FedConstant(NamedTuple):
    """A constant that XLA is fed, so that it fuses no two of them."""

    value: Array
    slots: list[int]
    key: Any = None


def _fed_constants(
    recording: Recording, variables: Mapping[int, object], inputs: list[int]
) -> list[_FedConstant]:
    """Return the numbers that XLA is fed, and the slots of each."""
    found = {
        slot: _FedConstant(recording.values[slot], [slot])
        for slot in _constants(recording.program, variables, inputs)
    }
    waiting = [recording]
    for each in waiting:  # grows while it is walked
        for slot, (key, number) in fed_numbers(each).items():
            slots = found.setdefault(key, _FedConstant(number, [], key)).slots
            if each is recording:
                slots.append(slot)
        waiting += (body.recording for attrs in each.program.attrs for body in subprograms(attrs))
    return list(found.values())


def _constants(
    program: Program, variables: Mapping[int, object], inputs: Container[int]
) -> list[int]:
    return [slot for slot in program.fed if slot not in variables and slot not in inputs]
