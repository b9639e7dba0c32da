"""A program as one graph of its leaves: the forward alone, and with its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tapegraph.arrays import keep_freed_memory
from tapegraph.lowering.calls import DirectCall, to_numpy, to_tensorflow
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.translate import Translator, check_lowers, fed_numbers
from tapegraph.recording.program import Recording
from tapegraph.row_sparse import has_nan
from tapegraph.typed import Array


def forward(recording: Recording) -> Callable[[list[Array]], list[Array]]:
    """Compile a recorded program to a function of its array leaves, in the order of `Program.fed`.

    Python numbers are constants of it.

    :raises NotLowered: An operation has no node.
    :raises Unavailable: TensorFlow cannot be used.
    """
    program = recording.program
    check_lowers(program, whole=True)

    def compute(*arrays: Any) -> list[Any]:
        translator = Translator(recording, whole=True)
        translator.run(dict(zip(program.fed, arrays, strict=True)))
        return [translator.values[slot] for slot in program.outputs]

    return _run(_traced(recording, compute, program.fed))


def gradient(
    recording: Recording, wanted: Sequence[int], *, xla: bool = False
) -> Callable[[list[Array], list[Array]], tuple[list[Array], list[Array]]]:
    """Compile a recorded program to a function that also gives gradients with respect to slots.

    The function takes the array leaves, in the order of `Program.fed`, and a cotangent per output;
    it returns the outputs and a gradient per wanted slot. Where a gradient holds a NaN, it is
    computed once more by a graph in which a zero cotangent absorbs what it meets.

    :raises NotLowered: An operation has no node.
    :raises Unavailable: TensorFlow cannot be used.
    """
    program = recording.program
    check_lowers(program, whole=True)
    graphs: dict[bool, Callable[[list[Array]], list[Array]]] = {}
    # XLA would join two constants: steps feed it the numbers.
    fed = fed_numbers(recording).items() if xla else ()
    numbers = {slot: to_tensorflow(number) for slot, (_, number) in fed}

    def traced(strong_zero: bool) -> Callable[[list[Array]], list[Array]]:
        def compute(*feeds: Any) -> list[Any]:
            seeds = feeds[len(program.fed) :]
            tensors, grads = differentiated(
                recording, wanted, feeds, seeds, strong_zero=strong_zero, numbers=numbers
            )
            return [tensors[slot] for slot in program.outputs] + grads

        return _run(_traced(recording, compute, [*program.fed, *program.outputs], xla=xla))

    def run(arrays: list[Array], seeds: list[Array]) -> tuple[list[Array], list[Array]]:
        for strong_zero in (False, True):
            if strong_zero not in graphs:
                graphs[strong_zero] = traced(strong_zero)
            found = graphs[strong_zero]([*arrays, *seeds])
            results, grads = found[: len(program.outputs)], found[len(program.outputs) :]
            if not any(has_nan(g) for g in grads):
                break
        return results, grads

    return run


def differentiated(
    recording: Recording,
    wanted: Sequence[int],
    arrays: Sequence[Any],
    seeds: Sequence[Any],
    *,
    strong_zero: bool = False,
    numbers: Mapping[int, Any] = MappingProxyType({}),
) -> tuple[list[Any], list[Any]]:
    """Emit a whole program and its gradients, inside a function that is being traced.

    :param wanted: The slots whose gradients are asked for: leaves or results.
    :param arrays, seeds: The array leaves, in the order of `Program.fed`, and a cotangent per
        output.
    :param strong_zero: Zero cotangents absorb what they meet.
    :param numbers: Tensors in place of Python numbers, by slot.
    :returns: Tensors, gradients : list of tf.Tensor. One a slot, and one a wanted slot.
    """
    tf = tensorflow()
    leaves = {**dict(zip(recording.program.fed, arrays, strict=False)), **numbers}
    translator = Translator(recording, strong_zero=strong_zero, whole=True)
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        for slot in translator.walk(leaves):
            if slot in wanted:
                tape.watch(translator.values[slot])
    tensors = translator.values
    grads = tape.gradient(
        [tensors[slot] for slot in recording.program.outputs],
        [tensors[slot] for slot in wanted],
        output_gradients=list(seeds),
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    return tensors, [tf.convert_to_tensor(g) for g in grads]


def _traced(
    recording: Recording,
    compute: Callable[..., list[Any]],
    slots: Sequence[int],
    *,
    xla: bool = False,
) -> DirectCall:
    """Return the function of inputs of these slots' types."""
    tf, program = tensorflow(), recording.program
    types = [tf.TensorSpec(program.shapes[slot], program.dtypes[slot]) for slot in slots]
    jit = True if xla else None
    traced = tf.function(compute, input_signature=types, autograph=False, jit_compile=jit)
    return DirectCall(traced.get_concrete_function(), len(program), xla=xla)


def _run(graph: DirectCall) -> Callable[[list[Array]], list[Array]]:
    def run(arrays: list[Array]) -> list[Array]:
        keep_freed_memory()
        return [to_numpy(t) for t in graph([to_tensorflow(array) for array in arrays])]

    return run
