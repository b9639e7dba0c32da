"""Forward mode: `jvp`, on dual numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph.errors import check_callable, kind_of, message
from tapegraph.pytree import is_tree, leaves, mapped, matched, replaced
from tapegraph.recording.node import as_leaf
from tapegraph.tensors.batched import Batched
from tapegraph.tensors.dual import Dual, direction, dual_of, parts
from tapegraph.tensors.tensor import Tensor
from tapegraph.transforms.levels import (
    NUMBER_TYPES,
    and_aux,
    flowing,
    leaves_of_result,
    like_input,
    next_tag,
    points_of,
    recording,
    result,
    stays,
)
from tapegraph.typed import Fun, Pytree


def jvp(
    f: Fun, primals: Sequence[Pytree], tangents: Sequence[Pytree], has_aux: bool = False
) -> tuple[Any, ...]:
    """Return a function's value and its derivative along a direction, in one forward pass.

    The derivative is the Jacobian-vector product ``sum_i (df/dx_i) t_i``.

    :param f: Takes one argument per primal; returns a number or tensor of any shape, or dicts,
        lists and tuples of them.
    :param primals: The point: numbers, arrays, tensors, duals of an outer level, and dicts, lists
        and tuples of them.
    :param tangents: The direction: one per primal, of its structure and shapes.
    :param has_aux: ``f`` returns ``(result, aux)``, and ``aux`` comes last, not differentiated.
    :returns: Value and tangent, both in the structure that ``f`` returns. Kinds are as for `grad`,
        so that levels nest, and ``backward()`` of a tangent is a Hessian-vector product.
    :raises TypeError: ``f`` is not callable or returns something other than numbers; primals or
        tangents are no tuple, are not numeric, or hold a `Value`.
    :raises ValueError: The numbers of primals and tangents differ, or a tangent's structure or
        shape is not its primal's.
    :raises NotImplementedError: An operation has no forward-mode rule.

    Kinks are as in reverse mode: relu'(0) = abs'(0) = 0, ``d(a**b)/db = 0`` where ``a <= 0``, and
    the first maximum of a pooling window counts. A zero derivative times inf or NaN is zero, so
    masked singular points stay out of the result.

    >>> tg.jvp(lambda x, y: x * y, (2.0, 3.0), (1.0, 0.0))
    (6.0, 3.0)
    >>> tg.jvp(lambda p: p["w"] * p["b"], ({"w": 2.0, "b": 3.0},), ({"w": 1.0, "b": 0.0},))
    (6.0, 3.0)
    >>> w = tg.param([1.0, 2.0])
    >>> _, slope = tg.jvp(lambda w: tg.sum(w**3), (w,), ([1.0, 0.0],))
    >>> slope.backward()
    >>> w.grad
    array([6., 0.])
    """
    check_callable("jvp", f)
    check_pairs("jvp", primals, tangents)
    tag = next_tag()
    given, inputs = [], []
    for i, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
        points = points_of("jvp", primal, f"primals[{i}]")
        inputs.append(along_tangent("jvp", i, primal, points, tangent, tag))
        given += [x for _, x in leaves((primal, tangent))]
    with recording():
        out = f(*inputs)
    out, aux = and_aux("jvp", out) if has_aux else (out, None)
    pairs = [value_and_tangent("jvp", x, tag) for x in leaves_of_result("jvp", out)]
    pairs = [_as_given(pair, given) for pair in pairs]
    value, tangent = (replaced(out, (pair[i] for pair in pairs)) for i in (0, 1))
    if not has_aux:
        return value, tangent
    kinds = (Tensor, Dual, Batched)
    ended = lambda x: _as_given(parts(x, tag)[:1], given)[0] if isinstance(x, kinds) else x  # noqa: E731
    return value, tangent, mapped(ended, aux)


def along_tangent(
    op: str, i: int, primal: object, points: Sequence[object], tangent: object, tag: int
) -> Any:
    """Return argument ``i`` with duals for its leaves, of these points and the tangent's leaves."""
    path = f"tangents[{i}]"
    along: Any = [(path, tangent)]  # of an array a list will do
    if is_tree(primal):
        along = matched(op, tangent, primal, path, f"primals[{i}]")
    duals = (
        dual_of(point, direction(op, t, path, point), tag)
        for point, (path, t) in zip(points, along, strict=True)
    )
    return replaced(primal, duals)


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


def _as_given(results: tuple[object, ...], given: Sequence[object]) -> tuple[Any, ...]:
    results = tuple(map(flowing, results))
    if any(isinstance(x, (Tensor, Dual)) for x in given) or any(map(stays, results)):
        return results
    kind = 0.0 if all(isinstance(x, NUMBER_TYPES) for x in given) else None
    return tuple(like_input(x, kind) for x in results)
