"""Which engine differentiates: names, lazy loading, the fallback policy and the report."""

from __future__ import annotations

import importlib
import logging
import os
import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from tapegraph.differentiation import stored, tuner
from tapegraph.differentiation.recorded_backward import record_backward
from tapegraph.errors import explain, kind_of, warn
from tapegraph.locks import Lock
from tapegraph.recording import concretization, scopes
from tapegraph.recording.concretization import follows
from tapegraph.recording.conversions import STRICT, strict
from tapegraph.recording.node import Node, constant, numeric
from tapegraph.recording.recorded import Recording
from tapegraph.recording.trace import linearise
from tapegraph.typed import Array, ArrayLike, Backend

if TYPE_CHECKING:
    from tapegraph.tensors.tensor import Tensor
    from tapegraph.tensors.value import Value

BACKENDS = ("auto", "tensorflow", "native")
VARIABLE = "TAPEGRAPH_BACKEND"

_logger = logging.getLogger("tapegraph")
_logger.addHandler(logging.NullHandler())  # printed only where logging is configured
_warned: set[str] = set()
_warned_lock = Lock()


@dataclass(frozen=True)
class Report:
    """What one backward did.

    Attributes
    ----------
    backend : str
        The engine that ran: ``"tensorflow"`` or ``"native"``.
    reason : str or None
        Why the native engine ran, else None.
    entries : int
        The length of the differentiated program.
    cached : bool
        Whether a compiled graph was found.
    compile_seconds, run_seconds : float
        Seconds spent compiling and running.
    """

    backend: Literal["tensorflow", "native"]
    reason: str | None
    entries: int
    cached: bool
    compile_seconds: float
    run_seconds: float


def _checked(name: Any, source: str) -> Backend:
    if name not in BACKENDS:
        choices = ", ".join(repr(b) for b in BACKENDS)
        raise ValueError(f"{source}: received {name!r}; expected one of {choices}")
    return cast(Backend, str(name))


_default = _checked(os.environ.get(VARIABLE) or "auto", VARIABLE)
_chosen: ContextVar[Backend | None] = ContextVar("tapegraph_backend", default=None)
_report: ContextVar[Report | None] = ContextVar("tapegraph_report", default=None)


def set_backend(name: Backend) -> None:
    """Choose the engine for this thread or task.

    Parameters
    ----------
    name : {"auto", "tensorflow", "native"}
        ``auto`` runs a structure natively first, and in TensorFlow once that pays: where it is
        installed, every entry lowers, and the graph measured faster.

    Raises
    ------
    ValueError
        For any other name.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.set_backend("native")
    >>> tg.get_backend()
    'native'
    """
    _chosen.set(_checked(name, "set_backend"))


def get_backend() -> Backend:
    """Return the name of the engine chosen for this thread or task.

    Returns
    -------
    {"auto", "tensorflow", "native"}

    Examples
    --------
    >>> import tapegraph as tg
    >>> with tg.use_backend("native"):
    ...     tg.get_backend()
    'native'
    """
    return scopes.BACKEND.value() or _chosen.get() or _default


def chosen_by() -> str:
    """Say where the backend in force was chosen."""
    if scopes.BACKEND.value():
        return "by tg.use_backend"
    if _chosen.get():
        return "by tg.set_backend"
    return f"by {VARIABLE}" if os.environ.get(VARIABLE) else f"default; {VARIABLE} is not set"


class use_backend(scopes.Scope[Any]):
    """Choose the engine inside a ``with`` block, or in a decorated function.

    It holds in its thread or asyncio task as `no_grad` does.

    Parameters
    ----------
    name : {"auto", "tensorflow", "native"}
        As for `set_backend`.

    Raises
    ------
    ValueError
        For any other name.

    Examples
    --------
    >>> import tapegraph as tg
    >>> with tg.use_backend("native"):
    ...     (tg.param(2.0) * 3.0).backward()
    >>> tg.last_backward().backend
    'native'
    """

    __slots__ = ()

    def __init__(self, name: Backend) -> None:
        super().__init__(scopes.BACKEND, _checked(name, "use_backend"))


def last_backward() -> Report | None:
    """Return the report of this thread's last backward, or None before the first.

    Returns
    -------
    Report or None

    Examples
    --------
    >>> import tapegraph as tg
    >>> with tg.use_backend("native"):
    ...     (tg.param(2.0) * 3.0).backward()
    >>> tg.last_backward().entries
    3
    """
    return _report.get()


