"""The names of `tapegraph.autograd.numpy`: NumPy's, thinly wrapped, and a few of autograd's.

Lists that hold tensors become tensors; what NumPy does not dispatch is recorded here.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import numpy as np

from tapegraph.autograd.boxes import TENSORS, getval, holds_tensor
from tapegraph.autograd.tracer import (
    called,
    entry_of,
    notrace_primitive,
    primitive_jvps,
    primitive_vjps,
    rules_for,
)
from tapegraph.errors import message
from tapegraph.ops import shape as _shape
from tapegraph.ops.index import scatter
from tapegraph.pytree import mapped
from tapegraph.recording.numpy_functions import COUNTERPARTS, OF_ONE
from tapegraph.recording.record import tensor_like
from tapegraph.recording.scopes import recorder
from tapegraph.tensors.tensor import Tensor
from tapegraph.typed import DuckArray, Fun

# Of these, a list holds several arrays; of the others it is one.
OF_SEVERAL = frozenset(
    "broadcast_arrays choose column_stack concatenate dstack einsum hstack meshgrid multi_dot "
    "select stack vstack".split()
)
# Step functions and questions, which have no derivative: tensors are given to them as plain arrays.
WITHOUT_GRADIENT = frozenset(
    "digitize fix floor_divide iscomplex isneginf isposinf isreal lexsort matrix_rank "
    "tril_indices_from triu_indices_from".split()
)
# autograd's dicts give lists of their values, and so every function takes such a view.
_VIEWS: tuple[type, ...] = (type({}.values()), type(OrderedDict().values()))
# NumPy takes these by position alone, autograd by name too.
BY_NAME = {np.where: ("condition", "x", "y")}
_PLAIN = frozenset((Tensor, np.ndarray, float, int))
_READ_TWICE = (list, tuple, str, np.ndarray, *TENSORS)
_UFUNC = ("accumulate", "at", "identity", "nargs", "nin", "nout", "outer", "reduce", "reduceat")


def joined(value: DuckArray) -> DuckArray:
    """Stack a nested list of tensors and numbers into one tensor."""
    if isinstance(value, (list, tuple)):
        return _shape.stack([joined(part) for part in value])
    return value


@functools.cache  # two names of one function stay one, which may be given rules
def wrapped(function: Fun) -> Fun:
    title = getattr(function, "__name__", "function")
    entry = entry_of(title)
    constant = notrace_primitive(function) if title in WITHOUT_GRADIENT else None
    recording = RECORDINGS.get(function, constant)
    several = title in OF_SEVERAL
    names = BY_NAME.get(function, ())
    by_numpy = not several and recording is None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if by_numpy and not kwargs and function in COUNTERPARTS and recorder().capture is None:
            kinds = set(map(type, args))
            if Tensor in kinds and kinds <= _PLAIN:  # as NumPy's dispatch would do
                if call not in primitive_vjps and call not in primitive_jvps:
                    if len(args) == 1 and function in OF_ONE:
                        return OF_ONE[function](*args)
                    return COUNTERPARTS[function](*args)
        if several:
            # NumPy wants a sequence, and reads it twice.
            args = tuple(
                list(x) if isinstance(x, Iterable) and not isinstance(x, _READ_TWICE) else x
                for x in args
            )
        elif args and type(args[0]) in _VIEWS and any(map(holds_tensor, args[0])):
            args = (list(args[0]), *args[1:])
        if names and kwargs:
            args += tuple(kwargs.pop(name) for name in names[len(args) :] if name in kwargs)
        if not (any(map(holds_tensor, args)) or holds_tensor(kwargs)):
            return function(*args, **kwargs)
        if (call in primitive_vjps or call in primitive_jvps) and call in rules_for(args):
            return called(call, function, entry, args, kwargs)
        if recording is not None:
            return recording(*args, **kwargs)
        return function(
            *(_given(x, several) for x in args),
            **{k: _given(v, several) for k, v in kwargs.items()},
        )

    call.fun = function  # type: ignore[attr-defined]
    if isinstance(function, np.ufunc):
        for name in _UFUNC:
            setattr(call, name, getattr(function, name))
    return call


def wrapped_names(module: ModuleType) -> dict[str, Any]:
    """Return the public names of one of NumPy's modules, its functions wrapped."""
    names = {name: getattr(module, name) for name in module.__all__ if hasattr(module, name)}
    functions = {n: f for n, f in names.items() if callable(f) and not isinstance(f, type)}
    return names | {name: wrapped(function) for name, function in functions.items()}


def _given(x: DuckArray, several: bool) -> DuckArray:
    """Return an argument as NumPy's dispatch sees the tensors in it."""
    if not isinstance(x, (list, tuple)) or not holds_tensor(x):
        return x
    return type(x)(map(joined, x)) if several else joined(x)


# Functions that NumPy does not dispatch


def _array(object: DuckArray, dtype: Any = None, **options: Any) -> DuckArray:
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


def _full(shape: Any, fill_value: DuckArray, dtype: Any = None, **options: Any) -> DuckArray:
    return np.broadcast_to(_array(fill_value, dtype), shape)


def _full_like(
    a: DuckArray, fill_value: DuckArray, dtype: Any = None, *, shape: Any = None, **_: Any
) -> DuckArray:
    shape = np.shape(a) if shape is None else shape
    if holds_tensor(fill_value):
        return _full(shape, fill_value, dtype)
    return np.full(shape, fill_value, np.result_type(a) if dtype is None else dtype)


