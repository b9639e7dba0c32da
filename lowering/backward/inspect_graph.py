"""`lower`: look at a graph without running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from tapegraph.errors import kind_of, message
from tapegraph.lowering.backward.graph import Graph
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.translate import check_lowers, emit, specs
from tapegraph.recording.linearize import History
from tapegraph.recording.node import Node
from tapegraph.recording.op import SCALAR
from tapegraph.recording.program import Program, Recording

if TYPE_CHECKING:
    from tapegraph.tensors.tensor import Tensor


class Input(NamedTuple):
    """One input of a lowered graph: the slot it feeds, its kind, type and present value."""

    slot: int
    op: str
    name: str | None
    shape: tuple[int, ...]
    dtype: str
    value: Any


@dataclass(frozen=True)
class Lowered:
    """A lowered graph.

    :ivar program: The structure of the tape it was made from.
    :ivar node_types: The TensorFlow nodes of each tape entry, in tape order; constant operands such
        as axes and shapes are left out.
    :ivar graph_def: Tf.compat.v1.GraphDef. The forward graph and its gradient.
    :ivar inputs: What is fed, in order; the seed comes after them.
    :ivar tf_function: Takes the inputs and the seed, returns one gradient per wanted leaf.
    """

    program: Program
    node_types: list[list[str]]
    graph_def: Any
    inputs: list[Input]
    tf_function: Any

    def write(self, logdir: str) -> None:
        """Write the graph for TensorBoard: ``tensorboard --logdir LOGDIR`` shows it.

        :param logdir: The folder to write the event file to.
        """
        tf = tensorflow()
        writer = tf.summary.create_file_writer(logdir)
        with writer.as_default(step=0):
            tf.summary.graph(self.tf_function.graph)
        writer.close()


def lower(y: Tensor) -> Lowered:
    """Lower the tape of a result to TensorFlow without running it.

    :param y: A recorded result.
    :returns: Lowered. Node types by entry, the `GraphDef`, the inputs and the function.
    :raises NotLowered: An entry has no lowering; names the operation.
    :raises Unavailable: TensorFlow cannot be used.
    :raises RuntimeError: ``y`` needs no gradient.
    """
    if not isinstance(y, Node) or not y._requires_grad:
        raise RuntimeError(message("lower", kind_of(y), "a recorded Tensor"))
    recording = History([y]).recording
    program = recording.program
    program.wanted.sort()  # in tape order
    check_lowers(program)
    tf = tensorflow()
    function = Graph(recording).function
    inputs = [_input(recording, slot) for slot in program.fed]
    graph_def = function.graph.as_graph_def()
    return Lowered(program, _node_types(tf, recording), graph_def, inputs, function)


def _input(recording: Recording, slot: int) -> Input:
    entry = recording.entry(slot)
    return Input(slot, entry.op, entry.name, entry.shape, entry.dtype.name, entry.value)


def _node_types(tf: Any, recording: Recording) -> list[list[str]]:
    """Emit the forward alone, and return which nodes each entry added."""
    program, fed = recording.program, recording.program.fed
    constants = {slot: recording.values[slot] for slot in program.scalars}
    types: list[list[str]] = [[] for _ in program.ops]
    graph = tf.Graph()
    with graph.as_default():
        tensors: list[Any] = [None] * len(program)
        for slot, spec in zip(fed, specs(tf, program, fed, 0), strict=False):
            tensors[slot] = tf.compat.v1.placeholder(spec.dtype, spec.shape)
        seen = len(graph.get_operations())

        def emitted(slot: int) -> None:
            nonlocal seen
            operations = graph.get_operations()
            added = [operation.type for operation in operations[seen:]]
            seen = len(operations)
            op = program.ops[slot]
            if op is SCALAR:
                types[slot] = ["Const"]
            elif not program.inputs[slot]:
                types[slot] = ["Placeholder"]
            else:
                types[slot] = [t for t in added if t != "Const"]

        emit(tf, program, tensors, constants, emitted=emitted)
    return types
