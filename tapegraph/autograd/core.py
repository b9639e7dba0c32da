"""`make_vjp` and `make_jvp` of functions of one argument, and what defines primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.autograd.deprecated import primitive as primitive
from tapegraph.autograd.primitives import def_linear as def_linear
from tapegraph.autograd.primitives import defjvp as defjvp
from tapegraph.autograd.primitives import defjvp_argnum as defjvp_argnum
from tapegraph.autograd.primitives import defjvp_argnums as defjvp_argnums
from tapegraph.autograd.primitives import defvjp as defvjp
from tapegraph.autograd.primitives import defvjp_argnum as defvjp_argnum
from tapegraph.autograd.primitives import defvjp_argnums as defvjp_argnums
from tapegraph.autograd.primitives import primitive_jvps as primitive_jvps
from tapegraph.autograd.primitives import primitive_vjps as primitive_vjps
from tapegraph.autograd.traced import getval as getval
from tapegraph.autograd.traced import holds_box, settled
from tapegraph.autograd.vspaces import VSpace as VSpace
from tapegraph.autograd.vspaces import vspace as vspace
from tapegraph.errors import explain, kind_of, warn
from tapegraph.transforms.forward import jvp as forward
from tapegraph.transforms.structure import leaves, mapped, replaced
from tapegraph.transforms.vjp import vjp as reverse


def make_vjp(fun: Callable[[Any], Any], x: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return the pullback of a function at a point, and the function's value.

    Parameters
    ----------
    fun : callable
        Of one argument.
    x
        A number, an array, or dicts, lists and tuples of them.

    Returns
    -------
    vjp : callable
        Takes a cotangent in the structure of the value; gives one in the structure of ``x``.
    value
        Of the function.

    Warns
    -----
    UserWarning
        The value does not depend on ``x``: the pullback gives zeros.
    """
    _check_real(x)
    depends = True

    def run(inside: Any) -> Any:
        nonlocal depends
        out = fun(inside)
        depends = holds_box(out)
        return out

    value, pullback = reverse(run, x)
    if not depends:
        warn("make_vjp: the result does not depend on the argument", UserWarning)
    value = mapped(settled, value)

    def vjp(g: Any) -> Any:
        """Return the cotangent of the argument."""
        return mapped(settled, pullback(_like(g, value)))

    return vjp, value


def make_jvp(fun: Callable[[Any], Any], x: Any) -> Callable[[Any], tuple[Any, Any]]:
    """Return the function that takes a direction to the value and its derivative along it.

    Parameters
    ----------
    fun : callable
        Of one argument.
    x
        A number, an array, or dicts, lists and tuples of them.
    """
    _check_real(x)
    primals = tuple(leaf for _, leaf in leaves(x))

    def jvp(g: Any) -> tuple[Any, Any]:
        """Return the value, and the derivative along a direction."""
        form: Any = None

        def run(*inside: Any) -> tuple[Any, ...]:
            nonlocal form
            form = fun(replaced(x, iter(inside)))
            return tuple(leaf for _, leaf in leaves(form))

        tangents = tuple(leaf for _, leaf in leaves(_like(g, x)))
        values, slopes = forward(run, primals, tangents)
        value, slope = (replaced(form, map(settled, found)) for found in (values, slopes))
        return value, slope

    return jvp


def _check_real(x: Any) -> None:
    for path, leaf in leaves(x, "the argument"):
        kind = getattr(getattr(leaf, "dtype", None), "kind", None)
        if not isinstance(leaf, (float, int)) and kind not in tuple("fiub"):
            fix = "Of a complex number, differentiate by the real and the imaginary part."
            received = f"{kind_of(leaf)} for {path}"
            raise TypeError(explain("make_vjp", received, "real numbers", fix))


def _like(g: Any, value: Any) -> Any:
    """Return a cotangent whose parts have the shapes of a value's, where they broadcast to them."""
    given, form = list(leaves(g)), list(leaves(value))
    if len(given) != len(form):
        return g
    pairs = zip(given, form, strict=True)
    return replaced(g, (_shaped(a, np.shape(b)) for (_, a), (_, b) in pairs))


def _shaped(x: Any, shape: tuple[int, ...]) -> Any:
    given = np.shape(x)
    if given == shape:
        return x
    return np.reshape(x, shape) if np.prod(given) == np.prod(shape) else np.broadcast_to(x, shape)
