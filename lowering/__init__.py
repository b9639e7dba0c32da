"""The graph engine: a tape lowered node by node to one TensorFlow graph, cached by structure."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegraph.lowering.gaps import GAPS, MetNaN, NotLowered, check_gaps
from tapegraph.lowering.runtime import Unavailable, check_installed, loaded, tensorflow
from tapegraph.recording.program import Program
from tapegraph.recording.recorded import Recording
from tapegraph.typed import Array

if TYPE_CHECKING:
    from tapegraph.lowering.cache import (
        CacheInfo,
        Outcome,
        cache_clear,
        cache_info,
        set_cache_limit,
    )
    from tapegraph.lowering.lowered import Lowered, lower
    from tapegraph.lowering.rules import LOWERINGS

# What lowers is imported when it is first asked for: a run of `auto` begins, and may end, without.
_LATER = {
    "CacheInfo": "cache",
    "LOWERINGS": "translate",
    "Lowered": "lowered",
    "Outcome": "cache",
    "cache_clear": "cache",
    "cache_info": "cache",
    "lower": "lowered",
    "set_cache_limit": "cache",
}


def check(program: Program) -> None:
    """Refuse, without importing TensorFlow, what is known to run natively.

    Raises
    ------
    NotLowered
        An operation has no lowering.
    Unavailable
        TensorFlow is not installed, or has been found unusable.
    """
    check_gaps(program)
    check_installed()


def gradients(recording: Recording, seeds: Sequence[Array]) -> Outcome:
    """Return a program's gradients by TensorFlow, and how they were come by.

    Raises
    ------
    NotLowered
        An operation has no lowering.
    Unavailable
        TensorFlow cannot be used.
    """
    from tapegraph.lowering.cache import run
    from tapegraph.lowering.compiled import Compiled
    from tapegraph.lowering.translate import check_lowers

    check_lowers(recording.program)
    tensorflow()
    with np.errstate(all="ignore"):
        return run(recording, seeds, Compiled)


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'tapegraph.lowering' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tapegraph.lowering.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "GAPS",
    "LOWERINGS",
    "CacheInfo",
    "Lowered",
    "MetNaN",
    "NotLowered",
    "Outcome",
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