def _real_if_close(a: DuckArray, tol: float = 100) -> DuckArray:
    a = joined(a)
    if np.iscomplexobj(a) and not np.iscomplexobj(np.real_if_close(getval(a), tol)):
        return np.real(a)
    return a


def _bincount(x: DuckArray, weights: DuckArray = None, minlength: int = 0) -> DuckArray:
    places = mapped(getval, x)
    counts = np.bincount(places, minlength=minlength)
    return counts if weights is None else _weighed(places, weights, counts.size)


def _histogram(
    a: DuckArray,
    bins: DuckArray = 10,
    range: DuckArray = None,
    density: bool | None = None,
    weights: DuckArray = None,
) -> tuple[DuckArray, DuckArray]:
    """Record ``np.histogram``: linear in the weights; the edges move with the ends."""
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


def _weighed(places: DuckArray, weights: DuckArray, size: int) -> DuckArray:
    weights = joined(weights)
    if np.shape(weights) != np.shape(places):
        received = f"weights of shape {np.shape(weights)}"
        raise ValueError(message("numpy.bincount", received, f"shape {np.shape(places)}"))
    if holds_tensor(weights):
        return scatter(weights, places, (size,))
    return np.bincount(places, weights, size)


def _edges(a: DuckArray, bins: DuckArray, range: DuckArray, edges: DuckArray) -> DuckArray:
    if holds_tensor(bins):
        return joined(bins)
    ends = ((a.min(), a.max()) if np.size(a) else (0.0, 1.0)) if range is None else tuple(range)
    if np.ndim(bins) or not holds_tensor(ends):
        return edges
    first, last = ends
    half = 0.5 if getval(first) == getval(last) else 0.0  # NumPy's, for a single number
    return np.linspace(first - half, last + half, len(edges))


class ByIndex:
    """`r_` or `c_` of tensors: NumPy joins positions, which then select elements."""

    def __init__(self, joining: Any) -> None:
        self._joining = joining

    def __getitem__(self, key: Any) -> DuckArray:
        if not holds_tensor(key):
            return self._joining[key]
        parts = []
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


def make_diagonal(D: DuckArray, offset: int = 0, axis1: int = 0, axis2: int = 1) -> DuckArray:
    """Return arrays (..., n, n) with diagonals (..., n): the transpose of ``np.diagonal``.

    :raises NotImplementedError: ``offset``, ``axis1`` and ``axis2`` are not 0, -1 and -2.
    """
    if (offset, axis1, axis2) != (0, -1, -2):
        received = f"offset={offset}, axis1={axis1}, axis2={axis2}"
        raise NotImplementedError(message("make_diagonal", received, "0, -1 and -2"))
    D = joined(D) if holds_tensor(D) else np.asarray(D)
    return np.expand_dims(D, -1) * np.eye(D.shape[-1])


def concatenate_args(axis: int, *args: Any) -> DuckArray:
    """Join arrays along an axis: ``np.concatenate`` with the arrays as arguments."""
    return np.concatenate([joined(x) for x in args] if holds_tensor(args) else args, axis)


def array_from_args(array_args: Any, array_kwargs: Any, *args: Any) -> DuckArray:
    """Make an array of its elements: ``np.array`` with the elements as arguments."""
    if holds_tensor(args):
        return _array(list(args), *array_args, **array_kwargs)
    return np.array(args, *array_args, **array_kwargs)


def metadata(A: DuckArray) -> tuple[Any, ...]:
    """Return an array's shape, number of axes, dtype, and whether it is complex."""
    A = A if isinstance(A, TENSORS) else np.asarray(A)
    return A.shape, A.ndim, A.dtype, np.iscomplexobj(A)


# Functions that serve NumPy's for arguments that are or hold tensors.
_JOINING = (np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.asfortranarray)
RECORDINGS: dict[Any, Fun] = {
    **dict.fromkeys(_JOINING, _array),
    np.bincount: _bincount,
    np.block: np.block,  # whose lists in lists are arrays beside arrays
    np.full: _full,
    np.full_like: _full_like,
    np.histogram: _histogram,
    np.isscalar: lambda element: bool(np.isscalar(getval(element))),
    np.real_if_close: _real_if_close,
}


# Integers


class _Integer(type):
    """The type of a class that equals its base in `isinstance`, `issubclass` and ``==``."""

    of_numpy: type[Any]

    def __call__(cls, value: DuckArray = 0, *args: object) -> DuckArray:
        return cls.of_numpy(getval(value), *args)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.of_numpy)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.of_numpy)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.of_numpy

    def __hash__(cls) -> int:
        return hash(cls.of_numpy)


# The names

_NAMES = wrapped_names(np)
for _submodule in ("fft", "linalg", "random"):
    _NAMES.pop(_submodule, None)
_NAMES |= {
    name: _Integer(kind.__name__, (kind,), {"__module__": "numpy", "of_numpy": kind})
    for name, kind in _NAMES.items()
    if isinstance(kind, type) and issubclass(kind, np.integer)
    if not issubclass(kind, np.timedelta64)
}
_NAMES |= {
    "array_from_args": array_from_args,
    "c_": ByIndex(np.c_),
    "concatenate_args": concatenate_args,
    "make_diagonal": make_diagonal,
    "metadata": metadata,
    "r_": ByIndex(np.r_),
    "row_stack": _NAMES["vstack"],
}
_astype = wrapped(lambda x, dtype, *, copy=True: x.astype(dtype, copy=copy))  # np.astype, of 2.1
__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _NAMES[name]
