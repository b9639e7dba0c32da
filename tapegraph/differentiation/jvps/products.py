"""Tangents of the operations of ``tapegraph/ops/products.py``."""

from __future__ import annotations

import functools
from typing import Any

from tapegraph.differentiation.jvps.rules import Rule, is_finite, times
from tapegraph.ops import elementwise, reduce
from tapegraph.ops.products import EINSUM, aligned, terms_of
from tapegraph.recording.record import apply


def _einsum(tangents: tuple[Any, ...], y: Any, *operands: Any, spec: str) -> Any:
    parts = [
        _contracted(spec, i, (*operands[:i], t, *operands[i + 1 :]))
        for i, t in enumerate(tangents)
        if t is not None
    ]
    return functools.reduce(elementwise.add, parts) if parts else None


def _contracted(spec: str, place: int, operands: tuple[Any, ...]) -> Any:
    """Contract with a tangent in one place, whose zeros add nothing."""
    out = apply(EINSUM, operands, {"spec": spec})
    if is_finite(out) or all(map(is_finite, operands)):
        return out
    terms, output = terms_of(spec)
    labels = output + "".join(sorted(set("".join(terms)) - set(output)))
    factors = [aligned(x, term, labels) for x, term in zip(operands, terms, strict=True)]
    product = functools.reduce(times, factors, factors.pop(place))
    return reduce.sum(product, axis=tuple(range(len(output), len(labels))))


JVPS: dict[str, Rule] = {"einsum": _einsum}
