"""Strong zeros: a zero cotangent absorbs what it meets, and 0 * inf and 0 / 0 are 0.

Used for the second sweep only: the rules stay as they are, and the cotangent brings this
arithmetic along.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.typed import Array


class StrongZero(np.ndarray[Any, Any]):
    """An array whose zeros stay zero under multiplication, division and matrix products."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        arrays = [plain(x) for x in inputs]
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = tuple(plain(x) for x in out)
        if ufunc is np.vecdot:
            result = np.sum(plain(inputs[0] * inputs[1]), axis=kwargs.get("axis", -1))
        elif method == "__call__" and ufunc is np.matmul:
            result = _matmul(arrays[0], arrays[1], [isinstance(x, StrongZero) for x in inputs])
        else:
            scales = method == "__call__" and ufunc in (np.multiply, np.divide)
            # Before anything is written: an operand may be where the result goes.
            zero = _zeros(ufunc, inputs) if scales else None
            result = getattr(ufunc, method)(*arrays, **kwargs)
            if zero is not None and np.any(zero):
                result = np.where(zero, np.zeros((), dtype=result.dtype), result)
                if out is not None:
                    kwargs["out"][0][...] = result
        return result if result is None else strong_zeros(result)


def strong_zeros(array: Any) -> Any:
    """View an array with strong zeros."""
    return np.asarray(array).view(StrongZero)


def plain(array: Any) -> Any:
    """View an array as an ordinary one again."""
    return array.view(np.ndarray) if isinstance(array, StrongZero) else array


def _zeros(ufunc: Any, inputs: tuple[Any, ...]) -> Any:
    """Return where a cotangent among the factors (or the dividend) is zero."""
    zero = None
    for position, x in enumerate(inputs):
        if isinstance(x, StrongZero) and not (ufunc is np.divide and position == 1):
            here = plain(x) == 0
            zero = here if zero is None else zero | here
    return zero


def _matmul(a: Array, b: Array, is_cotangent: list[bool]) -> Array:
    """Multiply matrices so that a zero of a cotangent adds nothing, whatever it is paired with.

    Finite factors are multiplied as ever; what the others add is told by counting, for each
    element, the products that are inf, -inf and NaN.
    """
    result: Array = np.matmul(a, b)
    if np.isfinite(result).all():
        return result
    if a.ndim == 1 or b.ndim == 1:
        left = a if a.ndim > 1 else a[None, :]
        right = b if b.ndim > 1 else b[:, None]
        return _matmul(left, right, is_cotangent).reshape(result.shape)
    g, h = (a, b) if is_cotangent[0] else (b, a)

    def count(of_g: Any, of_h: Any) -> Array:
        first, second = (of_g, of_h) if is_cotangent[0] else (of_h, of_g)
        total: Array = np.matmul(first.astype(result.dtype), second.astype(result.dtype))
        return total

    up, down = np.isposinf(g), np.isneginf(g)
    nan = count(g != 0, np.isnan(h)) + count(np.isnan(g), np.ones_like(h))
    nan += count(up | down, h == 0)
    plus = count(g > 0, np.isposinf(h)) + count(g < 0, np.isneginf(h))
    plus += count(up, h > 0) + count(down, h < 0)
    minus = count(g > 0, np.isneginf(h)) + count(g < 0, np.isposinf(h))
    minus += count(up, h < 0) + count(down, h > 0)
    finite: Array = np.matmul(
        np.where(np.isfinite(a), a, np.zeros_like(a)), np.where(np.isfinite(b), b, np.zeros_like(b))
    )
    finite[plus > 0] = np.inf
    finite[minus > 0] = -np.inf
    finite[(nan > 0) | ((plus > 0) & (minus > 0))] = np.nan
    return finite
