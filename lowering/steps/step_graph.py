"""A whole program as one concrete function, with its state in variables.

The forward, the gradients by ``GradientTape``, the optimizer's updates and their assignment are in
it. Nothing is assigned before everything has been computed and every gradient has been found
without a NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.lowering.calls import DirectCall, public
from tapegraph.lowering.layouts import LaidOut
from tapegraph.lowering.rows.rules import TO_FIRST, cast_to, ints, raw, reordered, reshaped
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.steps import agreement, xla
from tapegraph.lowering.steps.variables import tables
from tapegraph.lowering.translate import emit_entry
from tapegraph.lowering.unsupported import NotLowered
from tapegraph.recording.changes import make
from tapegraph.recording.op import ALL_REDUCE, DERIVATIVES, GRADIENT, JACOBIAN, SCALAR
from tapegraph.recording.program import Program, Recording
from tapegraph.typed import Array

# Constants of up to so many elements are part of the graph, which may compute with them beforehand.
_SMALL = 1024
# Every node takes these.
COMMON = {"float32", "float64", "int64"}
# Gives what `make` takes, from the functions that will give the outputs.
Changes = Callable[[list["Output"]], Iterator[Any]]
_TRUE = np.array(True).data
_ALL = slice(None)


class StepGraph:
    """A step's function.

    ``variables`` holds the state, and ``inputs`` the slots that are fed; ``ran`` says whether it
    has run: the first time takes longer. With XLA one that is ``careful`` does not stand where its
    numbers may not be those of a graph without. ``results_from`` is where the outputs begin in what
    it gives.
    """

    results_from = 1  # after whether they stand

    def __init__(
        self,
        recording: Recording,
        variables: Mapping[int, Any],
        inputs: list[int],
        *,
        with_xla: bool = False,
        careful: bool = True,
    ) -> None:
        tf, program = tensorflow(), recording.program
        # XLA would join constants, so it is fed them, after the inputs.
        hidden = list(_hidden(recording, variables, inputs)) if with_xla else []
        self._hidden = [tf.constant(value) for value, _ in hidden]
        fed = [*([slot] for slot in inputs), *(slots for _, slots in hidden)]
        writer = self._writer(recording, variables, fed, xla=with_xla, careful=careful)
        specs = self._signature(program, inputs)
        traced = tf.function(
            writer.step,
            input_signature=[*specs, *(tf.TensorSpec(h.shape, h.dtype) for h in self._hidden)],
            autograph=False,
            jit_compile=True if with_xla else None,
        )
        with np.errstate(all="ignore"):
            self.call = DirectCall(traced.get_concrete_function(), len(program), xla=with_xla)
        self._shapes = writer.shapes
        self.with_xla = with_xla
        self.ran = False

    def _writer(self, *arguments: Any, **options: Any) -> Writer:
        """Return what emits the function's nodes."""
        return Writer(*arguments, **options)

    def _signature(self, program: Program, inputs: list[int]) -> list[Any]:
        """Return the types of what the function is fed."""
        spec = tensorflow().TensorSpec
        return [spec(program.shapes[i], program.dtypes[i]) for i in inputs]

    def __call__(self, feeds: list[Any], changes: Changes) -> list[Output] | None:
        """Run it, and make the changes that go with the variables' own.

        None where a gradient holds a NaN, or where XLA does not give the same: then nothing has
        been assigned.
        """
        ran: list[Any] = []
        outputs = self._outputs(ran)
        writes = changes(outputs)
        flag: Iterator[Any] = islice(map(memoryview, ran), 1)  # type: ignore[arg-type]
        with self.call.quietly():
            result = self.call.begin([*feeds, *self._hidden])
            try:
                right = self.call.apart(_commit, result, ran, flag, writes)
            except Exception as error:
                raise public(error) from None
        self.ran = True
        if right != _TRUE:
            self._refused(ran)
            return None
        for output in outputs:
            output.settle()
        return outputs

    def _refused(self, ran: list[Any]) -> None:
        """Look at what a run gave that does not stand."""

    def _outputs(self, ran: list[Any]) -> list[Output]:
        """Return what gives the outputs once a list holds the tensors that the graph gives."""
        outputs, place = [], self.results_from
        for shape in self._shapes:
            stop = place + (1 if shape is None else 2)
            outputs.append(Output(ran, slice(place, stop), shape))
            place = stop
        return outputs


