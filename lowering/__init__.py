"""The graph engine: a tape lowered node by node to one TensorFlow graph, cached by structure."""

from __future__ import annotations

import numpy as np

from tapegraph.ir import Array, Program
from tapegraph.lowering.cache import (
    CacheInfo,
    Outcome,
    cache_clear,
    cache_info,
    run,
    set_cache_limit,
)
from tapegraph.lowering.compiled import Compiled
from tapegraph.lowering.lower import Lowered, lower
from tapegraph.lowering.rules import GAPS, LOWERINGS
from tapegraph.lowering.runtime import Unavailable, check_installed, loaded, tensorflow
from tapegraph.lowering.translate import NotLowered, check_lowers


def check(program: Program) -> None:
    """Refuse, without importing TensorFlow, what is known to run natively.

    Raises
    ------
    NotLowered
        An operation has no lowering.
    Unavailable
        TensorFlow is not installed, or has been found unusable.
    """
    check_lowers(program)
    check_installed()


def gradients(program: Program, seed: Array) -> Outcome:
    """Return a program's gradients by TensorFlow, and how they were come by.

    Raises
    ------
    NotLowered
        An operation has no lowering.
    Unavailable
        TensorFlow cannot be used.
    """
    check_lowers(program)
    tensorflow()
    with np.errstate(all="ignore"):
        return run(program, seed, Compiled)


__all__ = [
    "GAPS",
    "LOWERINGS",
    "CacheInfo",
    "Lowered",
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
