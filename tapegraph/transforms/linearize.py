"""`linearize`: a function's value, and its derivative as a function of the direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.errors import check_callable
from tapegraph.pytree import leaves, mapped, replaced
from tapegraph.transforms.levels import like_input
from tapegraph.transforms.reverse import vjp
from tapegraph.typed import Fun, Pytree


def linearize(f: Fun, *primals: Pytree) -> tuple[Pytree, Callable[..., Pytree]]:
    """Return a function's value, and the linear map that takes a direction to its derivative.

    ``f`` runs once; each direction then costs one pass over the recording. The map is the transpose
    of the pullback of `vjp`.

    :param f: Takes one argument per primal; returns a number or tensor of any shape, or dicts,
        lists and tuples of them.
    :param *primals: The point: numbers, arrays, tensors, duals, and dicts, lists and tuples of
        them.
    :returns: The function's value, and the map: from a tangent per primal, in its structure and
        shapes, to the Jacobian-vector product ``sum_i (df/dx_i) t_i`` in the structure of the
        value.
    :raises TypeError, ValueError: As for `vjp`.

    >>> value, derivative = tg.linearize(lambda x: tg.sin(x) * x, np.array([0.0, 1.0]))
    >>> derivative(np.array([1.0, 0.0]))
    array([0., 0.])
    """
    check_callable("linearize", f)
    value, pullback = vjp(f, *primals)
    # The pullback is linear, so any cotangent will do. Zeros would absorb infinities.
    anywhere = mapped(lambda x: np.ones(np.shape(x), _dtype(x)), value)
    _, transposed = vjp(pullback, anywhere)

    def derivative(*tangents: Pytree) -> Pytree:
        found = transposed(tangents[0] if len(primals) == 1 else tangents)
        if any(getattr(x, "requires_grad", False) for _, x in leaves((value, tangents))):
            return found
        # Nothing outside is differentiated: the result's other dependencies ended with `vjp`.
        plain = (
            like_input(x.detach(), v) if hasattr(x, "detach") else x
            for (_, v), (_, x) in zip(leaves(value), leaves(found), strict=True)
        )
        return replaced(value, plain)

    return value, derivative


def _dtype(x: Any) -> Any:
    dtype = getattr(x, "dtype", np.result_type(x))
    return dtype if dtype.kind in "fc" else np.float64
