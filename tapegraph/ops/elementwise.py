"""Operations: element by element."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph import typed
from tapegraph.arrays.axes import integers
from tapegraph.arrays.bit_select import chosen
from tapegraph.errors import explain, kind_of
from tapegraph.numpy_warnings import watched
from tapegraph.recording.concretization import follows
from tapegraph.recording.node import constant, numeric
from tapegraph.recording.numpy_functions import implements, numbers, plain, without_gradient
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, binary, operand, tensor_like, unary
from tapegraph.typed import (
    Array,
    ArrayLike,
    Operand,
    Shape,
    of_array,
    of_second,
    of_two,
    seen_as,
    to_constant,
)

__all__ = [
    "abs",
    "absolute",
    "add",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "astype",
    "cbrt",
    "ceil",
    "clip",
    "copy",
    "copysign",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "div",
    "empty_like",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "float_power",
    "floor",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "full_like",
    "gelu",
    "heaviside",
    "hypot",
    "imag",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logaddexp2",
    "maximum",
    "minimum",
    "mod",
    "mul",
    "nan_to_num",
    "neg",
    "negative",
    "ones_like",
    "positive",
    "pow",
    "rad2deg",
    "radians",
    "real",
    "reciprocal",
    "relu",
    "remainder",
    "rint",
    "round",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "sub",
    "tan",
    "tanh",
    "true_divide",
    "trunc",
    "where",
    "zeros_like",
]

# tanh form of gelu: 0.5 x (1 + tanh(c (x + 0.044715 x^3)))
GELU_SCALE = math.sqrt(2.0 / math.pi)


GELU_CUBIC = 0.044715


# Farther out than this tanh(...) is 1 or -1 to the last digit, in float64 too.
GELU_FLAT = 10.0


# From this many elements on np.clip takes less time than np.maximum with one number: a third.
LARGE = 1 << 13


@binary("add", operator.add, np.add)
def add(a: Any, b: Any) -> Any:
    """Sum of two arrays, ``a + b``.

    >>> tg.add(tg.param([1.0, 2.0]), 3.0).data
    array([4., 5.])
    """


@binary("sub", operator.sub, np.subtract)
def sub(a: Any, b: Any) -> Any:
    """Difference of two arrays, ``a - b``.

    >>> tg.sub(tg.param([1.0, 2.0]), 3.0).data
    array([-2., -1.])
    """


@binary("mul", operator.mul, np.multiply)
def mul(a: Any, b: Any) -> Any:
    """Product of two arrays, element by element, ``a * b``.

    >>> tg.mul(tg.param([1.0, 2.0]), [3.0, 4.0]).data
    array([3., 8.])
    """


@binary("div", operator.truediv, np.divide)
def div(a: Any, b: Any) -> Any:
    """Quotient of two arrays, ``a / b``.

    >>> tg.div(tg.param([1.0, 2.0]), 4.0).data
    array([0.25, 0.5 ])
    """


@binary("pow", operator.pow, np.power)
def pow(a: Any, b: Any) -> Any:
    """Power, ``a ** b``.

    The derivative with respect to ``b`` is ``a**b * log(a)``, and 0 where ``a <= 0``; with
    respect to ``a`` it is ``b * a**(b - 1)``, and 0 where ``b == 0``.

    >>> tg.pow(tg.param([1.0, 2.0]), 3.0).data
    array([1., 8.])
    """


@unary("neg", np.negative)
def neg(x: Any) -> Any:
    """Negative of each element, ``-x``.

    >>> tg.neg(tg.param([1.0, -2.0])).data
    array([-1.,  2.])
    """


@unary("sin", np.sin)
def sin(x: Any) -> Any:
    """Sine of each element, in radians.

    Parameters
    ----------
    x : angles

    >>> tg.sin(0.0).item()
    0.0
    """


@unary("cos", np.cos)
def cos(x: Any) -> Any:
    """Cosine of each element, in radians.

    Parameters
    ----------
    x : angles

    >>> tg.cos(0.0).item()
    1.0
    """


@unary("tan", np.tan)
def tan(x: Any) -> Any:
    """Tangent of each element, in radians.

    Parameters
    ----------
    x : angles

    >>> tg.tan(0.0).item()
    0.0
    """


@unary("exp", np.exp)
def exp(x: Any) -> Any:
    """Exponential of each element.

    >>> tg.exp(0.0).item()
    1.0
    """


@unary("log", np.log)
def log(x: Any) -> Any:
    """Natural logarithm of each element.

    >>> tg.log(1.0).item()
    0.0
    """


@unary("sqrt", np.sqrt)
def sqrt(x: Any) -> Any:
    """Square root of each element.

    >>> tg.sqrt(9.0).item()
    3.0
    """


@unary("tanh", np.tanh)
def tanh(x: Any) -> Any:
    """Hyperbolic tangent of each element.

    >>> tg.tanh(0.0).item()
    0.0
    """


@np.errstate(over="ignore")  # far below zero exp(-x) is infinite, and the result 0
def logistic(x: Array) -> Any:
    """``1 / (1 + exp(-x))`` on an array."""
    odds = np.exp(0.0 - x)
    odds += 1.0
    return 1.0 / odds


@unary("sigmoid", logistic)
def sigmoid(x: Any) -> Any:
    """Logistic function of each element, ``1 / (1 + exp(-x))``.

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

    >>> tg.relu([-1.0, 2.0]).data
    array([0., 2.])
    """


@implements(np.fabs)
@unary("abs", np.absolute)
def abs(x: Any) -> Any:
    """Absolute value of each element; its derivative at 0 is 0.

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

    >>> tg.gelu(0.0).item()
    0.0
    """


@np.errstate(over="ignore")
def _silu(x: Array) -> Any:
    odds = np.exp(0.0 - x)
    odds += 1.0
    return x / odds


@unary("silu", _silu)
def silu(x: Any) -> Any:
    """Sigmoid linear unit of each element, ``x * sigmoid(x)``; NaN at minus infinity.

    >>> tg.silu(0.0).item()
    0.0
    """


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

    >>> tg.cbrt(-8.0).item()
    -2.0
    """


