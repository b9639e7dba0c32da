"""Call a graph: share arrays where that is safe, call cheaply, and reorder no sums and products.

A step's call must be one piece of C code, in which Python handles no signal, so that TensorFlow's
assignments and ours go together. That piece is private to TensorFlow, and tried on a small function
before use. If it is missing or differs, the public operation runs in a thread: Python handles
signals only in the main one.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import cache, partial
from itertools import chain, count, starmap
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tapegraph.arrays import ALIGNMENT, LARGE_BYTES, own
from tapegraph.interrupts import raise_interrupt
from tapegraph.lowering.runtime import GraphTensor, tensorflow
from tapegraph.typed import Array, Fun

_SHARED = frozenset("fdlq")
T = TypeVar("T")


def shareable(array: Array) -> bool:
    """Return whether TensorFlow may read an array's memory: it aborts on less alignment."""
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


def to_tensorflow(array: Array) -> GraphTensor:
    """Return an eager tensor of an array, which shares its memory if `shareable`."""
    if not shareable(array):  # NumPy, which reuses freed memory, copies large ones
        if array.nbytes < LARGE_BYTES or array.dtype.char not in _SHARED:
            return copied(array)
        array = own(array)
    return _shared(array) if shareable(array) else copied(array)


def moved(array: Array) -> GraphTensor:
    if array.ndim and array.size and array.dtype.char in _SHARED:
        return _shared(own(array, align=True))
    return copied(array)


def _shared(array: Array) -> GraphTensor:
    return tensorflow().experimental.dlpack.from_dlpack(array.__dlpack__())


def copied(array: Array) -> GraphTensor:
    # `tf.constant` would drop what a signal handler raises.
    own_bytes = np.array(array, array.dtype.newbyteorder("="), order="C")
    return tensorflow().raw_ops.Identity(input=own_bytes)


def to_numpy(tensor: GraphTensor) -> Array:
    """Return a read-only view of an eager tensor's memory."""
    return np.asarray(tensor)


# ------------------------------------------------------------------ the call

# Grappler's time grows faster than the graph; past this many entries it costs more than it saves.
GRAPPLER_LIMIT = 250

# A function called this often is called by an operation, which saves TensorFlow up to half of the
# time of a small graph. The operation keeps the graph for good: only so many functions may use it.
# It saves nothing where there are branches or loops.
OFTEN, MOST_KEPT = 100, 64
_BRANCHES = frozenset(("If", "StatelessIf", "While", "StatelessWhile"))
_kept = count(1)


class DirectCall:
    """A concrete function of a program with so many entries, called with eager tensors."""

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
        self._name, self._types = function.name, [output.dtype for output in function.outputs]
        self._is_registered = True
        self._calls, self._by_operation = 0, False
        self._operation = ("Tout", self._types, "f", function, "config", "", *self._attrs)

    def begin(self, feeds: list[GraphTensor]) -> Iterator[GraphTensor]:
        """Return an iterator over the function's outputs; taking the first one calls it."""
        if self._is_registered:  # by now its gradients have been emitted
            self._is_registered = False
            _let_go(self.function.graph)
        tensors, found = [*feeds, *self._captured], private()
        if found is None:
            return chain.from_iterable(starmap(self._publicly, ((feeds, tensors),)))
        return self._privately(found, tensors)

    def _privately(self, found: Private, tensors: list[GraphTensor]) -> Iterator[GraphTensor]:
        here = found.context()
        here.ensure_initialized()
        self._calls += 1
        if self._calls == OFTEN and not self.xla:
            types = {operation.type for operation in self.function.graph.get_operations()}
            self._by_operation = not types & _BRANCHES and next(_kept) <= MOST_KEPT
        if self._by_operation:
            given: Any = (here, "StatefulPartitionedCall", None, tensors, *self._operation)
            return chain.from_iterable(starmap(found.operation, (given,)))
        results = len(self._types)
        given = (here._handle, here.device_name, self._name, tensors, self._attrs, results)
        return chain.from_iterable(starmap(found.execute, (given,)))

    def _publicly(self, feeds: list[GraphTensor], tensors: list[GraphTensor]) -> Any:
        if self.xla:
            return self.function(*feeds)
        return tensorflow().raw_ops.StatefulPartitionedCall(
            args=tensors, Tout=self._types, f=self.function, config_proto=self._attrs[-1]
        )

    def apart(self, fn: Callable[..., T], *args: object) -> T:
        """Call a function of `begin`'s result where no signal is handled in between."""
        return fn(*args) if private() is not None else away_from_signals(fn, *args)

    def __call__(self, feeds: list[GraphTensor]) -> list[GraphTensor]:
        try:
            return list(self.begin(feeds))
        except Exception as error:
            raise public(error) from None


