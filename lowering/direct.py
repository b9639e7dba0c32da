"""Calling a concrete function as an op of its own name, at a fraction of what Python's call costs.

Graph optimisation is set for this call alone, and the kernels are dropped together with the
function; those of ``PartitionedCall`` TensorFlow would keep for good. What would reorder the sums
and products of a graph is off: ``(x + a) - a`` rounds, and ``x * a / a`` may overflow.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from tapegraph.lowering import quiet
from tapegraph.lowering.runtime import tensorflow

# Grappler's time grows faster than the graph; past this many entries it costs more than it saves.
GRAPPLER_LIMIT = 250


class DirectCall:
    """A concrete function, to be called with eager tensors.

    Parameters
    ----------
    function : tf.types.experimental.ConcreteFunction
        What to call.
    entries : int
        How long the program is that it came from.
    xla : bool
        It is compiled with XLA, at its first call.

    Attributes
    ----------
    xla : bool
        As given.
    """

    def __init__(self, function: Any, entries: int, *, xla: bool = False) -> None:
        self.function = function
        self.xla = xla
        self._captured = list(function.captured_inputs)
        config = tensorflow().compat.v1.ConfigProto(allow_soft_placement=True)
        rewrites = config.graph_options.rewrite_options
        rewrites.disable_meta_optimizer = entries > GRAPPLER_LIMIT
        rewrites.arithmetic_optimization = rewrites.OFF
        rewrites.constant_folding = rewrites.OFF
        self._attrs = ("executor_type", "", "config_proto", config.SerializeToString())
        self._compiles = xla

    def __call__(self, feeds: list[Any]) -> Any:
        """Return the function's outputs, flat."""
        from tensorflow.python.eager import context, execute

        name, outputs = self.function.name, len(self.function.outputs)
        compiles, self._compiles = self._compiles, False
        with quiet.compiling() if compiles else nullcontext():
            given = feeds + self._captured
            return execute.execute(name, outputs, given, self._attrs, context.context())
