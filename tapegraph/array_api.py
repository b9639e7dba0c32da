"""The array API standard's namespace, which a tensor's ``__array_namespace__`` returns.

NumPy's namespace follows the standard, and its functions record tensors where there is a
derivative. Plain arrays that come out of them, such as masks, orders and new arrays, become
constant tensors here, as the standard asks; names beyond the standard are there too.

>>> x = tg.param([3.0, 1.0, 2.0])
>>> xp = x.__array_namespace__()
>>> xp.sort(x, descending=True), xp.argmax(x)
(Tensor([3., 2., 1.], op='getitem'), Tensor(0, dtype=int64))
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tapegraph import numpy_names
from tapegraph.errors import message
from tapegraph.recording.node import as_leaf, numeric
from tapegraph.tensors.array_methods import ArrayMethods
from tapegraph.typed import Array, DuckArray, Fun

__array_api_version__: str = np.__array_api_version__

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


def _as_tensors(result: object) -> Any:
    """Return plain arrays, also in tuples and lists, as constants, and anything else unchanged."""
    if isinstance(result, (np.ndarray, np.generic)):
        return as_leaf(numeric(np.asarray(result), "array_api", "result"))
    if isinstance(result, (tuple, list)):
        parts = map(_as_tensors, result)
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _of_tensors(function: Fun) -> Fun:
    @functools.wraps(function)
    def call(*args: object, **options: object) -> Any:
        return _as_tensors(function(*args, **options))

    return call


def _namespace(module: ModuleType) -> dict[str, Any]:
    """Return NumPy's names: functions that give tensors; dtypes and numbers as they are."""
    found = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {
        name: _of_tensors(value) if callable(value) and not isinstance(value, type) else value
        for name, value in found.items()
    }


globals().update(_namespace(np))
if hasattr(np, "__array_namespace_info__"):  # new in NumPy 2.1
    __array_namespace_info__ = np.__array_namespace_info__
linalg = SimpleNamespace(**_namespace(np.linalg))
fft = SimpleNamespace(**_namespace(np.fft))

# Where NumPy's function has other parameters


def asarray(
    obj: DuckArray,
    /,
    *,
    dtype: npt.DTypeLike | None = None,
    device: str | None = None,
    copy: bool | None = None,
) -> Any:
    """Return an array as a tensor; a tensor itself, with its gradient.

    :param obj: A tensor, an array, a number, or a nested list of those.
    :param copy: True for a tensor of its own; False for an error where a copy has to be made, as of
        all that is no tensor.
    :raises ValueError: The device is none of ours, or a copy has to be made.
    """
    is_tensor = isinstance(obj, ArrayMethods)
    x = numpy_names.array(obj)
    if dtype is not None and x.dtype != dtype or copy and is_tensor:
        is_tensor, x = False, x.astype(x.dtype if dtype is None else dtype)
    if copy is False and not is_tensor:
        received = f"copy=False with {type(obj).__name__}"
        raise ValueError(message("asarray", received, "a tensor of that dtype", "Leave copy= out."))
    return x.to_device("cpu" if device is None else device)


def clip(x: DuckArray, /, min: DuckArray = None, max: DuckArray = None) -> Any:
    """Limit every element to a range; see `tapegraph.clip`."""
    return _as_tensors(np.clip(x, min, max))


def sort(x: DuckArray, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """Sort along an axis; see `tapegraph.sort`."""
    found = np.sort(x, axis=axis)
    return _as_tensors(np.flip(found, axis) if descending else found)


def argsort(
    x: DuckArray, /, *, axis: int = -1, descending: bool = False, stable: bool = True
) -> Any:
    """Return the order that sorts the array along an axis."""
    if not descending:
        return _as_tensors(np.argsort(x, axis=axis, kind="stable"))
    order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return _as_tensors(np.shape(x)[axis] - 1 - np.flip(order, axis))


def _frequencies(function: Callable[..., Array]) -> Fun:
    @functools.wraps(function)
    def frequencies(
        n: int, /, *, d: float = 1.0, dtype: npt.DTypeLike | None = None, device: str | None = None
    ) -> Any:
        return asarray(function(n, d), dtype=dtype, device=device)

    del frequencies.__wrapped__  # whose signature is another
    return frequencies


fft.fftfreq, fft.rfftfreq = map(_frequencies, (np.fft.fftfreq, np.fft.rfftfreq))
