"""Logarithms, exponentials, hyperbolic and inverse trigonometric functions, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.ops.elementwise import div, mul, pow
from tapegraph.recording.node import constant
from tapegraph.recording.numpy_functions import implements, plain
from tapegraph.recording.record import binary, operand, unary
from tapegraph.typed import Array, of_array, of_two

LN2 = math.log(2.0)
LN10 = math.log(10.0)
# Nearer to 0 than this, sinc's slope is summed as a series: its closed form cancels there.
SINC_NEAR = 0.02
SINC_SERIES = (10.0, 28.0, 54.0)


def sinc_slope_series(x: Any) -> Any:
    """``sinc'`` near 0, ``-pi^2 x / 3 (1 - u/10 (1 - u/28 (1 - u/54)))`` with ``u = (pi x)^2``."""
    u = x * x * (math.pi * math.pi)
    total: Any = 1.0
    for divisor in reversed(SINC_SERIES):
        total = 1.0 - u * (1.0 / divisor) * total
    return x * (-math.pi * math.pi / 3.0) * total


@unary("cbrt", np.cbrt)
def cbrt(x: Any) -> Any:
    """Cube root of each element, of negative ones too.

    Its derivative, ``1 / (3 cbrt(x)^2)``, is infinite at 0.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.cbrt(-8.0).item()
    -2.0
    """


@unary("log1p", np.log1p)
def log1p(x: Any) -> Any:
    """``log(1 + x)`` of each element, precise for small ones.

    The derivative is ``1 / (1 + x)``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.log1p(0.0).item()
    0.0
    """


@unary("expm1", np.expm1)
def expm1(x: Any) -> Any:
    """``exp(x) - 1`` of each element, precise for small ones.

    The derivative is ``exp(x)``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.expm1(0.0).item()
    0.0
    """


@unary("log2", np.log2)
def log2(x: Any) -> Any:
    """Logarithm to base 2 of each element.

    The derivative is ``1 / (x log 2)``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.log2(8.0).item()
    3.0
    """


@unary("log10", np.log10)
def log10(x: Any) -> Any:
    """Logarithm to base 10 of each element.

    The derivative is ``1 / (x log 10)``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.log10(1000.0).item()
    3.0
    """


@unary("exp2", np.exp2)
def exp2(x: Any) -> Any:
    """Two to the power of each element, ``2**x``.

    The derivative is ``2**x log 2``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.exp2(3.0).item()
    8.0
    """


@unary("sinh", np.sinh)
def sinh(x: Any) -> Any:
    """Hyperbolic sine of each element.

    The derivative is ``cosh(x)``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.sinh(0.0).item()
    0.0
    """


@unary("cosh", np.cosh)
def cosh(x: Any) -> Any:
    """Hyperbolic cosine of each element.

    The derivative is ``sinh(x)``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.cosh(0.0).item()
    1.0
    """


@unary("arcsin", np.arcsin)
def arcsin(x: Any) -> Any:
    """Inverse sine of each element, in radians from -pi/2 to pi/2.

    The derivative is ``1 / sqrt(1 - x^2)``, infinite at -1 and 1.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.arcsin(0.0).item()
    0.0
    """


@unary("arccos", np.arccos)
def arccos(x: Any) -> Any:
    """Inverse cosine of each element, in radians from 0 to pi.

    The derivative is ``-1 / sqrt(1 - x^2)``, infinite at -1 and 1.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.arccos(1.0).item()
    0.0
    """


@unary("arctan", np.arctan)
def arctan(x: Any) -> Any:
    """Inverse tangent of each element, in radians from -pi/2 to pi/2.

    The derivative is ``1 / (1 + x^2)``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.arctan(0.0).item()
    0.0
    """


@unary("arcsinh", np.arcsinh)
def arcsinh(x: Any) -> Any:
    """Inverse hyperbolic sine of each element.

    The derivative is ``1 / sqrt(x^2 + 1)``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.arcsinh(0.0).item()
    0.0
    """


@unary("arccosh", np.arccosh)
def arccosh(x: Any) -> Any:
    """Inverse hyperbolic cosine of each element, which is at least 1.

    The derivative is ``1 / sqrt(x^2 - 1)``, infinite at 1.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.arccosh(1.0).item()
    0.0
    """


@unary("arctanh", np.arctanh)
def arctanh(x: Any) -> Any:
    """Inverse hyperbolic tangent of each element, between -1 and 1.

    The derivative is ``1 / (1 - x^2)``, infinite at -1 and 1.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.arctanh(0.0).item()
    0.0
    """


def _sinc(x: Array) -> Any:
    angle = math.pi * np.where(x == 0, 1.0e-20, x)  # as NumPy has it
    return np.sin(angle) / angle


@implements(np.sinc)
@unary("sinc", _sinc)
def sinc(x: Any) -> Any:
    """Normalised sinc of each element, ``sin(pi x) / (pi x)``, and 1 at 0.

    The derivative is ``(cos(pi x) - sinc(x)) / x``, and 0 at 0.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.sinc([0.0, 0.5]).data
    array([1.        , 0.63661977])
    """


