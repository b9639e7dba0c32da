"""`odeint`, differentiated by the adjoint equation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegraph.autograd.core import defvjp_argnums, make_vjp
from tapegraph.autograd.misc.flatten import flatten
from tapegraph.autograd.scipy import passed_on, primitive_of
from tapegraph.typed import Cotangent, DuckArray, Fun

odeint = primitive_of("integrate", "odeint")


def _vjps(
    argnums: Sequence[int], ans: DuckArray, args: tuple[Any, ...], kwargs: dict[str, object]
) -> Callable[[Any], list[Any]]:
    """Return the cotangents of ``odeint(func, y0, t, args)`` by Pontryagin's adjoint method.

    The state's, ``w``, obeys ``dw/dt = -(df/dy)^T w`` backwards in time and jumps by each result's.
    """
    func, y0, t = args[:3]
    parameters = args[3] if len(args) > 3 else ()

    def vjp(g: Cotangent) -> list[Any]:
        w = g[-1]
        by_first_time: Any = 0.0
        by_time: list[Any] = []
        numbers, structured = flatten(parameters)
        by_parameters = structured(numbers * 0.0)
        for i in range(len(t) - 1, 0, -1):
            moved = np.dot(_vector(func(ans[i], t[i], *parameters)), g[i])
            by_time.insert(0, moved)
            by_first_time = by_first_time - moved
            start, unflatten = flatten((ans[i], w, by_first_time, by_parameters))
            back = _adjoint(func, unflatten)
            end = odeint(back, start, np.stack([t[i], t[i - 1]]), (parameters,), **kwargs)[1]
            _, w, by_first_time, by_parameters = unflatten(end)
            w = w + g[i - 1]
        times = np.stack([by_first_time, *by_time])
        every = (None, w, times, by_parameters)
        return [every[i] for i in argnums]

    return vjp


def _adjoint(func: Fun, unflatten: Fun) -> Fun:
    def slope(state: DuckArray, s: DuckArray, parameters: object) -> DuckArray:
        y, w, _, _ = unflatten(state)
        pull, dy = make_vjp(lambda v: _vector(func(v[0], v[1], *v[2])), (y, s, parameters))
        return flatten((dy, *pull(-w)))[0]

    return slope


def _vector(x: DuckArray) -> DuckArray:
    return np.stack(x) if isinstance(x, (list, tuple)) else x


defvjp_argnums(odeint, _vjps)


def __getattr__(name: str) -> Any:
    return passed_on("integrate", name)
