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


class Watcher:
    """Is told what goes on; by itself it does nothing.

    :ivar looks: It wants to see each result, which the native engine alone shows.
    """

    looks = False

    # Forwards

    def starts(self, op: Op) -> None:
        """Hear that an operation is about to be computed."""

    def computed(self, op: Op, arrays: tuple[Any, ...], result: Any) -> None:
        """Hear that an operation has been computed."""

    def failed(self) -> None:
        """Hear that what was about to be computed has raised."""

    def recorded(self) -> None:
        """Hear that it has been put on the tape."""

    def number(self, op: str, operands: Sequence[Any], result: float) -> None:
        """Hear that an operation of `Value`s has been computed."""

    def numbers_swept(self, cotangents: Sequence[tuple[Any, float]]) -> None:
        """Hear the gradients of `Value`s, the result's first, before they are added."""

    def tangent(self, op: Op, primals: Sequence[Any], tangent: Any) -> None:
        """Hear the tangent of an operation, in forward mode; None is zero."""

    # Updates

    def step_starts(self, optimizer: str) -> None:
        """Hear that an optimizer's step begins."""

    def updates(self, optimizer: str, name: str, grad: Any, new: Any) -> None:
        """Hear that it has computed the new numbers of a parameter, and not yet written them."""

    def step_ends(self) -> None:
        """Hear that it ends."""

    # Sweeps of the native engine

    def sweep_starts(self) -> None:
        """Hear that a sweep begins."""

    def sweeps(self, recording: Recording, slot: int) -> None:
        """Hear that a sweep comes to the rules of an entry."""

    def added(self, recording: Recording, by: int | None, slot: int, part: Any, grad: Any) -> None:
        """Hear that a rule has given a part of a slot's gradient; of a seed it is none.

        :raises AskStrong: It wants to see a sweep with strong zeros, which this one is not.
        """

    def added_strongly(
        self, recording: Recording, by: int | None, slot: int, part: Any, grad: Any
    ) -> None:
        """Hear the same of a sweep with strong zeros."""

    def sweep_ends(self) -> None:
        """Hear that a sweep ends."""

    # Engines and compiled steps

    def real_call_starts(self, step: str) -> None:
        """Hear that a compiled step is about to run the user's function, which is captured."""

    def real_call_ends(self) -> None:
        """Hear that it has, and what was captured has been compared and kept."""

    def compiled(self, what: str, start: float, seconds: float) -> None:
        """Something has been compiled; times are of `time.perf_counter`."""

    def ran(self, what: str, start: float, seconds: float) -> None:
        """Hear that an engine other than the native one has run a whole program."""

    def gave(self, engine: str, grads: list[Any], natively: Callable[[], Any]) -> None:
        """Hear the gradients of an engine other than the native one, which that may check."""

    def plan_starts(self) -> None:
        """Hear that a native plan begins."""

    def line(self, op: str, place: str, results: tuple[Any, ...]) -> None:
        """Hear that it has run a line, of an operation that the user recorded at a place.

        :raises AskReal: It wants to see the step as a real call.
        """


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
    for watcher in watchers:
        watcher.starts(op)
    try:
        out = _result(op, arrays, attrs)
    except RuntimeWarning:  # who called gives it at the user's line, and computes again
        with np.errstate(all="ignore"):
            _show(watchers, op, arrays, _result(op, arrays, attrs))
        raise
    except BaseException:
        for watcher in watchers:
            watcher.failed()
        raise
    _show(watchers, op, arrays, out)
    return out


def _show(watchers: tuple[Watcher, ...], op: Op, arrays: tuple[Any, ...], out: Any) -> None:
    result = out[0] if op.saves else out
    for watcher in watchers:
        watcher.computed(op, arrays, result)


def _result(op: Op, arrays: tuple[Any, ...], attrs: Attrs) -> Any:
    for compute in reversed(OTHERS):
        out = compute(op, arrays, attrs)
        if out is not None:
            return out
    return op.forward(*arrays, **attrs)


def recorded() -> None:
    """Notify watchers that what was computed last has been recorded."""
    for watcher in WATCHING.value():
        watcher.recorded()


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
