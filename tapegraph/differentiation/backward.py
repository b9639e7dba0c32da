"""`backward`: from a result to the ``.grad`` of its leaves, by the chosen engine.

Inside a capture it records one entry per gradient, which engines differentiate.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import own
from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.differentiation import reads as reads  # tells operations what the tape keeps
from tapegraph.engines import auto, choice, registry
from tapegraph.engines.backend import LAST, get_backend
from tapegraph.engines.choice import CLOCK, Choice
from tapegraph.engines.engine import Engine, Outcome
from tapegraph.engines.fallback_policy import Failure, account
from tapegraph.errors import kind_of, line_number, message, place, sentence
from tapegraph.recording.linearize import History
from tapegraph.recording.node import Node, numeric
from tapegraph.recording.record import keep_parts
from tapegraph.recording.scopes import recorder
from tapegraph.recording.watchers import COMPILING, ENGINE, WATCHING
from tapegraph.typed import Array, ArrayLike, Tensor, Value

_ASKED = Failure("the backend is native")
_ALONE = Failure("auto: no other engine is registered")
_ROWS = Failure("auto: it takes the rows of a Jacobian at once")
# Where Python notes which lines have been warned of; the text names file and line.
_warned: dict[Any, Any] = {}


def backward(y: Tensor | Value, seed: ArrayLike | None = None) -> None:
    """Add the gradient of ``y`` to the ``.grad`` of every leaf it was computed from.

    :param y: The output to differentiate, of any shape.
    :param seed: Array_like of y's shape. The cotangent of ``y``; ones if not given.
    :raises RuntimeError: ``y`` does not require a gradient, its entries were cleared, or a leaf was
        changed after it was recorded.
    :raises ValueError: The seed's shape differs from ``y``'s.
    :raises TypeError: ``y`` is no tensor, the seed is not numeric, or ``y`` is complex and there is
        none.

    Nothing is written unless everything was computed. Calling it twice adds twice.

    The gradient of a real ``L`` by a complex ``z = x + iy`` is ``dL/dx + i dL/dy``, the direction
    in which ``L`` rises fastest, as in PyTorch and TensorFlow: ``z - lr * z.grad`` descends.

    >>> x = tg.param([1.0, 2.0])
    >>> tg.backward(tg.sum(x * x))
    >>> x.grad
    array([2., 4.])
    """
    if not isinstance(y, Node):
        if hasattr(type(y), "__tapegraph_apply__") and hasattr(y, "backward"):
            if seed is not None:
                raise TypeError(
                    sentence("backward", "the seed of a Value is always 1. Leave it out.")
                )
            y.backward()
            return
        raise TypeError(message("backward", kind_of(y), "a Tensor"))
    if not y._requires_grad:
        text = (
            f"the result, {kind_of(y)}, does not require a gradient. Compute it from a tg.param, "
            "outside tg.no_grad(). Results of a compiled step are constants: call backward() "
            "inside the step."
        )
        raise RuntimeError(sentence("backward", text))
    here = recorder()
    given: Any = seed._array if isinstance(seed, Node) and not seed._requires_grad else seed
    borrowed = _borrowed(y, given)
    cotangent = cotangent_of(y, given) if borrowed is None else borrowed
    history = here.between([y])
    warn_of_float64(y, history.entries, history.wanted)
    grads, report = differentiated(history, [cotangent])
    if borrowed is not None:  # what is dense and a view of it is copied as it is stored
        grads = [g.apart([borrowed]) if isinstance(g, RowSparse) else g for g in grads]
    array_given = seed is not None and not isinstance(seed, Node)
    here.add_gradients(history, grads, cotangent if array_given else seed)
    LAST.set(report)


def _borrowed(y: Node, seed: Any) -> Array | None:
    """Return a view of a seed of y's type: nothing writes into it or keeps it."""
    if type(seed) is not np.ndarray or seed.dtype != y._array.dtype or not seed.dtype.isnative:
        return None
    if seed.shape != y._array.shape:
        return None
    view = seed.view()
    view.flags.writeable = False
    return view


def _owned(seed: Array) -> Array:
    """Return a seed that an engine may keep: a borrowed one is read-only."""
    return seed if seed.flags.writeable else own(seed)