def public(error: Exception) -> Exception:
    """Return the error that TensorFlow's own call raises for one of its C code."""
    found = private()
    if found is None or not isinstance(error, found.failure):
        return error
    return found.public(error)


def _let_go(graph: Any) -> None:
    """Remove a graph's own gradients, already emitted, from a registry that keeps it alive."""
    try:
        from tensorflow.python.framework import ops

        registered = ops.gradient_registry._registry
    except (ImportError, AttributeError):  # it is private, and only memory
        return
    graphs, seen = [graph], set()
    for graph in graphs:  # grows while it is walked: those of loops and branches are inside
        for operation in graph.get_operations():
            if operation.type == "IdentityN":  # the end of a function with its own gradient
                registered.pop(operation.node_def.attr["_gradient_op_type"].s.decode(), None)
        for name, function in getattr(graph, "_functions", {}).items():
            if name not in seen and hasattr(function, "graph"):
                seen.add(name)
                graphs.append(function.graph)


class Private(NamedTuple):
    """TensorFlow's private calls of a function, as an op or by the operation for calls."""

    context: Callable[[], Any]
    execute: Fun
    operation: Fun
    failure: type[Exception]
    public: Callable[[Exception], Exception]


@cache
def private() -> Private | None:
    """Return TensorFlow's private call, or None if it has changed."""
    tf = tensorflow()
    try:
        from tensorflow.python import pywrap_tfe
        from tensorflow.python.eager import context, core

        found = Private(
            context.context,
            pywrap_tfe.TFE_Py_Execute,
            pywrap_tfe.TFE_Py_FastPathExecute,
            core._NotOkStatusException,
            core._status_to_exception,
        )
        with tf.init_scope():
            x = tf.constant([1.0, 2.0])
            spec = tf.TensorSpec(x.shape, x.dtype)
            traced = tf.function(lambda x: [x + 1.0, x], input_signature=[spec], autograph=False)
            call = DirectCall(traced.get_concrete_function(), 1)
            for call._by_operation in (False, True):
                first, second = call._privately(found, [x])
                if [*first.numpy(), *second.numpy()] != [2.0, 3.0, 1.0, 2.0]:
                    return None
            return found
    except Exception as error:  # it is nobody's promise
        raise_interrupt(error)
    return None


def away_from_signals(fn: Callable[..., T], *args: object) -> T:
    """Call a function where no signal handler runs, and wait for it whatever a handler raises."""
    if threading.current_thread() is not threading.main_thread():
        return fn(*args)
    results: list[T] = []
    failures: list[BaseException] = []
    finished = _thread.allocate_lock()
    finished.acquire()

    def finish() -> None:
        try:
            results.append(fn(*args))
        except BaseException as error:
            failures.append(error)
        finally:
            finished.release()

    run = partial(copy_context().run, finish)
    started: list[int] = []
    interrupt: BaseException | None = None
    while not (results or failures):
        try:
            if not started:  # in one call, lest it be started twice
                started.extend(map(_thread.start_new_thread, (run,), ((),)))
            finished.acquire(timeout=1.0)
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
    if failures:
        raise failures[0]
    return results[0]
