"""Reductions: sum, mean and softmax."""

from __future__ import annotations

import math
from typing import Any, SupportsIndex

import numpy as np

from tapegraph.arrays.axes import one_axis, some_axes
from tapegraph.errors import explain
from tapegraph.recording.numpy_functions import implements
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, tensor_like
from tapegraph.typed import Array, Axes, of_array

# NumPy would warn at a line of its own in ndarray.sum. (Its types know no keepdims that varies.)
add_up: Any = np.add.reduce


def _over(x: Array, axis: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return None for all axes: NumPy then reduces contiguous memory in one run."""
    return None if len(axis) == x.ndim else axis


def _sum(x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return add_up(x, axis=_over(x, axis), keepdims=keepdims)


def _mean(x: Array, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    count = math.prod(x.shape[a] for a in axis)
    dtype = None if x.dtype.kind == "f" else np.float64
    return add_up(x, axis=_over(x, axis), dtype=dtype, keepdims=keepdims) / count


def softmax_of(x: Array, axis: int) -> Array:
    """Softmax of an array along one axis, with the maximum subtracted."""
    shifted: Array = x - x.max(axis=axis, keepdims=True, initial=-np.inf)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=axis, keepdims=True)
    return shifted


def _softmax(x: Array, *, axis: int) -> Any:
    return softmax_of(x if x.dtype.kind == "f" else x.astype(np.float64), axis)


SUM = Op("sum", _sum)
MEAN = Op("mean", _mean)
SOFTMAX = Op("softmax", _softmax)


@implements(np.sum)
@of_array
def sum(x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
    """Sum over all elements or over some axes.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape, float32 or float64.
    axis : int or tuple of int, optional
        The axes to sum over; all where not given.
    keepdims : bool
        Keep the summed axes with length 1.

    Returns
    -------
    Tensor
        Of ``x``'s dtype.

    Raises
    ------
    ValueError
        An axis is out of range or repeated.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.sum([[1.0, 2.0], [3.0, 4.0]], axis=0).data
    array([4., 6.])
    """
    x = tensor_like("sum", x)
    return apply(SUM, (x,), {"axis": some_axes("sum", axis, x.ndim), "keepdims": bool(keepdims)})


@implements(np.mean)
@of_array
def mean(x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
    """Arithmetic mean over all elements or over some axes.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape, float32 or float64.
    axis : int or tuple of int, optional
        The axes to average over; all where not given.
    keepdims : bool
        Keep the averaged axes with length 1.

    Returns
    -------
    Tensor
        Of ``x``'s dtype.

    Raises
    ------
    ValueError
        An axis is out of range or repeated.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.mean([[1.0, 2.0], [3.0, 4.0]]).item()
    2.5
    """
    x = tensor_like("mean", x)
    return apply(MEAN, (x,), {"axis": some_axes("mean", axis, x.ndim), "keepdims": bool(keepdims)})


@of_array
def softmax(x: Any, axis: SupportsIndex = -1) -> Any:
    """Softmax along one axis, ``exp(x - max) / sum(exp(x - max))``.

    Parameters
    ----------
    x : Tensor or array_like
        At least one axis, float32 or float64.
    axis : int
        The axis whose elements sum to 1.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Raises
    ------
    ValueError
        ``x`` has no axis, or the axis is out of range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.softmax([0.0, 0.0]).data
    array([0.5, 0.5])
    """
    x = tensor_like("softmax", x)
    if x.ndim == 0:
        raise ValueError(
            explain("softmax", "a 0-d array", "at least one axis", "Use x.reshape(1) for one.")
        )
    return apply(SOFTMAX, (x,), {"axis": one_axis("softmax", axis, x.ndim)})
