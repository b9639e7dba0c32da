"""SciPy's functions by name, imported on first use, and their support for tensors."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np

from tapegraph.autograd.boxes import holds_tensor
from tapegraph.autograd.core import defjvp, defvjp
from tapegraph.autograd.numpy.numpy_vjps import unbroadcast_f
from tapegraph.autograd.numpy.numpy_wrapper import wrapped
from tapegraph.autograd.tracer import primitive
from tapegraph.errors import ConcretizationError, scipy_module, sentence
from tapegraph.recording.numpy_functions import is_batched
from tapegraph.typed import DuckArray, Fun

F = TypeVar("F", bound=Fun)


def __getattr__(name: str) -> Any:
    if name not in ("integrate", "linalg", "signal", "special", "stats"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def of_scipy(module: str, name: str) -> Any:
    """Return an attribute of a SciPy module or distribution; raise if SciPy is missing."""
    package, *inside = module.split(".")
    found = scipy_module(package, f"scipy.{module}.{name}")
    for part in (*inside, name):
        found = getattr(found, part)
    return found


@functools.cache
def passed_on(module: str, name: str) -> Any:
    """Return a SciPy function that dispatches on tensors and is SciPy's own on plain arguments."""
    if name.startswith("_"):
        raise AttributeError(name)
    found = of_scipy(module, name)
    return wrapped(found) if callable(found) and not isinstance(found, type) else found


def formula_of(module: str) -> Callable[[F], F]:
    """Call SciPy's function of that name on plain arguments, and the formula on traced ones."""

    def decorate(formula: F) -> F:
        @functools.wraps(formula)
        def call(*args: object, **kwargs: object) -> Any:
            if any(map(holds_tensor, args)) or holds_tensor(kwargs):
                with np.errstate(all="ignore"):
                    return formula(*args, **kwargs)
            return of_scipy(module, formula.__name__)(*args, **kwargs)

        return cast("F", call)

    return decorate


def primitive_of(module: str, name: str, **slopes: Fun) -> Fun:
    """Return a SciPy function as a primitive.

    ``slopes`` are an element-wise one's ``slope(ans, *args)`` with respect to ``x0``, ``x1``, ...
    """

    def call(*args: object, **kwargs: object) -> Any:
        if is_batched(args):
            text = "the function takes plain arrays, which examples of tg.vmap are not."
            fix = "Write np.stack([f(x) for x in xs]), or register the function with tg.defop."
            raise ConcretizationError(sentence(f"scipy.{module}.{name}", f"{text} {fix}"))
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


def _vjp(argnum: int, slope: Fun) -> Fun:
    def maker(ans: DuckArray, *args: object) -> Fun:
        return unbroadcast_f(args[argnum], lambda g: g * slope(ans, *args))

    return maker


def _jvp(slope: Fun) -> Fun:
    return lambda g, ans, *args: np.broadcast_to(g, np.shape(ans)) * slope(ans, *args)
