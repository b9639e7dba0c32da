"""SciPy's functions by name, imported when they are used, and what serves them on tensors."""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from tapegraph.autograd.boxes import TENSORS, holds_tensor
from tapegraph.autograd.core import defjvp, defvjp
from tapegraph.autograd.numpy.numpy_vjps import unbroadcast_f
from tapegraph.autograd.numpy.numpy_wrapper import joined, wrapped
from tapegraph.autograd.tracer import primitive
from tapegraph.errors import message, user_line
from tapegraph.pytree import mapped
from tapegraph.recording.numpy_functions import peek
from tapegraph.recording.scopes import recorder

F = TypeVar("F", bound=Callable[..., Any])
INF = math.inf
FINITE = sys.float_info.max


def __getattr__(name: str) -> Any:
    if name not in ("integrate", "linalg", "signal", "special", "stats"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def of_scipy(module: str, name: str) -> Any:
    """Return what SciPy's module, or distribution, has by a name; raise where SciPy is missing."""
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


@functools.cache
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


def primitive_of(module: str, name: str, **slopes: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of SciPy's as a primitive.

    :param module, name: SciPy's.
    :param **slopes: Of a function that works element by element, by ``x0``, ``x1``, ...:
        ``slope(ans, *args)`` gives the derivative by that argument.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        return of_scipy(module, name)(*args, **kwargs)

    distribution = module.removeprefix("stats.")  # whose functions have names like others'
    call.__name__ = name if distribution == module else f"{distribution}.{name}"
    call.__doc__ = f"Call ``scipy.{module}.{name}``, with derivatives."
    made = primitive(call)
    if slopes:
        argnums = [int(argument[1:]) for argument in slopes]
        defvjp(made, *map(_vjp, argnums, slopes.values()), argnums=argnums)
        defjvp(made, *map(_jvp, slopes.values()), argnums=argnums)
    return made


def _vjp(argnum: int, slope: Callable[..., Any]) -> Callable[..., Any]:
    def maker(ans: Any, *args: Any) -> Callable[[Any], Any]:
        return unbroadcast_f(args[argnum], lambda g: g * slope(ans, *args))

    return maker


def _jvp(slope: Callable[..., Any]) -> Callable[..., Any]:
    return lambda g, ans, *args: np.broadcast_to(g, np.shape(ans)) * slope(ans, *args)


# Distributions: where their formulas hold, and what they are elsewhere: SciPy's rules, once for
# all. A parameter that is out of its range makes the result NaN, and its gradients too. Outside of
# the support a density is zero, and the distribution function 0 or 1: constants, of gradient zero.


def exp_of(logarithm: F) -> F:
    """Return what a distribution's function is the logarithm of: of ``logpdf`` the ``pdf``."""

    @functools.wraps(logarithm)
    def call(*args: Any, **kwargs: Any) -> Any:
        return np.exp(logarithm(*args, **kwargs))

    call.__name__ = logarithm.__name__[3:]  # after "log"
    call.__doc__ = f"Return the exponential of `{logarithm.__name__}`."
    return cast("F", call)


def standard(x: Any, shapes: Sequence[Any], loc: Any, scale: Any) -> tuple[Any, ...]:
    """Return ``(x - loc) / scale``, the scale and the shape parameters: NaN where they are invalid.

    :param x, loc, scale: Numbers, arrays, tensors, and lists of them.
    :param shapes: Parameters that must be positive, as the scale must.
    """
    x, loc, *parameters = (array_of(part) for part in (x, loc, scale, *shapes))
    scale, *shapes = valid(*(parameter > 0 for parameter in parameters))(*parameters)
    return ((x - loc) / scale, scale, *shapes)


def valid(*conditions: Any) -> Callable[..., list[Any]]:
    """Return what makes NaN of parameters, all of them where one of the conditions fails."""
    holds = functools.reduce(np.logical_and, conditions)
    if _everywhere(holds):
        return lambda *parameters: list(parameters)
    return lambda *parameters: [p * np.where(holds, 1.0, np.nan) for p in parameters]


def inside(
    formula: Callable[[Any], Any], z: Any, high: float, *, below: float, above: float
) -> Any:
    """Return a formula of ``z`` from zero to a bound, where it holds too, and constants beyond."""
    under = z < 0.0
    outside = np.logical_or(under, z > high)
    if _everywhere(np.logical_not(outside)):
        return formula(z)
    found = formula(np.where(outside, min(1.0, 0.5 * high), z))
    return np.where(outside, np.where(under, below, above), found)


def _everywhere(condition: Any) -> bool:
    """Return whether a condition holds for all elements; of captured ones, False."""
    return not recorder().records(condition) and bool(np.all(condition))


def checked(module: str, name: str, *args: Any, **options: Any) -> Any:
    """Return SciPy's value of a function, for its shape and for the ValueErrors that it raises."""
    try:
        return of_scipy(module, name)(*(mapped(peek, x) for x in args), **options)
    except ValueError as error:
        name = f"{module.partition('.')[2]}.{name}"
        raise type(error)(f"{name}: {error} (at {user_line()})") from error


def array_of(x: Any) -> Any:
    """Return an argument as SciPy takes it: an array of whatever it holds."""
    x = joined(x) if isinstance(x, (list, tuple)) else x
    return x if isinstance(x, TENSORS) else np.asarray(x)
