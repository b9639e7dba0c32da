"""The table of Jacobian-vector products, and what its rows are made of.

A row is one rule, ``rule(tangents, y, *inputs, **attrs)``: the tangent of the result ``y`` from
those of the inputs, where None is a zero tangent. It may return None, or a tangent that only
broadcasts to ``y``'s shape; the caller spreads it. Rules are written in the library's own
operations, so that inputs and tangents may be recorded, or duals of an outer level.

Where a tangent or a local derivative is zero so must be their product, even if the other is not
finite: rules multiply tangents by `mul_strong` and divide them by `div_strong`. (In reverse mode a
zero cotangent absorbs what it meets on its way; here either factor may be that zero.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.differentiation.slopes.rules import FLAT, Divisor, Linear, Slope, Slopes
from tapegraph.ops import elementwise
from tapegraph.recording.capture_mode import forbid_read, is_captured
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply
from tapegraph.typed import Array

Rule = Callable[..., Any]

JVPS: dict[str, Rule] = {}


def per_input(*rules: Rule) -> Rule:
    """Make a row of one rule per input, ``rule(t, y, *inputs, **attrs)``; their results add up."""

    def row(tangents: tuple[Any, ...], y: Any, *inputs: Any, **attrs: Any) -> Any:
        parts = [
            rule(t, y, *inputs, **attrs)
            for rule, t in zip(rules, tangents, strict=False)
            if t is not None
        ]
        parts = [part for part in parts if part is not None]
        return functools.reduce(elementwise.add, parts) if parts else None

    return row


def rows_of(slopes: Slopes) -> dict[str, Rule]:
    """Return the rows of element-wise operations."""
    return {name: per_input(*map(_rule, row)) for name, row in slopes.items()}


def _rule(slope: Slope) -> Rule:
    """Return the rule for the tangent of one input."""
    if slope is None or slope is FLAT:
        return lambda t, y, *inputs, **attrs: None
    if isinstance(slope, Linear):
        return slope.of
    if isinstance(slope, Divisor):
        of = slope.of
        return lambda t, y, *inputs, **attrs: div_strong(t, of(y, *inputs, **attrs))
    factor = slope
    return lambda t, y, *inputs, **attrs: mul_strong(t, factor(y, *inputs, **attrs))


def linear_in_first(op: Op) -> Rule:
    """Make the row of an operation that is linear in its first input: it applies to the tangent."""
    return per_input(lambda t, y, x, *rest, **attrs: apply(op, (t, *rest), attrs))


def mul_strong(t: Any, factor: Any) -> Any:
    """Multiply a tangent by a local derivative; a zero of either absorbs inf and nan."""
    out = elementwise.mul(t, factor)
    if looks_finite(out):
        return out
    return elementwise.mul(
        _without(t, _not_finite(t), _zero(factor), 0.0),
        _without(factor, _not_finite(factor), _zero(t), 0.0),
    )


def div_strong(t: Any, divisor: Any) -> Any:
    """Divide a tangent; its zeros absorb 1/0 and nan, and 1/inf absorbs its inf and nan."""
    out = elementwise.div(t, divisor)
    if looks_finite(out):
        return out
    return elementwise.div(
        _without(t, _not_finite(t), np.isinf(value(divisor)), 0.0),
        _without(divisor, _not_finite(divisor) | _zero(divisor), _zero(t), 1.0),
    )


def value(x: Any) -> Array:
    """Return the array under all dual levels: what the operation computes with.

    :raises ConcretizationError: The program that it belongs to is captured: a choice by it would be
        frozen.
    """
    x = _bottom(x)
    forbid_read(x, "a tangent rule", "Differentiate in reverse mode, by tg.grad or tg.gradients.")
    return np.asarray(getattr(x, "_array", x))


def looks_finite(x: Any) -> bool:
    """Return whether a value holds neither inf nor nan, as far as anyone can look.

    In a captured program nobody can: there 0 * inf is the NaN that it is.
    """
    return is_captured(_bottom(x)) or bool(np.isfinite(value(x)).all())


def _bottom(x: Any) -> Any:
    while hasattr(x, "primal"):
        x = x.primal
    return x


def _not_finite(x: Any) -> Any:
    return ~np.isfinite(value(x))


def _zero(x: Any) -> Any:
    return value(x) == 0


def _without(x: Any, singular: Any, absorbed: Any, neutral: float) -> Any:
    """Put a neutral number where ``x`` is singular and is absorbed by what it meets."""
    mask = singular & absorbed
    return elementwise.where(mask, neutral, x) if mask.any() else x
