"""Watchers: who is told of each operation and each gradient, such as `tapegraph.anomaly`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapegraph.recording.op import Op
from tapegraph.recording.program import Recording
from tapegraph.recording.scopes import Setting


class AskStrong(Exception):
    """A watcher wants a sweep to be run once more, with strong zeros: what it saw may be 0 * inf."""


class AskReal(Exception):
    """A watcher wants to see a real call of a compiled step, in place of a run of its program."""


class Watcher:
    """Is told what goes on; by itself it does nothing.

    - looks: It wants to see each result, which the native engine alone shows.
    """

    looks = False

    # Forwards

    def starts(self, op: Op) -> None:
        """An operation is about to be computed."""

    def computed(self, op: Op, arrays: tuple[Any, ...], result: Any) -> None:
        """An operation has been computed."""

    def recorded(self) -> None:
        """It has been put on the tape."""

    def number(self, op: str, operands: Sequence[Any], result: float) -> None:
        """An operation of `Value`s has been computed."""

    def numbers_swept(self, cotangents: Sequence[tuple[Any, float]]) -> None:
        """The gradients of `Value`s have been computed, the result's first, and not yet added."""

    def tangent(self, op: Op, primals: Sequence[Any], tangent: Any) -> None:
        """The tangent of an operation has been computed, in forward mode; None is zero."""

    # Updates

    def step_starts(self, optimizer: str) -> None:
        """An optimizer's step begins."""

    def updates(self, optimizer: str, name: str, grad: Any, new: Any) -> None:
        """It has computed the new numbers of a parameter, and not yet written them."""

    def step_ends(self) -> None:
        """It ends."""

    # Sweeps of the native engine

    def sweep_starts(self) -> None:
        """A sweep begins."""

    def sweeps(self, recording: Recording, slot: int) -> None:
        """A sweep comes to the rules of an entry."""

    def added(self, recording: Recording, by: int | None, slot: int, part: Any, grad: Any) -> None:
        """A rule has given a part of a slot's gradient; of a seed it is none.

        - Raises AskStrong: It wants to see a sweep with strong zeros, which this one is not.
        """

    def added_strongly(
        self, recording: Recording, by: int | None, slot: int, part: Any, grad: Any
    ) -> None:
        """The same in a sweep with strong zeros."""

    def sweep_ends(self) -> None:
        """A sweep ends."""

    # Engines

    def compiled(self, what: str, start: float, seconds: float) -> None:
        """Something has been compiled; times are of `time.perf_counter`."""

    def ran(self, what: str, start: float, seconds: float) -> None:
        """An engine other than the native one has run a whole program."""

    def gave(self, engine: str, grads: list[Any], natively: Callable[[], Any]) -> None:
        """An engine other than the native one has given gradients, which that may check."""

    def plan_starts(self) -> None:
        """A native plan begins."""

    def line(self, op: str, place: str, results: tuple[Any, ...]) -> None:
        """It has run a line, of an operation that the user recorded at a place.

        - Raises AskReal: It wants to see the step as a real call.
        """


WATCHING: Setting[tuple[Watcher, ...]] = Setting("tapegraph_watching", default=())


def looked_at() -> bool:
    """Return whether each result is to be seen here."""
    return any(watcher.looks for watcher in WATCHING.value())
