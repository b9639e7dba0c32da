"""Strong zeros of masks, by bits: exact, and many times as fast as `np.where`'s branches."""

from __future__ import annotations

import numpy as np

from tapegraph.typed import Array, DType, DuckArray

_BITS = {"f": np.int32, "d": np.int64}
# Below this many elements np.where is as quick.
LEAST_BITWISE = 1 << 14


def select_bits(x: Array, mask: Array) -> Array:
    """Return numbers where a boolean mask is true, and 0 elsewhere."""
    if x.dtype.char not in _BITS:
        return np.where(mask, x, x.dtype.type(0))
    bits: Array = np.multiply(x.view(_BITS[x.dtype.char]), mask)
    return bits.view(x.dtype)


def chosen(mask: Array, a: DuckArray, b: DuckArray) -> DuckArray:
    dtype = np.result_type(a, b)
    if dtype.char not in _BITS or max(mask.size, np.size(a), np.size(b)) < LEAST_BITWISE:
        return np.where(mask, a, b)
    first = np.multiply(_bits(a, dtype), mask)
    second = np.multiply(_bits(b, dtype), ~mask)
    out = first if first.shape == np.broadcast_shapes(first.shape, second.shape) else None
    return np.bitwise_or(first, second, out=out).view(dtype)


def _bits(x: DuckArray, dtype: DType) -> DuckArray:
    if not hasattr(x, "dtype") or x.dtype != dtype:
        x = np.asarray(x, dtype)
    return x.view(_BITS[dtype.char])
