"""The dtype of tensors that are made of Python numbers, where the call names none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tapegraph.errors import message
from tapegraph.typed import Array, DType

_default: DType = np.dtype(np.float64)


def set_default_dtype(dtype: npt.DTypeLike) -> None:
    """Choose the dtype of tensors made of Python numbers, as `torch.set_default_dtype`.

    It holds in all threads, for what names no dtype: `param` of Python numbers, lists, integers
    and bools; `tensor` of floats and lists of them, which become complex64 or complex128 where
    they are complex; `eye` and `one_hot`; the draws and initial weights of ``tg.random``; and
    floats that a loop carries. Arrays and NumPy's scalars keep their dtype, and what NumPy's
    functions compute has NumPy's. A compiled step is traced anew.

    :param dtype: Float32, or float64, which it is at first.
    :raises TypeError: It is another.

    >>> before = tg.get_default_dtype()
    >>> tg.set_default_dtype("float32")
    >>> tg.param([1.0, 2.0]).dtype, tg.random.normal(size=3).dtype
    (dtype('float32'), dtype('float32'))
    >>> tg.set_default_dtype(before)
    """
    global _default
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = None
    if dtype is None or wanted not in (np.float32, np.float64):
        raise TypeError(message("set_default_dtype", f"dtype {dtype!r}", "float32 or float64"))
    _default = wanted.newbyteorder("=")


def get_default_dtype() -> DType:
    """Return the dtype of tensors made of Python numbers.

    :returns: What `set_default_dtype` chose: float32 or float64.

    >>> tg.get_default_dtype()
    dtype('float64')
    """
    return _default


def in_default(array: Array, data: object) -> Array:
    """Return the array of some data in the default dtype, if it is made of Python's floats."""
    if _default.char == "d" or array.dtype.char not in "dD" or not _is_pythons(data):
        return array
    return array.astype(_default if array.dtype.char == "d" else np.complex64)


def _is_pythons(data: object) -> bool:
    if isinstance(data, (list, tuple)):
        return all(map(_is_pythons, data))
    return isinstance(data, (int, float, complex)) and not isinstance(data, np.generic)
