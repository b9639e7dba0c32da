"""Differential operators with autograd's names and arguments."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.autograd import core
from tapegraph.autograd.core import vspace
from tapegraph.autograd.wrap_util import of_numbers, unary_to_nary
from tapegraph.errors import message, warn
from tapegraph.pytree import mapped
from tapegraph.transforms.checkpoint import checkpoint
from tapegraph.typed import Array, Fun, Pytree

__all__ = [
    "checkpoint",
    "deriv",
    "elementwise_grad",
    "grad",
    "grad_and_aux",
    "grad_named",
    "hessian",
    "hessian_tensor_product",
    "hessian_vector_product",
    "holomorphic_grad",
    "jacobian",
    "make_ggnvp",
    "make_hvp",
    "make_jvp",
    "make_vjp",
    "multigrad_dict",
    "tensor_jacobian_product",
    "value_and_grad",
    "vector_jacobian_product",
]

# For functions of one argument, under the names that autograd's module has.
_make_vjp, _make_jvp = core.make_vjp, core.make_jvp
make_vjp = unary_to_nary(core.make_vjp)
make_jvp = unary_to_nary(core.make_jvp)


@of_numbers
@unary_to_nary
def grad(fun: Fun, x: Pytree) -> Pytree:
    """Return the gradient of a scalar-valued function, in the structure of the argument.

    ``grad(fun, argnum=0)`` takes the arguments of ``fun``.

    :raises TypeError: ``fun`` does not return one real number.

    >>> print(grad(np.sin)(0.0), grad(grad(grad(np.sin)))(0.0))
    1.0 -1.0
    """
    return core.value_and_gradient("grad", fun, x)[1]


@unary_to_nary
def value_and_grad(fun: Fun, x: Pytree) -> tuple[Pytree, Pytree]:
    """Return the value and the gradient of a scalar-valued function, as `grad` does."""
    return core.value_and_gradient("value_and_grad", fun, x)


@of_numbers
@unary_to_nary
def elementwise_grad(fun: Fun, x: Pytree) -> Pytree:
    """Return the gradient of the sum of results, the derivative of element-wise functions."""
    vjp, value = core.make_vjp(fun, x)
    if vspace(value).iscomplex:
        fix = "Use holomorphic_grad, or take np.real or np.abs of it."
        received = "a function with a complex result"
        raise TypeError(message("elementwise_grad", received, "a real one", fix))
    return vjp(vspace(value).ones())


@of_numbers
@unary_to_nary
def deriv(fun: Fun, x: Pytree) -> Pytree:
    """Return the derivative of a function with respect to a number, in forward mode."""
    return core.make_jvp(fun, x)(mapped(np.ones_like, core.with_shapes(x)))[1]


@unary_to_nary
def jacobian(fun: Fun, x: Pytree) -> Array:
    """Return the Jacobian, with the result's axes before the argument's: one reverse pass."""
    return core.make_jacobian(fun, x)


@unary_to_nary
def hessian(fun: Fun, x: Pytree) -> Array:
    """Return the Hessian of a scalar-valued function; for several numbers in one reverse pass."""
    return core.make_jacobian(lambda x: _slopes(fun, x), x)


def _slopes(fun: Fun, x: Pytree) -> Pytree:
    """Return the Jacobian of a function whose result usually has one element."""
    vjp, value = core.make_vjp(fun, x)
    shape = np.shape(value)
    if not shape:
        return vjp(1.0)
    rows = [vjp(unit) for unit in vspace(value).standard_basis()]
    whole = shape + np.shape(x)
    return np.reshape(np.stack(rows), whole) if rows else np.zeros(whole)


@unary_to_nary
def holomorphic_grad(fun: Fun, x: Pytree) -> Pytree:
    """Return the derivative of a holomorphic function at each element; a real argument warns."""
    if not vspace(x).iscomplex:
        warn("holomorphic_grad: received a real argument; expected a complex one", UserWarning)
    return elementwise_grad(lambda x: np.real(fun(x)))(x)


def grad_named(fun: Fun, argname: str) -> Fun:
    """Return `grad` with respect to the argument of that name."""
    return grad(fun, list(inspect.signature(fun).parameters).index(argname))


@unary_to_nary
def grad_and_aux(fun: Fun, x: Pytree) -> tuple[Pytree, Pytree]:
    """Return the gradient of the first of a function's two results, and the second."""
    vjp, (value, aux) = core.make_vjp(lambda x: tuple(fun(x)), x)
    return vjp((vspace(value).ones(), mapped(np.zeros_like, aux))), aux


def multigrad_dict(fun: Fun) -> Callable[..., OrderedDict[str, Any]]:
    """Return the function that gives the gradients with respect to all arguments, by name."""
    signature = inspect.signature(fun)

    def gradients(*args: Pytree, **kwargs: object) -> OrderedDict[str, Any]:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()

        def by_name(values: dict[str, Any]) -> Pytree:
            again = inspect.BoundArguments(signature, OrderedDict(values))
            return fun(*again.args, **again.kwargs)

        return OrderedDict(grad(by_name)(dict(bound.arguments)))

    return gradients


@unary_to_nary
def make_hvp(fun: Fun, x: Pytree) -> tuple[Fun, Pytree]:
    """Return the function that multiplies by the Hessian at a point, and the gradient there."""
    return core.make_vjp(grad(fun), x)


def hessian_tensor_product(fun: Fun, argnum: int = 0) -> Fun:
    """Return the function of ``(*args, tensor)`` that gives the Hessian times the tensor."""

    def directional(*args: Pytree, **kwargs: object) -> Pytree:
        *rest, tensor = args
        return np.tensordot(grad(fun, argnum)(*rest, **kwargs), tensor, np.ndim(tensor))

    return grad(directional, argnum)


hessian_vector_product = hessian_tensor_product


def tensor_jacobian_product(fun: Fun, argnum: int = 0) -> Callable[..., Array]:
    """Return the function of ``(*args, tensor)`` that gives the tensor times the Jacobian."""

    def contracted(*args: Pytree, **kwargs: object) -> Pytree:
        *rest, tensor = args
        return np.tensordot(tensor, fun(*rest, **kwargs), np.ndim(tensor))

    return jacobian(contracted, argnum)


vector_jacobian_product = tensor_jacobian_product


@unary_to_nary
def make_jvp_reversemode(fun: Fun, x: Pytree) -> Fun:
    """Return the function that multiplies by the Jacobian, in reverse mode alone."""
    vjp, value = core.make_vjp(fun, x)
    return core.make_vjp(vjp, vspace(value).zeros())[0]


def make_ggnvp(
    f: Fun,
    g: Fun = lambda x: 0.5 * np.sum(x**2, axis=-1),
    f_argnum: int = 0,
) -> Callable[..., Fun]:
    """Return the maker, by point, of products with the Gauss-Newton ``J^T H J`` of ``g(f(x))``."""

    @unary_to_nary
    def ggnvp_maker(f: Fun, x: Pytree) -> Fun:
        pull, value = core.make_vjp(f, x)
        times_hessian, _ = core.make_vjp(grad(g), value)
        push, _ = core.make_vjp(pull, vspace(value).zeros())
        return lambda v: pull(times_hessian(push(v)))

    return ggnvp_maker(f, f_argnum)
