"""`Batch`: many arrays as one, and how NumPy's functions compute with it.

A batch computes like each of its arrays; their axis comes first, and the running code does not see
it. A function without a rule here raises `Unbatched`: a VJP rule that calls it belongs in
`ROW_BY_ROW` (`jacobian.py`).
"""

# ruff: noqa: D102 - the methods are those of ndarray

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegraph.typed import Array, DType, Fun


class Unbatched(Exception):
    """A function has no rule for batches."""


class Batch(NDArrayOperatorsMixin):
    """Stands for each of the arrays that it holds along the first axis."""

    __slots__ = ("array",)

    def __init__(self, array: Any) -> None:
        self.array: Array = array

    # The type of each

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape[1:]

    @property
    def strides(self) -> tuple[int, ...]:
        return self.array.strides[1:]

    @property
    def dtype(self) -> DType:
        return self.array.dtype

    @property
    def ndim(self) -> int:
        return self.array.ndim - 1

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def aligned(self, ndim: int) -> Array:
        """Return the arrays with axes of length 1, so that they broadcast with one of ``ndim``."""
        return self.array[(slice(None), *(None,) * (ndim - self.ndim))]

    # Calls

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if method == "reduce":
            return _reduced(ufunc, *inputs, **kwargs)
        (out,) = kwargs.pop("out", (None,))
        if method != "__call__" or ufunc.nout != 1 or kwargs.keys() - {"axis", "dtype"}:
            raise Unbatched(f"{ufunc.__name__}.{method}")
        if ufunc.signature is None:
            arrays = broadcastable(*inputs)
            if out is None:
                return Batch(ufunc(*arrays, **kwargs))
            if not isinstance(out, Batch):
                raise Unbatched("writing a batch into one array")
            ufunc(*arrays, out=out.array, **kwargs)
            return out
        product = _PRODUCTS.get(ufunc)
        if product is None or out is not None:
            raise Unbatched(ufunc.__name__)
        return product(*inputs, **kwargs)

    def __array_function__(self, function: Any, types: object, args: Any, kwargs: Any) -> Any:
        if function not in _FUNCTIONS:
            raise Unbatched(function.__name__)
        return _FUNCTIONS[function](*args, **kwargs)

    def sum(self, axis: object = None, **options: object) -> Batch:
        return _reduced(np.add, self, axis=axis, **options)

    def reshape(self, *shape: object) -> Batch:
        lengths = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        return Batch(self.array.reshape(len(self.array), *lengths))

    def ravel(self) -> Batch:
        return self.reshape(-1)

    def transpose(self, *axes: Any) -> Batch:
        order = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple) else axes
        order = order or tuple(range(self.ndim))[::-1]
        return Batch(self.array.transpose(0, *(a % self.ndim + 1 for a in order)))

    def swapaxes(self, a: int, b: int) -> Batch:
        return Batch(self.array.swapaxes(_behind(a), _behind(b)))

    def cumsum(self, axis: int) -> Batch:
        return Batch(self.array.cumsum(axis=_behind(axis)))

    def astype(self, dtype: DType, copy: bool = True) -> Batch:
        return Batch(self.array.astype(dtype, copy=copy))

    def view(self, dtype: Any) -> Batch:
        return self if dtype is np.ndarray else Batch(self.array.view(dtype))

    def copy(self) -> Batch:
        return Batch(self.array.copy())

    @property
    def real(self) -> Batch:
        return Batch(self.array.real)

    @property
    def imag(self) -> Batch:
        return Batch(self.array.imag)

    @property
    def T(self) -> Batch:
        return self.transpose()

    def __getitem__(self, key: object) -> Batch:
        return Batch(self.array[_key(key)])

    def __setitem__(self, key: object, value: object) -> None:
        place = _key(key)
        if isinstance(value, Batch):
            value = value.aligned(self.array[place].ndim - 1)
        self.array[place] = value

    # What would take one array out

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        raise Unbatched("an array of it")

    def __bool__(self) -> bool:
        raise Unbatched("a decision by it")

    __iter__ = None


def broadcastable(*operands: Any) -> list[Any]:
    """Return the arrays of operands, some of them batches, so that they broadcast."""
    ndim = max(np.ndim(x) for x in operands)
    return [x.aligned(ndim) if isinstance(x, Batch) else x for x in operands]


