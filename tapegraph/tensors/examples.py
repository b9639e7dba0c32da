"""The calls of `vmap` that go on: a level each, which the recorder of the scope knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tapegraph.errors import ConcretizationError, message
from tapegraph.ops.shape import alias, broadcast_to
from tapegraph.recording.node import as_leaf
from tapegraph.recording.numpy_functions import is_batched
from tapegraph.recording.scopes import RECORDER, recorder
from tapegraph.tensors.batched import Batched
from tapegraph.tensors.dual import Dual, dual_of
from tapegraph.tensors.tensor import Tensor


class Level(NamedTuple):
    """One call of `vmap`.

    :ivar tag: What tells its values from those of other levels; an inner level's is larger.
    :ivar size: How many examples it has.
    :ivar randomness: What drawing random numbers does: "error", "different" or "same".
    """

    tag: int
    size: int
    randomness: str


@contextmanager
def entered(level: Level) -> Iterator[None]:
    """Let a level hold inside."""
    RECORDER.get().flows  # noqa: B018 - a thread's first use makes the recorder that it goes on with
    outer = RECORDER.get()
    RECORDER.set(ExamplesRecorder(outer, level))
    try:
        yield
    finally:
        RECORDER.set(outer)


@contextmanager
def entered_again(tag: int, size: int) -> Iterator[Level]:
    """Let a level that may go on, or have ended, hold inside, and no inner one of it."""
    here = RECORDER.get()
    found = here
    while found.levels and found.levels[-1].tag > tag:
        found = found._outer
    if not found.levels or found.levels[-1].tag < tag:
        found = ExamplesRecorder(found, Level(tag, size, "error"))
    RECORDER.set(found)
    try:
        yield found.levels[-1]
    finally:
        RECORDER.set(here)


class ExamplesRecorder:
    """Records inside of `vmap`: what the recorder outside does, with values of many examples.

    As in a program that is captured, what is computed from them is recorded, without a gradient
    too, and their numbers do not become plain ones.

    :ivar levels: The calls of `vmap` that go on here, the innermost last.
    """

    def __init__(self, outer: Any, level: Level) -> None:
        self._outer = outer
        self._level = level
        self.levels: tuple[Level, ...] = (*outer.levels, level)
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
        return Batched(as_leaf(numbers) if plain else numbers, level.tag)


def of_each_example(x: Any) -> Any:
    """Return a value with the examples of every call of `vmap` that goes on here."""
    for level in recorder().levels:
        x = at_level(x, level)
    return x


def at_level(x: Any, level: Level) -> Any:
    """Return a value with the examples of a level, along which one that has none repeats."""
    if type(x) is Batched and x.tag >= level.tag:
        return x if x.tag == level.tag else Batched(at_level(x.inner, level), x.tag)
    if type(x) is Dual and x.tag > level.tag:
        return dual_of(at_level(x.primal, level), at_level(x.tangent, level), x.tag)
    return Batched(broadcast_to(x, (level.size, *x.shape)), level.tag)


def levels_of(*values: Any) -> list[Level]:
    """Return the levels of which some of the values have examples, the innermost last."""
    tags: set[int] = set()
    left = list(values)
    for x in left:  # grows while it is walked
        if type(x) is Batched:
            tags.add(x.tag)
            left.append(x.inner)
        elif type(x) is Dual:
            left += (x.primal, x.tangent)
    return [level for level in recorder().levels if level.tag in tags]


def leaf_of_examples(array: Any, levels: Sequence[Level]) -> tuple[Any, Tensor]:
    """Return an array as a leaf of each example of some levels, and the tensor of all of them."""
    sizes = [level.size for level in levels]
    inside = leaf = alias(as_leaf(np.array(np.broadcast_to(array, (*sizes, *array.shape)))))
    for level in levels:
        inside = Batched(inside, level.tag)
    return inside, leaf
