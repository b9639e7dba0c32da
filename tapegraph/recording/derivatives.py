"""The functions that `tapegraph.grad` and the like return, which give plain numbers for such."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np

from tapegraph.pytree import mapped
from tapegraph.recording.node import Node
from tapegraph.recording.remote import restore

F = TypeVar("F", bound=Callable[..., Any])
_ALL: WeakSet[Callable[..., Any]] = WeakSet()


def derivative_function(f: F) -> F:
    """Note that a function returns plain numbers where it is given no tensor."""
    _ALL.add(f)
    return f


def is_derivative_function(f: Any) -> bool:
    """Return whether `derivative_function` has noted a function, or that of a method."""
    f = getattr(f, "__func__", f)
    return isinstance(f, FunctionType) and f in _ALL  # other callables may have no hash


def as_numbers(result: Any) -> Any:
    """Return a structure with floats and arrays in place of its tensors."""
    return mapped(_as_number, result)


def _as_number(x: Any) -> Any:
    if not isinstance(x, Node):
        return x
    restore(x)  # an engine may have kept its numbers
    array = np.array(x._array)
    return array.item() if array.shape == () else array
