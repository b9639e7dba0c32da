"""Calling a graph: arrays handed over without a copy where that is safe, and a cheap call.

Graph optimisation is set for this call alone. What would reorder the sums
and products of a graph is off: ``(x + a) - a`` rounds, and ``x * a / a`` may overflow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import chain, starmap
from typing import Any, TypeVar

import numpy as np

from tapegraph.arrays.buffers import ALIGNMENT, LARGE_BYTES, own
from tapegraph.lowering import execute, tf_log
from tapegraph.lowering.runtime import tensorflow
from tapegraph.typed import Array

_SHARED = frozenset("fdlq")
_AS_IT_IS = nullcontext()
T = TypeVar("T")


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
    if not shareable(array):
        if array.nbytes < LARGE_BYTES or array.dtype.char not in _SHARED:
            return copied(array)
        array = own(array)
    return _shared(array) if shareable(array) else copied(array)


def moved(array: Array) -> Any:
    """Return an eager tensor of a copy of an array, which nobody else holds."""
    if array.ndim and array.size and array.dtype.char in _SHARED:
        return _shared(own(array, align=True))
    return copied(array)


def _shared(array: Array) -> Any:
    return tensorflow().experimental.dlpack.from_dlpack(array.__dlpack__())


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
# A function that has been called so often is called by the cheap operation, whose kernel stays for
# good, with the graph: no more of them than this. It is not cheap where there is a branch.
OFTEN, MOST_KEPT = 100, 64
_BRANCHES = frozenset(("If", "StatelessIf", "While", "StatelessWhile"))
_kept = 0


class DirectCall:
    """A concrete function, to be called with eager tensors.

    ``entries`` is the length of the program that it came from; with ``xla`` its first call
    compiles.
    """

    def __init__(self, function: Any, entries: int, *, xla: bool = False) -> None:
        self.function = function
        self.xla = xla
        self._name = function.name
        self._captured = list(function.captured_inputs)
        self._types = [output.dtype for output in function.outputs]
        config = tensorflow().compat.v1.ConfigProto(allow_soft_placement=True)
        rewrites = config.graph_options.rewrite_options
        rewrites.disable_meta_optimizer = entries > GRAPPLER_LIMIT
        rewrites.arithmetic_optimization = rewrites.OFF
        rewrites.constant_folding = rewrites.OFF
        self._config = config.SerializeToString()
        self._is_registered = True
        self._calls = 0
        self._private = execute.private()
        if self._private is not None:
            self._way = self._private.by_name

    def begin(self, feeds: list[Any]) -> Iterator[Any]:
        """Return what gives the function's outputs: taking the first one calls it.

        That is one piece of C code, in which Python handles no signal; or else, inside `apart`, it
        is in a thread where it handles none. What it raises, `public` makes the error that it is in
        TensorFlow's own calls.
        """
        tensors = [*feeds, *self._captured]
        if self._private is None:
            call = partial(execute.by_public_operation, xla=self.xla)
            given = (self.function, tensors, self._types, self._config)
            return chain.from_iterable(starmap(call, (given,)))
        self._calls += 1
        if self._calls == OFTEN and not self.xla and self._is_straight() and _claim():
            self._way = self._private.by_operation
        return self._way(self.function, self._name, tensors, self._types, self._config)

    def _is_straight(self) -> bool:
        operations = self.function.graph.get_operations()
        return _BRANCHES.isdisjoint(operation.type for operation in operations)

    def apart(self, fn: Callable[..., T], *args: Any) -> T:
        """Call a function that takes what `begin` gave, where no signal is handled in between."""
        if self._private is None:
            return execute.away_from_signals(fn, *args)
        return fn(*args)

    def __call__(self, feeds: list[Any]) -> list[Any]:
        """Return the function's outputs, flat."""
        with self.quietly():
            try:
                return list(self.begin(feeds))
            except Exception as error:
                raise public(error) from None

    def quietly(self) -> AbstractContextManager[None]:
        """Return what the first call is made in, which may compile."""
        if not self._is_registered:
            return _AS_IT_IS
        self._is_registered = False
        _let_go(self.function.graph)
        return tf_log.compiling() if self.xla else _AS_IT_IS


def _claim() -> bool:
    """Count one more kernel that stays, or return False where there are as many as there may be."""
    global _kept
    _kept += 1
    return _kept <= MOST_KEPT


def public(error: Exception) -> Exception:
    """Return the error that TensorFlow's own call raises for one of its C code."""
    private = execute.private()
    return error if private is None else private.error(error)


def _let_go(graph: Any) -> None:
    """Take a graph's own gradients out of TensorFlow's registry, whose entries hold it for good.

    What a program differentiates is a part of its graph by now.
    """
    try:
        from tensorflow.python.framework import ops

        registered = ops.gradient_registry._registry
    except (ImportError, AttributeError):  # it is private, and only memory
        return
    for operation in graph.get_operations():
        if operation.type == "IdentityN":  # which is what a function with its own gradient ends in
            registered.pop(operation.node_def.attr["_gradient_op_type"].s.decode(), None)
