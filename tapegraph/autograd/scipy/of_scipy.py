"""SciPy's functions by name, imported when they are used, and what serves them on tensors."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from tapegraph.autograd.numpy.numpy_vjps import unbroadcast_f
from tapegraph.autograd.numpy.wrapping import wrapped
from tapegraph.autograd.primitives import defjvp, defvjp, primitive
from tapegraph.autograd.traced import holds_tensor
from tapegraph.errors import message

F = TypeVar("F", bound=Callable[..., Any])


def of_scipy(module: str, name: str) -> Any:
    """Return what SciPy's module, or distribution, of a name has.

    :raises ImportError: If SciPy is missing.
    """
    package, *inside = module.split(".")
    try:
        found: Any = importlib.import_module(f"scipy.{package}")
    except ImportError:
        fix = "Install it: pip install scipy."
        missing = "a call in an environment without SciPy"
        raise ImportError(message(f"scipy.{module}.{name}", missing, "SciPy", fix)) from None
    for part in (*inside, name):
        found = getattr(found, part)
    return found


@functools.cache  # one function by a name, which may be given rules
def passed_on(module: str, name: str) -> Any:
    """Return a function of SciPy's as its own on plain arguments, and dispatched on tensors."""
    if name.startswith("_"):
        raise AttributeError(name)
    found = of_scipy(module, name)
    return wrapped(found) if callable(found) and not isinstance(found, type) else found


def formula_of(module: str) -> Callable[[F], F]:
    """Make a function SciPy's of its name on plain arguments, and itself where one is traced.

    As SciPy's functions, it does not warn of infinities and NaN that it gives.
    """

    def decorate(formula: F) -> F:
        @functools.wraps(formula)
        def call(*args: Any, **kwargs: Any) -> Any:
            if any(map(holds_tensor, args)) or holds_tensor(kwargs):
                with np.errstate(all="ignore"):
                    return formula(*args, **kwargs)
            return of_scipy(module, formula.__name__)(*args, **kwargs)

        return cast("F", call)

    return decorate


def primitive_of(module: str, name: str) -> Callable[..., Any]:
    """Return a function of SciPy's as a primitive, whose rules are still to be defined."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return of_scipy(module, name)(*args, **kwargs)

    distribution = module.removeprefix("stats.")  # whose functions have names like others'
    call.__name__ = name if distribution == module else f"{distribution}.{name}"
    call.__doc__ = f"Call ``scipy.{module}.{name}``, with derivatives."
    return primitive(call)


def slopes(fun: Callable[..., Any], **rules: Callable[..., Any]) -> None:
    """Define the derivatives of an element-wise primitive.

    :param fun: The primitive.
    :param **rules: By ``x0``, ``x1``, ...: ``rule(ans, *args)`` gives the derivative by that
        argument.
    """
    argnums = [int(name[1:]) for name in rules]
    defvjp(fun, *map(_vjp, argnums, rules.values()), argnums=argnums)
    defjvp(fun, *map(_jvp, rules.values()), argnums=argnums)


def _vjp(argnum: int, rule: Callable[..., Any]) -> Callable[..., Any]:
    def maker(ans: Any, *args: Any) -> Callable[[Any], Any]:
        return unbroadcast_f(args[argnum], lambda g: g * rule(ans, *args))

    return maker


def _jvp(rule: Callable[..., Any]) -> Callable[..., Any]:
    def jvp(g: Any, ans: Any, *args: Any) -> Any:
        return np.broadcast_to(g, np.shape(ans)) * rule(ans, *args)

    return jvp
