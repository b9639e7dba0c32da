"""Functions that NumPy does not dispatch, or tapegraph does not record, on traced values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.autograd.numpy.wrapping import joined
from tapegraph.autograd.traced import TENSORS, getval, holds_tensor
from tapegraph.errors import message
from tapegraph.ops.index import scatter
from tapegraph.pytree import mapped
from tapegraph.recording.record import tensor_like


def array(object: Any, dtype: Any = None, **options: Any) -> Any:
    """Record ``np.array``: tensors in nested lists are stacked."""
    ndmin = options.pop("ndmin", 0)
    for name in ("copy", "order", "subok"):
        options.pop(name, None)
    if options:
        given = ", ".join(f"{k}=" for k in options)
        raise TypeError(message("numpy.array", f"{given} with a tensor", "dtype= and ndmin="))
    x = tensor_like("numpy.array", joined(object), "object")
    if dtype is not None and np.dtype(dtype).kind != "O":  # autograd computes on with objects
        x = x.astype(dtype)
    missing = ndmin - x.ndim
    return np.reshape(x, (1,) * missing + x.shape) if missing > 0 else x


def full(shape: Any, fill_value: Any, dtype: Any = None, **options: Any) -> Any:
    """Record ``np.full`` of a traced number."""
    return np.broadcast_to(array(fill_value, dtype), shape)


def full_like(a: Any, fill_value: Any, dtype: Any = None, *, shape: Any = None, **_: Any) -> Any:
    """Record ``np.full_like`` of a traced number; the array gives its shape and dtype alone."""
    shape = np.shape(a) if shape is None else shape
    if holds_tensor(fill_value):
        return full(shape, fill_value, dtype)
    return np.full(shape, fill_value, np.result_type(a) if dtype is None else dtype)


def real_if_close(a: Any, tol: float = 100) -> Any:
    """Record ``np.real_if_close``: the real part, where the imaginary one is next to nothing."""
    a = joined(a)
    if np.iscomplexobj(a) and not np.iscomplexobj(np.real_if_close(getval(a), tol)):
        return np.real(a)
    return a


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Record ``np.bincount``: linear in the weights; the places are whole numbers."""
    places = mapped(getval, x)
    counts = np.bincount(places, minlength=minlength)
    return counts if weights is None else _weighed(places, weights, counts.size)


def histogram(
    a: Any, bins: Any = 10, range: Any = None, density: bool | None = None, weights: Any = None
) -> tuple[Any, Any]:
    """Record ``np.histogram``: linear in the weights, and with edges that move with the ends."""
    a = joined(a)
    plain, places = np.ravel(getval(a)), mapped(getval, bins)
    counts, edges = np.histogram(plain, places, mapped(getval, range))
    if weights is not None:
        if np.shape(weights) != np.shape(a):
            received = f"weights of shape {np.shape(weights)}"
            raise ValueError(message("numpy.histogram", received, f"the shape of a, {np.shape(a)}"))
        inside = (plain >= edges[0]) & (plain <= edges[-1])
        bin_of = np.searchsorted(edges, plain[inside], side="right") - 1
        bin_of = np.minimum(bin_of, counts.size - 1)  # the last bin is closed
        counts = _weighed(bin_of, np.ravel(joined(weights))[inside], counts.size)
    edges = _edges(a, bins, range, edges)
    return (counts / np.diff(edges) / np.sum(counts) if density else counts), edges


def _weighed(places: Any, weights: Any, size: int) -> Any:
    weights = joined(weights)
    if np.shape(weights) != np.shape(places):
        received = f"weights of shape {np.shape(weights)}"
        raise ValueError(message("numpy.bincount", received, f"shape {np.shape(places)}"))
    return (
        scatter(weights, places, (size,))
        if holds_tensor(weights)
        else np.bincount(places, weights, size)
    )


