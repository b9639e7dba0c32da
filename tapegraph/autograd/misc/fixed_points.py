"""`fixed_point`: the limit of an iteration, differentiated by the equation that it solves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegraph.autograd.core import defvjp, make_vjp, vspace
from tapegraph.autograd.tracer import primitive
from tapegraph.typed import Cotangent, Fun, Pytree


@primitive
def fixed_point(
    f: Callable[[Any], Fun],
    a: Pytree,
    x0: Pytree,
    distance: Callable[[Any, Any], float],
    tol: float,
) -> Any:
    """Iterate ``x = f(a)(x)`` from ``x0`` until two iterates in a row are within ``tol``.

    It differentiates with respect to ``a``, at any order: the fixed point's cotangent ``w`` solves
    ``w = g + (df/dx)^T w``, by the same iteration.
    """
    step = f(a)
    x, previous = step(x0), x0
    while distance(x, previous) > tol:
        x, previous = step(x), x
    return x


def _vjp(ans: Pytree, f: Fun, a: Pytree, x0: Pytree, distance: Any, tol: float) -> Fun:
    def adjoint(parameters: Pytree) -> Fun:
        a, x, g = parameters
        pull, _ = make_vjp(f(a), x)
        return lambda w: vspace(x).add(pull(w), g)

    def vjp(g: Cotangent) -> Pytree:
        zero = vspace(ans).zeros()
        w = fixed_point(adjoint, (a, ans, g), zero, distance, tol)
        return make_vjp(lambda a: f(a)(ans), a)[0](w)

    return vjp


defvjp(fixed_point, None, _vjp, None)
