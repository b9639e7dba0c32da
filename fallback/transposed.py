"""Gradient rules made of tangent rules: for operations whose own gradient rule knows arrays alone.

A tangent rule is linear in its tangents and written in recorded operations. Differentiated by the
tangents, at any, it gives the gradient rule, recorded.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.differentiation.gradients import Region
from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ops.elementwise import conj, real
from tapegraph.ops.shape import alias
from tapegraph.recording.node import as_leaf


def transposed_jvp(jvp: Rule) -> Joint:
    """Return the row on Tensors of an operation with a tangent rule."""

    def vjp(needs: list[bool], g: Any, y: Any, *inputs: Any, **attrs: Any) -> list[Any]:
        # Of ones: rules may leave out what is multiplied by a zero tangent.
        tangents = tuple(
            alias(as_leaf(np.ones(x.shape, x.dtype))) if needed else None
            for needed, x in zip(needs, inputs, strict=True)
        )
        tangent = jvp(tangents, y, *inputs, **attrs)
        if tangent is None:
            return [None] * len(inputs)
        if y.dtype.kind != "c":
            tangent = real(tangent)
        if tangent.shape != y.shape or tangent.dtype != y.dtype:
            tangent = tangent + as_leaf(np.zeros(y.shape, y.dtype))
        targets = [t for t in tangents if t is not None]
        # A sweep carries conjugates, in and out of which another one is run here.
        found = iter(Region([tangent], targets).gradients([conj(g)], record=True))
        return [None if t is None else conj(next(found)) for t in tangents]

    return Joint(vjp)
