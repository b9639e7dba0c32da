"""Classes and ranks: rows of ones and zeros, and the largest elements with their places."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from tapegraph.arrays.axes import one_axis
from tapegraph.errors import kind_of, message
from tapegraph.ops.index import in_range, take_along_axis
from tapegraph.recording.numpy_functions import array_of, numbers
from tapegraph.recording.record import tensor_like
from tapegraph.typed import Array, ArrayLike

if TYPE_CHECKING:
    from tapegraph.typed import Kind

__all__ = ["one_hot", "topk"]


def one_hot(labels: Kind | ArrayLike, num_classes: int, dtype: npt.DTypeLike = np.float64) -> Kind:
    """Rows of zeros with a one in the place of each label, which carry no gradient.

    :param labels: Any shape, each in [0, num_classes).
    :param num_classes: The length of a row.
    :param dtype: Dtype of the result.
    :returns: Tensor, shape (..., num_classes).
    :raises IndexError: A label is out of range.
    :raises TypeError: Labels are not integers.

    >>> tg.one_hot([2, 0], 3).data
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """
    name, count = "one_hot", operator.index(num_classes)
    array = array_of(labels)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(message(name, f"labels {kind_of(array)}", "integers", "Use .astype(int)."))

    def refused(label: int) -> IndexError:
        return IndexError(message(name, f"label {label}", f"a label in [0, {count})"))

    places = in_range(array, count, refused)
    rows = np.expand_dims(places, -1) == np.arange(count)
    return tensor_like(name, rows.astype(dtype))


def topk(
    x: Kind | ArrayLike, k: int, axis: SupportsIndex = -1, largest: bool = True
) -> tuple[Kind, Array]:
    """Take the ``k`` largest elements along an axis in falling order, and tell where they are.

    The gradient of each goes where it was taken from. NaN counts as the largest.

    :param x: Any shape but 0-d.
    :param k: How many, up to the axis' length.
    :param axis: The axis along which they are looked for.
    :param largest: False for the smallest, in rising order.
    :returns: Tuple. The elements, a Tensor, and their indices along the axis, a plain array; of
        both the axis has length ``k``.
    :raises ValueError: ``k`` is negative or larger than the axis.

    >>> values, indices = tg.topk([3.0, 9.0, 1.0, 7.0], 2)
    >>> values.data, indices
    (array([9., 7.]), array([1, 3]))
    """
    name, count = "topk", operator.index(k)
    array: Any = tensor_like(name, x)
    along = one_axis(name, axis, array.ndim)
    length = array.shape[along]
    if not 0 <= count <= length:
        received = f"k={count} for axis {along} of length {length}"
        raise ValueError(message(name, received, f"k in [0, {length}]"))
    order = np.argsort(numbers(array), axis=along, kind="stable")
    # The last k from the back; a stop of -1 would mean the last element.
    last = slice(length - 1, length - 1 - count if count < length else None, -1)
    chosen = slice(0, count) if not largest else last
    indices = order[(slice(None),) * along + (chosen,)]
    return take_along_axis(array, indices, along), indices
