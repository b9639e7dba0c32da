"""A program as one graph of its leaves: the forward alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.transfer import to_numpy, to_tensorflow
from tapegraph.lowering.translate import check_lowers, emit
from tapegraph.recording.recorded import Recording
from tapegraph.typed import Array


def forward(recording: Recording) -> Callable[[list[Array]], list[Array]]:
    """Compile a recorded program to a function of its array leaves, in the order of `Program.fed`.

    Python numbers are constants of it.

    Raises
    ------
    NotLowered
        An operation has no node.
    Unavailable
        TensorFlow cannot be used.
    """
    program = recording.program
    check_lowers(program)
    tf = tensorflow()
    fed = program.fed
    constants = {slot: recording.values[slot] for slot in program.scalars}

    def compute(*arrays: Any) -> list[Any]:
        tensors: list[Any] = [None] * len(program)
        for slot, array in zip(fed, arrays, strict=True):
            tensors[slot] = array
        emit(tf, program, tensors, constants, describe=recording.describe)
        return [tensors[slot] for slot in program.outputs]

    types = [tf.TensorSpec(program.shapes[slot], program.dtypes[slot]) for slot in fed]
    graph = tf.function(compute, input_signature=types, autograph=False).get_concrete_function()

    def run(arrays: list[Array]) -> list[Array]:
        return [to_numpy(t) for t in graph(*map(to_tensorflow, arrays))]

    return run
