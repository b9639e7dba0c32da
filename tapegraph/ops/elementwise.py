"""Element-wise operations."""

# Typed outside: stubs have a docstring for a body, and what a body computes with is Any.
# mypy: disable-error-code="empty-body, no-any-return"

from __future__ import annotations

import importlib
import math
import operator
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from tapegraph.arrays import check_broadcast, check_spreads, int_tuple, one_integer
from tapegraph.errors import kind_of, message
from tapegraph.kinds import AnyKind, Kind, Operand, Tensor
from tapegraph.numpy_warnings import watched
from tapegraph.recording.node import HALF, as_leaf, numeric
from tapegraph.recording.numpy_functions import detached, implements, numbers, without_gradient
from tapegraph.recording.op import Op, OpKind
from tapegraph.recording.record import (
    apply,
    beside,
    binary,
    is_complex,
    keep_parts,
    operand,
    real_only,
    tensor_like,
    unary,
)
from tapegraph.recording.scopes import recorder
from tapegraph.typed import Array, ArrayLike, DType, DuckArray, Fun, Shape

__all__ = [
    "abs", "absolute", "add", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctan",
    "arctan2", "arctanh", "astype", "cbrt", "ceil", "clip", "conj", "conjugate", "copy", "copysign",
    "cos", "cosh", "deg2rad", "degrees", "div", "divide", "empty_like", "exp", "exp2", "expm1",
    "fabs", "float_power", "floor", "floor_divide", "fmax", "fmin", "fmod", "full_like", "gelu",
    "heaviside", "hypot", "imag", "log", "log10", "log1p", "log2", "logaddexp", "logaddexp2",
    "maximum", "minimum", "mod", "mul", "multiply", "nan_to_num", "neg", "negative", "ones_like",
    "positive", "pow", "power", "rad2deg", "radians", "real", "reciprocal", "relu", "remainder",
    "rint", "round", "sigmoid", "sign", "silu", "sin", "sinc", "sinh", "sqrt", "square", "sub",
    "subtract", "tan", "tanh", "true_divide", "trunc", "where", "zeros_like",
]  # fmt: skip

# tanh form of gelu: 0.5 x (1 + tanh(c (x + 0.044715 x^3)))
GELU_SCALE = math.sqrt(2.0 / math.pi)


GELU_CUBIC = 0.044715


# Farther out than this tanh(...) is 1 or -1 to the last digit, in float64 too.
GELU_FLAT = 10.0


# From this many elements on np.clip takes less time than np.maximum with one number: a third.
_LARGE = 1 << 13


@binary("add", operator.add, np.add, takes_complex=True)
def add(x1: AnyKind | ArrayLike, x2: AnyKind | ArrayLike, /) -> AnyKind:
    """Sum of two arrays, as `numpy.add`; the derivatives are 1.

    >>> tg.add(tg.param([1.0, 2.0]), 3.0).data
    array([4., 5.])
    """


@binary("sub", operator.sub, np.subtract, takes_complex=True)
def sub(x1: AnyKind | ArrayLike, x2: AnyKind | ArrayLike, /) -> AnyKind:
    """Difference of two arrays, as `numpy.subtract`; the derivatives are 1 and -1.

    >>> tg.subtract(tg.param([1.0, 2.0]), 3.0).data
    array([-2., -1.])
    """


@binary("mul", operator.mul, np.multiply, takes_complex=True)
def mul(x1: AnyKind | ArrayLike, x2: AnyKind | ArrayLike, /) -> AnyKind:
    """Product of two arrays, as `numpy.multiply`; each one's derivative is the other.

    >>> tg.multiply(tg.param([1.0, 2.0]), [3.0, 4.0]).data
    array([3., 8.])
    """


@binary("div", operator.truediv, np.divide, takes_complex=True)
def div(x1: AnyKind | ArrayLike, x2: AnyKind | ArrayLike, /) -> AnyKind:
    """Quotient of two arrays, as `numpy.divide`; the derivatives are ``1 / x2`` and ``-x1 / x2^2``.

    >>> tg.divide(tg.param([1.0, 2.0]), 4.0).data
    array([0.25, 0.5 ])
    """


@binary("pow", operator.pow, np.power, takes_complex=True)
def pow(x1: AnyKind | ArrayLike, x2: AnyKind | ArrayLike, /) -> AnyKind:
    """Power of two arrays, as `numpy.power`.

    The slope by ``x1`` is 0 where ``x2`` is, also at 0; that by ``x2`` is 0 where ``x1 <= 0``.

    >>> tg.power(tg.param([1.0, 2.0]), 3.0).data
    array([1., 8.])
    """


