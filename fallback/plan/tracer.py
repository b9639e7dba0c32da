"""Symbols: what array code is run on to see which calls of NumPy it makes.

A rule or a forward is run once on symbols. Each call of NumPy becomes a line of the plan; whatever
would let a number out (``if x.any():``, ``float(x)``, ``np.asarray(x)``), and whatever is not known
here, raises, and the code is then called as the function that it is.
"""

# ruff: noqa: D102 - what a symbol has is what an ndarray has
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegraph.fallback.plan.ir import ITEM, METHOD, Call, Calls, Held, concrete, mapped
from tapegraph.interrupts import raise_interrupt

# Functions that are called as they are; those that can write into a given array.
_FUNCTIONS: dict[Any, bool] = {
    np.where: False,
    np.broadcast_to: False,
    np.expand_dims: False,
    np.transpose: False,
    np.swapaxes: False,
    np.moveaxis: False,
    np.squeeze: False,
    np.reshape: False,
    np.ravel: False,
    np.copy: False,
    np.flip: False,
    np.clip: True,
    np.concatenate: True,
    np.dot: False,
}
# Of an array's type alone.
_OF_TYPE = (np.zeros_like, np.ones_like, np.shape, np.ndim, np.size, np.result_type)
_METHODS = {np.sum: "sum", np.max: "max", np.min: "min", np.mean: "mean"}


class Untraceable(Exception):
    """A function does more with an array than a plan can write down."""


class Symbol(NDArrayOperatorsMixin):
    """Stands for an array in code that is run to be written down.

    Parameters
    ----------
    calls : Calls
        Where the calls go.
    held : Held
        The value.
    fixed : bool
        It may not be written to: it is someone else's, or part of its memory is seen elsewhere.
    """

    def __init__(self, calls: Calls, held: Held, fixed: bool) -> None:
        self._calls = calls
        self.held = held
        self._fixed = fixed

    # Its type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.held.value.shape  # type: ignore[no-any-return]

    @property
    def strides(self) -> tuple[int, ...]:
        return self.held.value.strides  # type: ignore[no-any-return]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.held.value.dtype  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return self.held.value.size  # type: ignore[no-any-return]

    # Calls

    def _made(
        self,
        function: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        out: Any = None,
        **how: Any,
    ) -> Any:
        """Write a call down, and return its result as a symbol."""
        symbols: list[Symbol] = []

        def given(x: Any) -> Any:
            if isinstance(x, Symbol):
                symbols.append(x)
                return x.held
            return self._calls.constant(x) if isinstance(x, (np.ndarray, np.generic)) else x

        args, kwargs = mapped(given, args), mapped(given, kwargs or {})
        call = Call(function, name, args, kwargs, **how)
        if out is not None and out.held.value.ndim:
            if not isinstance(out, Symbol) or out._fixed:
                raise Untraceable("writing into an array of someone else's")
            out.held = self._calls.make(call, like=out.held)
            return out
        held = self._calls.make(call)
        view = held.roots[0] is not held
        for symbol in symbols:
            symbol._fixed = symbol._fixed or view
        return Symbol(self._calls, held, fixed=view)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        (out,) = kwargs.pop("out", (None,))
        name = ufunc.__name__
        if ufunc.nout != 1 or "where" in kwargs or method not in ("__call__", "reduce"):
            raise Untraceable(name)
        if method == "reduce":
            usual = {"keepdims": False, "dtype": None}
            kwargs = {k: v for k, v in kwargs.items() if k not in usual or v is not usual[k]}
            return self._made(ufunc.reduce, f"{name}.reduce", inputs, kwargs, out, into=True)
        each = ufunc.signature is None
        return self._made(ufunc, name, inputs, kwargs, out, into=True, elementwise=each)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _OF_TYPE:
            plain = [x.held.value if isinstance(x, Symbol) else x for x in args]
            return function(*plain, **kwargs)
        if function in _METHODS and isinstance(args[0], Symbol):
            return getattr(args[0], _METHODS[function])(*args[1:], **kwargs)
        if function not in _FUNCTIONS or "out" in kwargs:
            raise Untraceable(function.__name__)
        how = {"into": _FUNCTIONS[function], "elementwise": function is np.clip}
        return self._made(function, function.__name__, args, kwargs, **how)

    def __pow__(self, other: Any) -> Any:
        return self._power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._power(other, self)

    def __ipow__(self, other: Any) -> Any:
        raise Untraceable("**=")

    def _power(self, a: Any, b: Any) -> Any:
        """Return ``a ** b``, for which NumPy has shorter ways than ``np.power``."""
        if isinstance(a, Symbol) and a.ndim and a.dtype.kind == "f" and type(b) in (int, float):
            if b == 2:
                return np.square(a)
            if b not in (-1, 0, 0.5, 1):
                return np.power(a, b)
        return self._made(pow, "pow", (a, b))

    def sum(self, axis: Any = None, **options: Any) -> Any:
        return np.add.reduce(self, axis=axis, **options)

    def max(self, axis: Any = None, **options: Any) -> Any:
        return np.maximum.reduce(self, axis=axis, **options)

    def min(self, axis: Any = None, **options: Any) -> Any:
        return np.minimum.reduce(self, axis=axis, **options)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        return self._made(np.mean, "mean", (self,), {"axis": axis, "keepdims": keepdims}, into=True)

    def reshape(self, *shape: Any) -> Any:
        return self._method("reshape", *shape)

    def transpose(self, *axes: Any) -> Any:
        return self._method("transpose", *axes)

    def swapaxes(self, a: int, b: int) -> Any:
        return self._method("swapaxes", a, b)

    def ravel(self, order: str = "C") -> Any:
        return self._method("ravel", order)

    def view(self, dtype: Any) -> Any:
        if dtype is np.ndarray:
            return self
        return self._method("view", np.dtype(dtype))

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        return self._method("astype", np.dtype(dtype), copy=copy)

    def take(self, indices: Any, axis: Any = None) -> Any:
        return self._made(None, "take", (self, indices), {"axis": axis}, form=METHOD, kept=True)

    @property
    def T(self) -> Any:
        return self._method("transpose")

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        basic = all(p is None or p is ... or type(p) in (int, slice) for p in parts)
        return self._made(None, "item", (self, key), form=ITEM, kept=not basic)

    def _method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return self._made(None, name, (self, *args), kwargs, form=METHOD)

    # What would let a number out

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise Untraceable("an array of it")

    def __bool__(self) -> bool:
        raise Untraceable("a decision by it")

    __iter__ = None


