"""Strong zeros: a zero cotangent absorbs what it meets, and 0 * inf and 0 / 0 are 0.

Used for the second sweep only: the rules stay as they are, and the cotangent brings this
arithmetic along.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.arrays.strong_zeros import strong_product
from tapegraph.typed import Array


class StrongZero(np.ndarray[Any, Any]):
    """An array whose zeros stay zero under multiplication, division and matrix products."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [to_ndarray(x) for x in inputs]
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = tuple(to_ndarray(x) for x in out)
        if ufunc is np.vecdot:
            result = np.sum(to_ndarray(inputs[0] * inputs[1]), axis=kwargs.get("axis", -1))
        elif method == "__call__" and ufunc is np.matmul:
            result = _matmul(arrays[0], arrays[1], [isinstance(x, StrongZero) for x in inputs])
        else:
            scales = method == "__call__" and ufunc in (np.multiply, np.divide)
            # Before anything is written: an operand may be where the result goes.
            zero = _zeros(ufunc, inputs) if scales else None
            result = getattr(ufunc, method)(*arrays, **kwargs)
            if zero is not None and np.any(zero):
                result = np.where(zero, np.zeros((), dtype=result.dtype), result)
            if scales and result.dtype.kind == "c" and not np.isfinite(result).all():
                if ufunc is np.multiply:
                    strong = [isinstance(x, StrongZero) for x in inputs]
                    result = _by_parts(arrays, lambda a, b: _times(a, b, strong))
            if out is not None and zero is not None:
                kwargs["out"][0][...] = result
        return result if result is None else strong_zeros(result)


def strong_zeros(array: Any) -> Any:
    """View an array with strong zeros."""
    return np.asarray(array).view(StrongZero)


def to_ndarray(array: Any) -> Any:
    """View an array as an ordinary one again."""
    return array.view(np.ndarray) if isinstance(array, StrongZero) else array


def _zeros(ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    """Return where a cotangent among the factors (or the dividend) is zero."""
    zero = None
    for position, x in enumerate(inputs):
        if isinstance(x, StrongZero) and not (ufunc is np.divide and position == 1):
            here = to_ndarray(x) == 0
            zero = here if zero is None else zero | here
    return zero


def _by_parts(arrays: list[Any], product: Any) -> Any:
    """Return the product of complex arrays from those of their parts."""
    (a, b), (c, d) = (
        (x.real, x.imag if np.iscomplexobj(x) else None) for x in map(np.asarray, arrays)
    )
    real = product(a, c)
    if b is not None and d is not None:
        real = real - product(b, d)
    out = np.zeros(real.shape, np.result_type(real.dtype, np.complex64))
    out.real = real
    for left, right in ((a, d), (b, c)):
        if left is not None and right is not None:
            out.imag += product(left, right)
    return out


def _times(a: Array, b: Array, strong: list[bool]) -> Any:
    """Multiply parts so that a zero of a cotangent's absorbs."""
    zero = (strong[0] & (a == 0)) | (strong[1] & (b == 0))
    return np.where(zero, 0.0, a * b)


def _matmul(a: Array, b: Array, is_cotangent: list[bool]) -> Array:
    """Multiply matrices so that a zero of a cotangent adds nothing."""
    result: Array = np.matmul(a, b)
    if np.isfinite(result).all():
        return result
    if result.dtype.kind == "c":
        return _by_parts([a, b], lambda a, b: _matmul(a, b, is_cotangent))  # type: ignore[no-any-return]
    if a.ndim == 1 or b.ndim == 1:
        left = a if a.ndim > 1 else a[None, :]
        right = b if b.ndim > 1 else b[:, None]
        return _matmul(left, right, is_cotangent).reshape(result.shape)

    def product(x: Array, y: Array) -> Array:
        found: Array = np.matmul(x, y, dtype=result.dtype, casting="unsafe")
        return found

    found: Array = strong_product(a, b, cotangent_first=is_cotangent[0], product=product)
    return found
