"""`make_vjp` and `make_jvp` of functions of one argument, and what defines primitives.

Cotangents of complex numbers are autograd's, ``dL/dx - i dL/dy``: the conjugates of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.autograd.deprecated import primitive as primitive
from tapegraph.autograd.nodes import INDEPENDENT
from tapegraph.autograd.nodes import JVPNode as JVPNode
from tapegraph.autograd.nodes import VJPNode as VJPNode
from tapegraph.autograd.nodes import backward_pass as backward_pass
from tapegraph.autograd.primitives import SparseObject as SparseObject
from tapegraph.autograd.primitives import def_linear as def_linear
from tapegraph.autograd.primitives import defjvp as defjvp
from tapegraph.autograd.primitives import defjvp_argnum as defjvp_argnum
from tapegraph.autograd.primitives import defjvp_argnums as defjvp_argnums
from tapegraph.autograd.primitives import defvjp as defvjp
from tapegraph.autograd.primitives import defvjp_argnum as defvjp_argnum
from tapegraph.autograd.primitives import defvjp_argnums as defvjp_argnums
from tapegraph.autograd.primitives import primitive_jvps as primitive_jvps
from tapegraph.autograd.primitives import primitive_vjps as primitive_vjps
from tapegraph.autograd.traced import CONTAINERS, holds_box, settled
from tapegraph.autograd.traced import getval as getval
from tapegraph.autograd.tracer import Box as Box
from tapegraph.autograd.tracer import Node as Node
from tapegraph.autograd.tracer import isbox as isbox
from tapegraph.autograd.tracer import toposort as toposort
from tapegraph.autograd.tracer import trace as trace
from tapegraph.autograd.util import func as func
from tapegraph.autograd.util import subval as subval
from tapegraph.autograd.vspaces import VSpace as VSpace
from tapegraph.autograd.vspaces import vspace as vspace
from tapegraph.errors import kind_of, message, warn
from tapegraph.pytree import leaves, mapped, matched, replaced
from tapegraph.transforms.jacobian import jacobian as in_rows
from tapegraph.transforms.jvp import jvp as forward
from tapegraph.transforms.levels import (
    NUMBER_TYPES,
    Lifted,
    flowing,
    next_tag,
    recording,
    result,
)
from tapegraph.transforms.reverse import Pullback
from tapegraph.transforms.reverse import vjp as reverse


def make_vjp(fun: Callable[[Any], Any], x: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return the pullback of a function at a point, and the function's value.

    - fun (callable): Of one argument.
    - x: A number, an array, or dicts, lists and tuples of them.
    - Returns vjp (callable): Takes a cotangent in the structure of the value; gives one in the
      structure of ``x``.
    - Returns value: Of the function.
    - Warns UserWarning: The value does not depend on ``x``: the pullback gives zeros.
    """
    _check_numbers("make_vjp", x)
    run = _Watched(fun)
    value, pullback = reverse(run, with_shapes(x))
    run.warn("make_vjp")
    value = mapped(settled, value)

    def vjp(g: Any) -> Any:
        """Return the cotangent of the argument."""
        g = mapped(conjugated, _like("make_vjp", g, value, "the function's result"))
        return mapped(lambda x: settled(conjugated(x)), pullback(g))

    return vjp, value


