"""Options of an update rule: checked where they are set, at construction, and fixed from then on.

A rule reads them as plain Python values, and a compiled step holds what it read; the one number
that may change at any time is the learning rate.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

import numpy as np

from tapegraph.errors import explain, kind_of
from tapegraph.recording.node import real

T = TypeVar("T")


class _Option(Generic[T]):
    """An attribute that is set once, to a value that was checked."""

    name: str

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> _Option[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> _Option[T] | T:
        if instance is None:
            return self
        try:
            return instance.__dict__[self.name]  # type: ignore[no-any-return]
        except KeyError:
            kind = type(instance).__name__
            fix = "Set a rule's options before super().__init__(params, lr)."
            raise AttributeError(
                explain(kind, f"a read of {self.name}, which is not set", "a set one", fix)
            ) from None

    def __set__(self, instance: object, value: Any) -> None:
        kind = type(instance).__name__
        if self.name in instance.__dict__:
            fix = f"Make a new {kind}, and give it this one's state_dict()."
            received = f"{self.name}={value!r} for an optimizer that exists"
            raise AttributeError(explain(kind, received, "options at construction", fix))
        instance.__dict__[self.name] = self.checked(kind, value)

    def checked(self, kind: str, value: Any) -> T:
        """Return the value as the rule reads it, or raise."""
        raise NotImplementedError


class Number(_Option[float]):
    """A finite number of at least 0.

    Parameters
    ----------
    below : float, optional
        What it must be less than.

    Raises
    ------
    TypeError
        Where it is set to what is no number.
    ValueError
        Where it is set to one outside the interval.

    Examples
    --------
    >>> class Rule:
    ...     momentum = Number()
    >>> rule = Rule()
    >>> rule.momentum = 1
    >>> rule.momentum
    1.0
    """

    def __init__(self, *, below: float = np.inf) -> None:
        self.below = below

    def checked(self, kind: str, value: Any) -> float:
        """Return a float in the interval."""
        return in_interval(kind, self.name, value, self.below)


class Numbers(_Option[tuple[float, ...]]):
    """Some numbers of at least 0 and less than 1, such as the two betas of Adam.

    Parameters
    ----------
    count : int
        How many.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def checked(self, kind: str, value: Any) -> tuple[float, ...]:
        """Return a tuple of floats."""
        if not isinstance(value, (tuple, list)) or len(value) != self.count:
            received = f"{kind_of(value)} for {self.name!r}"
            raise TypeError(explain(kind, received, f"a tuple of {self.count} numbers"))
        names = (f"{self.name}[{i}]" for i in range(self.count))
        return tuple(in_interval(kind, *pair, 1.0) for pair in zip(names, value, strict=True))


class Flag(_Option[bool]):
    """True or false."""

    def checked(self, kind: str, value: Any) -> bool:
        """Return a bool."""
        if not isinstance(value, (bool, np.bool_)):
            raise TypeError(explain(kind, f"{kind_of(value)} for {self.name!r}", "True or False"))
        return bool(value)


def in_interval(kind: str, name: str, value: Any, below: float = np.inf) -> float:
    """Return a number of at least 0 and less than ``below`` as a float.

    Raises
    ------
    TypeError
        It is no number.
    ValueError
        It is outside.
    """
    number = real(value, kind, name)
    if not 0.0 <= number < below:
        bound = "finite and not negative" if below == np.inf else f"at least 0 and below {below:g}"
        raise ValueError(explain(kind, f"{name}={value}", f"a number that is {bound}"))
    return number
