"""Arrays made like another, copies, conversions and rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph.arrays.axes import integers
from tapegraph.errors import explain, kind_of
from tapegraph.numpy_warnings import watched
from tapegraph.ops import elementwise
from tapegraph.recording.node import constant, numeric
from tapegraph.recording.numpy_functions import implements, plain
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, tensor_like
from tapegraph.typed import Array, Operand, Shape, of_array, of_second, to_constant


def _astype(x: Array, *, dtype: str) -> Any:
    return x.astype(dtype)


def _round(x: Array, *, decimals: int) -> Any:
    return x.round(decimals)


ASTYPE = Op("astype", _astype)
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
    x : Tensor or array_like
        What to take shape and dtype from; no gradient flows to it.
    dtype : dtype, optional
        Another element type.
    shape : int or tuple of int, optional
        Another shape.

    Returns
    -------
    Tensor
        A constant.

    Raises
    ------
    TypeError
        The dtype is not bool, integer, float32 or float64.

    Examples
    --------
    >>> import tapegraph as tg
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
    x : Tensor or array_like
        What to take shape and dtype from; no gradient flows to it.
    dtype : dtype, optional
        Another element type.
    shape : int or tuple of int, optional
        Another shape.

    Returns
    -------
    Tensor
        A constant.

    Raises
    ------
    TypeError
        The dtype is not bool, integer, float32 or float64.

    Examples
    --------
    >>> import tapegraph as tg
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
    x : Tensor or array_like
        What to take shape and dtype from; no gradient flows to it.
    dtype : dtype, optional
        Another element type.
    shape : int or tuple of int, optional
        Another shape.

    Returns
    -------
    Tensor
        A constant.

    Raises
    ------
    TypeError
        The dtype is not bool, integer, float32 or float64.

    Examples
    --------
    >>> import tapegraph as tg
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
    x : Tensor or array_like
        What to take shape and dtype from; no gradient flows to it.
    fill_value : Tensor, array_like or number
        What to repeat; broadcasts to the shape. Gradients flow to it.
    dtype : dtype, optional
        Another element type.
    shape : int or tuple of int, optional
        Another shape.

    Returns
    -------
    Tensor
        A constant where ``fill_value`` is one.

    Raises
    ------
    TypeError
        The dtype is not bool, integer, float32 or float64.
    ValueError
        ``fill_value`` does not broadcast to the shape.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.full_like([[1.0, 2.0]], 7.0).data
    array([[7., 7.]])
    """
    ones = _filled("full_like", x, 1, dtype, shape)
    fill = tensor_like("full_like", fill_value, "fill_value")
    check_spreads("full_like", "fill_value", fill.shape, ones.shape)
    if fill.requires_grad:
        if ones.dtype.kind == "f":
            return elementwise.mul(astype(fill, ones.dtype, copy=False), ones)
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
    x : Tensor or array_like
        Any shape and dtype.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype; gradients flow through.

    Examples
    --------
    >>> import tapegraph as tg
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
    x : Tensor or array_like
        Any shape and dtype.
    dtype : dtype
        bool, an integer type, float32 or float64.
    copy : bool
        Make a new array even where ``x`` has the dtype already.

    Returns
    -------
    Tensor
        Of ``x``'s shape.

    Raises
    ------
    TypeError
        The dtype is another one, or none.

    Examples
    --------
    >>> import tapegraph as tg
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
    if wanted.kind != "f":
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

    Examples
    --------
    >>> import tapegraph as tg
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

    Examples
    --------
    >>> import tapegraph as tg
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
    x : Tensor or array_like
        Any shape, float32 or float64.
    decimals : int
        How many digits to keep after the point; negative ones round before it.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    TypeError
        ``decimals`` is not an integer.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.round([0.5, 1.5, 2.75]).data
    array([0., 2., 3.])
    """
    x = tensor_like("round", x)
    digits = integers("round", "decimals", decimals)
    if len(digits) != 1:
        raise TypeError(explain("round", f"{kind_of(decimals)} for 'decimals'", "an integer"))
    return apply(ROUND, (x,), {"decimals": digits[0]})