def value_and_gradient(op: str, fun: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """Return the value of a function of one number at a point, and its gradient.

    - op (str): Who asks, for messages.
    - fun (callable): Of one argument.
    - x: A number, an array, or dicts, lists and tuples of them.
    - Raises TypeError: The function does not return one real number.
    - Warns UserWarning: The value does not depend on ``x``: the gradient is zero.
    """
    _check_numbers("make_vjp", x)
    run = _Watched(fun)
    lifted = Lifted("vjp", with_shapes(x), "primals[0]")
    level = next_tag()
    with recording():
        out = run(lifted.inside)
    run.warn("make_vjp")
    if not holds_box(out):
        vspace(out)  # which refuses what is no number
    y = None if isinstance(out, CONTAINERS) else result("vjp", out, level)
    if y is None or y.size != 1 or y.dtype.kind == "c":
        received = f"a function returning {kind_of(mapped(settled, out))}"
        fix = "Sum it, or use jacobian or elementwise_grad."
        if y is not None and y.dtype.kind == "c":
            fix = "Use holomorphic_grad, or take np.real or np.abs of it."
        raise TypeError(message(op, received, "one that returns one real number", fix))
    pullback = Pullback(y, lifted.targets)
    arrays = pullback.arrays()
    if arrays is None:
        value, grads = flowing(pullback.value), pullback()
    else:
        value, grads = np.array(y._array), arrays
    return settled(value), mapped(settled, lifted.regrouped(map(conjugated, grads)))


def make_jacobian(fun: Callable[[Any], Any], x: Any) -> Any:
    """Return the Jacobian of a function at a point.

    All rows are one reverse pass, unless an outer derivative records each.

    - fun (callable): Of one argument.
    - x: A number, an array, or dicts, lists and tuples of them.
    - Warns UserWarning: The value does not depend on ``x``: the Jacobian is zero.
    """
    _check_numbers("jacobian", x)
    run = _Watched(fun)
    found = in_rows(run, 0, "reverse")(with_shapes(x))
    run.warn("jacobian")
    return mapped(lambda block: _array(settled(conjugated(block))), found)


def make_jvp(fun: Callable[[Any], Any], x: Any) -> Callable[[Any], tuple[Any, Any]]:
    """Return the function that takes a direction to the value and its derivative along it.

    :param fun: Of one argument.
    :param x: A number, an array, or dicts, lists and tuples of them.
    """
    _check_numbers("make_jvp", x)
    primals = tuple(leaf for _, leaf in leaves(with_shapes(x)))

    def jvp(g: Any) -> tuple[Any, Any]:
        """Return the value, and the derivative along a direction."""
        form: Any = None

        def run(*inside: Any) -> tuple[Any, ...]:
            nonlocal form
            form = fun(replaced(x, iter(inside)))
            if not holds_box(form):
                warn(f"{INDEPENDENT}: make_jvp gives zeros", UserWarning)
            return tuple(leaf for _, leaf in leaves(form))

        tangents = tuple(leaf for _, leaf in leaves(_like("make_jvp", g, x, "the argument")))
        values, slopes = forward(run, primals, tangents)
        value, slope = (replaced(form, map(settled, found)) for found in (values, slopes))
        return value, slope

    return jvp


class _Watched:
    """A function of one argument that remembers whether its result depended on anything traced."""

    def __init__(self, fun: Callable[[Any], Any]) -> None:
        self._fun = fun
        self._depends = True

    def __call__(self, x: Any) -> Any:
        out = self._fun(x)
        self._depends = holds_box(out)
        return out

    def warn(self, op: str) -> None:
        """Warn as autograd does, if it did not."""
        if not self._depends:
            warn(f"{INDEPENDENT}: {op} gives zeros", UserWarning)


def with_shapes(x: Any) -> Any:
    """Return a structure with arrays for its numbers: results then are NumPy's, of their dtypes."""
    if type(x) is np.ndarray:
        return x
    return mapped(lambda leaf: np.asarray(leaf) if isinstance(leaf, NUMBER_TYPES) else leaf, x)


def conjugated(x: Any) -> Any:
    """Return a cotangent in the other library's convention, a real one as it is."""
    if type(x) is np.ndarray and x.dtype.kind != "c" or not np.iscomplexobj(x):
        return x
    return np.asarray(np.conj(x)) if isinstance(x, np.ndarray) else np.conj(x)


def _array(x: Any) -> Any:
    return np.asarray(x) if isinstance(x, np.generic) else x


def _check_numbers(op: str, x: Any) -> None:
    if type(x) is np.ndarray and x.dtype.char in "fdFD":  # as most are
        return
    for path, leaf in leaves(x, "the argument"):
        if isinstance(leaf, (float, int, complex)):
            continue
        dtype = getattr(leaf, "dtype", np.dtype(object))
        if dtype.kind in "iub" or dtype.char in "fdFD":
            continue
        fix = "Convert other floats first: x.astype(np.float64)." if dtype.kind in "fc" else ""
        expected = "numbers (bool, integer, float32, float64, complex64 or complex128)"
        raise TypeError(message(op, f"{kind_of(leaf)} for {path}", expected, fix))


def _like(op: str, g: Any, value: Any, of: str) -> Any:
    """Return a direction in the structure of a value, of its shapes where it broadcasts to them.

    :raises ValueError: It does not, or the structures differ.
    """
    pairs = zip(matched(op, g, value, "the direction", of), leaves(value), strict=True)
    return replaced(value, (_shaped(op, path, a, np.shape(b)) for (path, a), (_, b) in pairs))


def _shaped(op: str, path: str, x: Any, shape: tuple[int, ...]) -> Any:
    given = np.shape(x)
    if given == shape:
        return x
    if np.prod(given) == np.prod(shape):
        return np.reshape(x, shape)
    try:
        return np.broadcast_to(x, shape)
    except ValueError:
        raise ValueError(message(op, f"shape {given} for {path}", f"shape {shape}")) from None