@unary("log1p", np.log1p)
def log1p(x: Any) -> Any:
    """``log(1 + x)`` of each element, precise for small ones.

    The derivative is ``1 / (1 + x)``.

    >>> tg.log1p(0.0).item()
    0.0
    """


@unary("expm1", np.expm1)
def expm1(x: Any) -> Any:
    """``exp(x) - 1`` of each element, precise for small ones.

    The derivative is ``exp(x)``.

    >>> tg.expm1(0.0).item()
    0.0
    """


@unary("log2", np.log2)
def log2(x: Any) -> Any:
    """Logarithm to base 2 of each element.

    The derivative is ``1 / (x log 2)``.

    >>> tg.log2(8.0).item()
    3.0
    """


@unary("log10", np.log10)
def log10(x: Any) -> Any:
    """Logarithm to base 10 of each element.

    The derivative is ``1 / (x log 10)``.

    >>> tg.log10(1000.0).item()
    3.0
    """


@unary("exp2", np.exp2)
def exp2(x: Any) -> Any:
    """Two to the power of each element, ``2**x``.

    The derivative is ``2**x log 2``.

    >>> tg.exp2(3.0).item()
    8.0
    """


@unary("sinh", np.sinh)
def sinh(x: Any) -> Any:
    """Hyperbolic sine of each element.

    The derivative is ``cosh(x)``.

    >>> tg.sinh(0.0).item()
    0.0
    """


@unary("cosh", np.cosh)
def cosh(x: Any) -> Any:
    """Hyperbolic cosine of each element.

    The derivative is ``sinh(x)``.

    >>> tg.cosh(0.0).item()
    1.0
    """


@unary("arcsin", np.arcsin)
def arcsin(x: Any) -> Any:
    """Inverse sine of each element, in radians from -pi/2 to pi/2.

    The derivative is ``1 / sqrt(1 - x^2)``, infinite at -1 and 1.

    >>> tg.arcsin(0.0).item()
    0.0
    """


