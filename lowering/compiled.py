"""A traced gradient graph and how it is called."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph.ir import Array, Program
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.transfer import to_numpy, to_tensorflow
from tapegraph.lowering.translate import emit, specs
from tapegraph.sparse import RowSparse

# Grappler's time grows faster than the graph; past this many entries it costs more than it saves.
GRAPPLER_LIMIT = 250


class Graph:
    """One concrete function that gives the gradients of a program's wanted slots.

    Parameters
    ----------
    program : Program
        What to differentiate; only its structure is kept.
    fed : sequence of int
        The slots that are inputs, in order.
    fed_scalars : sequence of int
        Which scalars, in order of appearance, are inputs too, packed as one float64 vector.
    exact : bool
        Zero cotangents absorb what they meet.

    Attributes
    ----------
    function : tf.types.experimental.ConcreteFunction
        Takes the fed slots, the packed scalars if any, and the seed.
    """

    def __init__(
        self, program: Program, fed: Sequence[int], fed_scalars: Sequence[int], *, exact: bool
    ) -> None:
        tf = tensorflow()
        self._tables: list[tuple[int, ...] | None] = []

        def gradients(*feeds: Any) -> list[Any]:
            *leaves, seed = feeds
            packed = leaves.pop() if fed_scalars else None
            tensors: list[Any] = [None] * len(program)
            for slot, leaf in zip(fed, leaves, strict=True):
                tensors[slot] = leaf
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([tensors[s] for s in program.wanted if tensors[s] is not None])
                emit(tf, program, tensors, packed, set(fed_scalars), exact=exact)
            found = tape.gradient(
                tensors[program.root],
                [tensors[s] for s in program.wanted],
                output_gradients=seed,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            return self._flat(tf, program, found)

        signature = specs(tf, program, fed, len(fed_scalars))
        traced = tf.function(gradients, input_signature=signature, autograph=False)
        self.function = traced.get_concrete_function()
        config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        config.graph_options.rewrite_options.disable_meta_optimizer = len(program) > GRAPPLER_LIMIT
        self._attrs = ("executor_type", "", "config_proto", config.SerializeToString())

    def _execute(self, feeds: list[Any]) -> Any:
        from tensorflow.python.eager import context, execute

        function = self.function
        return execute.execute(
            function.name, len(function.outputs), feeds, self._attrs, context.context()
        )

    def _flat(self, tf: Any, program: Program, found: list[Any]) -> list[Any]:
        """Return the graph's outputs: a leaf of which rows were gathered gives rows and values."""
        outputs = []
        for slot, grad in zip(program.wanted, found, strict=True):
            if isinstance(grad, tf.IndexedSlices) and not program.inputs[slot]:
                self._tables.append(program.values[slot].shape)
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


class Compiled:
    """The graphs of one structure: the fast one, and the exact one for when it gives NaN.

    Attributes
    ----------
    graph : Graph
        The fast one.
    fed_scalars : list of int
        The scalars that are inputs; the others are constants of the graph.
    seconds : float
        What compiling took.
    """

    def __init__(self, program: Program, fed: Sequence[int], fed_scalars: Sequence[int]) -> None:
        start = time.perf_counter()
        self.fed_scalars = list(fed_scalars)
        self.graph = Graph(program, fed, fed_scalars, exact=False)
        self._exact: Graph | None = None
        self.seconds = time.perf_counter() - start

    def run(self, program: Program, fed: Sequence[int], scalars: list[float], seed: Array) -> Any:
        """Return the gradients of the wanted slots."""
        tf = tensorflow()
        feeds = [to_tensorflow(program.values[slot]) for slot in fed]
        if self.fed_scalars:
            feeds.append(tf.constant([scalars[i] for i in self.fed_scalars], dtype=tf.float64))
        feeds.append(to_tensorflow(seed))
        grads = self.graph(feeds)
        if any(_has_nan(g) for g in grads):  # it may be 0 * inf
            if self._exact is None:
                self._exact = Graph(program, fed, self.fed_scalars, exact=True)
            grads = self._exact(feeds)
        return grads


def _has_nan(grad: Any) -> bool:
    array = grad.values if type(grad) is RowSparse else grad
    return bool(np.isnan(np.sum(array)))
