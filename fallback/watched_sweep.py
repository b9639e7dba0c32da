"""The sweeps that watchers look on at: the same arithmetic, told of entry by entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import has_nan
from tapegraph.fallback.recorded_sweep import StrongTensors
from tapegraph.fallback.strong_tensor import as_tensor
from tapegraph.fallback.strong_zero import to_ndarray
from tapegraph.fallback.sweep import Arrays, StrongArrays
from tapegraph.numpy_warnings import quietly
from tapegraph.recording.node import Node
from tapegraph.recording.program import Recording
from tapegraph.recording.watchers import WATCHING, AskStrong, unwatched
from tapegraph.typed import Array


class Told(Arrays):
    """A sweep that tells watchers where it is, and what it adds to which gradient."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self._watchers = WATCHING.value()
        self._by: int | None = None  # whose rules are called; of a seed nobody's

    def swept(self, seeds: Sequence[Any]) -> list[Any]:
        """Return the gradients of the outputs, given a cotangent each, one per wanted slot."""
        for watcher in self._watchers:
            watcher.sweep_starts()
        try:
            return super().swept(seeds)
        finally:
            for watcher in self._watchers:
                watcher.sweep_ends()

    def parts(self, slot: int, g: Any) -> Iterator[tuple[int, Any]]:
        """Yield the gradient of each input that needs one."""
        self._by = slot
        for watcher in self._watchers:
            watcher.sweeps(self.recording, slot)
        return super().parts(slot, g)

    def _add(self, held: dict[int, Any], slot: int, part: Any) -> None:
        super()._add(held, slot, part)
        for watcher in self._watchers:
            watcher.added(self.recording, self._by, slot, part, held[slot])


class ToldStrongly(Told, StrongArrays):
    """The same with strong zeros."""

    def _add(self, held: dict[int, Any], slot: int, part: Any) -> None:
        super(Told, self)._add(held, slot, part)
        for watcher in self._watchers:
            watcher.added_strongly(
                self.recording, self._by, slot, to_ndarray(part), to_ndarray(held[slot])
            )


class ToldTensors(Told, StrongTensors):
    """The same on Tensors."""

    def _add(self, held: dict[int, Any], slot: int, part: Any) -> None:
        super(Told, self)._add(held, slot, part)
        given, grad = (_array_of(x) for x in (part, held[slot]))
        for watcher in self._watchers:
            watcher.added_strongly(self.recording, self._by, slot, given, grad)


def _array_of(x: Any) -> Any:
    x = as_tensor(x)
    return x._array if isinstance(x, Node) else x


def watched_gradients(recording: Recording, seeds: Sequence[Array]) -> list[Array]:
    """Return the gradients by the wanted slots, as `gradients` does, in front of watchers."""
    try:
        grads: list[Array] = quietly(Told(recording).swept, seeds)
        if not any(map(has_nan, grads)):
            return grads
    except AskStrong:
        pass
    return quietly(ToldStrongly(recording).swept, seeds)  # type: ignore[no-any-return]


def watched_recorded(recording: Recording, seeds: Sequence[Any]) -> list[Any]:
    """Return the same as Tensors, as `recorded_gradients` does.

    The slopes that are recorded on the way may be infinite, where a zero absorbs them: of those
    nobody is told.
    """
    told = ToldTensors(recording)
    with np.errstate(all="ignore"), unwatched():
        return told.swept(seeds)
