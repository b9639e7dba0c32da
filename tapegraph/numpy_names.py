"""NumPy's names for libraries that look functions up by an array's class, as autoray does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tapegraph.ops.shape import stack
from tapegraph.recording.node import as_leaf, get_default_dtype
from tapegraph.recording.record import tensor_like
from tapegraph.tensors.array_methods import ArrayMethods
from tapegraph.tensors.dual import Dual
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.tensor import tensor as constant
from tapegraph.typed import Array

__all__ = ["argsort", "array", "complex", "eye", "to_numpy"]

argsort: Callable[..., npt.NDArray[np.intp]] = np.argsort


def array(object: Any, dtype: npt.DTypeLike | None = None) -> Any:
    """Return an array as a tensor, with gradients to the tensors inside.

    :param object: Numbers, arrays and tensors, also in lists and tuples.
    :param dtype: The result's dtype; by default that of the parts together.
    :raises TypeError: A part is not numeric.

    >>> x = tg.param(3.0)
    >>> tg.grad(lambda x: tg.sum(tg.array([x, 2.0 * x])))(x.item())
    3.0
    """
    if _holds_recorded(object):
        found = _joined(object)
        return found if dtype is None else found.astype(dtype)
    return constant(object) if dtype is None else constant(np.asarray(object, dtype))


def _holds_recorded(x: object) -> bool:
    return isinstance(x, ArrayMethods) or (
        isinstance(x, (list, tuple)) and any(map(_holds_recorded, x))
    )


def _joined(x: object) -> Any:
    return stack([_joined(part) for part in x]) if isinstance(x, (list, tuple)) else x


def eye(N: int, M: int | None = None, k: int = 0, dtype: npt.DTypeLike | None = None) -> Tensor:
    """Return a constant tensor with ones on a diagonal, as `numpy.eye`.

    >>> tg.eye(2).data
    array([[1., 0.],
           [0., 1.]])
    """
    kind = get_default_dtype() if dtype is None else dtype
    return cast("Tensor", as_leaf(np.eye(N, M, k, kind)))


def complex(real: object, imag: object) -> Any:
    """Return ``real + 1j * imag``.

    >>> tg.complex(tg.tensor([1.0]), [2.0]).data
    array([1.+2.j])
    """
    return tensor_like("complex", real, "real") + 1j * tensor_like("complex", imag, "imag")


def to_numpy(x: object) -> Array:
    """Return the numbers of a tensor, or of any array_like, as an array without history.

    >>> tg.to_numpy(tg.param([1.0, 2.0]))
    array([1., 2.])
    """
    return x.numpy() if isinstance(x, (Tensor, Dual)) else np.asarray(x)
