"""Element-wise arithmetic and functions, broadcast as NumPy broadcasts."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from tapegraph.recording.numpy_functions import implements
from tapegraph.recording.record import binary, unary
from tapegraph.typed import Array

# tanh form of gelu: 0.5 x (1 + tanh(c (x + 0.044715 x^3)))
GELU_SCALE = math.sqrt(2.0 / math.pi)
GELU_CUBIC = 0.044715
# Farther out than this tanh(...) is 1 or -1 to the last digit, in float64 too.
GELU_FLAT = 10.0
# From this many elements on np.clip takes less time than np.maximum with one number: a third.
LARGE = 1 << 13


@implements(np.add)
@binary("add", operator.add)
def add(a: Any, b: Any) -> Any:
    """Sum of two arrays, ``a + b``.

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
    >>> tg.add(tg.param([1.0, 2.0]), 3.0).data
    array([4., 5.])
    """


@implements(np.subtract)
@binary("sub", operator.sub)
def sub(a: Any, b: Any) -> Any:
    """Difference of two arrays, ``a - b``.

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
    >>> tg.sub(tg.param([1.0, 2.0]), 3.0).data
    array([-2., -1.])
    """


@implements(np.multiply)
@binary("mul", operator.mul)
def mul(a: Any, b: Any) -> Any:
    """Product of two arrays, element by element, ``a * b``.

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
    >>> tg.mul(tg.param([1.0, 2.0]), [3.0, 4.0]).data
    array([3., 8.])
    """


@implements(np.divide)
@binary("div", operator.truediv)
def div(a: Any, b: Any) -> Any:
    """Quotient of two arrays, ``a / b``.

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
    >>> tg.div(tg.param([1.0, 2.0]), 4.0).data
    array([0.25, 0.5 ])
    """


@implements(np.power)
@binary("pow", operator.pow)
def pow(a: Any, b: Any) -> Any:
    """Power, ``a ** b``.

    The derivative with respect to ``b`` is ``a**b * log(a)``, and 0 where ``a <= 0``; with
    respect to ``a`` it is ``b * a**(b - 1)``, and 0 where ``b == 0``.

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
    >>> tg.pow(tg.param([1.0, 2.0]), 3.0).data
    array([1., 8.])
    """


@unary("neg", np.negative)
def neg(x: Any) -> Any:
    """Negative of each element, ``-x``.

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
    >>> tg.neg(tg.param([1.0, -2.0])).data
    array([-1.,  2.])
    """


@unary("sin", np.sin)
def sin(x: Any) -> Any:
    """Sine of each element, in radians.

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
    >>> import tapegraph as tg
    >>> tg.sin(0.0).item()
    0.0
    """


@unary("cos", np.cos)
def cos(x: Any) -> Any:
    """Cosine of each element, in radians.

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
    >>> import tapegraph as tg
    >>> tg.cos(0.0).item()
    1.0
    """


@unary("tan", np.tan)
def tan(x: Any) -> Any:
    """Tangent of each element, in radians.

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
    >>> import tapegraph as tg
    >>> tg.tan(0.0).item()
    0.0
    """


@unary("exp", np.exp)
def exp(x: Any) -> Any:
    """Exponential of each element.

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
    >>> tg.exp(0.0).item()
    1.0
    """


@unary("log", np.log)
def log(x: Any) -> Any:
    """Natural logarithm of each element.

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
    >>> tg.log(1.0).item()
    0.0
    """


@unary("sqrt", np.sqrt)
def sqrt(x: Any) -> Any:
    """Square root of each element.

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
    >>> tg.sqrt(9.0).item()
    3.0
    """


@unary("tanh", np.tanh)
def tanh(x: Any) -> Any:
    """Hyperbolic tangent of each element.

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
    >>> tg.tanh(0.0).item()
    0.0
    """


@np.errstate(over="ignore")  # far below zero exp(-x) is infinite, and the result 0
def logistic(x: Array) -> Any:
    """``1 / (1 + exp(-x))`` on an array."""
    return 1.0 / (1.0 + np.exp(0.0 - x))


@unary("sigmoid", logistic)
def sigmoid(x: Any) -> Any:
    """Logistic function of each element, ``1 / (1 + exp(-x))``.

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
    >>> tg.sigmoid(0.0).item()
    0.5
    """


def _relu(x: Array) -> Any:
    if x.dtype.kind != "f":
        return np.maximum(x, 0)
    return np.clip(x, 0.0, np.inf) if x.size > LARGE else np.maximum(x, 0.0)


@unary("relu", _relu)
def relu(x: Any) -> Any:
    """Rectifier of each element, ``max(x, 0)``; its derivative at 0 is 0.

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
    >>> tg.relu([-1.0, 2.0]).data
    array([0., 2.])
    """


@implements(np.fabs)
@unary("abs", np.absolute)
def abs(x: Any) -> Any:
    """Absolute value of each element; its derivative at 0 is 0.

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
    >>> tg.abs([-1.0, 2.0]).data
    array([1., 2.])
    """


@np.errstate(over="ignore")  # of an infinite x^3 tanh is 1, as of a large one
def _gelu(x: Array) -> Any:
    out: Any = x * (GELU_SCALE * GELU_CUBIC) * x
    out += GELU_SCALE
    out *= x
    out = np.tanh(out)
    out += 1.0
    out *= 0.5
    out *= x
    return out


@unary("gelu", _gelu)
def gelu(x: Any) -> Any:
    """Gaussian error linear unit of each element, in its tanh form.

    ``0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`` (Hendrycks and Gimpel, 2016).

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
    >>> tg.gelu(0.0).item()
    0.0
    """


@np.errstate(over="ignore")
def _silu(x: Array) -> Any:
    return x / (1.0 + np.exp(0.0 - x))


@unary("silu", _silu)
def silu(x: Any) -> Any:
    """Sigmoid linear unit of each element, ``x * sigmoid(x)``; NaN at minus infinity.

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
    >>> tg.silu(0.0).item()
    0.0
    """
