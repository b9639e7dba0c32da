"""A `Program` to one TensorFlow graph, node by node, and its gradient by `tf.GradientTape`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegraph.ir import SCALAR, Array, Program
from tapegraph.lowering import elementwise, index, linalg, nn, reduce, shape
from tapegraph.lowering.exact import exactly
from tapegraph.lowering.rules import GAPS, LOWERINGS, Result
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.transfer import to_numpy, to_tensorflow

for _family in (elementwise, reduce, linalg, shape, index, nn):
    LOWERINGS.update(_family.LOWERINGS)

# Grappler's time grows faster than the graph; past this many entries it costs more than it saves.
GRAPPLER_LIMIT = 250
_BROADCASTING = frozenset(("add", "sub", "mul", "div", "pow", "where", "concat"))
_PRODUCTS = frozenset(("matmul", "batch_matmul"))


class NotLowered(Exception):
    """A program holds an operation with no lowering; the message names it."""


def check_lowers(program: Program) -> None:
    """Refuse a program that holds an operation or a dtype without lowering.

    Raises
    ------
    NotLowered
        Names the operation and the user's line.
    """
    for slot, op in enumerate(program.ops):
        if program.inputs[slot] and op.name not in LOWERINGS:
            why = GAPS.get(op.name, "has no lowering")
            raise NotLowered(f"{op.name} {why}")


class Compiled:
    """One compiled gradient graph: concrete function, feeds, and how to call it.

    Attributes
    ----------
    function : tf.types.experimental.ConcreteFunction
        Takes the fed leaves in slot order, the fed scalars as one float64 vector if any, and
        the seed; returns one gradient a wanted slot.
    seconds : float
        What tracing took.
    """

    def __init__(self, program: Program, fed: Sequence[int], fed_scalars: Sequence[int]) -> None:
        start = time.perf_counter()
        self.fed_scalars = list(fed_scalars)
        tf = tensorflow()
        self.function = _trace(tf, program, fed, set(fed_scalars), exact=False)
        self._exact: Any = None
        self._types = [program.values[slot].dtype for slot in program.wanted]
        self._config = _call_config(len(program))
        self.seconds = time.perf_counter() - start

    def run(self, program: Program, fed: Sequence[int], scalars: list[float], seed: Array) -> Any:
        """Return the gradients of the wanted slots as NumPy arrays."""
        tf = tensorflow()
        feeds = [to_tensorflow(program.values[slot]) for slot in fed]
        if self.fed_scalars:
            feeds.append(tf.constant([scalars[i] for i in self.fed_scalars], dtype=tf.float64))
        feeds.append(to_tensorflow(seed))
        grads = self._call(tf, self.function, feeds)
        if any(np.isnan(np.sum(g)) for g in grads):
            # It may be 0 * inf: the same graph, with gradients in which zero absorbs.
            if self._exact is None:
                self._exact = _trace(tf, program, fed, set(self.fed_scalars), exact=True)
            grads = self._call(tf, self._exact, feeds)
        return grads

    def _call(self, tf: Any, function: Any, feeds: list[Any]) -> list[Array]:
        # Calling the function by its op costs a tenth of calling it as a Python function, and
        # lets graph optimisation be set for this call alone.
        outputs = tf.raw_ops.PartitionedCall(
            args=feeds, Tout=self._types, f=function, config_proto=self._config
        )
        return [to_numpy(t) for t in outputs]


def _call_config(entries: int) -> bytes:
    if entries <= GRAPPLER_LIMIT:
        return b""
    from tensorflow.core.protobuf import config_pb2

    config = config_pb2.ConfigProto()
    config.allow_soft_placement = True
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return bytes(config.SerializeToString())


def specs(tf: Any, program: Program, fed: Sequence[int], fed_scalars: int) -> list[Any]:
    """Return the input types of a program's graph: fed leaves, packed scalars, seed."""
    values = program.values
    result = [tf.TensorSpec(values[s].shape, values[s].dtype, name=f"slot_{s}") for s in fed]
    if fed_scalars:
        result.append(tf.TensorSpec((fed_scalars,), tf.float64, name="scalars"))
    root = values[program.root]
    result.append(tf.TensorSpec(root.shape, root.dtype, name="seed"))
    return result


