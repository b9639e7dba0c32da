"""Rearranging: transpose, reshape and concat."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from tapegraph.arrays.axes import integers, one_axis
from tapegraph.errors import explain, kind_of
from tapegraph.recording.numpy_functions import implements
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, tensor_like
from tapegraph.typed import Array, Shape, of_array, of_arrays


def _transpose(x: Array, *, axes: tuple[int, ...]) -> Any:
    return x.transpose(axes)


def _reshape(x: Array, *, shape: tuple[int, ...]) -> Any:
    return x.reshape(shape)


def _concat(*arrays: Array, axis: int) -> Any:
    return np.concatenate(arrays, axis=axis)


TRANSPOSE = Op("transpose", _transpose)
RESHAPE = Op("reshape", _reshape)
CONCAT = Op("concat", _concat)


@implements(np.transpose)
@of_array
def transpose(x: Any, axes: Sequence[SupportsIndex] | None = None) -> Any:
    """Permute the axes; reverse them where no order is given.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    axes : sequence of int, optional
        A permutation of ``x``'s axes; axis ``i`` of the result is axis ``axes[i]`` of ``x``.

    Returns
    -------
    Tensor
        The permuted array.

    Raises
    ------
    ValueError
        ``axes`` is not a permutation of ``x``'s axes.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.transpose([[1.0, 2.0]]).shape
    (2, 1)
    """
    x = tensor_like("transpose", x)
    if axes is None:
        order = tuple(reversed(range(x.ndim)))
    else:
        order = tuple(one_axis("transpose", a, x.ndim) for a in integers("transpose", "axes", axes))
        if sorted(order) != list(range(x.ndim)):
            raise ValueError(
                explain(
                    "transpose",
                    f"axes {axes} for shape {x.shape}",
                    f"a permutation of all {x.ndim} axes",
                )
            )
    return apply(TRANSPOSE, (x,), {"axes": order})


@implements(np.reshape)
@of_array
def reshape(x: Any, shape: Shape) -> Any:
    """Give an array another shape with the same elements in row-major order.

    Parameters
    ----------
    x : Tensor or array_like
        Any shape.
    shape : int or tuple of int
        The new shape; one length may be -1 and is then computed.

    Returns
    -------
    Tensor
        Of the new shape.

    Raises
    ------
    ValueError
        The number of elements would change, or more than one length is -1.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.reshape([1.0, 2.0, 3.0, 4.0], (2, -1)).shape
    (2, 2)
    """
    x = tensor_like("reshape", x)
    return apply(RESHAPE, (x,), {"shape": _full_shape(x.shape, shape)})


def _full_shape(old: tuple[int, ...], shape: Any) -> tuple[int, ...]:
    new = integers("reshape", "shape", shape)
    size = math.prod(old)
    unknown = [i for i, n in enumerate(new) if n == -1]
    known = math.prod(n for n in new if n != -1)
    if len(unknown) == 1 and known > 0 and size % known == 0:
        (i,) = unknown
        new = (*new[:i], size // known, *new[i + 1 :])
    elif unknown or known != size or any(n < 0 for n in new):
        raise ValueError(
            explain(
                "reshape",
                f"shape {old} ({size} elements) and new shape {new}",
                "the same number of elements, and at most one -1",
            )
        )
    return new


@of_arrays
def concat(tensors: Any, axis: SupportsIndex = 0) -> Any:
    """Join arrays along an existing axis.

    Parameters
    ----------
    tensors : sequence of Tensor or array_like
        At least one; equal shapes but for ``axis``.
    axis : int
        The axis to join along.

    Returns
    -------
    Tensor
        The joined array, of NumPy's result dtype.

    Raises
    ------
    ValueError
        No array is given, an array is 0-d, or the shapes differ off the axis.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.concat([[1.0], [2.0, 3.0]]).data
    array([1., 2., 3.])
    """
    try:
        given = list(tensors)
    except TypeError:
        raise TypeError(
            explain("concat", kind_of(tensors), "a sequence of arrays", "Write tg.concat([a, b]).")
        ) from None
    parts = [tensor_like("concat", t, f"tensors[{i}]") for i, t in enumerate(given)]
    shapes = [p.shape for p in parts]
    if not parts or not shapes[0]:
        raise ValueError(
            explain("concat", f"arrays of shapes {shapes}", "at least one array of 1-D or more")
        )
    along = one_axis("concat", axis, len(shapes[0]))
    if len({(len(s), s[:along], s[along + 1 :]) for s in shapes}) > 1:
        raise ValueError(
            explain("concat", f"arrays of shapes {shapes}", f"equal shapes but for axis {along}")
        )
    return apply(CONCAT, tuple(parts), {"axis": along})