def written(
    calls: Calls, function: Callable[..., Any], args: Any, kwargs: Any, want: Any = None
) -> Any:
    """Run array code on symbols; return what it gives, as values of the plan.

    Parameters
    ----------
    calls : Calls
        Where what it calls is noted.
    args, kwargs
        With `Held` values for arrays.
    want : optional
        What the code gives on their numbers, where that is known.

    Raises
    ------
    Untraceable
        The code does more with an array than can be written down, and nothing is noted.
    """

    def symbol(x: Any) -> Any:
        return Symbol(calls, x, fixed=True) if isinstance(x, Held) else x

    def held(x: Any) -> Any:
        if isinstance(x, Symbol):
            return x.held
        if isinstance(x, (np.ndarray, np.generic)):
            return calls.constant(x)
        if x is None:
            return None
        raise Untraceable(type(x).__name__)

    mark = len(calls.lines)
    try:
        found = mapped(held, function(*mapped(symbol, args), **mapped(symbol, kwargs)))
        if want is None:
            want = function(*concrete(args), **concrete(kwargs))
        if not _same(concrete(found), want):
            raise Untraceable("other numbers")
    except Exception as error:
        raise_interrupt(error)
        calls.forget(mark)
        raise Untraceable(str(error)) from error
    return found


def _same(a: Any, b: Any) -> bool:
    """Tell whether two results are equal to the bit, of one layout."""
    if isinstance(a, (tuple, list)):
        return isinstance(b, (tuple, list)) and len(a) == len(b) and all(map(_same, a, b))
    if a is None or b is None:
        return a is b
    if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(a.strides == b.strides and a.tobytes() == b.tobytes())
