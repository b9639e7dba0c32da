"""Memory of the arrays that leaves own: its alignment, and who else holds it."""

from __future__ import annotations

import ctypes
import math
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph.typed import Array, DType

# The alignment in bytes that vector units and TensorFlow want of an array's first element.
ALIGNMENT = 64
# Below this many bytes a copy costs less than looking.
LARGE_BYTES = 1 << 14
# The largest block, in bytes, that the allocator can be made to keep when it is freed.
MAX_KEPT_BYTES = (32 << 20) - (1 << 13)


def read_only(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def own(array: npt.ArrayLike, dtype: npt.DTypeLike | None = None, *, align: bool = False) -> Array:
    """Return a C-ordered copy, aligned to 64 bytes where it is large or ``align`` asks for it."""
    source = np.asarray(array)
    # NumPy's own instance of the native dtype: np.add.at is 30 times slower with any other.
    kind = np.dtype((source.dtype if dtype is None else np.dtype(dtype)).type)
    if source.size * kind.itemsize < LARGE_BYTES and not align:
        return source.copy() if source.dtype is kind else source.astype(kind, "C")
    copy = aligned_empty(source.shape, kind)
    copy[...] = source
    return copy


def as_it_lies(view: Array) -> Array:
    """Return a copy that lies in memory as a view; axes that it repeats come first, not last."""
    if 0 not in view.strides:
        return view.copy("K")
    axes = sorted(range(view.ndim), key=lambda i: -abs(view.strides[i] or math.inf))
    return view.transpose(axes).copy().transpose(np.argsort(axes))


_address: Any = ctypes.addressof
_first_byte: Any = ctypes.c_char.from_buffer


def aligned_empty(shape: tuple[int, ...], dtype: DType) -> Array:
    size = math.prod(shape) * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -_address(_first_byte(raw)) % ALIGNMENT  # raw.ctypes.data takes five times as long
    return np.ndarray(shape, dtype, raw, start)


def is_shared(node: Any) -> bool:
    """Return whether anyone but the leaf holds its array or a view of its memory."""
    if sys.getrefcount(node._array) > _SOLE:
        return True
    # Views of a view hold the array that owns the memory, not the one they were taken from.
    return node._array.base is not None and sys.getrefcount(node._array.base) > _SOLE_BASE


_kept = False


def keep_freed_memory() -> None:
    """Let the allocator keep freed memory for the next sweep, once per process.

    glibc returns memory above a threshold, the largest freed block up to 32 MB; without one a sweep
    faults all pages in anew, a quarter of a transformer block's backward.
    """
    global _kept
    if not _kept:
        _kept = True
        np.empty(MAX_KEPT_BYTES, dtype=np.uint8)


# This interpreter's count for an array that only a leaf holds, by the same expression as above.
_leaf = SimpleNamespace(_array=np.zeros(2)[:1])
_SOLE = sys.getrefcount(_leaf._array)
_SOLE_BASE = sys.getrefcount(_leaf._array.base)
