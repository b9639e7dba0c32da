"""What the rows of the table of slopes are made of.

A row has one entry per input. A plain function is a slope, ``slope(y, *inputs, **attrs)``: the
derivative of the result ``y``, by which a cotangent or tangent is multiplied. A `Divisor` divides
it, and a `Linear` entry takes it as it is; None stands for an input that carries no gradient.

Slopes are array code, run on ndarrays, Tensors (which record it, for higher orders), Duals and
the symbols of a graph alike: NumPy's functions and operators serve all of them, and `either` does
for what NumPy has not. Conditions are ``np.where`` over comparisons of the operands.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np


class Divisor:
    """A function whose result divides what is passed through, as in ``g / x`` for ``log``."""

    __slots__ = ("of",)

    def __init__(self, of: Callable[..., Any]) -> None:
        self.of = of


class Linear:
    """A function ``of(g, y, *inputs, **attrs)`` that passes ``g`` on, negates it or selects of it.

    It multiplies by nothing, so that a zero needs no care.
    """

    __slots__ = ("of",)

    def __init__(self, of: Callable[..., Any]) -> None:
        self.of = of


Slope: TypeAlias = "Callable[..., Any] | Divisor | Linear | None"
Slopes: TypeAlias = dict[str, tuple[Slope, ...]]

SAME = Linear(lambda g, y, *inputs: g)
NEGATED = Linear(lambda g, y, *inputs: -g)
FLAT = Linear(lambda g, y, *inputs, **attrs: np.zeros_like(g))

_NUMBERS = (int, float)
_ARRAYS = (np.ndarray, np.generic, *_NUMBERS)


def either(of_arrays: Callable[..., Any], recording: Callable[..., Any]) -> Callable[..., Any]:
    """Make one function of two: for arrays and numbers, and, told by the last argument, the rest.

    For what is not a function of NumPy, which finds the one that records by itself.
    """

    def run(*args: Any) -> Any:
        return (of_arrays if isinstance(args[-1], _ARRAYS) else recording)(*args)

    return run


def converted(x: Any, y: Any) -> Any:
    """Return an operand in the dtype of the result, as NumPy computes with it."""
    return np.asarray(x, y.dtype) if isinstance(x, _NUMBERS) else x.astype(y.dtype, copy=False)