def cotangent_of(y: Node, seed: Any) -> Array:
    """Return the seed as an array of y's type; ones if it is None."""
    data = y._array
    if seed is None and data.dtype.kind == "c":
        text = (
            f"the result is complex ({data.dtype}), and only a real loss has a gradient. Take its "
            ".real or tg.abs of it, pass a seed, or differentiate a holomorphic function by "
            "tg.grad(f, holomorphic=True)."
        )
        raise TypeError(sentence("backward", text))
    if seed is None:  # of one number, in a quarter of the time
        return np.ones_like(data) if data.shape else np.array(1, data.dtype)
    array = numeric(seed, "backward", "seed")
    keep_parts("backward", "a seed", array.dtype, data.dtype)
    array = array.astype(data.dtype, copy=False)
    if array.shape != data.shape:
        raise ValueError(
            message("backward", f"a seed of shape {array.shape}", f"y's shape {data.shape}")
        )
    return array


def differentiated(history: History, seeds: list[Array] | None) -> tuple[list[Array], Any]:
    """Run the chosen engine, or the native engine if that one does not run.

    Without seeds it computes the Jacobian of the one result, output axes first: `auto` leaves that
    to the native engine, which sweeps many rows at once.
    """
    if recorder().capture is not None:  # which differentiates its runs by another engine
        return _outcome(registry.engine(registry.NATIVE), history, seeds).grads, LAST.get()
    chosen: str = get_backend()
    tuned = chosen == registry.AUTO
    failure: Failure | None = _ASKED
    found: Choice | None = None
    if tuned and seeds is None:
        chosen, failure = registry.NATIVE, _ROWS
    elif tuned:
        way, failure, found = auto.decide(history)
        chosen = way.engine
    if chosen != registry.NATIVE:
        began = CLOCK.now()
        try:
            engine = registry.engine(chosen)
            if not engine.loaded():
                engine.prepare(history)
            start = CLOCK.now()
            outcome = _outcome(engine, history, seeds and [_owned(s) for s in seeds])
            seconds = CLOCK.now() - start - outcome.compile_seconds
        except Exception as error:
            failure = account(chosen, error)
            if found is not None:
                found.pay(CLOCK.now() - began)
                found.failed(way, failure)
        else:
            if found is not None:
                found.took(way, seconds, start - began + outcome.compile_seconds)
            for watcher in WATCHING.value():
                what, compiling = f"a graph in {engine.title}", outcome.compile_seconds
                watcher.passed(COMPILING, f"compiling {what}", start=start, seconds=compiling)
                watcher.passed(ENGINE, what, start=start + compiling, seconds=seconds)
                again = partial(_outcome, registry.engine(registry.NATIVE), history, seeds)
                watcher.gave(engine.title, outcome.grads, again)
            return outcome.grads, (chosen, None, len(history), *outcome[1:], seconds)
    start = CLOCK.now()
    native = registry.engine(registry.NATIVE)
    if seeds is None:
        grads = native.jacobian(history.recording).grads
    else:
        grads = native.differentiate(history, seeds).grads
    seconds = CLOCK.now() - start
    if found is not None:
        found.took(found.first, seconds)
    elif tuned:
        choice.PROCESS.spent += seconds
    reason, trace, _ = failure or _ALONE
    return grads, (registry.NATIVE, reason, history.length, False, 0.0, seconds, trace)


def _outcome(engine: Engine, history: History, seeds: list[Array] | None) -> Outcome:
    if seeds is None:
        return engine.jacobian(history.recording)
    return engine.differentiate(history, seeds)


def warn_of_float64(y: Node, entries: Sequence[Any], wanted: Iterable[Any]) -> None:
    """Warn, once a line, of operations that widen results of float32 parameters.

    :param y: The result.
    :param entries: The entries of its history, the newest first.
    :param wanted: The parameters.
    """
    if y._array.dtype.char != "d" or all(
        (x if x._array is None else x._array).dtype.char != "f" for x in wanted
    ):
        return
    for node in reversed(entries):
        given = [x for x in node._inputs if isinstance(x, Node)]
        wide = [x for x in given if x.dtype.char == "d"]
        narrow = [x for x in given if x.dtype.char == "f" and x._requires_grad]
        if not (wide and narrow and node.dtype.char == "d"):
            continue
        file, line = node._code.co_filename, line_number(node._code, node._lasti)
        name = f" {narrow[0].name!r}" if narrow[0].name else ""
        fix = 'Write array.astype("float32")'
        if not wide[0].shape:
            fix = "Write a Python number, float(number), which takes the other's dtype"
        warnings.warn_explicit(
            f"{node._op.name}: received float64 of shape {wide[0].shape} beside float32"
            f"{name} of shape {narrow[0].shape}, so that the result and what follows are "
            f"float64; expected one dtype. {fix}, or make the parameters float64: "
            f'tg.param(data, dtype="float64"). (at {place(file, line)})',
            UserWarning,
            file,
            line or 0,
            registry=_warned,
        )
