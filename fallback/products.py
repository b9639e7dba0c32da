"""Gradients: products of vectors, matrices and tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.fallback.absorbing import Absorbing
from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ops.products import aligned, contract, terms_of
from tapegraph.typed import Array


def _einsum(needs: list[bool], g: Any, y: Array, *arrays: Array, spec: str) -> list[Any]:
    """Contract the cotangent with the other operands to the labels of each.

    Every label of an operand is in another term or in the result, so nothing is left over.
    """
    terms, output = terms_of(spec)
    grads: list[Any] = []
    for i, (term, needed) in enumerate(zip(terms, needs, strict=True)):
        others = [*terms[:i], *terms[i + 1 :]]
        rest = [*arrays[:i], *arrays[i + 1 :]]
        back = f"{','.join([output, *others])}->{term}"
        grads.append(_contract(back, g, *rest) if needed else None)
    return grads


def _contract(spec: str, g: Any, *arrays: Array) -> Any:
    out = contract(spec, np.asarray(g), *arrays)
    if not isinstance(g, Absorbing) or np.isfinite(out).all():
        return out
    # Element by element the cotangent's zeros absorb what they meet.
    terms, output = terms_of(spec)
    labels = output + "".join(sorted(set("".join(terms)) - set(output)))
    factors = [aligned(x, term, labels) for x, term in zip((g, *arrays), terms, strict=True)]
    product = math.prod(factors[1:], start=factors[0])
    return product.sum(axis=tuple(range(len(output), len(labels))))


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {"einsum": Joint(_einsum)}
