"""`hvp`: the Hessian times a vector, without the Hessian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapegraph.errors import check_callable, message
from tapegraph.pytree import leaves, matched, replaced
from tapegraph.tensors.dual import direction, dual_of
from tapegraph.transforms.jvp import check_pairs, value_and_tangent
from tapegraph.transforms.levels import Lifted, next_tag
from tapegraph.transforms.reverse import Pullback, recording
from tapegraph.typed import Pytree


def hvp(f: Callable[..., Any], primals: Sequence[Pytree], tangents: Sequence[Pytree]) -> Pytree:
    """Return the Hessian of a scalar-valued function times a vector.

    One run of ``f`` on dual numbers and one reverse pass, of their tangent: some three gradients'
    worth, whatever the size.

    :param f: Takes one argument per primal, returns one number.
    :param primals: Where: numbers, arrays, tensors, duals, and dicts, lists and tuples of them.
    :param tangents: The vector: as many, each of its primal's structure and shapes. Dicts are
        paired by key, lists and tuples by place.
    :returns: Array or structure. The product in the structure of the primal, a tuple of them where
        there are several. Kinds of results are as for `grad`.
    :raises TypeError, ValueError: As for `jvp` and `grad`.

    >>> x, v = np.array([1.0, 2.0]), np.array([1.0, 0.0])
    >>> tg.hvp(lambda x: tg.sum(x**3), (x,), (v,))
    array([6., 0.])
    """
    check_callable("hvp", f)
    check_pairs("hvp", primals, tangents)
    tag = next_tag()
    lifted = [Lifted("hvp", x, f"primals[{i}]") for i, x in enumerate(primals)]
    inputs = []
    for i, (argument, tangent) in enumerate(zip(lifted, tangents, strict=True)):
        points = [point for _, point in leaves(argument.inside)]
        along = matched("hvp", tangent, argument.value, f"tangents[{i}]", f"primals[{i}]")
        duals = (
            dual_of(point, direction("hvp", t, path, point), tag)
            for point, (path, t) in zip(points, along, strict=True)
        )
        inputs.append(replaced(argument.inside, duals))
    with recording():
        value, tangent = value_and_tangent("hvp", f(*inputs), tag)
    if value.shape != ():
        received = f"a function returning shape {value.shape}"
        raise ValueError(message("hvp", received, "one that returns one number", "Sum it."))
    products = iter(Pullback(tangent, [x for argument in lifted for x in argument.targets])())
    parts = tuple(argument.regrouped(products) for argument in lifted)
    return parts[0] if len(parts) == 1 else parts
