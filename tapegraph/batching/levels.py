"""The calls of `vmap` that go on here: a level each, the innermost last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tapegraph.recording.scopes import Setting


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