@unary("arccos", np.arccos)
def arccos(x: Any) -> Any:
    """Inverse cosine of each element, in radians from 0 to pi.

    The derivative is ``-1 / sqrt(1 - x^2)``, infinite at -1 and 1.

    >>> tg.arccos(1.0).item()
    0.0
    """


@unary("arctan", np.arctan)
def arctan(x: Any) -> Any:
    """Inverse tangent of each element, in radians from -pi/2 to pi/2.

    The derivative is ``1 / (1 + x^2)``.

    >>> tg.arctan(0.0).item()
    0.0
    """


@unary("arcsinh", np.arcsinh)
def arcsinh(x: Any) -> Any:
    """Inverse hyperbolic sine of each element.

    The derivative is ``1 / sqrt(x^2 + 1)``.

    >>> tg.arcsinh(0.0).item()
    0.0
    """


@unary("arccosh", np.arccosh)
def arccosh(x: Any) -> Any:
    """Inverse hyperbolic cosine of each element, which is at least 1.

    The derivative is ``1 / sqrt(x^2 - 1)``, infinite at 1.

    >>> tg.arccosh(1.0).item()
    0.0
    """


@unary("arctanh", np.arctanh)
def arctanh(x: Any) -> Any:
    """Inverse hyperbolic tangent of each element, between -1 and 1.

    The derivative is ``1 / (1 - x^2)``, infinite at -1 and 1.

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

    >>> tg.sinc([0.0, 0.5]).data
    array([1.        , 0.63661977])
    """


@binary("arctan2", np.arctan2)
def arctan2(a: Any, b: Any) -> Any:
    """Angle of the point ``(b, a)``, in radians from -pi to pi.

    With ``r^2 = a^2 + b^2`` the derivatives are ``b / r^2`` and ``-a / r^2``, NaN at the origin.

    Parameters
    ----------
    a, b
        Ordinates and abscissas, which broadcast together.

    >>> tg.arctan2(0.0, 1.0).item()
    0.0
    """


@binary("hypot", np.hypot)
def hypot(a: Any, b: Any) -> Any:
    """Length of the hypotenuse, ``sqrt(a^2 + b^2)``, without overflow.

    The derivatives are ``a / hypot`` and ``b / hypot``, and 0 at the origin, as of `abs`.

    >>> tg.hypot(3.0, 4.0).item()
    5.0
    """


@binary("logaddexp", np.logaddexp)
def logaddexp(a: Any, b: Any) -> Any:
    """``log(exp(a) + exp(b))``, without overflow.

    The derivatives are ``sigmoid(a - b)`` and ``sigmoid(b - a)``, 1/2 each where both are the same
    infinity.

    >>> tg.logaddexp(-float("inf"), 2.0).item()
    2.0
    """


