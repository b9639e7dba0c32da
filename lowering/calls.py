"""Calling a graph: arrays handed over without a copy where that is safe, and a cheap call.

A concrete function is called as an op of its own name, at a fraction of what Python's call costs.
Graph optimisation is set for this call alone, and the kernels are dropped together with the
function; those of ``PartitionedCall`` TensorFlow would keep for good. What would reorder the sums
and products of a graph is off: ``(x + a) - a`` rounds, and ``x * a / a`` may overflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, starmap
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import ALIGNMENT, LARGE, own
from tapegraph.lowering import tf_log
from tapegraph.lowering.runtime import tensorflow
from tapegraph.typed import Array

_SHARED = frozenset("fdlq")


def shareable(array: Array) -> bool:
    """Return whether TensorFlow may read an array's own memory.

    Its kernels abort the process on memory that is aligned to less.
    """
    flags = array.flags
    return bool(
        array.size
        and array.ndim
        and flags.c_contiguous
        and flags.writeable
        and array.dtype.char in _SHARED
        and array.dtype.isnative
        and array.ctypes.data % ALIGNMENT == 0
    )


def to_tensorflow(array: Array) -> Any:
    """Return an eager tensor of an array's value.

    The memory is shared where `shareable`; the array must then stay unchanged while TensorFlow
    runs. Everything else is copied, what is large by NumPy: its memory is kept when it is freed,
    where TensorFlow's would be new pages in every run.
    """
    tf = tensorflow()
    if array.nbytes >= LARGE and array.dtype.char in _SHARED and not shareable(array):
        array = own(array)
    if shareable(array):
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return copied(array)


def copied(array: Array) -> Any:
    """Return an eager tensor of a copy of an array.

    The constructor of eager tensors, which ``tf.constant`` calls, reads a property of the context
    and drops what it raises, so that a signal's handler could raise in vain; an operation does not.
    """
    own_bytes = np.array(array, array.dtype.newbyteorder("="), order="C")
    return tensorflow().raw_ops.Identity(input=own_bytes)


def to_numpy(tensor: Any) -> Array:
    """Return a read-only view of an eager tensor's memory."""
    return np.asarray(tensor)


# Grappler's time grows faster than the graph; past this many entries it costs more than it saves.
GRAPPLER_LIMIT = 250


class DirectCall:
    """A concrete function, to be called with eager tensors.

    ``entries`` is the length of the program that it came from; with ``xla`` its first call
    compiles.
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
        self._is_registered = True

    def begin(self, feeds: list[Any]) -> Iterator[Any]:
        """Return what gives the function's outputs: taking the first one calls it.

        That is one piece of C code, in which Python handles no signal. What it raises, `public`
        makes the error that it is in TensorFlow's own calls.
        """
        from tensorflow.python import pywrap_tfe
        from tensorflow.python.eager import context

        here = context.context()
        here.ensure_initialized()
        given = (self.function.name, [*feeds, *self._captured], self._attrs)
        arguments = (here._handle, here.device_name, *given, len(self.function.outputs))
        return chain.from_iterable(starmap(pywrap_tfe.TFE_Py_Execute, (arguments,)))

    def __call__(self, feeds: list[Any]) -> list[Any]:
        """Return the function's outputs, flat."""
        with self.quietly():
            try:
                return list(self.begin(feeds))
            except Exception as error:
                raise public(error) from None

    def quietly(self) -> AbstractContextManager[None]:
        """Return what the first call is made in, which may compile."""
        compiles, self._compiles = self._compiles, False
        if self._is_registered:
            self._is_registered = False
            _let_go(self.function.graph)
        return tf_log.compiling() if compiles else nullcontext()


def public(error: Exception) -> Exception:
    """Return the error that TensorFlow's own call raises for one of its C code."""
    from tensorflow.python.eager import core

    if isinstance(error, core._NotOkStatusException):
        return core._status_to_exception(error)  # type: ignore[no-any-return]
    return error


def _let_go(graph: Any) -> None:
    """Take a graph's own gradients out of TensorFlow's registry, whose entries hold it for good.

    What a program differentiates is a part of its graph by now.
    """
    from tensorflow.python.framework import ops

    registered = ops.gradient_registry._registry
    for operation in graph.get_operations():
        if operation.type == "IdentityN":  # which is what a function with its own gradient ends in
            registered.pop(operation.node_def.attr["_gradient_op_type"].s.decode(), None)
