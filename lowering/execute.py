"""The call of a concrete function: what TensorFlow's own calls end in, or a public operation.

A step's call is to be one piece of C code, in which Python handles no signal: what the graph
assigns and what Python notes of it go together. TensorFlow's public calls are such a piece with
Python around it. The piece is private; it is named in this file alone, and tried on a small
function before it is used. Where TensorFlow has it no longer, or it gives something else, the
public operation is called in a thread: Python handles signals in the main one alone.
"""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable, Iterator, Sequence
from contextvars import copy_context
from functools import cache, partial
from itertools import chain, starmap
from typing import Any, TypeVar

from tapegraph.interrupts import raise_interrupt
from tapegraph.lowering.runtime import tensorflow

T = TypeVar("T")
_OPERATION = "StatefulPartitionedCall"


class Private:
    """TensorFlow's private calls: each returns an iterator whose first item calls.

    A function is called as an op of its own name, whose kernel goes with the function; or by the
    operation that calls functions, at a third of the price, whose kernel stays for good.
    """

    def __init__(self) -> None:
        from tensorflow.python import pywrap_tfe
        from tensorflow.python.eager import context, core

        self._context = context.context
        self._execute = pywrap_tfe.TFE_Py_Execute
        self._fast_execute = pywrap_tfe.TFE_Py_FastPathExecute
        self._error = core._NotOkStatusException
        self._public = core._status_to_exception

    def by_name(
        self, function: Any, name: Any, tensors: list[Any], types: list[Any], config: bytes
    ) -> Iterator[Any]:
        """Call a function as an op."""
        here = self._context()
        here.ensure_initialized()
        attrs = ("executor_type", "", "config_proto", config)
        given = (here._handle, here.device_name, name, tensors, attrs, len(types))
        return chain.from_iterable(starmap(self._execute, (given,)))

    def by_operation(
        self, function: Any, name: Any, tensors: list[Any], types: list[Any], config: bytes
    ) -> Iterator[Any]:
        """Call a function by the operation; not one of XLA's, which it would not compile."""
        here = self._context()
        here.ensure_initialized()
        attrs = ("Tout", types, "f", function, "config", "", "config_proto", config)
        given = (here, _OPERATION, None, tensors, *attrs, "executor_type", "")
        return chain.from_iterable(starmap(self._fast_execute, (given,)))

    def error(self, error: Exception) -> Exception:
        """Return the error that TensorFlow's own call raises for one of its C code."""
        if isinstance(error, self._error):
            return self._public(error)  # type: ignore[no-any-return]
        return error


@cache
def private() -> Private | None:
    """Return TensorFlow's private calls, or None where they are not what they were."""
    tf = tensorflow()
    try:
        found = Private()
        with tf.init_scope():
            x = tf.constant([1.0, 2.0])
            spec = tf.TensorSpec(x.shape, x.dtype)
            traced = tf.function(lambda x: [x + 1.0, x], input_signature=[spec], autograph=False)
            function = traced.get_concrete_function()
            types = [x.dtype, x.dtype]
            for call in (found.by_name, found.by_operation):
                first, second = call(function, function.name, [x], types, b"")
                if [*first.numpy(), *second.numpy()] != [2.0, 3.0, 1.0, 2.0]:
                    return None
    except Exception as error:  # it is nobody's promise
        raise_interrupt(error)
        return None
    return found


def by_public_operation(
    function: Any, tensors: Sequence[Any], types: list[Any], config: bytes, *, xla: bool
) -> Any:
    """Call a concrete function by what TensorFlow documents; with XLA it is its own call."""
    if xla:
        given = len(tensors) - len(function.captured_inputs)
        return function(*tensors[:given])
    operation = getattr(tensorflow().raw_ops, _OPERATION)
    return operation(args=list(tensors), Tout=types, f=function, config_proto=config)


def away_from_signals(fn: Callable[..., T], *args: Any) -> T:
    """Call a function where no signal handler runs, and wait for it, whatever one raises here."""
    if threading.current_thread() is not threading.main_thread():
        return fn(*args)
    results: list[Callable[[], T]] = []
    finished = _thread.allocate_lock()
    finished.acquire()
    run = partial(copy_context().run, _finish, results, finished, fn, args)
    started: list[int] = []
    interrupt: BaseException | None = None
    while not results:
        try:
            if not started:  # in one call, lest it be started twice
                started.extend(map(_thread.start_new_thread, (run,), ((),)))
            finished.acquire(timeout=1.0)
        except BaseException as error:
            interrupt = error
    if interrupt is not None:
        raise interrupt
    return results[0]()


def _finish(
    results: list[Callable[[], T]], finished: Any, fn: Callable[..., T], args: tuple[Any, ...]
) -> None:
    try:
        value = fn(*args)
        results.append(lambda: value)
    except BaseException as error:
        results.append(partial(_raise, error))
    finally:
        finished.release()


def _raise(error: BaseException) -> Any:
    raise error
