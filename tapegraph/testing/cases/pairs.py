"""Cases of functions of two operands: every way to broadcast, and numbers on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tapegraph.testing.cases.case import Case, Input
from tapegraph.testing.cases.core import PAIRS

__all__ = ["PAIRS", "pairs"]


def pairs(
    op: str,
    function: Callable[..., Any],
    reference: Callable[..., Any],
    left: Callable[..., Input],
    right: Callable[..., Input],
    prefix: str = "",
) -> Iterator[Case]:
    """Yield a function's cases over shapes that broadcast and kinds of operands."""
    for label, a, b in PAIRS:
        inputs = (left(*a), right(*b))
        yield Case(op, f"{prefix}{label}", function, inputs, reference=reference)
    for label, other in (
        ("float", 1.7),
        ("int", 3),
        ("numpy-array", np.array([0.55, 1.65, 2.15])),
    ):
        for side in ("right", "left"):
            yield Case(
                op,
                f"{prefix}{label}-{side}",
                _with(function, side),
                (left(2, 3) if side == "right" else right(2, 3),),
                (other,),
                reference=_with(reference, side),
            )


def _with(function: Callable[..., Any], side: str) -> Callable[..., Any]:
    if side == "right":
        return lambda x, other: function(x, other)
    return lambda x, other: function(other, x)