@binary("arctan2", np.arctan2)
def arctan2(a: Any, b: Any) -> Any:
    """Angle of the point ``(b, a)``, in radians from -pi to pi.

    With ``r^2 = a^2 + b^2`` the derivatives are ``b / r^2`` and ``-a / r^2``, NaN at the origin.

    Parameters
    ----------
    a, b : Tensor, array_like or number
        Ordinates and abscissas, which broadcast together.

    Returns
    -------
    Tensor
        Of the broadcast shape and NumPy's result dtype.

    Raises
    ------
    ValueError
        The shapes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.arctan2(0.0, 1.0).item()
    0.0
    """


@binary("hypot", np.hypot)
def hypot(a: Any, b: Any) -> Any:
    """Length of the hypotenuse, ``sqrt(a^2 + b^2)``, without overflow.

    The derivatives are ``a / hypot`` and ``b / hypot``, and 0 at the origin, as of `abs`.

    Parameters
    ----------
    a, b : Tensor, array_like or number
        Operands that broadcast together.

    Returns
    -------
    Tensor
        Of the broadcast shape and NumPy's result dtype.

    Raises
    ------
    ValueError
        The shapes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.hypot(3.0, 4.0).item()
    5.0
    """


@binary("logaddexp", np.logaddexp)
def logaddexp(a: Any, b: Any) -> Any:
    """``log(exp(a) + exp(b))``, without overflow.

    The derivatives are ``sigmoid(a - b)`` and ``sigmoid(b - a)``, 1/2 each where both are the same
    infinity.

    Parameters
    ----------
    a, b : Tensor, array_like or number
        Operands that broadcast together.

    Returns
    -------
    Tensor
        Of the broadcast shape and NumPy's result dtype.

    Raises
    ------
    ValueError
        The shapes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.logaddexp(-float("inf"), 2.0).item()
    2.0
    """


@implements(np.logaddexp2)
@of_two
def logaddexp2(a: Any, b: Any) -> Any:
    """``log2(2**a + 2**b)``, without overflow.

    The derivatives are those of `logaddexp` of ``a log 2`` and ``b log 2``.

    Parameters
    ----------
    a, b : Tensor, array_like or number
        Operands that broadcast together.

    Returns
    -------
    Tensor
        Of the broadcast shape and NumPy's result dtype.

    Raises
    ------
    ValueError
        The shapes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.logaddexp2(1.0, 1.0).item()
    2.0
    """
    a, b = operand("logaddexp2", a, "a"), operand("logaddexp2", b, "b")
    return div(logaddexp(a * LN2, b * LN2), LN2)


@implements(np.float_power)
@of_two
def float_power(a: Any, b: Any) -> Any:
    """Power in floating point: as `pow`, with integers taken as float64.

    Unlike NumPy's, it leaves float32 as it is.

    Parameters
    ----------
    a, b : Tensor, array_like or number
        Operands that broadcast together.

    Returns
    -------
    Tensor
        Of the broadcast shape and NumPy's result dtype.

    Raises
    ------
    ValueError
        The shapes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.float_power(2, -1).item()
    0.5
    """
    return pow(_floating("float_power", a, "a"), _floating("float_power", b, "b"))


def _floating(op: str, value: Any, argument: str) -> Any:
    """Return an operand with integers as floats."""
    value = operand(op, value, argument)
    if isinstance(value, (int, float)):
        return float(value)
    if value.requires_grad or value.dtype.kind == "f":
        return value
    return constant(plain(value).astype(np.float64))


@implements(np.square)
@of_array
def square(x: Any) -> Any:
    """Square of each element, ``x * x``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.square([1.0, -3.0]).data
    array([1., 9.])
    """
    x = operand("square", x, "x")
    return mul(x, x)


@implements(np.reciprocal)
@of_array
def reciprocal(x: Any) -> Any:
    """Reciprocal of each element, ``1 / x``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.reciprocal(4.0).item()
    0.25
    """
    return div(1.0, x)


@implements(np.deg2rad, np.radians)
@of_array
def deg2rad(x: Any) -> Any:
    """Degrees as radians, ``x pi / 180``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Angles in degrees, any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import math
    >>> import tapegraph as tg
    >>> tg.deg2rad(180.0).item() == math.pi
    True
    """
    return mul(x, math.pi / 180.0)


@implements(np.rad2deg, np.degrees)
@of_array
def rad2deg(x: Any) -> Any:
    """Radians as degrees, ``x 180 / pi``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Angles in radians, any shape, float32 or float64.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import math
    >>> import tapegraph as tg
    >>> tg.rad2deg(math.pi).item()
    180.0
    """
    return mul(x, 180.0 / math.pi)


radians = deg2rad
degrees = rad2deg
true_divide = div
