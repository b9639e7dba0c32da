"""The calls of `vmap` that go on here: a level each, the innermost last."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tapegraph.errors import ConcretizationError, message
from tapegraph.recording.node import as_leaf
from tapegraph.recording.numpy_functions import is_batched
from tapegraph.recording.scopes import RECORDER, Scope, Setting


class Level(NamedTuple):
    """One call of `vmap`.

    :ivar tag: What tells its values from those of other levels; an inner level's is larger.
    :ivar size: How many examples it has.
    :ivar randomness: What drawing random numbers does: "error", "different" or "same".
    :ivar batched: Makes a value of the level, of an array with the examples along its first axis.
    """

    tag: int
    size: int
    randomness: str
    batched: Callable[[Any, int], Any]


LEVELS: Setting[tuple[Level, ...]] = Setting("tapegraph_vmap_levels", default=())


@contextmanager
def entered(level: Level) -> Iterator[None]:
    """Let a level hold inside."""
    RECORDER.get().flows  # noqa: B018 - a thread's first use makes the recorder that it goes on with
    outer = RECORDER.get()
    with Scope(LEVELS, (*LEVELS.value(), level)):
        RECORDER.set(ExamplesRecorder(outer, level))
        try:
            yield
        finally:
            RECORDER.set(outer)


class ExamplesRecorder:
    """Records inside of `vmap`: what the recorder outside does, with values of many examples.

    As in a program that is captured, what is computed from them is recorded, without a gradient
    too, and their numbers do not become plain ones.
    """

    def __init__(self, outer: Any, level: Level) -> None:
        self._outer = outer
        self._level = level
        self.result = outer.result  # at once, as every operation asks for it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)

    def on(self, tape: Any) -> ExamplesRecorder:
        """Return a recorder of the same kind on another tape."""
        return ExamplesRecorder(self._outer.on(tape), self._level)

    def where_gradients_flow(self, flows: bool) -> ExamplesRecorder:
        """Return the recorder of a scope in which gradients flow, or do not."""
        return ExamplesRecorder(self._outer.where_gradients_flow(flows), self._level)

    def records(self, *values: Any) -> bool:
        """Return whether one of the values, or of those in lists and tuples, is recorded here."""
        return any(map(is_batched, values)) or self._outer.records(*values)

    def read(self, value: Any, conversion: str, fix: str) -> None:
        """Refuse to make a plain number of one example's."""
        if is_batched(value):
            received = "the numbers of one example of many"
            raise ConcretizationError(message(conversion, received, "tensors", fix))
        self._outer.read(value, conversion, fix)

    def draw(
        self, op: str, draw: Callable[[], Any], dtype: npt.DTypeLike, by: dict[str, float]
    ) -> Any:
        """Draw random numbers for all examples, in the order of a loop, or the same for all."""
        level = self._level
        if level.randomness == "error":
            fix = 'Write tg.vmap(f, randomness="different"), or "same" for one draw for all.'
            raise RuntimeError(message(op, "a draw inside of vmap", "one outside of it", fix))
        if level.randomness == "same":
            return self._outer.draw(op, draw, dtype, by)
        numbers = self._outer.draw(op, lambda: [draw() for _ in range(level.size)], dtype, by)
        plain = type(numbers) is np.ndarray
        return level.batched(as_leaf(numbers) if plain else numbers, level.tag)