@implements(np.logaddexp2)
@of_two
def logaddexp2(a: Any, b: Any) -> Any:
    """``log2(2**a + 2**b)``, without overflow.

    The derivatives are those of `logaddexp` of ``a log 2`` and ``b log 2``.

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
    return tensor_like(op, numbers(value).astype(np.float64))


@implements(np.square)
@of_array
def square(x: Any) -> Any:
    """Square of each element, ``x * x``.

    >>> tg.square([1.0, -3.0]).data
    array([1., 9.])
    """
    x = operand("square", x, "x")
    # NumPy's squares of bools are small integers, their products bools.
    return pow(x, 2) if getattr(x, "dtype", None) == np.bool_ else mul(x, x)


@implements(np.reciprocal)
@of_array
def reciprocal(x: Any) -> Any:
    """Reciprocal of each element, ``1 / x``.

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
    x
        Angles in degrees, any shape, float32 or float64.

    >>> import math
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
    x : angles

    >>> import math
    >>> tg.rad2deg(math.pi).item()
    180.0
    """
    return mul(x, 180.0 / math.pi)


radians = deg2rad


degrees = rad2deg


true_divide = div

absolute = abs


fabs = abs


negative = neg


@binary("maximum", np.maximum)
def maximum(a: Any, b: Any) -> Any:
    """Larger of two elements; NaN where either is NaN.

    The larger one takes the gradient, and each takes half where they are equal.

    >>> tg.maximum([1.0, 4.0], 2.0).data
    array([2., 4.])
    """


@binary("minimum", np.minimum)
def minimum(a: Any, b: Any) -> Any:
    """Smaller of two elements; NaN where either is NaN.

    The smaller one takes the gradient, and each takes half where they are equal.

    >>> tg.minimum([1.0, 4.0], 2.0).data
    array([1., 2.])
    """


@binary("fmax", np.fmax)
def fmax(a: Any, b: Any) -> Any:
    """Larger of two elements, as `maximum`, but a NaN leaves it to the other one.

    That one then takes the whole gradient; each takes half where both are NaN.

    >>> tg.fmax([1.0, float("nan")], 2.0).data
    array([2., 2.])
    """


@binary("fmin", np.fmin)
def fmin(a: Any, b: Any) -> Any:
    """Smaller of two elements, as `minimum`, but a NaN leaves it to the other one.

    That one then takes the whole gradient; each takes half where both are NaN.

    >>> tg.fmin([1.0, float("nan")], 2.0).data
    array([1., 2.])
    """


def _check_broadcast(op: str, *operands: Any) -> None:
    shapes = [getattr(x, "shape", ()) for x in operands]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        received = " and ".join(map(str, shapes))
        expected = "shapes that broadcast together (equal, or 1, axis by axis from the last)"
        fix = "Reshape one of them."
        raise ValueError(explain(op, f"shapes {received}", expected, fix)) from None


@implements(np.clip)
@seen_as(typed.Clip)
def clip(x: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:
    """Limit each element to an interval, ``minimum(maximum(x, a_min), a_max)``.

    The gradient goes to ``x`` inside and at the bounds, and beyond them to the bound.

    Parameters
    ----------
    a_min, a_max : Tensor, array_like or number, optional
        The bounds, which broadcast with ``x``; no bound where not given.
    min, max : Tensor, array_like or number, optional
        Other names of the bounds.

    Returns
    -------
    broadcast

    Raises
    ------
    TypeError
        A bound is given under both its names.
    no broadcast

    >>> tg.clip([-2.0, 0.5, 3.0], 0.0, 1.0).data
    array([0. , 0.5, 1. ])
    """
    x = operand("clip", x, "x")
    low = _bound("a_min", a_min, "min", min)
    high = _bound("a_max", a_max, "max", max)
    _check_broadcast("clip", *(v for v in (x, low, high) if v is not None))
    for bound, is_beyond in ((low, operator.lt), (high, operator.gt)):
        if bound is not None:
            x = where(watched("clip", is_beyond, x, bound) | (bound != bound), bound, x)
    return tensor_like("clip", x)


def _bound(name: str, value: Any, other_name: str, other: Any) -> Any:
    if value is not None and other is not None:
        received = f"both {name}= and {other_name}="
        raise TypeError(explain("clip", received, "one of them", f"Leave {other_name}= away."))
    value = other if value is None else value
    return None if value is None else operand("clip", value, name)


@unary("sign", np.sign)
def sign(x: Any) -> Any:
    """Sign of each element: -1, 0 or 1; its derivative is 0 everywhere.

    >>> tg.sign([-3.0, 0.0, 2.0]).data
    array([-1.,  0.,  1.])
    """


@unary("floor", np.floor)
def floor(x: Any) -> Any:
    """Largest whole number that is not above each element; its derivative is 0 everywhere.

    >>> tg.floor([-1.5, 1.5]).data
    array([-2.,  1.])
    """


@unary("ceil", np.ceil)
def ceil(x: Any) -> Any:
    """Smallest whole number that is not below each element; its derivative is 0 everywhere.

    >>> tg.ceil([-1.5, 1.5]).data
    array([-1.,  2.])
    """


@unary("rint", np.rint)
def rint(x: Any) -> Any:
    """Nearest whole number of each element, of two the even one; its derivative is 0 everywhere.

    >>> tg.rint([0.5, 1.5, 2.2]).data
    array([0., 2., 2.])
    """


@unary("trunc", np.trunc)
def trunc(x: Any) -> Any:
    """Each element without its decimals; its derivative is 0 everywhere.

    >>> tg.trunc([-1.5, 1.5]).data
    array([-1.,  1.])
    """


@binary("mod", np.remainder)
def mod(a: Any, b: Any) -> Any:
    """Remainder of a division, with the divisor's sign: ``a - floor(a / b) b``.

    The derivatives are 1 and ``-floor(a / b)``.

    >>> tg.mod([-1.0, 5.0], 3.0).data
    array([2., 2.])
    """


remainder = mod


@binary("floor_divide", operator.floordiv, np.floor_divide)
def floor_divide(a: Any, b: Any) -> Any:
    """Whole part of a division, rounded down: ``floor(a / b)``; its derivatives are 0 everywhere.

    >>> tg.floor_divide([-1.0, 5.0], 2.0).data
    array([-1.,  2.])
    """


@implements(np.divmod)
def _divmod(a: Any, b: Any) -> Any:
    return floor_divide(a, b), mod(a, b)


@implements(np.fmod)
@of_two
def fmod(a: Any, b: Any) -> Any:
    """Remainder of a division, with the dividend's sign: ``a - trunc(a / b) b``.

    The derivatives are 1 and ``-trunc(a / b)``.

    >>> tg.fmod([-1.0, 5.0], 3.0).data
    array([-1.,  2.])
    """
    a, b = operand("fmod", a, "a"), operand("fmod", b, "b")
    _check_broadcast("fmod", a, b)
    side = _side(a)
    return mod(a * side, _size(b)) * side


def _side(x: Any) -> Any:
    """Return 1 or -1, by the sign bit; a number for a number, which leaves float32 as it is."""
    if isinstance(x, (int, float)):
        return math.copysign(1.0, x)
    if x.dtype.kind != "f":  # one byte, which widens no float
        return np.where(numbers(x) < 0, -1, 1).astype(np.int8)
    return np.where(np.signbit(numbers(x)), -1.0, 1.0).astype(x.dtype)


def _size(x: Any) -> Any:
    return math.fabs(x) if isinstance(x, (int, float)) else abs(x)


@implements(np.heaviside)
@of_second
def heaviside(x: Operand, h: Any) -> Any:
    """Step function: 0 below zero, ``h`` at zero, 1 above.

    Its derivative with respect to ``x`` is 0.

    Parameters
    ----------
    x, h : operands

    >>> tg.heaviside([-2.0, 0.0, 2.0], 0.5).data
    array([0. , 0.5, 1. ])
    """
    place, middle = operand("heaviside", x, "x"), operand("heaviside", h, "h")
    _check_broadcast("heaviside", place, middle)
    if isinstance(place, (int, float)):  # a number stays one, which leaves float32 as it is
        direction: Any = float(np.sign(float(place)))
    else:
        direction = sign(mul(place, 1) if place.dtype.kind == "b" else place)
    return where(place == 0, middle, 0.5 * (1.0 + direction))


@implements(np.copysign)
@of_array
def copysign(a: Any, b: Operand) -> Any:
    """Give ``a`` the sign of ``b``, that of a zero too.

    The derivative with respect to ``a`` is 1 or -1, and 0 at 0; to ``b`` it is 0.

    >>> tg.copysign([1.0, -2.0], -3.0).data
    array([-1., -2.])
    """
    sized, signed = operand("copysign", a, "a"), operand("copysign", b, "b")
    _check_broadcast("copysign", sized, signed)
    side = _side(signed)
    if not isinstance(signed, (int, float)) and signed.dtype.kind == "f":
        side = where((signed == 0) | (signed != signed), side, sign(signed))
    return mul(_size(sized), side)


@implements(np.nan_to_num)
@of_array
def nan_to_num(
    x: Any, nan: ArrayLike = 0.0, posinf: ArrayLike | None = None, neginf: ArrayLike | None = None
) -> Any:
    """Put numbers where elements are NaN or infinite; no gradient flows to those.

    Parameters
    ----------
    nan : array_like or number
        What to put for NaN.
    posinf, neginf : array_like or number, optional
        What to put for the infinities; the dtype's largest and lowest number where not given.

    >>> tg.nan_to_num([float("nan"), 2.0]).data
    array([0., 2.])
    """
    x = tensor_like("nan_to_num", x)
    if x.dtype.kind != "f":
        return x
    limits = np.finfo(x.dtype)
    array = numbers(x)
    for found, value in (
        (np.isnan(array), nan),
        (array == np.inf, limits.max if posinf is None else posinf),
        (array == -np.inf, limits.min if neginf is None else neginf),
    ):
        x = where(found, watched("nan_to_num", np.asarray, value, x.dtype), x)
    return x


@implements(np.positive)
@of_array
def positive(x: Any) -> Any:
    """Each element as it is, ``+x``.

    Parameters
    ----------
    x
        Any shape, integers too.

    Returns
    -------
    Tensor
        ``x`` itself where it is a tensor.

    >>> tg.positive([1.0, -2.0]).data
    array([ 1., -2.])
    """
    return tensor_like("positive", x)


def _astype(x: Array, *, dtype: str) -> Any:
    return x.astype(dtype)


def _round(x: Array, *, decimals: int) -> Any:
    return x.round(decimals)


ASTYPE = Op("astype", _astype)
DETACH = Op("detach", np.copy, differentiable=())


ROUND = Op("round", _round)


def check_spreads(op: str, argument: str, shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    """Refuse an argument whose shape does not broadcast to another.

    Raises
    ------
    ValueError
        Names both shapes.
    """
    try:
        if np.broadcast_shapes(shape, over) == over:
            return
    except ValueError:
        pass
    expected = f"a shape that broadcasts to {over}"
    raise ValueError(explain(op, f"{argument!r} of shape {shape}", expected))


@implements(np.zeros_like)
@to_constant
def zeros_like(x: Any, dtype: npt.DTypeLike | None = None, shape: Shape | None = None) -> Any:
    """Make a constant of zeros of another array's shape and dtype.

    Parameters
    ----------
    x : a model

    >>> tg.zeros_like([[1.0, 2.0]]).data
    array([[0., 0.]])
    """
    return _filled("zeros_like", x, 0, dtype, shape)


@implements(np.ones_like)
@to_constant
def ones_like(x: Any, dtype: npt.DTypeLike | None = None, shape: Shape | None = None) -> Any:
    """Make a constant of ones of another array's shape and dtype.

    Parameters
    ----------
    x : a model

    >>> tg.ones_like([[1.0, 2.0]]).data
    array([[1., 1.]])
    """
    return _filled("ones_like", x, 1, dtype, shape)


@implements(np.empty_like)
@to_constant
def empty_like(x: Any, dtype: npt.DTypeLike | None = None, shape: Shape | None = None) -> Any:
    """Make a constant of another array's shape and dtype; its elements are zeros.

    A tensor's elements cannot be assigned, so that there is nothing to gain from leaving them
    undefined.

    Parameters
    ----------
    x : a model

    >>> tg.empty_like([[1.0, 2.0]]).shape
    (1, 2)
    """
    return _filled("empty_like", x, 0, dtype, shape)


@implements(np.full_like)
@of_second
def full_like(
    x: Operand, fill_value: Any, dtype: npt.DTypeLike | None = None, shape: Shape | None = None
) -> Any:
    """Repeat a value over another array's shape, in its dtype.

    Parameters
    ----------
    x : a model
    fill_value : Tensor, array_like or number
        What to repeat; broadcasts to the shape. Gradients flow to it.

    Returns
    -------
    Tensor
        A constant where ``fill_value`` is one.

    Raises
    ------
    ValueError
        ``fill_value`` does not broadcast to the shape.

    >>> tg.full_like([[1.0, 2.0]], 7.0).data
    array([[7., 7.]])
    """
    ones = _filled("full_like", x, 1, dtype, shape)
    fill = tensor_like("full_like", fill_value, "fill_value")
    check_spreads("full_like", "fill_value", fill.shape, ones.shape)
    if fill.requires_grad or follows(fill):
        if ones.dtype.kind == "f":
            return mul(astype(fill, ones.dtype, copy=False), ones)
    return constant(watched("full_like", np.full, ones.shape, plain(fill), ones.dtype))


def _filled(op: str, x: Any, value: int, dtype: Any, shape: Any) -> Any:
    like = tensor_like(op, x)
    lengths = like.shape if shape is None else integers(op, "shape", shape)
    array = np.full(lengths, value, like.dtype if dtype is None else dtype)
    return constant(numeric(array, op, "dtype"))


@implements(np.copy)
@of_array
def copy(x: Any) -> Any:
    """Copy an array.

    The copy of a parameter is a result, which keeps its value when the parameter is assigned
    another.

    Parameters
    ----------
    x : an array of any dtype

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype; gradients flow through.

    >>> tg.copy([1.0, 2.0]).data
    array([1., 2.])
    """
    x = tensor_like("copy", x)
    return apply(ASTYPE, (x,), {"dtype": x.dtype.name})


@of_array
def astype(x: Any, dtype: npt.DTypeLike, copy: bool = True) -> Any:
    """Convert to another dtype; between float32 and float64 gradients flow through.

    Integers and bools carry no gradient: a conversion to them gives a constant.

    Parameters
    ----------
    x : an array of any dtype
    dtype : dtype
        bool, an integer type, float32 or float64.
    copy : bool
        Make a new array even where ``x`` has the dtype already.

    Returns
    -------
    of x's shape

    Raises
    ------
    TypeError
        The dtype is another one, or none.

    >>> tg.astype(tg.param([1.5, 2.0]), "float32").dtype
    dtype('float32')
    """
    x = tensor_like("astype", x)
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        raise TypeError(
            explain("astype", f"{kind_of(dtype)} for 'dtype'", "a dtype", 'Write "float32".')
        ) from None
    numeric(np.empty(0, wanted), "astype", "dtype")  # refuses what no tensor can hold
    if x.dtype == wanted and not copy:
        return x
    if wanted.kind != "f" and not follows(x):
        return constant(watched("astype", plain(x).astype, wanted))
    return apply(ASTYPE, (x,), {"dtype": wanted.name})


if hasattr(np, "astype"):  # NumPy 2.1
    implements(np.astype)(astype)


@implements(np.real)
@of_array
def real(x: Any) -> Any:
    """Return the real part, which is the array itself: tensors are real.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape, real numbers.

    Returns
    -------
    Tensor
        ``x``.

    Raises
    ------
    TypeError
        ``x`` is complex.

    >>> tg.real([1.0, 2.0]).data
    array([1., 2.])
    """
    return tensor_like("real", x)


@implements(np.imag)
@to_constant
def imag(x: Any) -> Any:
    """Return the imaginary part, which is zero: tensors are real.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape, real numbers.

    Returns
    -------
    Tensor
        A constant of zeros of ``x``'s shape and dtype.

    Raises
    ------
    TypeError
        ``x`` is complex.

    >>> tg.imag([1.0, 2.0]).data
    array([0., 0.])
    """
    return _filled("imag", x, 0, None, None)


@implements(np.round, np.around)
@to_constant
def round(x: Any, decimals: int = 0) -> Any:
    """Round to a number of decimals, halves to the even neighbour; the gradient is zero.

    Parameters
    ----------
    x : an array of floats
    decimals : int
        How many digits to keep after the point; negative ones round before it.

    Returns
    -------
    like x

    Raises
    ------
    TypeError
        ``decimals`` is not an integer.

    >>> tg.round([0.5, 1.5, 2.75]).data
    array([0., 2., 3.])
    """
    x = tensor_like("round", x)
    digits = integers("round", "decimals", decimals)
    if len(digits) != 1:
        raise TypeError(explain("round", f"{kind_of(decimals)} for 'decimals'", "an integer"))
    return apply(ROUND, (x,), {"decimals": digits[0]})


def _where(cond: Array, a: Any, b: Any) -> Any:
    return chosen(cond, a, b)


WHERE = Op("where", _where, differentiable=(False, True, True), promotes=True)


@implements(np.where)
@seen_as(typed.Where, "Tensor | tuple[npt.NDArray[np.intp], ...]")
def where(cond: Any, a: Any = None, b: Any = None) -> Any:
    """Choose from ``a`` where the condition is non-zero and from ``b`` elsewhere.

    No gradient flows to the condition, and exactly zero through the branch not taken.

    Parameters
    ----------
    cond : Tensor or array_like
        True where non-zero.
    a, b : Tensor, array_like or number, optional
        Operands; all three broadcast together.

    Returns
    -------
    broadcast
    tuple of numpy.ndarray
        Without ``a`` and ``b``: the places where the condition is non-zero, as `numpy.nonzero`
        gives them.

    Raises
    ------
    no broadcast

    >>> tg.where([1, 0], [1.0, 2.0], -1.0).data
    array([ 1., -1.])
    """
    if hasattr(type(cond), "__tapegraph_apply__") and hasattr(cond, "detach"):
        cond = cond.detach()  # a condition carries no tangent
    if a is None and b is None:
        return np.nonzero(numeric_mask(plain(cond)))
    if follows(cond):
        mask = cond if cond.dtype == np.bool_ else cond != 0
    else:
        mask = constant(numeric_mask(plain(cond)))
    a, b = operand("where", a, "a"), operand("where", b, "b")
    try:
        return apply(WHERE, (mask, a, b))
    except ValueError as error:
        shapes = [np.shape(getattr(v, "_array", v)) for v in (mask, a, b)]
        raise ValueError(
            explain("where", f"shapes {shapes}", "shapes that broadcast together")
        ) from error


def numeric_mask(cond: Any) -> Array:
    """Return a condition as a bool array of its own memory."""
    wrapped = operand("where", cond, "cond")
    return np.array(getattr(wrapped, "_array", wrapped), dtype=np.bool_)


# Comparisons and predicates: plain arrays, and operations where a program is recorded whole


def _predicate(name: str, function: Any) -> None:
    op = Op(name, function, differentiable=())

    def record(*operands: Any) -> Any:
        arguments = "ab" if len(operands) == 2 else "x"
        recorded = (operand(name, v, k) for v, k in zip(operands, arguments, strict=True))
        return apply(op, tuple(recorded))

    without_gradient(function)(record)


for _function in (
    np.equal,
    np.not_equal,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
    np.logical_and,
    np.logical_or,
    np.logical_xor,
    np.logical_not,
    np.isnan,
    np.isinf,
    np.isfinite,
    np.signbit,
):
    _predicate(_function.__name__, _function)


def _of_masks(bitwise: Any, logical: Any) -> None:
    def record(*masks: Any) -> Any:
        for mask in masks:
            if np.result_type(mask) != np.bool_:
                fix = "Compare it with something."
                raise TypeError(explain(bitwise.__name__, kind_of(mask), "a mask of bools", fix))
        return logical(*masks)

    without_gradient(bitwise)(record)


_of_masks(np.bitwise_and, np.logical_and)
_of_masks(np.bitwise_or, np.logical_or)
_of_masks(np.bitwise_xor, np.logical_xor)
_of_masks(np.invert, np.logical_not)


@without_gradient(np.isclose)
def _is_close(
    a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    near = np.logical_and(np.isfinite(b), abs(a - b) <= atol + rtol * abs(b))
    same = np.logical_or(near, a == b)
    both = np.logical_and(np.isnan(a), np.isnan(b))
    return np.logical_or(same, both) if equal_nan else same
