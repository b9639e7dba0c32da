"""Options of an update rule: checked where they are set, at construction, and fixed from then on.

A rule reads them as plain Python values, and a compiled step holds what it read; the one number
that may change at any time is the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np

from tapegraph.errors import kind_of, message
from tapegraph.recording.capture_mode import check_not_read, check_outside
from tapegraph.recording.node import as_float

T = TypeVar("T")
# A learning rate: a number, or one for each step, counted from 0.
Rate: TypeAlias = "float | Callable[[int], float]"


class Option(Generic[T]):
    """An attribute that is set once, to what ``check(class name, option name, value)`` returns."""

    def __init__(self, check: Callable[[str, str, Any], T]) -> None:
        self._check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Option[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Option[T] | T:
        if instance is None:
            return self
        if self._name not in instance.__dict__:
            received = f"a read of {self._name}, which is not set"
            fix = "Set a rule's options before super().__init__(params, lr)."
            raise AttributeError(message(owner.__name__, received, "a set one", fix))
        return instance.__dict__[self._name]  # type: ignore[no-any-return]

    def __set__(self, instance: object, value: Any) -> None:
        kind = type(instance).__name__
        if self._name in instance.__dict__:
            fix = f"Make a new {kind}, and give it this one's state_dict()."
            received = f"{self._name}={value!r} for an optimizer that exists"
            raise AttributeError(message(kind, received, "options at construction", fix))
        instance.__dict__[self._name] = self._check(kind, self._name, value)


def number(kind: str, name: str, value: Any, below: float = np.inf) -> float:
    """Return a number of at least 0 and less than ``below`` as a float, or raise."""
    found = as_float(value, kind, name)
    if not 0.0 <= found < below:
        bound = "finite and not negative" if below == np.inf else f"at least 0 and below {below:g}"
        raise ValueError(message(kind, f"{name}={value}", f"a number that is {bound}"))
    return found


fraction = partial(number, below=1.0)


def fractions(kind: str, name: str, value: Any) -> tuple[float, float]:
    """Return two numbers of at least 0 and less than 1, such as the betas of Adam, or raise."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(message(kind, f"{kind_of(value)} for {name!r}", "a tuple of 2 numbers"))
    return fraction(kind, f"{name}[0]", value[0]), fraction(kind, f"{name}[1]", value[1])


def flag(kind: str, name: str, value: Any) -> bool:
    """Return a bool, or raise."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(message(kind, f"{kind_of(value)} for {name!r}", "True or False"))
    return bool(value)


def rate(kind: str, value: Rate) -> Rate:
    """Return a learning rate that has been checked, a schedule by what it gives for step 0."""
    if callable(value):
        rate_at(kind, value, 0)
        return value
    return number(kind, "lr", value)


def rate_at(kind: str, value: Rate, step: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    return number(kind, f"lr({step})", value(step)) if callable(value) else value


def check_rate_is_not_read() -> None:
    """Refuse to read a learning rate in a captured program: it would be frozen."""
    check_not_read("lr", "a learning rate", "Read it outside, or pass it as a float argument.")


def check_rate_is_set_outside() -> None:
    """Refuse to set a learning rate in a captured program: its runs would not."""
    check_outside("lr", "Its runs read the rate anew: set it between them, or give a schedule.")
