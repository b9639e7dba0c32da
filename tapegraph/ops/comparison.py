"""Choosing, rounding and signs, element by element."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from tapegraph import typed
from tapegraph.errors import explain
from tapegraph.numpy_warnings import watched
from tapegraph.ops.elementwise import abs, mul, neg
from tapegraph.ops.index import where
from tapegraph.recording.numpy_functions import implements, plain
from tapegraph.recording.record import binary, operand, tensor_like, unary
from tapegraph.typed import ArrayLike, Operand, of_array, of_second, of_two, seen_as

absolute = abs
fabs = abs
negative = neg


@binary("maximum", np.maximum)
def maximum(a: Any, b: Any) -> Any:
    """Larger of two elements; NaN where either is NaN.

    The larger one takes the gradient, and each takes half where they are equal.

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
    >>> tg.maximum([1.0, 4.0], 2.0).data
    array([2., 4.])
    """


@binary("minimum", np.minimum)
def minimum(a: Any, b: Any) -> Any:
    """Smaller of two elements; NaN where either is NaN.

    The smaller one takes the gradient, and each takes half where they are equal.

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
    >>> tg.minimum([1.0, 4.0], 2.0).data
    array([1., 2.])
    """


@binary("fmax", np.fmax)
def fmax(a: Any, b: Any) -> Any:
    """Larger of two elements, as `maximum`, but a NaN leaves it to the other one.

    That one then takes the whole gradient; each takes half where both are NaN.

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
    >>> tg.fmax([1.0, float("nan")], 2.0).data
    array([2., 2.])
    """


@binary("fmin", np.fmin)
def fmin(a: Any, b: Any) -> Any:
    """Smaller of two elements, as `minimum`, but a NaN leaves it to the other one.

    That one then takes the whole gradient; each takes half where both are NaN.

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
    x : Tensor, array_like or number
        Any shape, float32 or float64.
    a_min, a_max : Tensor, array_like or number, optional
        The bounds, which broadcast with ``x``; no bound where not given.
    min, max : Tensor, array_like or number, optional
        Other names of the bounds.

    Returns
    -------
    Tensor
        Of the broadcast shape and NumPy's result dtype.

    Raises
    ------
    TypeError
        A bound is given under both its names.
    ValueError
        The shapes do not broadcast.

    Examples
    --------
    >>> import tapegraph as tg
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
    >>> tg.sign([-3.0, 0.0, 2.0]).data
    array([-1.,  0.,  1.])
    """


@unary("floor", np.floor)
def floor(x: Any) -> Any:
    """Largest whole number that is not above each element; its derivative is 0 everywhere.

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
    >>> tg.floor([-1.5, 1.5]).data
    array([-2.,  1.])
    """


@unary("ceil", np.ceil)
def ceil(x: Any) -> Any:
    """Smallest whole number that is not below each element; its derivative is 0 everywhere.

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
    >>> tg.ceil([-1.5, 1.5]).data
    array([-1.,  2.])
    """


@unary("rint", np.rint)
def rint(x: Any) -> Any:
    """Nearest whole number of each element, of two the even one; its derivative is 0 everywhere.

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
    >>> tg.rint([0.5, 1.5, 2.2]).data
    array([0., 2., 2.])
    """


@unary("trunc", np.trunc)
def trunc(x: Any) -> Any:
    """Each element without its decimals; its derivative is 0 everywhere.

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
    >>> tg.trunc([-1.5, 1.5]).data
    array([-1.,  1.])
    """


@binary("mod", np.remainder)
def mod(a: Any, b: Any) -> Any:
    """Remainder of a division, with the divisor's sign: ``a - floor(a / b) b``.

    The derivatives are 1 and ``-floor(a / b)``.

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
    >>> tg.mod([-1.0, 5.0], 3.0).data
    array([2., 2.])
    """


remainder = mod


@implements(np.fmod)
@of_two
def fmod(a: Any, b: Any) -> Any:
    """Remainder of a division, with the dividend's sign: ``a - trunc(a / b) b``.

    The derivatives are 1 and ``-trunc(a / b)``.

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
        return np.where(plain(x) < 0, -1, 1).astype(np.int8)
    return np.asarray(np.copysign(np.ones((), x.dtype), plain(x)))


def _size(x: Any) -> Any:
    return math.fabs(x) if isinstance(x, (int, float)) else abs(x)


@implements(np.heaviside)
@of_second
def heaviside(x: Operand, h: Any) -> Any:
    """Step function: 0 below zero, ``h`` at zero, 1 above.

    Its derivative with respect to ``x`` is 0.

    Parameters
    ----------
    x, h : Tensor, array_like or number
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
    x : Tensor, array_like or number
        Any shape, float32 or float64.
    nan : array_like or number
        What to put for NaN.
    posinf, neginf : array_like or number, optional
        What to put for the infinities; the dtype's largest and lowest number where not given.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.nan_to_num([float("nan"), 2.0]).data
    array([0., 2.])
    """
    x = tensor_like("nan_to_num", x)
    if x.dtype.kind != "f":
        return x
    limits = np.finfo(x.dtype)
    array = plain(x)
    for found, value in (
        (np.isnan(array), nan),
        (np.isposinf(array), limits.max if posinf is None else posinf),
        (np.isneginf(array), limits.min if neginf is None else neginf),
    ):
        x = where(found, watched("nan_to_num", np.asarray, value, x.dtype), x)
    return x


@implements(np.positive)
@of_array
def positive(x: Any) -> Any:
    """Each element as it is, ``+x``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape.

    Returns
    -------
    Tensor
        ``x`` itself where it is a tensor.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.positive([1.0, -2.0]).data
    array([ 1., -2.])
    """
    return tensor_like("positive", x)
