"""NumPy's functions, thinly wrapped: on plain arguments they are NumPy's own.

A call that holds a tensor goes to NumPy too, which hands it to what records. Only lists that hold
tensors are made tensors first, since NumPy does not look into them.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import numpy as np

from tapegraph.autograd.primitives import called, entry_of, primitive_jvps, primitive_vjps
from tapegraph.autograd.traced import TENSORS, getval, holds_tensor
from tapegraph.errors import message
from tapegraph.ops.shape import stack
from tapegraph.pytree import leaves, mapped
from tapegraph.recording.capture_mode import capturing
from tapegraph.recording.numpy_functions import COUNTERPARTS
from tapegraph.tensors.dual import Dual
from tapegraph.tensors.tensor import Tensor

# Of these, a list holds several arrays; of the others it is one.
OF_SEVERAL = {
    np.broadcast_arrays,
    np.choose,
    np.column_stack,
    np.concatenate,
    np.dstack,
    np.einsum,
    np.hstack,
    np.linalg.multi_dot,
    np.meshgrid,
    np.select,
    np.stack,
    np.vstack,
}
# Of these, lists in lists are arrays beside arrays.
OF_NESTED = {np.block}
# autograd's dicts give lists of their values, and so every function takes such a view.
_VIEWS: tuple[type, ...] = (type({}.values()), type(OrderedDict().values()))
# NumPy takes these by position alone, autograd by name too.
BY_NAME = {np.where: ("condition", "x", "y")}
_PLAIN = frozenset((Tensor, np.ndarray, float, int))
_UFUNC = ("accumulate", "at", "identity", "nargs", "nin", "nout", "outer", "reduce", "reduceat")


def joined(value: Any) -> Any:
    """Return a nested list of tensors and numbers as one tensor."""
    if isinstance(value, (list, tuple)):
        return stack([joined(part) for part in value])
    return value


def wrapped(
    function: Callable[..., Any],
    recording: Callable[..., Any] | None = None,
    without_gradient: bool = False,
) -> Callable[..., Any]:
    """Wrap one of NumPy's functions.

    :param function: NumPy's.
    :param recording: What serves it where an argument is a tensor or holds one; NumPy's dispatch
        otherwise.
    :param without_gradient: The function has derivative zero: tensors are given to it as plain
        arrays.
    """
    entry = entry_of(getattr(function, "__name__", "function"))
    several, nested = function in OF_SEVERAL, function in OF_NESTED
    names = BY_NAME.get(function, ())
    by_numpy = not (several or nested or without_gradient) and recording is None

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if by_numpy and not kwargs and function in COUNTERPARTS and capturing() is None:
            kinds = set(map(type, args))
            if Tensor in kinds and kinds <= _PLAIN:  # what NumPy's dispatch would come to
                if call not in primitive_vjps and call not in primitive_jvps:
                    return COUNTERPARTS[function](*args)
        if several:
            args = tuple(map(_listed, args))
        elif args and type(args[0]) in _VIEWS and any(map(holds_tensor, args[0])):
            args = (list(args[0]), *args[1:])
        if names and kwargs:
            args += tuple(kwargs.pop(name) for name in names[len(args) :] if name in kwargs)
        if not (any(map(holds_tensor, args)) or holds_tensor(kwargs)):
            return function(*args, **kwargs)
        if call in primitive_vjps or call in primitive_jvps:
            rules = primitive_jvps if _is_forward(args) else primitive_vjps
            if call in rules:
                return called(call, function, entry, args, kwargs)
        if without_gradient:
            plain = (mapped(getval, x) if holds_tensor(x) else x for x in args)
            return function(*plain, **{k: mapped(getval, v) for k, v in kwargs.items()})
        if recording is not None:
            return recording(*args, **kwargs)
        if nested:
            return function(*args, **kwargs)
        return function(
            *(_given(x, several) for x in args),
            **{k: _given(v, several) for k, v in kwargs.items()},
        )

    call.fun = function  # type: ignore[attr-defined]
    if isinstance(function, np.ufunc):
        for name in _UFUNC:
            setattr(call, name, getattr(function, name))
    return call


def wrap_namespace(
    module: ModuleType,
    recordings: dict[str, Callable[..., Any]],
    without_gradient: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Return the public names of one of NumPy's modules, its functions wrapped.

    :param module: NumPy's.
    :param recordings: By name, what serves a function where an argument is a tensor or holds one.
    :param without_gradient: Functions of derivative zero.
    """
    made: dict[int, Any] = {}
    names: dict[str, Any] = {}
    for name in _public(module):
        value = getattr(module, name)
        if isinstance(value, (type, ModuleType)) or not callable(value):
            names[name] = value
            continue
        if id(value) not in made:  # two names of one function stay one
            own = recordings.get(name) or recordings.get(getattr(value, "__name__", name))
            made[id(value)] = wrapped(value, own, name in without_gradient)
        names[name] = made[id(value)]
    return names


def _public(module: ModuleType) -> list[str]:
    return [name for name in module.__all__ if hasattr(module, name)]


def _is_forward(args: tuple[Any, ...]) -> bool:
    return any(type(x) is Dual for _, x in leaves(args))


def _listed(x: Any) -> Any:
    """Return an iterable of arrays as a list: NumPy wants a sequence, and looks at it twice."""
    if isinstance(x, (list, tuple, str, np.ndarray, *TENSORS)) or not isinstance(x, Iterable):
        return x
    return list(x)


def _given(x: Any, several: bool) -> Any:
    """Return an argument as NumPy's dispatch sees the tensors in it."""
    if not isinstance(x, (list, tuple)) or not holds_tensor(x):
        return x
    return type(x)(map(joined, x)) if several else joined(x)


def unsupported(name: str, why: str) -> Callable[..., Any]:
    """Return what refuses tensors, by the name of a function."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise TypeError(message(name, "a tensor", "plain arrays", why))

    return refuse
