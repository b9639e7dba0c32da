"""The engine and kernels chosen for a thread or task, and the report of its last backward.

A program that an engine *declined*, or has a *bug* with, never goes to that engine again; a
*transient* failure may not recur. The native engine runs in its place, and each cause is warned of
once.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from tapegraph import display
from tapegraph.display import logger
from tapegraph.engines import registry
from tapegraph.engines.engine import EngineDeclined
from tapegraph.environment import STRICT, wrong_value
from tapegraph.errors import escaped_lines, message, sentence, warn
from tapegraph.interrupts import Lock, raise_interrupt
from tapegraph.recording import scopes
from tapegraph.recording.lost_gradients import strict
from tapegraph.recording.op import Attrs, Op
from tapegraph.recording.scopes import Setting, recorder
from tapegraph.recording.watchers import OTHERS
from tapegraph.typed import Array, Backend, Forward

_VARIABLE = "TAPEGRAPH_BACKEND"


def _one_of(choices: Sequence[str], name: Any, source: str) -> Any:
    """Return a name; raise, for a function or a variable, if it is no choice."""
    if name in choices:
        return name
    expected = f"one of {', '.join(map(repr, choices))}"
    if source.isupper():  # a variable
        raise wrong_value(source, name, expected)
    raise ValueError(f"{source}: received {name!r}; expected {expected}")


def _from_environment() -> Backend:
    name = os.environ.get(_VARIABLE) or registry.AUTO
    return cast(Backend, _one_of(registry.choices(), name, _VARIABLE))


_default = _from_environment()
_chosen: ContextVar[Backend | None] = ContextVar("tapegraph_backend", default=None)
_scoped = scopes.BACKEND.entered.get


def set_backend(name: Backend) -> None:
    """Choose the engine for this thread or task.

    :param name: ``auto`` runs a structure natively first, and in TensorFlow if that is installed,
        every entry lowers, and the graph measured faster.
    :raises ValueError: For any other name.

    >>> tg.set_backend("native")
    >>> tg.get_backend()
    'native'
    """
    _chosen.set(_one_of(registry.choices(), name, "set_backend"))


def get_backend() -> Backend:
    """Return the name of the engine chosen for this thread or task.

    :returns: A name that `set_backend` takes.

    >>> with tg.use_backend("native"):
    ...     tg.get_backend()
    'native'
    """
    inside = scopes.BACKEND.value() if _scoped() else None
    return inside or _chosen.get() or _default


def chosen_by() -> str:
    if scopes.BACKEND.value():
        return "by tg.use_backend"
    if _chosen.get():
        return "by tg.set_backend"
    return f"by {_VARIABLE}" if os.environ.get(_VARIABLE) else f"default; {_VARIABLE} is not set"


class use_backend(scopes.Scope[Any]):
    """Choose the engine inside a ``with`` block, or in a decorated function.

    It applies to its thread or asyncio task, as `no_grad` does, and takes the names of
    `set_backend`.

    >>> with tg.use_backend("native"):
    ...     (tg.param(2.0) * 3.0).backward()
    >>> tg.last_backward().backend
    'native'
    """

    __slots__ = ()

    def __init__(self, name: Backend) -> None:
        super().__init__(scopes.BACKEND, _one_of(registry.choices(), name, "use_backend"))


@dataclass(frozen=True)
class Report:
    """The report of one backward.

    :ivar backend, reason: The engine that ran, and why the native one, or None.
    :ivar entries: The length of the differentiated program.
    :ivar cached: Whether the compiled graph was in the cache.
    :ivar compile_seconds, run_seconds: Seconds spent compiling and running.
    :ivar error: The traceback of another engine's failure, or None.
    """

    backend: str
    reason: str | None
    entries: int
    cached: bool
    compile_seconds: float
    run_seconds: float
    error: str | None = None

    def _repr_html_(self) -> str:
        facts = {
            "engine": self.backend + (f": {self.reason}" if self.reason else ""),
            "entries": f"{self.entries:,}",
            "graph": "found" if self.cached else f"compiled in {self.compile_seconds:.3g} s",
            "ran in": f"{self.run_seconds * 1e3:.3g} ms",
            "error": (self.error or "").strip().rpartition("\n")[2],
        }
        rows = [(name, fact) for name, fact in facts.items() if fact]
        return display.heading("backward") + display.html_table(rows)


# A tuple holds the attributes of a report, in order: it is made for who asks.
LAST: ContextVar[Report | tuple[Any, ...] | None] = ContextVar("tapegraph_report", default=None)


def last_backward() -> Report | None:
    """Return the report of this thread's last backward, or None before the first.

    :returns: The engine, its times, and the reason for the choice.

    >>> with tg.use_backend("native"):
    ...     (tg.param(2.0) * 3.0).backward()
    >>> tg.last_backward().entries
    3
    """
    ran = LAST.get()
    if isinstance(ran, tuple):
        ran = Report(*ran)
        LAST.set(ran)
    return ran


_warned: set[str] = set()
_lock = Lock()


class Failure(NamedTuple):
    """Why an engine did not run; the traceback is text, which keeps no array alive."""

    reason: str
    traceback: str | None = None
    transient: bool = False


def account(name: str, error: Exception) -> Failure:
    """Return why an engine did not run; warn once per cause, or raise under strict mode."""
    if isinstance(error, EngineDeclined):
        failure, cause = Failure(str(error)), str(error)
        if error.expected and get_backend() == registry.AUTO:
            return failure
    else:
        raise_interrupt(error)
        trace = "".join(traceback.format_exception(error))
        try:
            engine = registry.engine(name)
        except Exception:  # it does not even load
            title, transient = f"the engine {name}", False
        else:
            title, transient = engine.title, engine.is_transient(error)
        kind = type(error).__name__
        failure = Failure(f"{title} failed: {kind}: {error}", trace, transient)
        tail = traceback.walk_tb(error.__traceback__)
        places = [f"{frame.f_code.co_filename}:{line}" for frame, line in tail]
        cause = f"{kind} at {''.join(places[-1:])}"  # the same place again is the same cause
    if strict():
        raise RuntimeError(f"backward: {failure.reason} ({STRICT} is set)") from error
    with _lock.held:
        first = cause not in _warned
        _warned.add(cause)
    if first:
        text = escaped_lines(f"backward ran in the native engine: {failure.reason}")
        logger().warning(text)
        warn(text, RuntimeWarning)
    return failure


_KERNELS_VARIABLE = "TAPEGRAPH_FORWARD"
NUMPY = "numpy"
# From so many elements on an array is large, unless the user says otherwise.
THRESHOLD = 64
_KERNELS = (NUMPY, "tensorflow")


class Executor(NamedTuple):
    """The chosen kernels of forwards, and the array size from which they compute."""

    name: str
    threshold: int = THRESHOLD


def _checked_kernels(name: str, threshold: object, source: str) -> Executor:
    _one_of(_KERNELS, name, source)
    if type(threshold) is not int or threshold < 0:
        expected = "a number of elements from 0"
        raise ValueError(message(source, f"threshold={threshold!r}", expected))
    if name != NUMPY and _by_choice not in OTHERS:
        OTHERS.insert(0, _by_choice)
    return Executor(name, threshold)


_chosen_kernels: ContextVar[Executor | None] = ContextVar("tapegraph_forward", default=None)
_kernels_inside: Setting[Executor | None] = Setting("tapegraph_use_forward", default=None)


def executor() -> Executor:
    return _kernels_inside.value() or _chosen_kernels.get() or _default_kernels


def set_forward(name: Forward, threshold: int = THRESHOLD) -> None:
    """Choose the kernels that compute forwards, for this thread or task.

    They compute element-wise operations, products and transposes of float32 and float64 arrays, one
    of which has at least ``threshold`` elements. NumPy computes the others, and all operations
    inside `compile`. Results are NumPy's arrays, without NumPy's warnings of overflow.

    :param name: ``tensorflow`` runs its eager kernels, on a GPU if it has one.
    :param threshold: Number of elements of the largest operand.
    :raises ValueError: For any other name, or a threshold below 0.
    :raises EngineDeclined: At the first operation: TensorFlow is not installed.

    >>> tg.set_forward("numpy")
    >>> tg.get_forward()
    'numpy'
    """
    _chosen_kernels.set(_checked_kernels(name, threshold, "set_forward"))


def get_forward() -> str:
    """Return the name of the kernels that compute forwards in this thread or task.

    :returns: A name that `set_forward` takes.

    >>> tg.get_forward()
    'numpy'
    """
    return executor().name


class use_forward(scopes.Scope[Any]):
    """Choose the kernels that compute forwards inside a ``with`` block, or a decorated function.

    It takes what `set_forward` takes.

    >>> with tg.use_forward("numpy"):
    ...     tg.exp(0.0).item()
    1.0
    """

    __slots__ = ()

    def __init__(self, name: Forward, threshold: int = THRESHOLD) -> None:
        super().__init__(_kernels_inside, _checked_kernels(name, threshold, "use_forward"))


def _by_choice(op: Op, arrays: tuple[object, ...], attrs: Attrs) -> Array | None:
    """Return an operation's result by the chosen kernels, or None if NumPy is to compute."""
    name, threshold = executor()
    if name == NUMPY or op.saves or recorder().capture is not None:
        return None
    sizes = [a.size for a in arrays if isinstance(a, np.ndarray) and a.dtype.char in "fd"]
    plain = sum(type(a) in (int, float) for a in arrays)
    if len(sizes) + plain < len(arrays) or max(sizes, default=0) < max(threshold, 1):
        return None
    try:
        return registry.engine(name).forward(op, arrays, attrs)
    except EngineDeclined:  # it is not installed
        raise
    except Exception as error:
        raise_interrupt(error)
        text = (
            f"the kernel of {name} raised {type(error).__name__}: {error}. NumPy computed the "
            "result."
        )
        warn(sentence(op.name, text), RuntimeWarning)
        return None


_default_kernels = _checked_kernels(
    os.environ.get(_KERNELS_VARIABLE) or NUMPY, THRESHOLD, _KERNELS_VARIABLE
)
