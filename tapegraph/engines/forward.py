"""Which kernels compute forwards: NumPy's, or TensorFlow's for large arrays."""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np

from tapegraph.engines import registry
from tapegraph.engines.engine import EngineDeclined
from tapegraph.errors import message, warn
from tapegraph.interrupts import raise_interrupt
from tapegraph.recording.capture_mode import capturing
from tapegraph.recording.op import Attrs, Op
from tapegraph.recording.scopes import Scope, Setting
from tapegraph.recording.watchers import OTHERS
from tapegraph.typed import Array, Forward

_VARIABLE = "TAPEGRAPH_FORWARD"
NUMPY = "numpy"
# From so many elements on an array is large, where nothing else is said.
THRESHOLD = 64
_CHOICES = (NUMPY, "tensorflow")


class Executor(NamedTuple):
    """Whose kernels, and from how many elements of the largest array on."""

    name: str
    threshold: int = THRESHOLD


def _checked(name: Any, threshold: Any, source: str) -> Executor:
    if name not in _CHOICES:
        choices = ", ".join(map(repr, _CHOICES))
        raise ValueError(f"{source}: received {name!r}; expected one of {choices}")
    if type(threshold) is not int or threshold < 0:
        expected = "a number of elements from 0"
        raise ValueError(message(source, f"threshold={threshold!r}", expected))
    if name != NUMPY and _by_choice not in OTHERS:
        OTHERS.insert(0, _by_choice)
    return Executor(name, threshold)


_chosen: ContextVar[Executor | None] = ContextVar("tapegraph_forward", default=None)
_scopes: Setting[Executor | None] = Setting("tapegraph_use_forward", default=None)


def executor() -> Executor:
    """Return whose kernels are chosen for this thread or task, and from what size on."""
    return _scopes.value() or _chosen.get() or _default


def set_forward(name: Forward, threshold: int = THRESHOLD) -> None:
    """Choose the kernels that compute forwards, for this thread or task.

    They are those of element-wise operations, products and transposes of float32 and float64
    arrays, one of which has at least ``threshold`` elements; NumPy computes the rest, and what is
    recorded by `compile`. Results are NumPy's arrays. NumPy's warnings of overflow are not given.

    :param name: {"numpy", "tensorflow"}. ``tensorflow`` runs its eager kernels, on a GPU where it
        has one.
    :param threshold: In elements, of the largest operand.
    :raises ValueError: For any other name, or a threshold below 0.
    :raises EngineDeclined: At the first operation: TensorFlow is not installed.

    >>> tg.set_forward("numpy")
    >>> tg.get_forward()
    'numpy'
    """
    _chosen.set(_checked(name, threshold, "set_forward"))


def get_forward() -> str:
    """Return whose kernels compute forwards in this thread or task.

    :returns: Str. One of the names that `set_forward` takes.

    >>> tg.get_forward()
    'numpy'
    """
    return executor().name


class use_forward(Scope[Any]):
    """Choose the kernels that compute forwards inside a ``with`` block, or a decorated function.

    :param name: {"numpy", "tensorflow"}. As for `set_forward`.
    :param threshold: As for `set_forward`.
    :raises ValueError: For any other name, or a threshold below 0.

    >>> with tg.use_forward("numpy"):
    ...     tg.exp(0.0).item()
    1.0
    """

    __slots__ = ()

    def __init__(self, name: Forward, threshold: int = THRESHOLD) -> None:
        super().__init__(_scopes, _checked(name, threshold, "use_forward"))


def _by_choice(op: Op, arrays: tuple[Any, ...], attrs: Attrs) -> Array | None:
    """Return the result of an operation by the kernels chosen here; None to leave it to NumPy."""
    name, threshold = executor()
    if name == NUMPY or op.saves or capturing() is not None:
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
        received = f"{type(error).__name__} of the kernel of {name}: {error}"
        warn(message(op.name, received, "its result", "NumPy computed it."), RuntimeWarning)
        return None


_default = _checked(os.environ.get(_VARIABLE) or NUMPY, THRESHOLD, _VARIABLE)
