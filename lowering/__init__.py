"""The graph engine: a tape lowered node by node to one TensorFlow graph, cached by structure."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tapegraph.lowering.engine import ENGINE
from tapegraph.lowering.rows import GAPS, MetNaN, NotLowered
from tapegraph.lowering.runtime import Forked, Unavailable, loaded, tensorflow
from tapegraph.recording.program import Recording
from tapegraph.typed import Array

if TYPE_CHECKING:
    from tapegraph.lowering.backward import (
        CacheInfo,
        Lowered,
        cache_clear,
        cache_info,
        lower,
        set_cache_limit,
    )
    from tapegraph.lowering.rows import LOWERINGS

# The lowering is imported on first use: a run of `auto` begins, and may end, without it.
_LATER = dict.fromkeys(
    ("CacheInfo", "Lowered", "cache_clear", "cache_info", "lower", "set_cache_limit"), "backward"
)
_LATER["LOWERINGS"] = "translate"

check = ENGINE.check


def gradients(recording: Recording, seeds: Sequence[Array]) -> list[Array]:
    """Return the gradients of a program's outputs, given a cotangent each, by the wanted slots."""
    grads, _, _ = ENGINE.run(recording, seeds)
    return grads


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
