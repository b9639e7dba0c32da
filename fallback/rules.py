"""The table of vector-Jacobian products, and the two forms that a row takes.

A row is a tuple with one VJP rule per input, ``rule(g, y, *inputs, **attrs)``, where ``g`` is the
cotangent of the result ``y``; or one `Joint` rule, ``rule(needs, g, y, *inputs, **attrs)``, that
returns one gradient per input. Operations that save something for their rule hand it over as
``saved=``. A rule returns the full-shape gradient; the sweep undoes broadcasting.

Where ``g`` is zero the gradient must be zero even if the local derivative is not finite: rules
multiply and divide the cotangent itself (``g * b``, ``g / b``), which the sweep can make exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]


class Joint:
    """One rule for all inputs, for operations whose gradients share their work."""

    __slots__ = ("rule",)

    def __init__(self, rule: Rule) -> None:
        self.rule = rule


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {}
