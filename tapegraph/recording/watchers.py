"""Watchers of operations and gradients, such as `tapegraph.anomaly`, and forward kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegraph.recording.op import NO_ATTRS, Attrs, Op
from tapegraph.recording.program import Recording
from tapegraph.recording.scopes import RECORDING, Scope, Setting


class AskStrong(Exception):
    """Raised by a watcher: run the sweep again with strong zeros, since a NaN may be 0 * inf."""


class AskReal(Exception):
    """Raised by a watcher: make a real call of the compiled step in place of this run."""


# The parts of the time.
FORWARD, TAPE, ENGINE = "forward", "recording", "engine"
UPDATE, COMPILING = "update", "compiling"


class Watcher:
    """Base class for watchers, without effect.

    A place is ``file:line``, ``""`` if there is none, or None for the user's present line.

    :ivar looks: The watcher needs each result, which only the native engine shows.
    """

    looks = False

    # Time

    def begins(self, part: str, what: str, place: str | None = None) -> None:
        """Receive the beginning of a nested part."""

    def ends(self) -> None:
        """Receive the end, or failure, of the part that began last."""

    def passed(
        self,
        part: str,
        what: str,
        place: str | None = None,
        *,
        start: float | None = None,
        seconds: float = 0.0,
        results: Sequence[object] = (),
    ) -> None:
        """Receive the time since the last hook, or since ``start``, of a part, or raise AskReal."""

    # Numbers

    def result(self, what: str, operands: Sequence[object], result: object) -> None:
        """Receive an operation's operands and its result, or its tangent or None."""

    def added(
        self, recording: Recording, by: int | None, slot: int, part: Any, grad: Any, strong: bool
    ) -> None:
        """Receive a rule's, or a seed's, part of a slot's gradient, or raise AskStrong."""

    def swept(self, cotangents: Sequence[tuple[Any, float]]) -> None:
        """Receive the gradients of `Value`s, the result's first, before they are added."""

    def updated(self, optimizer: str, name: str, grad: Any, new: Any) -> None:
        """Receive a parameter's new numbers before an optimizer writes them."""


WATCHING: Setting[tuple[Watcher, ...]] = Setting("tapegraph_watching", default=())


def is_watched() -> bool:
    watching = WATCHING.value()
    return bool(watching) and any(watcher.looks for watcher in watching)


# Kernels: of an operation, its arrays and attributes the result, or None for NumPy.
Kernels = Callable[[Op, tuple[Any, ...], Attrs], Any]
# Empty until others than NumPy's are first chosen, or somebody watches: this is asked at every
# operation.
OTHERS: list[Kernels] = []


def computed(op: Op, arrays: tuple[object, ...], attrs: Attrs = NO_ATTRS) -> Any:
    """Return an operation's result by the chosen kernels, and call the watchers."""
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


def _result(op: Op, arrays: tuple[object, ...], attrs: Attrs) -> Any:
    for compute in reversed(OTHERS):
        out = compute(op, arrays, attrs)
        if out is not None:
            return out
    return op.forward(*arrays, **attrs)


def recorded() -> None:
    for watcher in WATCHING.value():
        watcher.passed(TAPE, "")


def none_of_these(op: Op, arrays: tuple[object, ...], attrs: Attrs) -> None:
    """Leave an operation to NumPy; as a kernel it routes forwards through `computed`."""


class Watched:
    """Calls a watcher inside a ``with`` block, in its thread or task; the outermost runs first."""

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
    return Scope(WATCHING, ())