def _commit(result: Iterator[Any], ran: list[Any], flag: Iterator[Any], writes: Any) -> Any:
    """Run the graph, make the changes where its numbers stand, and return whether they do.

    No Python function is called from here to `make`, and nothing C has returned from: no signal is
    handled between the graph's assignments and ours.
    """
    ran[:] = result
    (right,) = flag
    if right == _TRUE:
        make(writes)
    return right


class Output:
    """Gives one output of a run as an array that nobody else holds.

    ``place`` is where its tensors are in what the run gave: one, or the rows and values of a
    table's gradient, whose shape is ``shape``.
    """

    __slots__ = ("_place", "_ran", "_shape")

    def __init__(self, ran: list[Any], place: slice, shape: tuple[int, ...] | None) -> None:
        self._ran = ran
        self._place = place
        self._shape = shape

    def settle(self) -> None:
        """Keep the tensors of this output alone."""
        tensors = self._ran[self._place]
        self._ran, self._place = tensors, _ALL

    def __call__(self) -> Array:
        """Return the array."""
        tensors = self._ran[self._place]
        if self._shape is None:
            return np.array(tensors[0])
        rows, values = map(np.asarray, tensors)
        return RowSparse(rows, values, self._shape).dense()


class Writer:
    """Emits a program's nodes, while its function is being traced."""

    def __init__(
        self,
        recording: Recording,
        variables: Mapping[int, Any],
        fed: list[list[int]],
        *,
        xla: bool,
        careful: bool,
    ) -> None:
        self._recording = recording
        self._xla = xla
        self._careful = xla and careful
        self._program = recording.program
        self._variables = variables
        self._fed = fed  # the slots of each feed
        self._inputs = set(chain.from_iterable(fed))
        self._tables = tables(self._program)
        self._of_tables = {
            slot: table
            for table in self._tables.values()
            for slot in (table.product, table.difference)
        }
        # The shape of each output that comes as rows and their values.
        self.shapes: list[tuple[int, ...] | None] = []
        self._numbers = {slot: recording.values[slot] for slot in self._program.scalars}
        # Large constants stay outside the graph.
        self._constants = {
            slot: tensorflow().constant(recording.values[slot])
            for slot in _constants(self._program, variables, self._inputs)
            if recording.values[slot].size > _SMALL
        }

    def step(self, *feeds: Any) -> list[Any]:
        """Return whether the numbers stand, and the outputs."""
        tf = tensorflow()
        right, outputs, new = self.run(feeds, self.read())
        if new:
            with tf.control_dependencies([right, *outputs]):
                tf.cond(right, partial(self._assign, new), lambda: tf.constant(False))
        return [right, *outputs]

    def read(self) -> dict[int, Any]:
        """Return the numbers of state, but of tables, which are read by their rows."""
        dtypes = self._program.dtypes
        return {
            slot: raw.ReadVariableOp(resource=variable.handle, dtype=dtypes[slot])
            for slot, variable in self._variables.items()
            if slot not in self._tables
        }

    def run(
        self, feeds: Sequence[Any], state: Mapping[int, Any]
    ) -> tuple[Any, list[Any], dict[int, Any]]:
        """Return whether the numbers stand, the outputs, and the new numbers of state."""
        tf, program = tensorflow(), self._program
        self._gradients: dict[int, Any] = {}
        self._sums: list[Any] = []
        self._guards: list[Any] = []
        self._stood: Any = True  # at the last all-reduce
        self._tensors = LaidOut(program)
        self._targets = {
            i[1] for op, i in zip(program.ops, program.inputs, strict=True) if op in DERIVATIVES
        }
        for slot, tensor in state.items():
            self._tensors[slot] = tensor
        for slots, feed in zip(self._fed, feeds, strict=True):
            for slot in slots:
                self._tensors[slot] = feed
        with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
            for slot, op in enumerate(program.ops):
                if op is not SCALAR:  # which are emitted in their reader's dtype
                    self._emit(slot, tape)
        del tape
        outputs = []
        self.shapes = []
        for slot in program.outputs:
            tensor = self._tensors[slot]
            if isinstance(tensor, tf.IndexedSlices):
                outputs += [tf.identity(tensor.indices), tf.identity(tensor.values)]
                self.shapes.append(program.shapes[slot])
            else:
                outputs.append(tf.identity(tensor))
                self.shapes.append(None)
                if self._careful and tensor.dtype.is_floating:
                    self._look_at(tensor)
        new = {u.leaf: self._tensors[u.slot] for u in program.updates}
        return self._stands(), outputs, new

    def _emit(self, slot: int, tape: Any) -> None:
        tf, program = tensorflow(), self._program
        if slot in self._tables:
            self._tensors[slot] = self._variables[slot]
        elif slot in self._of_tables:
            self._by_rows(slot)
        elif slot in self._variables:
            pass  # it has been read
        elif program.ops[slot] is GRADIENT:
            y = self._tensors[program.inputs[slot][0]]  # transposed, if need be, on the tape
            with tape.stop_recording():
                if slot not in self._gradients:
                    self._differentiate(slot, y, tape)
            last = self._tensors.lies_last(program.inputs[slot][1])
            self._tensors.put(slot, self._gradients[slot], last=last)
        elif program.ops[slot] is JACOBIAN:
            y = self._tensors[program.inputs[slot][0]]
            with tape.stop_recording():
                if slot not in self._gradients:
                    self._differentiate_rows(slot, y, tape)
            self._tensors.put(slot, self._gradients[slot], last=False)
        elif program.ops[slot] is ALL_REDUCE:
            with tape.stop_recording():
                self._all_reduce(slot)
        elif program.inputs[slot]:
            self._entry(slot, tape)
        elif slot not in self._inputs:
            known = self._constants.get(slot, self._recording.values[slot])
            self._tensors[slot] = tf.convert_to_tensor(known)
        if slot in self._targets:
            tape.watch(self._tensors.as_made(slot))

    def _by_rows(self, slot: int) -> None:
        """Emit the update of a table: the scaled rows, which `_assign` subtracts."""
        tf, table = tensorflow(), self._of_tables[slot]
        if slot == table.product:
            grad, scale = self._tensors[table.gradient], self._tensors[table.scale]
            values = grad.values if isinstance(grad, tf.IndexedSlices) else grad
            scale = self._numbers[table.scale] if scale is None else tf.cast(scale, values.dtype)
            self._tensors[slot] = (
                tf.IndexedSlices(values * scale, grad.indices)
                if isinstance(grad, tf.IndexedSlices)
                else values * scale
            )

    def _entry(self, slot: int, tape: Any) -> None:
        """Emit an operation; where the recording lets no gradient through, none flows here."""
        program, describe = self._program, self._recording.describe
        lets_through = nullcontext() if program.needs[slot] else tape.stop_recording()
        last = self._tensors.runs_last(slot)
        # Others may read what is transposed for this one: before the tape stops recording.
        tensors = self._tensors.read_by(slot, last=last)
        arguments = (tensorflow(), program, slot, tensors, self._numbers)
        try:
            with lets_through:
                result = emit_entry(*arguments, whole=True, last=last, describe=describe)
        except TypeError as error:
            kinds = {program.dtypes[i].name for i in program.inputs[slot]}
            if kinds <= COMMON:
                raise
            names = " and ".join(sorted(kinds))
            raise NotLowered(f"{describe(slot)} has no node of {names} in TensorFlow") from error
        self._tensors.put(slot, result, last=last)
        if self._xla:
            operands = [tensors[i] for i in program.inputs[slot]]  # numbers have theirs by now
            with tape.stop_recording():
                given = (program, slot, operands, result)
                self._guards += agreement.guards(*given, careful=self._careful)

    def _differentiate(self, slot: int, y: Any, tape: Any) -> None:
        """Emit the gradients of one backward, that of ``y``, all at the first of them."""
        tf, program = tensorflow(), self._program
        _, *seed = backward = program.backward_of(slot)
        slots = program.gradients_of(backward)
        targets = [program.inputs[s][1] for s in slots]
        found = tape.gradient(
            y,
            [self._tensors.as_made(target) for target in targets],
            output_gradients=self._tensors[seed[0]] if seed else None,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        for s, grad in zip(slots, found, strict=True):
            self._look_at(grad.values if isinstance(grad, tf.IndexedSlices) else grad)
            by_rows = program.inputs[s][1] in self._tables
            self._gradients[s] = grad if by_rows else tf.convert_to_tensor(grad)

    def _differentiate_rows(self, slot: int, y: Any, tape: Any) -> None:
        """Emit the Jacobian of ``y``: one sweep for all rows, or a loop where that has no nodes."""
        program = self._program
        slots = program.gradients_of(program.backward_of(slot))
        targets = [program.inputs[s][1] for s in slots]
        for s, target, rows in zip(slots, targets, self._rows(y, targets, tape), strict=True):
            rows = reshaped(rows, (program.shapes[s][0], *rows.shape[y.shape.rank :]))
            if self._tensors.lies_last(target):
                rows = reordered(rows, (0, *(1 + axis for axis in TO_FIRST)))
            self._look_at(rows)
            self._gradients[s] = rows

    def _rows(self, y: Any, targets: list[int], tape: Any) -> Any:
        tf = tensorflow()
        sources = [self._tensors.as_made(target) for target in targets]
        how = {"unconnected_gradients": tf.UnconnectedGradients.ZERO}
        try:
            return tape.jacobian(y, sources, **how)
        except ValueError:  # an operation that TensorFlow has for one row at a time
            return tape.jacobian(y, sources, experimental_use_pfor=False, **how)

    def _all_reduce(self, slot: int) -> None:
        """Emit an average over ranks; those of a run that does not stand are told to wait."""
        tf, program = tensorflow(), self._program
        exchange = partial(program.ops[slot].forward, **program.attrs[slot])
        stood, self._stood = self._stood, self._stands()
        given = [*(self._tensors[i] for i in program.inputs[slot]), stood, self._stood]
        result = tf.numpy_function(exchange, given, program.dtypes[slot])
        self._tensors[slot] = tf.ensure_shape(result, program.shapes[slot])
        with tf.control_dependencies([result]):  # nothing is assigned where it fails
            self._guards.append(tf.identity(self._stood))

    def _look_at(self, gradient: Any) -> None:
        """Let a NaN in a gradient be seen."""
        self._sums.append(_total(gradient))

    def _stands(self) -> Any:
        """Return whether no gradient so far holds a NaN, and XLA gives the same."""
        tf, guards = tensorflow(), list(self._guards)
        if self._sums:
            # With XLA a sum of products that overflow may be infinite where it is no number.
            stands = tf.math.is_finite if self._careful else lambda x: ~tf.math.is_nan(x)
            guards.append(stands(tf.add_n(self._sums)))
        return tf.reduce_all(tf.stack(guards)) if guards else tf.constant(True)

    def _assign(self, new: dict[int, Any]) -> Any:
        """Give each leaf its new value, and a table of rows what is new of it."""
        tf, program = tensorflow(), self._program
        for update in program.updates:
            variable, table = self._variables[update.leaf], self._tables.get(update.leaf)
            if table is None:
                raw.AssignVariableOp(resource=variable.handle, value=new[update.leaf])
            elif isinstance(self._tensors[table.product], tf.IndexedSlices):
                variable.scatter_sub(self._tensors[table.product])
            else:
                variable.assign_sub(self._tensors[table.product], read_value=False)
        return tf.constant(True)


def noted(written: list[Any]) -> Iterator[Any]:
    """Note that changes were made, as the last of them."""
    return map(written.append, (True,))


def _hidden(
    recording: Recording, variables: Mapping[int, Any], inputs: list[int]
) -> Iterator[tuple[Array, list[int]]]:
    """Return the constants that XLA is fed, each with its slots."""
    for slot in _constants(recording.program, variables, inputs):
        yield recording.values[slot], [slot]
    yield from xla.hidden_numbers(recording)


def _constants(program: Program, variables: Mapping[int, Any], inputs: Container[int]) -> list[int]:
    """Return the slots of arrays that are neither state nor inputs."""
    return [slot for slot in program.fed if slot not in variables and slot not in inputs]


def _total(tensor: Any) -> Any:
    """Return the sum of all elements in float64: a NaN stays one."""
    total = raw.Sum(input=tensor, axis=ints(range(tensor.shape.rank)))
    return cast_to(total, tensorflow().float64)