def _trace(
    tf: Any, program: Program, fed: Sequence[int], fed_scalars: set[int], *, exact: bool
) -> Any:
    def gradients(*feeds: Any) -> list[Any]:
        *leaves, seed = feeds
        packed = leaves.pop() if fed_scalars else None
        tensors: list[Any] = [None] * len(program)
        for slot, leaf in zip(fed, leaves, strict=True):
            tensors[slot] = leaf
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([tensors[s] for s in program.wanted if tensors[s] is not None])
            emit(tf, program, tensors, packed, fed_scalars, exact=exact)
        wanted = [tensors[s] for s in program.wanted]
        found = tape.gradient(
            tensors[program.root],
            wanted,
            output_gradients=seed,
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        return [tf.convert_to_tensor(g) for g in found]

    signature = specs(tf, program, fed, len(fed_scalars))
    function = tf.function(gradients, input_signature=signature, autograph=False)
    return function.get_concrete_function()


def emit(
    tf: Any,
    program: Program,
    tensors: list[Any],
    packed: Any,
    fed_scalars: set[int],
    *,
    exact: bool = False,
    emitted: Callable[[int], None] = lambda slot: None,
) -> None:
    """Fill in the graph tensor of every slot; those of fed leaves are there already.

    Parameters
    ----------
    packed : tf.Tensor or None
        The fed scalars.
    fed_scalars : set of int
        Which scalars, in order of appearance, are fed rather than constant.
    emitted : callable
        Called with each slot once its nodes are there.
    """
    position = 0
    feed = 0
    for slot, op in enumerate(program.ops):
        inputs = program.inputs[slot]
        if op is SCALAR:
            if position in fed_scalars:
                tensors[slot] = packed[feed]
                feed += 1
            position += 1
            continue  # constants are emitted with the reader's dtype
        if not inputs:
            emitted(slot)
            continue
        value = program.values[slot]
        out = Result(value.shape, value.dtype.name)
        operands = _operands(tf, program, slot, tensors, out, emitted)
        rule = exactly(op.name, LOWERINGS[op.name]) if exact else LOWERINGS[op.name]
        result = rule(out, *operands, **program.attrs[slot])
        if tuple(result.shape) != out.shape or result.dtype != out.dtype:
            raise TypeError(
                f"the lowering of {op.name} gives {result.dtype.name} {tuple(result.shape)} where "
                f"the tape has {out.dtype} {out.shape}: {program.describe(slot)}"
            )
        tensors[slot] = result
        emitted(slot)


def _operands(
    tf: Any,
    program: Program,
    slot: int,
    tensors: list[Any],
    out: Result,
    emitted: Callable[[int], None],
) -> list[Any]:
    """Return an entry's input tensors, in the result's dtype where NumPy converts them."""
    name = program.ops[slot].name
    operands = []
    for position, i in enumerate(program.inputs[slot]):
        tensor = tensors[i]
        if tensor is None:
            tensor = tensors[i] = tf.constant(program.values[i], dtype=out.dtype)
            emitted(i)
        converted = name in _PRODUCTS or (
            name in _BROADCASTING and not (name == "where" and position == 0)
        )
        if converted and tensor.dtype != out.dtype:
            tensor = tf.raw_ops.Cast(x=tensor, DstT=out.dtype)
        operands.append(tensor)
    return operands


class Input(NamedTuple):
    """One input of a lowered graph: the slot it feeds, its kind, type and present value."""

    slot: int
    op: str
    name: str | None
    shape: tuple[int, ...]
    dtype: str
    value: Any
