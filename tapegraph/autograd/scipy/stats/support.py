"""Where a distribution's formulas hold, and what it is elsewhere: SciPy's rules, once for all.

A parameter that is out of its range makes the result NaN, and its gradients too. Outside of the
support a density is zero, and the distribution function 0 or 1: constants, of gradient zero.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegraph.autograd.numpy.wrapping import joined
from tapegraph.autograd.scipy.of_scipy import of_scipy
from tapegraph.autograd.traced import TENSORS
from tapegraph.errors import user_line
from tapegraph.pytree import mapped
from tapegraph.recording.capture_mode import is_captured
from tapegraph.recording.numpy_functions import peek

INF = math.inf
FINITE = sys.float_info.max


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
    holds = conditions[0]
    for condition in conditions[1:]:
        holds = np.logical_and(holds, condition)
    if _everywhere(holds):
        return lambda *parameters: list(parameters)
    return lambda *parameters: [p * np.where(holds, 1.0, np.nan) for p in parameters]


def inside(
    formula: Callable[..., Any],
    z: Any,
    *parameters: Any,
    low: float,
    high: float,
    below: float,
    above: float,
) -> Any:
    """Return a formula of ``z`` between two bounds, and constants beyond them.

    :param formula: Of ``z`` and the parameters, which broadcast.
    :param low, high: The bounds, at which the formula holds too.
    :param below, above: The results beyond each.
    """
    under = z < low
    outside = np.logical_or(under, z > high)
    if _everywhere(np.logical_not(outside)):
        return formula(z, *parameters)
    harmless = low + min(1.0, 0.5 * (high - low))
    found = formula(np.where(outside, harmless, z), *parameters)
    return np.where(outside, np.where(under, below, above), found)


def _everywhere(condition: Any) -> bool:
    """Return whether a condition holds for all elements; of captured ones, False."""
    return not is_captured(condition) and bool(np.all(condition))


def checked(module: str, name: str, *args: Any, **options: Any) -> Any:
    """Return SciPy's value of a function, for its shape and for the errors that it raises.

    :raises ValueError: As SciPy does, also of the kind LinAlgError.
    """
    try:
        return of_scipy(module, name)(*(mapped(peek, x) for x in args), **options)
    except ValueError as error:
        name = f"{module.partition('.')[2]}.{name}"
        raise type(error)(f"{name}: {error} (at {user_line()})") from error


def array_of(x: Any) -> Any:
    """Return an argument as SciPy takes it: an array of whatever it holds."""
    x = joined(x) if isinstance(x, (list, tuple)) else x
    return x if isinstance(x, TENSORS) else np.asarray(x)