def _edges(a: Any, bins: Any, range: Any, edges: Any) -> Any:
    """Return the edges of a histogram, traced where what they are made of is."""
    if holds_tensor(bins):
        return joined(bins)
    ends = ((a.min(), a.max()) if np.size(a) else (0.0, 1.0)) if range is None else tuple(range)
    if np.ndim(bins) or not holds_tensor(ends):
        return edges
    first, last = ends
    half = 0.5 if getval(first) == getval(last) else 0.0  # NumPy's, for a single number
    return np.linspace(first - half, last + half, len(edges))


def astype(x: Any, dtype: Any, *, copy: bool = True) -> Any:
    """Return an array in another dtype, as ``np.astype`` does from NumPy 2.1 on."""
    return x.astype(dtype, copy=copy)


def isscalar(element: Any) -> bool:
    """Return what ``np.isscalar`` gives of the plain value."""
    return bool(np.isscalar(getval(element)))


class ByIndex:
    """`r_` or `c_` that also takes tensors.

    NumPy joins the positions of the elements; the elements are taken at what it gives.
    """

    def __init__(self, joining: Any) -> None:
        self._joining = joining

    def __getitem__(self, key: Any) -> Any:
        """Join what stands in the brackets."""
        if not holds_tensor(key):
            return self._joining[key]
        parts: list[Any] = []
        start = 0
        places: list[Any] = []
        for item in key if isinstance(key, tuple) else (key,):
            if isinstance(item, str):
                places.append(item)
                continue
            x = (
                np.r_[mapped(getval, item)]
                if isinstance(item, slice)
                else tensor_like("numpy.r_", joined(item), "an item")
            )
            parts.append(np.ravel(x))
            places.append(np.arange(start, start + x.size).reshape(x.shape))
            start += x.size
        return np.concatenate(parts)[self._joining[tuple(places)]]

    def __len__(self) -> int:
        return 0


def make_diagonal(D: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return arrays with given diagonals: the transpose of ``np.diagonal``.

    :param D: The diagonals, along the last axis, of shape (..., n).
    :param offset, axis1, axis2: 0, -1 and -2: the diagonal goes to two new last axes.
    :param Returns: Of shape (..., n, n).
    :raises NotImplementedError: For another place.
    """
    if (offset, axis1, axis2) != (0, -1, -2):
        received = f"offset={offset}, axis1={axis1}, axis2={axis2}"
        raise NotImplementedError(message("make_diagonal", received, "0, -1 and -2"))
    D = joined(D) if holds_tensor(D) else np.asarray(D)
    return np.expand_dims(D, -1) * np.eye(D.shape[-1])


def concatenate_args(axis: int, *args: Any) -> Any:
    """Join arrays along an axis: ``np.concatenate`` with the arrays as arguments."""
    return np.concatenate([joined(x) for x in args] if holds_tensor(args) else args, axis)


def array_from_args(array_args: Any, array_kwargs: Any, *args: Any) -> Any:
    """Make an array of its elements: ``np.array`` with the elements as arguments."""
    if holds_tensor(args):
        return array(list(args), *array_args, **array_kwargs)
    return np.array(args, *array_args, **array_kwargs)


def metadata(A: Any) -> tuple[Any, ...]:
    """Return the shape, number of axes and dtype of an array, and whether it is complex."""
    A = A if isinstance(A, TENSORS) else np.asarray(A)
    return A.shape, A.ndim, A.dtype, np.iscomplexobj(A)


# What serves NumPy's functions where an argument is a tensor or holds one.
RECORDINGS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (
        array,
        bincount,
        full,
        full_like,
        histogram,
        isscalar,
        real_if_close,
    )
}
RECORDINGS |= dict.fromkeys(("asarray", "asanyarray", "ascontiguousarray", "asfortranarray"), array)
# Step functions and questions, which have no derivative and give plain arrays.
WITHOUT_GRADIENT = frozenset(
    "digitize fix floor_divide iscomplex isneginf isposinf isreal lexsort "
    "tril_indices_from triu_indices_from".split()
)
