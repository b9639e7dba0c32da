"""Arithmetic in which a zero cotangent absorbs what it meets: 0 * inf and 0 / 0 are 0.

Used for the second sweep only: the rules stay as they are, and the cotangent brings this
arithmetic along.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.ir import Array


class Absorbing(np.ndarray[Any, Any]):
    """An array whose zeros stay zero under multiplication, division and matrix products."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [plain(x) for x in inputs]
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = tuple(plain(x) for x in out)
        if method == "__call__" and ufunc is np.matmul:
            result = _matmul(arrays[0], arrays[1], [isinstance(x, Absorbing) for x in inputs])
        else:
            result = getattr(ufunc, method)(*arrays, **kwargs)
            if method == "__call__" and ufunc in (np.multiply, np.divide):
                zero = _zeros(ufunc, inputs)
                if zero is not None and np.any(zero):
                    result = np.where(zero, np.zeros((), dtype=result.dtype), result)
                    if out is not None:
                        kwargs["out"][0][...] = result
        return result if result is None else absorbing(result)


def absorbing(array: Any) -> Any:
    """View an array with absorbing zeros."""
    return np.asarray(array).view(Absorbing)


def plain(array: Any) -> Any:
    """View an array as an ordinary one again."""
    return array.view(np.ndarray) if isinstance(array, Absorbing) else array


def _zeros(ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    """Return where a cotangent among the factors (or the dividend) is zero."""
    zero = None
    for position, x in enumerate(inputs):
        if isinstance(x, Absorbing) and not (ufunc is np.divide and position == 1):
            here = plain(x) == 0
            zero = here if zero is None else zero | here
    return zero


def _matmul(a: Array, b: Array, is_cotangent: list[bool]) -> Array:
    """Multiply matrices so that a zero of a cotangent adds nothing, whatever it is paired with."""
    result: Array = np.matmul(a, b)
    if np.isfinite(result).all():
        return result
    # Non-finite factors are replaced by zero, then added back only where the cotangent is not.
    left = a if a.ndim > 1 else a[None, :]
    right = b if b.ndim > 1 else b[:, None]
    products = left[..., :, :, None] * right[..., None, :, :]
    if is_cotangent[0]:
        products = np.where(left[..., :, :, None] == 0, 0.0, products)
    if is_cotangent[1]:
        products = np.where(right[..., None, :, :] == 0, 0.0, products)
    total: Array = products.sum(axis=-2).astype(result.dtype)
    return total.reshape(result.shape)
