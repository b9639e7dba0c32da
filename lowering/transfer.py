"""Arrays between NumPy and TensorFlow, without a copy only where that is safe."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.arrays.buffers import ALIGNMENT, LARGE, own
from tapegraph.lowering.runtime import tensorflow
from tapegraph.typed import Array

_SHARED = frozenset("fdlq")


def shareable(array: Array) -> bool:
    """Tell whether TensorFlow may read an array's own memory.

    Its kernels abort the process on memory that is aligned to less.
    """
    flags = array.flags
    return bool(
        array.size
        and array.ndim
        and flags.c_contiguous
        and flags.writeable
        and array.dtype.char in _SHARED
        and array.dtype.isnative
        and array.ctypes.data % ALIGNMENT == 0
    )


def to_tensorflow(array: Array) -> Any:
    """Return an eager tensor of an array's value.

    The memory is shared where `shareable`; the array must then stay unchanged while TensorFlow
    runs. Everything else is copied, what is large by NumPy: its memory is kept when it is freed,
    where TensorFlow's would be new pages in every run.
    """
    tf = tensorflow()
    if array.nbytes >= LARGE and array.dtype.char in _SHARED and not shareable(array):
        array = own(array)
    if shareable(array):
        return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
    return copied(array)


def copied(array: Array) -> Any:
    """Return an eager tensor of a copy of an array.

    The constructor of eager tensors, which ``tf.constant`` calls, reads a property of the context
    and drops what it raises, so that a signal's handler could raise in vain; an operation does not.
    """
    own_bytes = np.array(array, array.dtype.newbyteorder("="), order="C")
    return tensorflow().raw_ops.Identity(input=own_bytes)


def to_numpy(tensor: Any) -> Array:
    """Return a read-only view of an eager tensor's memory."""
    return np.asarray(tensor)