@unary("neg", np.negative, takes_complex=True)
def neg(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Negative, as `numpy.negative`; the derivative is -1.

    >>> tg.neg(tg.param([1.0, -2.0])).data
    array([-1.,  2.])
    """


@unary("sin", np.sin, takes_complex=True)
def sin(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Sine, as `numpy.sin`; the derivative is ``cos(x)``.

    >>> tg.sin(0.0).item()
    0.0
    """


@unary("cos", np.cos, takes_complex=True)
def cos(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Cosine, as `numpy.cos`; the derivative is ``-sin(x)``.

    >>> tg.cos(0.0).item()
    1.0
    """


@unary("tan", np.tan, takes_complex=True)
def tan(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Tangent, as `numpy.tan`; the derivative is ``1 + tan(x)^2``.

    >>> tg.tan(0.0).item()
    0.0
    """


@unary("exp", np.exp, takes_complex=True)
def exp(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Exponential, as `numpy.exp`; the derivative is ``exp(x)``.

    >>> tg.exp(0.0).item()
    1.0
    """


@unary("log", np.log, takes_complex=True)
def log(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Natural logarithm, as `numpy.log`; the derivative is ``1 / x``, infinite at 0.

    >>> tg.log(1.0).item()
    0.0
    """


@unary("sqrt", np.sqrt, takes_complex=True)
def sqrt(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Square root, as `numpy.sqrt`; the derivative is ``1 / (2 sqrt(x))``, infinite at 0.

    >>> tg.sqrt(9.0).item()
    3.0
    """


@unary("tanh", np.tanh, takes_complex=True)
def tanh(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Hyperbolic tangent, as `numpy.tanh`; the derivative is ``1 - tanh(x)^2``.

    >>> tg.tanh(0.0).item()
    0.0
    """


@np.errstate(over="ignore")  # far below zero exp(-x) is infinite, and the result 0
def logistic(x: Array) -> DuckArray:
    exps = np.exp(0.0 - x)
    exps += 1.0
    return 1.0 / exps


@unary("sigmoid", logistic, takes_complex=True)
def sigmoid(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Logistic function, as `scipy.special.expit`, without SciPy; its slope is ``y (1 - y)``.

    >>> tg.sigmoid(0.0).item()
    0.5
    """


def _relu(x: Array) -> DuckArray:
    if x.dtype.kind != "f":
        return np.maximum(x, 0)
    return np.clip(x, 0.0, np.inf) if x.size > _LARGE else np.maximum(x, 0.0)


@unary("relu", _relu)
def relu(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Rectifier, ``max(x, 0)``; its derivative at 0 is 0.

    :param x: Any shape.
    :returns: Tensor of ``x``'s shape and dtype.

    >>> tg.relu([-1.0, 2.0]).data
    array([0., 2.])
    """


@unary("abs", np.absolute, takes_complex=True)
def abs(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Absolute value, as `numpy.absolute`; the derivative is the sign, ``z / abs(z)``, and 0 at 0.

    >>> tg.abs([-1.0, 2.0]).data
    array([1., 2.])
    """


@implements(np.fabs)
def fabs(x: Kind | ArrayLike, /) -> Kind:
    """Absolute value of real numbers, as `numpy.fabs`; the derivative is that of `abs`.

    >>> tg.fabs([-1.0, 2.0]).data
    array([1., 2.])
    """
    if is_complex(x):
        raise real_only("fabs")
    return abs(x)


@np.errstate(over="ignore")  # of an infinite x^3 tanh is 1, as of a large one
def _gelu(x: Array) -> DuckArray:
    out: DuckArray = x * (GELU_SCALE * GELU_CUBIC) * x
    out += GELU_SCALE
    out *= x
    out = np.tanh(out)
    out += 1.0
    out *= 0.5
    out *= x
    return out


@unary("gelu", _gelu)
def gelu(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Gaussian error linear unit of each element, in its tanh form, with that form's derivative.

    ``x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`` (Hendrycks and Gimpel, 2016).

    :param x: Any shape, float32 or float64.
    :returns: Tensor of ``x``'s shape and dtype.

    >>> tg.gelu(0.0).item()
    0.0
    """


@np.errstate(over="ignore")
def _silu(x: Array) -> DuckArray:
    exps = np.exp(0.0 - x)
    exps += 1.0
    return x / exps


@unary("silu", _silu)
def silu(x: AnyKind | ArrayLike, /) -> AnyKind:
    """Sigmoid linear unit, ``x s`` with ``s = sigmoid(x)``; its slope is ``s + x s (1 - s)``.

    At minus infinity it is NaN.

    :param x: Any shape, float32 or float64.
    :returns: Tensor of ``x``'s shape and dtype.

    >>> tg.silu(0.0).item()
    0.0
    """


LN2 = math.log(2.0)


LN10 = math.log(10.0)


# Nearer to 0 than this, sinc's slope is summed as a series: its closed form cancels there.
SINC_NEAR = 0.02


SINC_SERIES = (10.0, 28.0, 54.0)


def sinc_slope_series(x: DuckArray) -> DuckArray:
    """``sinc'`` near 0, ``-pi^2 x / 3 (1 - u/10 (1 - u/28 (1 - u/54)))`` with ``u = (pi x)^2``."""
    u = x * x * (math.pi * math.pi)
    total: DuckArray = 1.0
    for divisor in reversed(SINC_SERIES):
        total = 1.0 - u * (1.0 / divisor) * total
    return x * (-math.pi * math.pi / 3.0) * total


@unary("cbrt", np.cbrt)
def cbrt(x: Kind | ArrayLike, /) -> Kind:
    """Cube root, as `numpy.cbrt`; the derivative is ``1 / (3 cbrt(x)^2)``, infinite at 0.

    >>> tg.cbrt(-8.0).item()
    -2.0
    """


@unary("log1p", np.log1p, takes_complex=True)
def log1p(x: Kind | ArrayLike, /) -> Kind:
    """``log(1 + x)``, as `numpy.log1p`; the derivative is ``1 / (1 + x)``.

    >>> tg.log1p(0.0).item()
    0.0
    """


@unary("expm1", np.expm1, takes_complex=True)
def expm1(x: Kind | ArrayLike, /) -> Kind:
    """``exp(x) - 1``, as `numpy.expm1`; the derivative is ``exp(x)``.

    >>> tg.expm1(0.0).item()
    0.0
    """


@unary("log2", np.log2, takes_complex=True)
def log2(x: Kind | ArrayLike, /) -> Kind:
    """Logarithm to base 2, as `numpy.log2`; the derivative is ``1 / (x log 2)``.

    >>> tg.log2(8.0).item()
    3.0
    """


@unary("log10", np.log10, takes_complex=True)
def log10(x: Kind | ArrayLike, /) -> Kind:
    """Logarithm to base 10, as `numpy.log10`; the derivative is ``1 / (x log 10)``.

    >>> tg.log10(1000.0).item()
    3.0
    """


@unary("exp2", np.exp2, takes_complex=True)
def exp2(x: Kind | ArrayLike, /) -> Kind:
    """Power of two, as `numpy.exp2`; the derivative is ``2**x log 2``.

    >>> tg.exp2(3.0).item()
    8.0
    """


@unary("sinh", np.sinh, takes_complex=True)
def sinh(x: Kind | ArrayLike, /) -> Kind:
    """Hyperbolic sine, as `numpy.sinh`; the derivative is ``cosh(x)``.

    >>> tg.sinh(0.0).item()
    0.0
    """


@unary("cosh", np.cosh, takes_complex=True)
def cosh(x: Kind | ArrayLike, /) -> Kind:
    """Hyperbolic cosine, as `numpy.cosh`; the derivative is ``sinh(x)``.

    >>> tg.cosh(0.0).item()
    1.0
    """


@unary("arcsin", np.arcsin, takes_complex=True)
def arcsin(x: Kind | ArrayLike, /) -> Kind:
    """Inverse sine, as `numpy.arcsin`; its slope is ``1 / sqrt(1 - x^2)``, infinite at -1 and 1.

    >>> tg.arcsin(0.0).item()
    0.0
    """


@unary("arccos", np.arccos, takes_complex=True)
def arccos(x: Kind | ArrayLike, /) -> Kind:
    """Inverse cosine, as `numpy.arccos`; its slope is ``-1 / sqrt(1 - x^2)``, infinite at -1 and 1.

    >>> tg.arccos(1.0).item()
    0.0
    """


@unary("arctan", np.arctan, takes_complex=True)
def arctan(x: Kind | ArrayLike, /) -> Kind:
    """Inverse tangent, as `numpy.arctan`; the derivative is ``1 / (1 + x^2)``.

    >>> tg.arctan(0.0).item()
    0.0
    """


@unary("arcsinh", np.arcsinh, takes_complex=True)
def arcsinh(x: Kind | ArrayLike, /) -> Kind:
    """Inverse of `sinh`, as `numpy.arcsinh`; the derivative is ``1 / sqrt(x^2 + 1)``.

    >>> tg.arcsinh(0.0).item()
    0.0
    """


@unary("arccosh", np.arccosh, takes_complex=True)
def arccosh(x: Kind | ArrayLike, /) -> Kind:
    """Inverse of `cosh`, as `numpy.arccosh`; its slope is ``1 / sqrt(x^2 - 1)``, infinite at 1.

    >>> tg.arccosh(1.0).item()
    0.0
    """


@unary("arctanh", np.arctanh, takes_complex=True)
def arctanh(x: Kind | ArrayLike, /) -> Kind:
    """Inverse of `tanh`, as `numpy.arctanh`; its slope is ``1 / (1 - x^2)``, infinite at -1 and 1.

    >>> tg.arctanh(0.0).item()
    0.0
    """


def _sinc(x: Array) -> DuckArray:
    angle = math.pi * np.where(x == 0, 1.0e-20, x)  # as NumPy has it
    return np.sin(angle) / angle


@implements(np.sinc)
@unary("sinc", _sinc, takes_complex=True)
def sinc(x: Kind | ArrayLike, /) -> Kind:
    """Normalised sinc, as `numpy.sinc`; its slope is ``(cos(pi x) - sinc(x)) / x``, and 0 at 0.

    >>> tg.sinc([0.0, 0.5]).data
    array([1.        , 0.63661977])
    """


@binary("arctan2", np.arctan2)
def arctan2(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Angle of the point ``(x2, x1)``, as `numpy.arctan2`; the derivatives at the origin are NaN.

    >>> tg.arctan2(0.0, 1.0).item()
    0.0
    """


@binary("hypot", np.hypot)
def hypot(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """``sqrt(x1^2 + x2^2)``, as `numpy.hypot`; the derivatives at the origin are 0, as of `abs`.

    >>> tg.hypot(3.0, 4.0).item()
    5.0
    """


@binary("logaddexp", np.logaddexp)
def logaddexp(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """``log(exp(x1) + exp(x2))`` without overflow, as `numpy.logaddexp`.

    The derivatives are ``sigmoid(x1 - x2)`` and ``sigmoid(x2 - x1)``, 1/2 each at one infinity.

    >>> tg.logaddexp(-float("inf"), 2.0).item()
    2.0
    """


@implements(np.logaddexp2)
def logaddexp2(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """``log2(2**x1 + 2**x2)`` without overflow, as `numpy.logaddexp2`; the slopes of `logaddexp`.

    >>> tg.logaddexp2(1.0, 1.0).item()
    2.0
    """
    a, b = operand("logaddexp2", x1, "x1"), operand("logaddexp2", x2, "x2")
    return div(logaddexp(a * LN2, b * LN2), LN2)


@implements(np.float_power)
def float_power(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Power in floating point, as `numpy.float_power`; the derivatives are those of `pow`.

    >>> tg.float_power(2, -1).item()
    0.5
    """
    return pow(_floating("float_power", x1, "x1"), _floating("float_power", x2, "x2"))


def _floating(op: str, value: DuckArray, argument: str) -> DuckArray:
    value = operand(op, value, argument)
    if isinstance(value, (int, float)):
        return float(value)
    if value.requires_grad or value.dtype.kind in "fc":
        return value
    return tensor_like(op, numbers(value).astype(np.float64))


@implements(np.square)
def square(x: Kind | ArrayLike, /) -> Kind:
    """Square, as `numpy.square`; the derivative is ``2 x``.

    >>> tg.square([1.0, -3.0]).data
    array([1., 9.])
    """
    base = operand("square", x, "x")
    # NumPy's squares of bools are small integers, their products bools.
    return pow(base, 2) if getattr(base, "dtype", None) == np.bool_ else mul(base, base)


@implements(np.reciprocal)
def reciprocal(x: Kind | ArrayLike, /) -> Kind:
    """``1 / x``, as `numpy.reciprocal`, a float of integers too; the derivative is ``-1 / x^2``.

    >>> tg.reciprocal(4.0).item()
    0.25
    """
    return div(1.0, x)


@implements(np.deg2rad, np.radians)
def deg2rad(x: Kind | ArrayLike, /) -> Kind:
    """Degrees as radians, as `numpy.deg2rad`; the derivative is ``pi / 180``.

    >>> bool(tg.deg2rad(180.0) == np.pi)
    True
    """
    return _in_units("deg2rad", x, math.pi, 180.0)


@implements(np.rad2deg, np.degrees)
def rad2deg(x: Kind | ArrayLike, /) -> Kind:
    """Radians as degrees, as `numpy.rad2deg`; the derivative is ``180 / pi``.

    >>> tg.rad2deg(np.pi).item()
    180.0
    """
    return _in_units("rad2deg", x, 180.0, math.pi)


def _in_units(op: str, x: DuckArray, wanted: float, given: float) -> DuckArray:
    if is_complex(x):
        raise real_only(op)
    # NumPy divides the two in the dtype of the numbers.
    single = getattr(x, "dtype", None) == np.float32
    return mul(x, float(np.float32(wanted) / np.float32(given)) if single else wanted / given)


# NumPy's names of functions with a shorter one here, and its second names.
absolute = abs
degrees, radians = rad2deg, deg2rad
divide = true_divide = div
multiply = mul
negative = neg
power = pow
subtract = sub


@binary("maximum", np.maximum)
def maximum(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Larger of two elements, as `numpy.maximum`.

    The larger takes the gradient, and each takes half where they are equal or either is NaN.

    >>> tg.maximum([1.0, 4.0], 2.0).data
    array([2., 4.])
    """


@binary("minimum", np.minimum)
def minimum(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Smaller of two elements, as `numpy.minimum`; gradients as of `maximum`.

    >>> tg.minimum([1.0, 4.0], 2.0).data
    array([1., 2.])
    """


@binary("fmax", np.fmax)
def fmax(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Larger of two elements, as `numpy.fmax`: NaN counts as missing; gradients as of `maximum`.

    >>> tg.fmax([1.0, float("nan")], 2.0).data
    array([2., 2.])
    """


@binary("fmin", np.fmin)
def fmin(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Smaller of two elements, as `numpy.fmin`: NaN counts as missing; gradients as of `maximum`.

    >>> tg.fmin([1.0, float("nan")], 2.0).data
    array([1., 2.])
    """


def limits_of(dtype: DType) -> tuple[float, float]:
    if dtype.kind in "fc":
        return -math.inf, math.inf
    if dtype.kind == "b":
        return 0, 1
    return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)


def _clip(x: DuckArray, low: DuckArray, high: DuckArray) -> DuckArray:
    if getattr(x, "dtype", None) == np.float64:  # to which nothing overflows
        return np.clip(x, low, high)
    return watched("clip", np.clip, x, low, high)


CLIP = Op("clip", _clip, kind=OpKind.ELEMENTWISE)


@implements(np.clip)
def clip(
    a: Kind | ArrayLike,
    a_min: Kind | ArrayLike | None = None,
    a_max: Kind | ArrayLike | None = None,
    *,
    min: Kind | ArrayLike | None = None,
    max: Kind | ArrayLike | None = None,
) -> Kind:
    """Limit to an interval, as `numpy.clip`; beyond a bound the gradient goes to the bound.

    >>> tg.clip([-2.0, 0.5, 3.0], 0.0, 1.0).data
    array([0. , 0.5, 1. ])
    """
    for name, bound, other, same in (("a_min", a_min, "min", min), ("a_max", a_max, "max", max)):
        if bound is not None and same is not None:
            received = f"both {name}= and {other}="
            raise TypeError(message("clip", received, "one of them", f"Leave out {other}=."))
    x = operand("clip", a, "a")
    low = min if a_min is None else a_min
    high = max if a_max is None else a_max
    low = None if low is None else operand("clip", low, "a_min")
    high = None if high is None else operand("clip", high, "a_max")
    if low is None and high is None:
        return tensor_like("clip", x)
    if low is None or high is None:  # then that of the dtype, which limits nothing
        given = (x, low if high is None else high)
        dtype = np.result_type(*(getattr(v, "dtype", v) for v in given))
        least, most = limits_of(dtype)
        low, high = least if low is None else low, most if high is None else high
    try:
        return apply(CLIP, (x, low, high))
    except ValueError:
        check_broadcast("clip", *map(np.shape, (x, low, high)))
        raise


@unary("sign", np.sign)
def _sign(x: DuckArray, /) -> DuckArray: ...


@implements(np.sign)
def sign(x: Operand, /) -> Tensor:
    """Sign, as `numpy.sign`, with derivative 0; a complex ``z / abs(z)`` turns with ``z``.

    >>> tg.sign([-3.0, 0.0, 2.0]).data
    array([-1.,  0.,  1.])
    """
    if not is_complex(x):
        return _sign(x)
    z = tensor_like("sign", x)
    parts = real(z), imag(z)
    size = hypot(*parts)
    endless, none = np.isinf(numbers(size)), numbers(size) == 0
    infinite = [np.isinf(numbers(part)) for part in parts]
    zero, one, nan = (np.full((), value, size.dtype) for value in (0.0, 1.0, math.nan))
    # Beside an infinite part the other is nothing, and two infinities have no direction.
    lost = np.where(np.logical_and(*infinite), nan, zero)
    along = [np.where(numbers(part) > 0, one, -one) for part in parts]
    sides = np.where(infinite[0], along[0], zero), np.where(infinite[0], zero, along[1])
    scale = where(np.logical_or(none, endless), 1.0, size)
    shares = (
        where(none, zero, where(endless, side + lost, div(part, scale)))
        for part, side in zip(parts, sides, strict=True)
    )
    return from_parts(*shares)


@unary("floor", np.floor)
def floor(x: Operand, /) -> Tensor:
    """Largest whole number not above, as `numpy.floor`; the derivative is 0 everywhere.

    >>> tg.floor([-1.5, 1.5]).data
    array([-2.,  1.])
    """


@unary("ceil", np.ceil)
def ceil(x: Operand, /) -> Tensor:
    """Smallest whole number not below, as `numpy.ceil`; the derivative is 0 everywhere.

    >>> tg.ceil([-1.5, 1.5]).data
    array([-1.,  2.])
    """


@unary("rint", np.rint, takes_complex=True)
def rint(x: Operand, /) -> Tensor:
    """Nearest whole number, as `numpy.rint`; the derivative is 0 everywhere.

    >>> tg.rint([0.5, 1.5, 2.2]).data
    array([0., 2., 2.])
    """


@unary("trunc", np.trunc)
def trunc(x: Operand, /) -> Tensor:
    """Whole part of a number, as `numpy.trunc`; the derivative is 0 everywhere.

    >>> tg.trunc([-1.5, 1.5]).data
    array([-1.,  1.])
    """


@binary("mod", np.remainder)
def mod(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Remainder with the divisor's sign, as `numpy.mod`; slopes of 1 and ``-floor(x1 / x2)``.

    >>> tg.mod([-1.0, 5.0], 3.0).data
    array([2., 2.])
    """


remainder = mod


@binary("floor_divide", operator.floordiv, np.floor_divide)
def floor_divide(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Quotient rounded down, as `numpy.floor_divide`; the derivatives are 0 everywhere.

    >>> tg.floor_divide([-1.0, 5.0], 2.0).data
    array([-1.,  2.])
    """


@implements(np.divmod)
def _divmod(a: DuckArray, b: DuckArray) -> DuckArray:
    return floor_divide(a, b), mod(a, b)


def _real_pair(op: str, x1: DuckArray, x2: DuckArray) -> tuple[DuckArray, DuckArray]:
    if is_complex(x1, x2):
        raise real_only(op)
    a, b = operand(op, x1, "x1"), operand(op, x2, "x2")
    check_broadcast(op, *map(np.shape, (a, b)))
    return a, b


@implements(np.fmod)
def fmod(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Remainder with the dividend's sign, as `numpy.fmod`; slopes of 1 and ``-trunc(x1 / x2)``.

    >>> tg.fmod([-1.0, 5.0], 3.0).data
    array([-1.,  2.])
    """
    a, b = _real_pair("fmod", x1, x2)
    side = _side(a)
    return mod(a * side, _size(b)) * side


def _side(x: DuckArray) -> DuckArray:
    """Return 1 or -1 by the sign bit, a number for a number, which leaves float32 unchanged."""
    if isinstance(x, (int, float)):
        return math.copysign(1.0, x)
    if x.dtype.kind != "f":  # one byte, which widens no float
        return np.where(numbers(x) < 0, -1, 1).astype(np.int8)
    return np.where(np.signbit(numbers(x)), -1.0, 1.0).astype(x.dtype)


def _size(x: DuckArray) -> DuckArray:
    return math.fabs(x) if isinstance(x, (int, float)) else abs(x)


@implements(np.heaviside)
def heaviside(x1: Operand, x2: Kind | ArrayLike, /) -> Kind:
    """Step from 0 to 1, at zero ``x2``, as `numpy.heaviside`; only there ``x2`` has a gradient.

    >>> tg.heaviside([-2.0, 0.0, 2.0], 0.5).data
    array([0. , 0.5, 1. ])
    """
    place, middle = _real_pair("heaviside", x1, x2)
    if isinstance(place, (int, float)):  # a number stays one and does not widen float32
        direction: Any = float(np.sign(float(place)))
    else:
        direction = sign(mul(place, 1) if place.dtype.kind == "b" else place)
    return where(place == 0, middle, 0.5 * (1.0 + direction))


@implements(np.copysign)
def copysign(x1: Kind | ArrayLike, x2: Operand, /) -> Kind:
    """Size of ``x1``, sign of ``x2``, as `numpy.copysign`; the slopes at 0, and by ``x2``, are 0.

    >>> tg.copysign([1.0, -2.0], -3.0).data
    array([-1., -2.])
    """
    sized, signed = _real_pair("copysign", x1, x2)
    side = _side(signed)
    if not isinstance(signed, (int, float)) and signed.dtype.kind == "f":
        side = where((signed == 0) | (signed != signed), side, sign(signed))
    return mul(_size(sized), side)


@implements(np.nan_to_num)
def nan_to_num(
    x: Kind | ArrayLike,
    *,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Kind:
    """Replace NaN and infinities, as `numpy.nan_to_num`; no gradient flows to those.

    >>> tg.nan_to_num([float("nan"), 2.0]).data
    array([0., 2.])
    """
    out = tensor_like("nan_to_num", x)
    if out.dtype.kind == "c":
        numbers_for: Any = {"nan": nan, "posinf": posinf, "neginf": neginf}
        return from_parts(*(nan_to_num(part(out), **numbers_for) for part in (real, imag)))
    if out.dtype.kind != "f":
        return out
    limits = np.finfo(out.dtype)
    array = numbers(out)
    for found, value in (
        (np.isnan(array), nan),
        (array == np.inf, limits.max if posinf is None else posinf),
        (array == -np.inf, limits.min if neginf is None else neginf),
    ):
        out = where(found, watched("nan_to_num", np.asarray, value, out.dtype), out)
    return out


@implements(np.positive)
def positive(x: Kind | ArrayLike, /) -> Kind:
    """Return a tensor itself, as `numpy.positive` of an array does.

    >>> tg.positive([1.0, -2.0]).data
    array([ 1., -2.])
    """
    return tensor_like("positive", x)


ASTYPE = Op(
    "astype", lambda x, *, dtype: x.astype(dtype), kind=OpKind.ELEMENTWISE, takes_complex=True
)
ROUND_TO = Op(
    "round_to",
    lambda x, *, dtype: x.astype(dtype).astype(np.float32),
    kind=OpKind.ELEMENTWISE,
    promotes=False,
)
DETACH = Op("detach", np.copy, kind=OpKind.ELEMENTWISE, differentiable=(), takes_complex=True)
ROUND = Op(
    "round", lambda x, *, decimals: x.round(decimals), kind=OpKind.ELEMENTWISE, takes_complex=True
)


@implements(np.zeros_like)
def zeros_like(
    a: Operand, dtype: npt.DTypeLike | None = None, shape: Shape | None = None
) -> Tensor:
    """Make a constant of zeros like another array, as `numpy.zeros_like`.

    >>> tg.zeros_like([[1.0, 2.0]]).data
    array([[0., 0.]])
    """
    return _filled("zeros_like", a, 0, dtype, shape)


@implements(np.ones_like)
def ones_like(a: Operand, dtype: npt.DTypeLike | None = None, shape: Shape | None = None) -> Tensor:
    """Make a constant of ones like another array, as `numpy.ones_like`.

    >>> tg.ones_like([[1.0, 2.0]]).data
    array([[1., 1.]])
    """
    return _filled("ones_like", a, 1, dtype, shape)


@implements(np.empty_like)
def empty_like(
    prototype: Operand, dtype: npt.DTypeLike | None = None, shape: Shape | None = None
) -> Tensor:
    """Make a constant of zeros, as `numpy.empty_like`: a constant cannot be filled later.

    >>> tg.empty_like([[1.0, 2.0]]).shape
    (1, 2)
    """
    return _filled("empty_like", prototype, 0, dtype, shape, "prototype")


@implements(np.full_like)
def full_like(
    a: Operand,
    fill_value: Kind | ArrayLike,
    dtype: npt.DTypeLike | None = None,
    shape: Shape | None = None,
) -> Kind:
    """Repeat a value over another array's shape, as `numpy.full_like`; gradients flow to the value.

    >>> tg.full_like([[1.0, 2.0]], 7.0).data
    array([[7., 7.]])
    """
    ones = _filled("full_like", a, 1, dtype, shape)
    fill = tensor_like("full_like", fill_value, "fill_value")
    check_spreads("full_like", "fill_value", fill.shape, ones.shape)
    if fill.requires_grad or recorder().records(fill):
        if ones.dtype.kind in "fc":
            return mul(astype(fill, ones.dtype, copy=False), ones)
    return as_leaf(watched("full_like", np.full, ones.shape, detached(fill), ones.dtype))


def _filled(
    op: str, a: DuckArray, value: int, dtype: object, shape: object, argument: str = "a"
) -> DuckArray:
    like = tensor_like(op, a, argument)
    lengths = like.shape if shape is None else int_tuple(op, "shape", shape)
    array = np.full(lengths, value, like.dtype if dtype is None else dtype)
    return as_leaf(numeric(array, op, "dtype", widens=False))


@implements(np.copy)
def copy(a: Kind | ArrayLike) -> Kind:
    """Copy an array, as `numpy.copy`; gradients flow, and no later assignment changes the result.

    >>> tg.copy([1.0, 2.0]).data
    array([1., 2.])
    """
    x = tensor_like("copy", a, "a")
    return apply(ASTYPE, (x,), {"dtype": x.dtype.name})


def astype(x: Kind | ArrayLike, /, dtype: npt.DTypeLike, copy: bool = True) -> Kind:
    """Convert to another dtype, as `numpy.astype`; gradients flow among floats and complex numbers.

    Integers and bools are constants; a conversion that would drop an imaginary part is refused.
    float16 and bfloat16 (of ml_dtypes) round: the result is in float32, as is its gradient.

    >>> tg.astype(tg.param([1.5, 2.0]), "float32").dtype
    dtype('float32')
    >>> tg.astype([0.1], "float16")
    Tensor([0.09997559], dtype=float32)
    """
    out = tensor_like("astype", x)
    if isinstance(dtype, str) and dtype == "bfloat16":
        try:
            importlib.import_module("ml_dtypes")  # from which NumPy knows the name
        except ImportError:
            received, fix = "bfloat16 in an environment without ml_dtypes", "pip install ml_dtypes"
            text = message("astype", received, "ml_dtypes", f"Install it: {fix}.")
            raise ImportError(text) from None
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        received = f"{kind_of(dtype)} for 'dtype'"
        raise TypeError(message("astype", received, "a dtype", 'Write "float32".')) from None
    if wanted.name in HALF:
        keep_parts("astype", "a tensor", out.dtype, wanted)
        return apply(ROUND_TO, (out,), {"dtype": wanted.name})
    numeric(np.empty(0, wanted), "astype", "dtype", widens=False)  # raises for unsupported dtypes
    if out.dtype == wanted and not copy:
        return out
    if wanted.kind != "b":  # whether a number is zero
        keep_parts("astype", "a tensor", out.dtype, wanted)
    if wanted.kind not in "fc" and not recorder().records(out):
        return as_leaf(watched("astype", detached(out).astype, wanted))
    return apply(ASTYPE, (out,), {"dtype": wanted.name})


if hasattr(np, "astype"):  # NumPy 2.1
    implements(np.astype)(astype)


@unary("real", lambda x: x.real.copy(), takes_complex=True)
def _real(x: DuckArray, /) -> DuckArray: ...


@unary("imag", lambda x: x.imag.copy(), takes_complex=True)
def _imag(x: DuckArray, /) -> DuckArray: ...


@unary("angle", np.angle, takes_complex=True)
def _angle(x: DuckArray, /) -> DuckArray: ...


@unary("conj", np.conjugate, takes_complex=True)
def _conj(x: DuckArray, /) -> DuckArray: ...


@implements(np.real)
def real(val: Kind | ArrayLike) -> Kind:
    """Return the real part, as `numpy.real`: of real numbers the tensor itself.

    >>> tg.real([1.0 + 2.0j, 2.0]).data
    array([1., 2.])
    """
    x = tensor_like("real", val, "val")
    return _real(x) if is_complex(x) else x


@implements(np.imag)
def imag(val: Operand) -> Tensor:
    """Return the imaginary part, as `numpy.imag`: of real numbers a constant of zeros.

    >>> tg.imag([1.0 + 2.0j, 2.0]).data
    array([2., 0.])
    """
    x = tensor_like("imag", val, "val")
    return _imag(x) if is_complex(x) else _filled("imag", x, 0, None, None, "val")


def complex_of(x1: Array, x2: Array) -> DuckArray:
    shape = np.broadcast_shapes(np.shape(x1), np.shape(x2))
    out = np.empty(shape, np.result_type(x1, x2, np.complex64))
    out.real, out.imag = x1, x2
    return out


@binary("from_parts", complex_of, takes_complex=True)
def from_parts(x1: Kind | ArrayLike, x2: Kind | ArrayLike, /) -> Kind:
    """Return ``x1 + i x2`` of real numbers, with NaN and infinities, which ``1j * x2`` would mix.

    >>> from_parts([1.0, 2.0], float("inf")).data
    array([1.+infj, 2.+infj])
    """


@implements(np.conjugate)
def conj(x: Kind | ArrayLike, /) -> Kind:
    """Return the complex conjugate, as `numpy.conjugate`: of real numbers the tensor itself.

    >>> tg.conj([1.0 + 2.0j, 2.0]).data
    array([1.-2.j, 2.-0.j])
    """
    z = tensor_like("conj", x)
    return _conj(z) if is_complex(z) else z


conjugate = conj


@implements(np.angle)
def angle(z: Kind | ArrayLike, deg: bool = False) -> Kind:
    """Angle of complex numbers, as `numpy.angle`; its gradient is ``i z / abs(z)^2``, NaN at 0.

    >>> tg.angle([1.0j, 1.0], deg=True).data
    array([90.,  0.])
    """
    x = tensor_like("angle", z, "z")
    if not is_complex(x):
        array = numbers(x)
        half = np.where(
            np.signbit(array),
            *np.array([math.pi, 0.0], x.dtype if x.dtype.kind == "f" else np.float64),
        )
        x = where(np.isnan(array), array, half)
    else:
        x = _angle(x)
    return mul(x, 180.0 / math.pi) if deg else x


@implements(np.round, np.around)
def round(a: Operand, decimals: int = 0) -> Tensor:
    """Round to a number of decimals, as `numpy.round`; the derivative is 0 everywhere.

    >>> tg.round([0.5, 1.5, 2.75]).data
    array([0., 2., 3.])
    """
    x = tensor_like("round", a, "a")
    return apply(ROUND, (x,), {"decimals": one_integer("round", "decimals", decimals)})


# Masks by bits: exact, and many times as fast as the branches of `np.where`.
_BITS = {"f": np.int32, "d": np.int64}
# Below this many elements np.where is as quick.
LEAST_BITWISE = 1 << 14


def select_bits(x: Array, mask: Array) -> Array:
    """Return numbers where a boolean mask is true, and 0 elsewhere."""
    if x.dtype.char not in _BITS:
        return np.where(mask, x, x.dtype.type(0))
    return np.multiply(x.view(_BITS[x.dtype.char]), mask).view(x.dtype)


def chosen(mask: Array, a: DuckArray, b: DuckArray) -> DuckArray:
    dtype = np.result_type(a, b)
    if dtype.char not in _BITS or max(mask.size, np.size(a), np.size(b)) < LEAST_BITWISE:
        return np.where(mask, a, b)
    first, second = np.multiply(_bits(a, dtype), mask), np.multiply(_bits(b, dtype), ~mask)
    out = first if first.shape == np.broadcast_shapes(first.shape, second.shape) else None
    return np.bitwise_or(first, second, out=out).view(dtype)


def _bits(x: DuckArray, dtype: DType) -> DuckArray:
    if not hasattr(x, "dtype") or x.dtype != dtype:
        x = np.asarray(x, dtype)
    return x.view(_BITS[dtype.char])


WHERE = Op(
    "where", chosen, kind=OpKind.ELEMENTWISE, differentiable=(False, True, True), takes_complex=True
)


@overload
def where(condition: Operand, /) -> tuple[npt.NDArray[np.intp], ...]: ...
@overload
def where(condition: Operand, x: Kind | ArrayLike, y: Kind | ArrayLike, /) -> Kind: ...
@implements(np.where)
def where(
    condition: Operand, x: Kind | ArrayLike | None = None, y: Kind | ArrayLike | None = None, /
) -> Kind | tuple[npt.NDArray[np.intp], ...]:
    """Choose element by element, as `numpy.where`; only the chosen branch has a gradient there.

    >>> tg.where([1, 0], [1.0, 2.0], -1.0).data
    array([ 1., -1.])
    """
    cond: DuckArray = condition
    if hasattr(type(cond), "__tapegraph_apply__") and hasattr(cond, "detach"):
        cond = cond.detach()  # a condition carries no tangent
    if x is None and y is None:
        return np.nonzero(numeric_mask(detached(cond)))
    if recorder().records(cond):
        mask = cond if cond.dtype == np.bool_ else cond != 0
    else:
        mask = as_leaf(numeric_mask(detached(cond)))
    a, b = beside("where", x, "x", y), beside("where", y, "y", x)
    try:
        return apply(WHERE, (mask, a, b))
    except ValueError as error:
        values: list[Any] = [getattr(v, "_array", v) for v in (mask, a, b)]
        received = f"shapes {[np.shape(v) for v in values]}"
        raise ValueError(message("where", received, "shapes that broadcast together")) from error


def numeric_mask(cond: DuckArray) -> Array:
    wrapped = operand("where", cond, "condition")
    return np.array(getattr(wrapped, "_array", wrapped), dtype=np.bool_)


# Comparisons and predicates: plain arrays, and operations in a captured step


def _predicate(name: str, function: Fun) -> None:
    op = Op(name, function, kind=OpKind.COMPARISON, differentiable=(), takes_complex=True)

    def record(*operands: DuckArray) -> DuckArray:
        arguments = ("x1", "x2") if len(operands) == 2 else ("x",)
        recorded = (operand(name, v, k) for v, k in zip(operands, arguments, strict=True))
        return apply(op, tuple(recorded))

    without_gradient(function)(record)


for _name in (
    *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    *("logical_and", "logical_or", "logical_xor", "logical_not"),
    *("isnan", "isinf", "isfinite", "signbit"),
):
    _predicate(_name, getattr(np, _name))


def _of_masks(bitwise: Fun, logical: Fun) -> None:
    def record(*masks: DuckArray) -> DuckArray:
        for mask in masks:
            if np.result_type(mask) != np.bool_:
                fix = "Compare it, as in x > 0."
                raise TypeError(message(bitwise.__name__, kind_of(mask), "a mask of bools", fix))
        return logical(*masks)

    without_gradient(bitwise)(record)


_of_masks(np.bitwise_and, np.logical_and)
_of_masks(np.bitwise_or, np.logical_or)
_of_masks(np.bitwise_xor, np.logical_xor)
_of_masks(np.invert, np.logical_not)


@without_gradient(np.isclose)
def _is_close(
    a: DuckArray, b: DuckArray, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> DuckArray:
    near = np.logical_and(np.isfinite(b), abs(a - b) <= atol + rtol * abs(b))
    same = np.logical_or(near, a == b)
    both = np.logical_and(np.isnan(a), np.isnan(b))
    return np.logical_or(same, both) if equal_nan else same
