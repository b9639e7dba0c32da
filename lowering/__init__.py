"""The graph engine: a tape lowered node by node to one TensorFlow graph, cached by structure."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapegraph.lowering.engine import ENGINE
from tapegraph.lowering.runtime import Forked, Unavailable, loaded, tensorflow
from tapegraph.lowering.unsupported import GAPS, MetNaN, NotLowered
from tapegraph.recording.program import Recording
from tapegraph.typed import Array

if TYPE_CHECKING:
    from tapegraph.lowering.backward.cache import (
        CacheInfo,
        cache_clear,
        cache_info,
        set_cache_limit,
    )
    from tapegraph.lowering.backward.inspect_graph import Lowered, lower
    from tapegraph.lowering.rows.rules import LOWERINGS

# What lowers is imported when it is first asked for: a run of `auto` begins, and may end, without.
_LATER = {
    "CacheInfo": "backward.cache",
    "LOWERINGS": "translate",
    "Lowered": "backward.inspect_graph",
    "cache_clear": "backward.cache",
    "cache_info": "backward.cache",
    "lower": "backward.inspect_graph",
    "set_cache_limit": "backward.cache",
}


check = ENGINE.check


def gradients(recording: Recording, seeds: Sequence[Array]) -> list[Array]:
    """Return the gradients of a program's outputs with respect to its wanted slots.

    ``seeds`` holds a cotangent per output.
    """
    return ENGINE.run(recording, seeds).grads


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'tapegraph.lowering' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tapegraph.lowering.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "ENGINE",
    "GAPS",
    "LOWERINGS",
    "CacheInfo",
    "Forked",
    "Lowered",
    "MetNaN",
    "NotLowered",
    "Unavailable",
    "cache_clear",
    "cache_info",
    "check",
    "gradients",
    "loaded",
    "lower",
    "set_cache_limit",
    "tensorflow",
]