def repeated(x: Any, count: int) -> Batch:
    """Return an array that all share as a batch."""
    return x if isinstance(x, Batch) else Batch(np.broadcast_to(x, (count, *np.shape(x))))


def _behind(axis: int) -> int:
    return axis if axis < 0 else axis + 1


def _axes(axis: Any) -> Any:
    return tuple(map(_behind, axis)) if isinstance(axis, tuple) else _behind(axis)


def _key(key: object) -> tuple[Any, ...]:
    """Return a key to the batch; advanced keys only if their axes stay in place."""
    parts = key if isinstance(key, tuple) else (key,)
    advanced = [p for p in parts if not (p is None or p is ... or type(p) in (int, slice))]
    if len(advanced) > 1 or (advanced and int in map(type, parts)) or bool in map(type, parts):
        raise Unbatched("an index by several arrays")
    return (slice(None), *parts)


def _reduced(ufunc: Any, x: Any, axis: Any = 0, out: object = None, **options: Any) -> Batch:
    if out is not None or options.keys() - {"keepdims", "dtype"}:
        raise Unbatched(f"{ufunc.__name__}.reduce")
    axes = tuple(range(1, x.array.ndim)) if axis is None else _axes(axis)
    return Batch(ufunc.reduce(x.array, axis=axes, **options))


def _matmul(a: Any, b: Any) -> Batch:
    rows, columns = np.ndim(a), np.ndim(b)
    if rows == columns == 1:
        return _vecdot(a, b)
    if columns == 1 and rows == 2 and not isinstance(a, Batch):
        return Batch(b.array @ a.T)
    if rows <= 2 and columns == 2 and not isinstance(b, Batch):  # one product of all rows
        stacked = a.array.reshape(-1, a.shape[-1]) @ b
        return Batch(stacked.reshape(*a.array.shape[:-1], b.shape[-1]))
    if rows == 1:
        return _matmul(a[None, :], b)[..., 0, :]
    if columns == 1:
        return _matmul(a, b[:, None])[..., 0]
    return Batch(np.matmul(*broadcastable(a, b)))


def _vecdot(a: Any, b: Any, axis: int = -1) -> Batch:
    if axis >= 0:
        axis -= np.ndim(a)
        if np.ndim(a) != np.ndim(b):
            raise Unbatched("vecdot")
    return Batch(np.vecdot(*broadcastable(a, b), axis=axis))  # type: ignore[call-overload]


def _broadcast_to(x: Batch, shape: tuple[int, ...]) -> Batch:
    return Batch(np.broadcast_to(x.aligned(len(shape)), (len(x.array), *shape)))


def _concatenate(arrays: Any, axis: int = 0) -> Batch:
    count = next(len(x.array) for x in arrays if isinstance(x, Batch))
    every = [repeated(x, count).array for x in arrays]
    return Batch(np.concatenate(every, axis=_behind(axis)))


def _zeros_like(x: Batch, dtype: Any = None, shape: Any = None) -> Batch:
    lengths = x.shape if shape is None else shape
    return Batch(np.zeros((len(x.array), *lengths), x.dtype if dtype is None else dtype))


_PRODUCTS: dict[Any, Callable[..., Batch]] = {np.matmul: _matmul, np.vecdot: _vecdot}
_FUNCTIONS: dict[Any, Fun] = {
    np.broadcast_to: _broadcast_to,
    np.concatenate: _concatenate,
    np.copy: Batch.copy,
    np.cumsum: Batch.cumsum,
    np.expand_dims: lambda x, axis: Batch(np.expand_dims(x.array, _axes(axis))),
    np.flip: lambda x, axis: Batch(np.flip(x.array, _axes(axis))),
    np.moveaxis: lambda x, a, b: Batch(np.moveaxis(x.array, _axes(a), _axes(b))),
    np.ndim: lambda x: x.ndim,
    np.ravel: Batch.ravel,
    np.reshape: Batch.reshape,
    np.shape: lambda x: x.shape,
    np.squeeze: lambda x, axis: Batch(np.squeeze(x.array, _axes(axis))),
    np.sum: Batch.sum,
    np.swapaxes: Batch.swapaxes,
    np.transpose: lambda x, axes=(): x.transpose(*axes),
    np.tril: lambda x, k=0: Batch(np.tril(x.array, k)),
    np.triu: lambda x, k=0: Batch(np.triu(x.array, k)),
    np.where: lambda *operands: Batch(np.where(*broadcastable(*operands))),
    np.zeros_like: _zeros_like,
}