def backward(y: Tensor | Value, seed: ArrayLike | None = None) -> None:
    """Add the gradient of ``y`` to the ``.grad`` of every leaf it was computed from.

    Parameters
    ----------
    y : Tensor
        The output to differentiate, of any shape.
    seed : array_like of y's shape, optional
        The cotangent of ``y``; ones where not given.

    Raises
    ------
    RuntimeError
        ``y`` needs no gradient, its entries were cleared, or a leaf was changed after it was
        recorded.
    ValueError
        The seed's shape differs from ``y``'s.
    TypeError
        ``y`` is no tensor, or the seed is not numeric.

    Notes
    -----
    Nothing is written unless everything was computed. Calling it twice adds twice.

    Examples
    --------
    >>> import tapegraph as tg
    >>> x = tg.param([1.0, 2.0])
    >>> tg.backward(tg.sum(x * x))
    >>> x.grad
    array([2., 4.])
    """
    if not isinstance(y, Node):
        if hasattr(type(y), "__tapegraph_apply__") and hasattr(y, "backward"):
            if seed is not None:
                raise TypeError(explain("backward", "a seed for a Value", "none: it is 1"))
            y.backward()
            return
        raise TypeError(explain("backward", kind_of(y), "a Tensor"))
    if not y._requires_grad:
        raise RuntimeError(
            explain(
                "backward",
                f"{kind_of(y)} that needs no gradient",
                "a result computed from tg.param with recording on",
                "Make its inputs with tg.param, and compute it outside tg.no_grad().",
            )
        )
    recorded = concretization.current()
    if recorded is not None:
        given = seed if follows(seed) else None if seed is None else constant(_seed(y, seed))
        record_backward(recorded, y, given, _seed(y, given if given is None else given._array))
        return
    cotangent = _seed(y, seed)
    recording = linearise([y])
    grads, report = _differentiate(recording, [cotangent])
    stored.write([recording.nodes[slot] for slot in recording.program.wanted], grads)
    _report.set(report)


def _seed(y: Node, seed: Any) -> Array:
    data = y._array
    if seed is None:
        return np.ones_like(data)
    array = numeric(seed, "backward", "seed").astype(data.dtype, copy=False)
    if array.shape != data.shape:
        raise ValueError(
            explain("backward", f"a seed of shape {array.shape}", f"y's shape {data.shape}")
        )
    return array


def _differentiate(recording: Recording, seeds: list[Array]) -> tuple[list[Array], Report]:
    """Run the chosen engine; whatever goes wrong in TensorFlow, the native sweep runs instead."""
    program = recording.program
    backend = get_backend()
    reason: str | None = "the backend is native"
    known: tuner.Record | None = None
    if backend != "native":
        try:
            lowering = importlib.import_module("tapegraph.lowering")
            reason = None
            if backend == "auto":
                lowering.check(program)
                known = tuner.record(program, imported=lowering.loaded())
                reason = known.why_native()
            if reason is None:
                grads, *took = lowering.gradients(recording, seeds)
                report = Report("tensorflow", None, len(program), *took)
                if known is not None:
                    known.ran_compiled(report.run_seconds, report.compile_seconds)
                return grads, report
        except Exception as error:
            reason = _reason(error)
            if known is not None:
                known.failure = reason
    native = importlib.import_module("tapegraph.fallback")
    start = time.perf_counter()
    grads = native.gradients(recording, seeds)
    seconds = time.perf_counter() - start
    if known is not None:
        known.ran_natively(seconds)
    return grads, Report("native", reason, len(program), False, 0.0, seconds)


def _reason(error: Exception) -> str:
    """Say why TensorFlow did not run: once a cause aloud, or as an error under strict.

    ``auto`` expects some tapes to run natively, so those causes are only reported.
    """
    kind = type(error).__name__
    expected = kind in ("Forked", "NotLowered", "Unavailable")
    reason = str(error) if expected else f"TensorFlow failed: {kind}: {error}"
    if expected and kind != "Forked" and get_backend() == "auto":
        return reason
    if strict():
        raise RuntimeError(f"backward: {reason} ({STRICT} is set)") from error
    cause = reason if expected else f"{kind} at {_origin(error)}"
    with _warned_lock:
        first = cause not in _warned
        _warned.add(cause)
    if first:
        message = f"backward ran in the native engine: {reason}"
        _logger.warning(message)
        warn(message, RuntimeWarning)
    return reason


def _origin(error: Exception) -> str:
    """Return where an error was raised: the same place again is the same cause."""
    trace = error.__traceback__
    place = ""
    while trace is not None:
        place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place
