"""Cases of functions of two operands: every way to broadcast, and numbers on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tests.cases.case import Case, Input, Shape

__all__ = ["PAIRS", "pairs"]

PAIRS: tuple[tuple[str, Shape, Shape], ...] = (
    ("same", (2, 3), (2, 3)),
    ("column-row", (3, 1), (4,)),
    ("row-column", (4,), (3, 1)),
    ("leading", (2, 3, 4), (4,)),
    ("leading-left", (3,), (2, 2, 3)),
    ("one", (1,), (2, 3)),
    ("0d-left", (), (2, 3)),
    ("0d-right", (2, 3), ()),
    ("0d", (), ()),
    ("empty", (0, 3), (3,)),
    ("stretched-to-empty", (1, 3), (0, 3)),
)


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


def swapped(apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of the operands in the other order."""
    return lambda x, constant: apply(constant, x)
