"""Operators and methods that ndarray has, for everything that computes as an array does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph import conversions, protocol
from tapegraph.errors import explain
from tapegraph.ops import (
    arrange,
    comparison,
    creation,
    elementwise,
    index,
    linalg,
    products,
    reduce,
    select,
    shape,
    statistics,
)


class ArrayMethods:
    """The face that `Tensor` and `Dual` share: each recorded operation by its operator or method.

    Comparisons are by value and give plain arrays; hashing is by identity. Methods take what
    ndarray's take and do what the function of the same name does.
    """

    __slots__ = ()
    __hash__ = object.__hash__
    __pandas_priority__ = 10_000  # above its own: series * x is then left to x

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        return protocol.ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        return protocol.function(function, args, options)

    # Operators

    __add__ = elementwise.add
    __sub__ = elementwise.sub
    __mul__ = elementwise.mul
    __truediv__ = elementwise.div
    __pow__ = elementwise.pow
    __mod__ = comparison.mod
    __matmul__ = linalg.matmul
    __neg__ = elementwise.neg
    __abs__ = elementwise.abs
    __round__ = creation.round

    def __pos__(self) -> Any:
        return self

    def __radd__(self, other: Any) -> Any:
        return elementwise.add(other, self)

    def __rsub__(self, other: Any) -> Any:
        return elementwise.sub(other, self)

    def __rmul__(self, other: Any) -> Any:
        return elementwise.mul(other, self)

    def __rtruediv__(self, other: Any) -> Any:
        return elementwise.div(other, self)

    def __rpow__(self, other: Any) -> Any:
        return elementwise.pow(other, self)

    def __rmod__(self, other: Any) -> Any:
        return comparison.mod(other, self)

    def __rmatmul__(self, other: Any) -> Any:
        return linalg.matmul(other, self)

    def __getitem__(self, key: Any) -> Any:
        return index.getitem(self, key)

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:  # type: ignore[attr-defined]
            raise TypeError(explain("iter", f"a 0-d {type(self).__name__}", "at least one axis"))
        return (self[i] for i in range(len(self)))  # type: ignore[arg-type]

    def _compared(self, other: Any, name: str) -> npt.NDArray[np.bool_]:
        return getattr(protocol.plain(self), name)(protocol.plain(other))  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> Any:
        return self._compared(other, "__eq__")

    def __ne__(self, other: object) -> Any:
        return self._compared(other, "__ne__")

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, "__lt__")

    def __le__(self, other: Any) -> Any:
        return self._compared(other, "__le__")

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, "__gt__")

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, "__ge__")

    # Refused: nothing changes in place

    fill = conversions.fill
    partition = conversions.partition
    put = conversions.put
    resize = conversions.resize
    sort = conversions.sort

    # Shape

    @property
    def T(self) -> Any:
        """The array with its axes reversed."""
        return shape.transpose(self)

    @property
    def mT(self) -> Any:
        """The array with its last two axes exchanged."""
        return arrange.matrix_transpose(self)

    @property
    def real(self) -> Any:
        """The array itself: it is real."""
        return creation.real(self)

    @property
    def imag(self) -> Any:
        """Zeros of the array's shape."""
        return creation.imag(self)

    def transpose(self, *axes: Any) -> Any:
        """Permute the axes, given as a sequence or one by one; see `tapegraph.transpose`."""
        if not axes or axes == (None,):
            return shape.transpose(self)
        return shape.transpose(self, axes[0] if len(axes) == 1 else axes)

    def reshape(self, *lengths: Any) -> Any:
        """Give another shape, as a tuple or one length an argument; see `tapegraph.reshape`."""
        return shape.reshape(self, lengths[0] if len(lengths) == 1 else lengths)

    def flatten(self) -> Any:
        """Return the elements in one axis; see `tapegraph.ravel`."""
        return arrange.ravel(self)

    ravel = arrange.ravel
    squeeze = arrange.squeeze
    swapaxes = arrange.swapaxes
    repeat = arrange.repeat
    astype = creation.astype
    copy = creation.copy

    # Elements

    take = select.take
    choose = select.choose

    def compress(self, condition: Any, axis: Any = None) -> Any:
        """Take the elements where the condition holds; see `tapegraph.compress`."""
        return select.compress(condition, self, axis)

    diagonal = products.diagonal
    trace = products.trace
    dot = products.dot

    # Reductions

    def sum(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Sum over axes; see `tapegraph.sum`."""
        return reduce.sum(self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        """Mean over axes; see `tapegraph.mean`."""
        return reduce.mean(self, axis, keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Largest element over axes; see `tapegraph.max`."""
        return statistics.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Smallest element over axes; see `tapegraph.min`."""
        return statistics.min(self, axis=axis, keepdims=keepdims)

    def prod(self, axis: Any = None, *, keepdims: bool = False) -> Any:
        """Product over axes; see `tapegraph.prod`."""
        return statistics.prod(self, axis=axis, keepdims=keepdims)

    def var(self, axis: Any = None, *, ddof: Any = 0, keepdims: bool = False) -> Any:
        """Variance over axes; see `tapegraph.var`."""
        return statistics.var(self, axis=axis, ddof=ddof, keepdims=keepdims)

    def std(self, axis: Any = None, *, ddof: Any = 0, keepdims: bool = False) -> Any:
        """Spread over axes, the root of the variance; see `tapegraph.std`."""
        return statistics.std(self, axis=axis, ddof=ddof, keepdims=keepdims)

    cumsum = statistics.cumsum
    cumprod = statistics.cumprod

    # Element by element

    def softmax(self, axis: int = -1) -> Any:
        """Softmax along an axis; see `tapegraph.softmax`."""
        return reduce.softmax(self, axis)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """Limit every element to a range; see `tapegraph.clip`."""
        return comparison.clip(self, min, max)

    round = creation.round
    sin = elementwise.sin
    cos = elementwise.cos
    tan = elementwise.tan
    exp = elementwise.exp
    log = elementwise.log
    sqrt = elementwise.sqrt
    tanh = elementwise.tanh
    sigmoid = elementwise.sigmoid
    relu = elementwise.relu
    gelu = elementwise.gelu
    silu = elementwise.silu
    abs = elementwise.abs

    # Plain arrays: what carries no gradient

    def argmax(self, axis: Any = None) -> Any:
        """Return where the largest elements are, as a plain array."""
        return protocol.plain(self).argmax(axis)

    def argmin(self, axis: Any = None) -> Any:
        """Return where the smallest elements are, as a plain array."""
        return protocol.plain(self).argmin(axis)

    def argsort(self, axis: Any = -1) -> Any:
        """Return the order that would sort the array, as a plain array."""
        return protocol.plain(self).argsort(axis)

    def nonzero(self) -> Any:
        """Return where the elements are not zero, as plain arrays."""
        return protocol.plain(self).nonzero()

    def searchsorted(self, v: Any, side: Any = "left", sorter: Any = None) -> Any:
        """Return where elements would be inserted, as a plain array."""
        return protocol.plain(self).searchsorted(protocol.plain(v), side, sorter)

    def all(self, axis: Any = None) -> Any:
        """Tell whether all elements are non-zero, as a plain bool or array."""
        return protocol.plain(self).all(axis)

    def any(self, axis: Any = None) -> Any:
        """Tell whether any element is non-zero, as a plain bool or array."""
        return protocol.plain(self).any(axis)

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers."""
        return protocol.plain(self).tolist()
