"""The table of vector-Jacobian products, and the two forms that a row takes.

A row is a tuple with one VJP rule per input, ``rule(g, y, *inputs, **attrs)``, where ``g`` is the
cotangent of the result ``y``; or one `Joint` rule, ``rule(needs, g, y, *inputs, **attrs)``, that
returns one gradient per input. Those of element-wise operations come from their slopes.
Operations that save something for their rule hand it over as ``saved=``. A rule returns the
full-shape gradient; the sweep undoes broadcasting.

Where ``g`` is zero the gradient must be zero even if the local derivative is not finite: rules
multiply and divide the cotangent itself (``g * b``, ``g / b``), to which the sweep can give strong
zeros.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from tapegraph.differentiation.slopes import Divisor, Linear, Slope, Slopes

Rule = Callable[..., Any]


class Joint:
    """One rule for all inputs, for operations whose gradients share their work."""

    __slots__ = ("rule",)

    def __init__(self, rule: Rule) -> None:
        self.rule = rule


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {}


def rows_of(slopes: Slopes) -> dict[str, tuple[Rule | None, ...]]:
    """Return the rows of element-wise operations."""
    return {
        name: tuple(None if slope is None else _rule(slope, len(row)) for slope in row)
        for name, row in slopes.items()
    }


def _rule(slope: Slope, inputs: int) -> Rule:
    """Return the VJP rule of a slope, with what it calls bound here, once."""
    if isinstance(slope, Linear):
        return slope.of
    divides = isinstance(slope, Divisor)
    of: Any = slope.of if isinstance(slope, Divisor) else slope
    attributes = any(p.kind is p.KEYWORD_ONLY for p in inspect.signature(of).parameters.values())
    if inputs == 1 and not attributes:
        return (lambda g, y, x: g / of(y, x)) if divides else (lambda g, y, x: g * of(y, x))
    if inputs == 2 and not attributes:
        if divides:
            return lambda g, y, a, b: g / of(y, a, b)
        return lambda g, y, a, b: g * of(y, a, b)
    if divides:
        return lambda g, y, *xs, **attrs: g / of(y, *xs, **attrs)
    return lambda g, y, *xs, **attrs: g * of(y, *xs, **attrs)
