"""The table of vector-Jacobian products, and the two forms of its rows.

A row is a tuple with one VJP rule per input, ``rule(g, y, *inputs, **attrs)``, where ``g`` is the
cotangent of the result ``y``; or one `JointVJP` rule, ``rule(needs, g, y, *inputs, **attrs)``, that
returns one gradient per input. Slopes supply those of element-wise operations. Values that an
operation saved arrive as ``saved=``. A rule returns the full-shape gradient; the sweep undoes
broadcasting.

If ``g`` is zero the gradient must be zero even if the local derivative is not finite: rules
multiply and divide the cotangent itself (``g * b``, ``g / b``), to which either sweep can give
strong zeros.

Rows are array code for arrays and Tensors; on Tensors it is recorded and can be differentiated
again. If the fast form for arrays cannot be, a row in `RECORDED` computes from the inputs and
``y``.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypeAlias

from tapegraph.differentiation.slopes import Divisor, Linear, Slope, Slopes, rule_of
from tapegraph.kinds import Tensor
from tapegraph.ops import COMPOSED, rules_of_families
from tapegraph.recording.op import Op
from tapegraph.typed import Array, Fun

Rule = Fun
# One for each input, None where none is needed.
Gradients = Sequence[Array | Tensor | None]


class JointVJP:
    """One rule for all inputs, for operations whose gradients share their work."""

    __slots__ = ("rule",)

    def __init__(self, rule: Rule) -> None:
        self.rule = rule


Row: TypeAlias = "tuple[Rule | None, ...] | JointVJP"

VJPS: dict[str, Row] = {}
# The rows that run on Tensors, where those for arrays do not.
RECORDED: dict[str, Row] = {}


def recorded_row(op: Op) -> Row:
    """Return the row of an operation on Tensors or Python numbers, without a saved value."""
    if op.rules is not None and op.rules.recorded is not None:
        return JointVJP(op.rules.recorded)
    row = RECORDED.get(op.name, VJPS.get(op.name))
    if row is None:
        reason = "no gradient rule, so there is nothing to differentiate"
        if op.rules is not None:
            reason = (
                "only a gradient rule for arrays, which cannot be differentiated again; pass "
                "jvp= to tg.defop, which then makes a rule that can"
            )
        raise NotImplementedError(f"{op.name}: it has {reason}")
    return row


def rows_of(slopes: Slopes) -> dict[str, tuple[Rule | None, ...]]:
    return {
        name: tuple(None if slope is None else _rule(slope, len(row)) for slope in row)
        for name, row in slopes.items()
    }


# The code of the slopes of a product.
_FIRST, _SECOND = (f.__code__.co_code for f in (lambda y, a, b: a, lambda y, a, b: b))


def _rule(slope: Slope, inputs: int) -> Rule:
    """Return the VJP rule of a slope, with its callees bound once."""
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
        if of.__code__.co_code == _FIRST:  # of a product: one call less
            return lambda g, y, a, b: g * a
        if of.__code__.co_code == _SECOND:
            return lambda g, y, a, b: g * b
        return lambda g, y, a, b: g * of(y, a, b)
    return rule_of(slope)


for _name, _table in (("VJPS", VJPS), ("RECORDED", RECORDED)):
    _table.update(rules_of_families(__name__, _name, ("elementwise", *COMPOSED)))
