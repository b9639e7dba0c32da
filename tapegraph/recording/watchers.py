"""What computes forwards, and who looks on, at gradients too, such as `tapegraph.anomaly`.

NumPy alone computes, unless an engine's kernels were chosen for large arrays or somebody looks on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegraph.recording.op import NO_ATTRS, Attrs, Op
from tapegraph.recording.program import Recording
from tapegraph.recording.scopes import RECORDING, Scope, Setting


class AskStrong(Exception):
    """A watcher wants a sweep to be run again with strong zeros: what it saw may be 0 * inf."""


class AskReal(Exception):
    """A watcher wants to see a real call of a compiled step, in place of a run of its program."""


# What time goes to.
FORWARD, TAPE, ENGINE = "forward", "recording", "engine"
UPDATE, COMPILING = "update", "compiling"


class Watcher:
    """Base class of those who look on; every hook does nothing.

    A place is ``file:line``, ``""`` where there is none, None for the line that the user is at.

    :ivar looks: It wants to see each result, which the native engine alone shows.
    """

    looks = False

    # Time

    def begins(self, part: str, what: str, place: str | None = None) -> None:
        """Hear that something begins, inside of what goes on."""

    def ends(self) -> None:
        """Hear that what began last has ended, or failed."""

    def passed(
        self,
        part: str,
        what: str,
        place: str | None = None,
        *,
        start: float | None = None,
        seconds: float = 0.0,
        results: Sequence[Any] = (),
    ) -> None:
        """Hear what has gone on since the last hook, or from a time of `time.perf_counter` on.

        :param results: What a line of a native plan gave.
        :raises AskReal: It wants to see the step as a real call.
        """

    # Numbers

    def result(self, what: str, operands: Sequence[Any], result: Any) -> None:
        """Hear the result of an operation on arrays or `Value`s, or its tangent: None is zero."""

    def added(
        self, recording: Recording, by: int | None, slot: int, part: Any, grad: Any, strong: bool
    ) -> None:
        """Hear that a rule has given a part of a slot's gradient; of a seed it is none.

        :raises AskStrong: It wants to see a sweep with ``strong`` zeros, which this one is not.
        """

    def swept(self, cotangents: Sequence[tuple[Any, float]]) -> None:
        """Hear the gradients of `Value`s, the result's first, before they are added."""

    def gave(self, engine: str, grads: list[Any], natively: Callable[[], Any]) -> None:
        """Hear the gradients of an engine other than the native one, which that may check."""

    def updated(self, optimizer: str, name: str, grad: Any, new: Any) -> None:
        """Hear that a step has computed new numbers of a parameter, and not yet written them."""


WATCHING: Setting[tuple[Watcher, ...]] = Setting("tapegraph_watching", default=())


def is_watched() -> bool:
    """Return whether each result is to be seen here."""
    watching = WATCHING.value()
    return bool(watching) and any(watcher.looks for watcher in watching)


# Of an operation, its arrays and attributes: the result, or None where NumPy is to compute it.
Kernels = Callable[[Op, tuple[Any, ...], Attrs], Any]
# Empty until others than NumPy's are first chosen, or somebody watches: this is asked at every
# operation.
OTHERS: list[Kernels] = []


def computed(op: Op, arrays: tuple[Any, ...], attrs: Attrs = NO_ATTRS) -> Any:
    """Return an operation's result by the kernels that are chosen here, in front of watchers."""
    watchers = WATCHING.value()
    if not watchers:
        return _result(op, arrays, attrs)
    warns = False
    for watcher in watchers:
        watcher.begins(FORWARD, op.name)
    try:
        out = _result(op, arrays, attrs)
    except RuntimeWarning:
        warns = True
        with np.errstate(all="ignore"):
            out = _result(op, arrays, attrs)
    finally:
        for watcher in watchers:
            watcher.ends()
    for watcher in watchers:
        watcher.result(op.name, arrays, out[0] if op.saves else out)
    if warns:
        raise RuntimeWarning  # who called computes again, and warns at the user's line
    return out


def _result(op: Op, arrays: tuple[Any, ...], attrs: Attrs) -> Any:
    for compute in reversed(OTHERS):
        out = compute(op, arrays, attrs)
        if out is not None:
            return out
    return op.forward(*arrays, **attrs)


def recorded() -> None:
    """Notify watchers that what was computed last has been recorded."""
    for watcher in WATCHING.value():
        watcher.passed(TAPE, "")


def none_of_these(op: Op, arrays: tuple[Any, ...], attrs: Attrs) -> None:
    """Leave an operation to NumPy: with it among the kernels, forwards pass by `computed`."""


class Watched:
    """Lets a watcher look on inside a ``with`` block, in its thread or asyncio task.

    :param watcher: Is told of what goes on; several may be, the outermost first.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def __enter__(self) -> Any:
        OTHERS.append(none_of_these)
        RECORDING.enter(self, RECORDING.value())  # `Value`s look on only where they find a scope
        WATCHING.enter(self, (*WATCHING.value(), self._watcher))

    def __exit__(self, *exception: object) -> None:
        WATCHING.leave(self)
        RECORDING.leave(self)
        OTHERS.remove(none_of_these)


def unwatched() -> Scope[tuple[Watcher, ...]]:
    """Return a scope in which nobody looks on."""
    return Scope(WATCHING, ())
