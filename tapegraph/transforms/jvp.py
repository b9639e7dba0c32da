"""Forward mode: `jvp`, on dual numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph.errors import check_callable, kind_of, message
from tapegraph.recording.node import as_leaf
from tapegraph.tensors.dual import Dual, direction, dual_of, lifted, parts
from tapegraph.tensors.tensor import Tensor
from tapegraph.transforms.levels import (
    NUMBER_TYPES,
    flowing,
    like_input,
    next_tag,
    recording,
    result,
    stays,
)
from tapegraph.typed import Fun, Operand


def jvp(f: Fun, primals: Sequence[Operand], tangents: Sequence[Operand]) -> tuple[Any, Any]:
    """Return a function's value and its derivative along a direction, in one forward pass.

    The derivative is the Jacobian-vector product ``sum_i (df/dx_i) t_i``.

    :param f: Takes one argument per primal; returns a number or tensor of any shape, or a tuple of
        them.
    :param primals: The point: numbers, arrays, tensors, or duals of an outer level.
    :param tangents: The direction: one per primal, of its shape.
    :returns: Value, and tangent of the same shape; tuples if ``f`` returns one. Kinds are as for
        `grad`, so that levels nest, and ``backward()`` of a tangent is a Hessian-vector product.
    :raises TypeError: ``f`` is not callable or returns something other than numbers; primals or
        tangents are no tuple, are not numeric, or hold a `Value`.
    :raises ValueError: The numbers of primals and tangents differ, or a tangent's shape is not its
        primal's.
    :raises NotImplementedError: An operation has no forward-mode rule.

    Kinks are as in reverse mode: relu'(0) = abs'(0) = 0, ``d(a**b)/db = 0`` where ``a <= 0``, and
    the first maximum of a pooling window counts. A zero derivative times inf or NaN is zero, so
    masked singular points stay out of the result.

    >>> tg.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.0))
    (6.0, 3.0)
    >>> w = tg.param([1.0, 2.0])
    >>> _, slope = tg.jvp(lambda w: tg.sum(w**3), (w,), ([1.0, 0.0],))
    >>> slope.backward()
    >>> w.grad
    array([6., 0.])
    """
    check_callable("jvp", f)
    check_pairs("jvp", primals, tangents)
    points = [lifted("jvp", x, f"primals[{i}]") for i, x in enumerate(primals)]
    directions = [
        direction("jvp", t, f"tangents[{i}]", p)
        for i, (t, p) in enumerate(zip(tangents, points, strict=True))
    ]
    tag = next_tag()
    with recording():
        out = f(*(dual_of(p, d, tag) for p, d in zip(points, directions, strict=True)))
    several = isinstance(out, (tuple, list))
    given = (*primals, *tangents)
    pairs = [
        _as_given(value_and_tangent("jvp", o, tag), given) for o in (out if several else (out,))
    ]
    if not several:
        return pairs[0][0], pairs[0][1]
    return tuple(value for value, _ in pairs), tuple(tangent for _, tangent in pairs)


def check_pairs(op: str, primals: Any, tangents: Any) -> None:
    for given, argument in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(given, (tuple, list)):
            fix = f"Write tg.{op}(f, (x,), (t,)) for one argument."
            raise TypeError(message(op, f"{kind_of(given)} for {argument!r}", "a tuple", fix))
    if len(primals) != len(tangents):
        received = f"{len(primals)} primals and {len(tangents)} tangents"
        raise ValueError(message(op, received, "one tangent per primal"))


def value_and_tangent(op: str, out: object, tag: int) -> tuple[Any, Any]:
    """Return value and tangent of a function's result, zero if it is a constant."""
    value, tangent = parts(result(op, out, tag), tag)
    if tangent is None:
        dtype = value.dtype if value.dtype.kind in "fc" else np.float64
        tangent = as_leaf(np.zeros(value.shape, dtype))
    return value, tangent


def _as_given(results: tuple[object, ...], given: tuple[object, ...]) -> tuple[Any, ...]:
    """Return results as floats or ndarrays if the inputs are, unless history would be lost."""
    results = tuple(map(flowing, results))
    if any(isinstance(x, (Tensor, Dual)) for x in given) or any(map(stays, results)):
        return results
    kind = 0.0 if all(isinstance(x, NUMBER_TYPES) for x in given) else None
    return tuple(like_input(x, kind) for x in results)
