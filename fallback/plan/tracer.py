"""The values of a plan, on which array code runs to show its NumPy calls.

A rule or a forward runs once on them, and each NumPy call becomes an instruction. Code that would
read a number (``if x.any():``, ``float(x)``, ``np.asarray(x)``), or that is not known here, raises,
and is then called as one function.
"""

# ruff: noqa: D102 - what a tracer has is what an ndarray has
from __future__ import annotations

from operator import getitem
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

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


def _of_value(name: str) -> Any:
    return property(lambda self: getattr(self.value, name))


def _method(name: str) -> Any:
    return lambda self, *args: self.builder.call(name, (self, *args))


def _reduction(ufunc: Any) -> Any:
    return lambda self, axis=None, **options: ufunc.reduce(self, axis=axis, **options)


def placed(g: Any, shape: tuple[int, ...], dtype: Any, key: Any) -> Any:
    out = np.zeros(shape, dtype)
    out[key] = g
    return out


class Var(NDArrayOperatorsMixin):
    """A value of the plan, with its recorded value; code uses it as an array.

    :ivar builder: The `tapegraph.fallback.plan.ir.Builder` that notes the calls.
    :ivar roots: The values that own its memory: itself, or a view's base.
    """

    __slots__ = ("builder", "hint", "roots", "value")

    def __init__(
        self, builder: Any, value: Any, hint: str = "t", roots: tuple[Var, ...] = ()
    ) -> None:
        self.builder = builder
        self.value = value
        self.hint = hint
        self.roots = roots or (self,)

    @property
    def owns(self) -> bool:
        return len(self.roots) == 1 and self.roots[0] is self

    # Its type

    shape = _of_value("shape")
    strides = _of_value("strides")
    dtype = _of_value("dtype")
    ndim = _of_value("ndim")
    size = _of_value("size")

    @property
    def real(self) -> Any:
        return self.builder.call(np.real, (self,))

    @property
    def imag(self) -> Any:
        return self.builder.call(np.imag, (self,))

    # Calls

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        (out,) = kwargs.pop("out", (None,))
        if ufunc.nout != 1 or "where" in kwargs or method not in ("__call__", "reduce"):
            raise Untraceable(ufunc.__name__)
        if method == "reduce":
            usual = {"keepdims": False, "dtype": None}
            kwargs = {k: v for k, v in kwargs.items() if k not in usual or v is not usual[k]}
            return self.builder.call(ufunc.reduce, inputs, kwargs, out, takes_out=True)
        each = ufunc.signature is None
        return self.builder.call(ufunc, inputs, kwargs, out, takes_out=True, elementwise=each)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _OF_TYPE:
            plain = [x.value if isinstance(x, Var) else x for x in args]
            return function(*plain, **kwargs)
        if function in _METHODS and isinstance(args[0], Var):
            return getattr(args[0], _METHODS[function])(*args[1:], **kwargs)
        if function not in _FUNCTIONS or "out" in kwargs:
            raise Untraceable(function.__name__)
        traits = {"takes_out": _FUNCTIONS[function], "elementwise": function is np.clip}
        return self.builder.call(function, args, kwargs, **traits)

    def __pow__(self, other: Any) -> Any:
        return self._power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._power(other, self)

    def __ipow__(self, other: Any) -> Any:
        raise Untraceable("**=")

    def _power(self, a: Any, b: Any) -> Any:
        """Return ``a ** b``, for which NumPy has shorter ways than ``np.power``."""
        if isinstance(a, Var) and a.ndim and a.dtype.kind == "f" and type(b) in (int, float):
            if b == 2:
                return np.square(a)
            if b not in (-1, 0, 0.5, 1):
                return np.power(a, b)
        return self.builder.call(pow, (a, b))

    sum, max, min = map(_reduction, (np.add, np.maximum, np.minimum))

    def mean(self, axis: object = None, keepdims: bool = False) -> Any:
        options = {"axis": axis, "keepdims": keepdims}
        return self.builder.call(np.mean, (self,), options, takes_out=True)

    reshape = _method("reshape")
    transpose = _method("transpose")
    swapaxes = _method("swapaxes")
    ravel = _method("ravel")

    def view(self, dtype: Any) -> Any:
        if dtype is np.ndarray:
            return self
        return self.builder.call("view", (self, np.dtype(dtype)))

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        return self.builder.call("astype", (self, np.dtype(dtype)), {"copy": copy})

    def take(self, indices: object, axis: object = None) -> Any:
        return self.builder.call("take", (self, indices), {"axis": axis}, may_raise=True)

    @property
    def T(self) -> Any:
        return self.transpose()

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        basic = all(p is None or p is ... or type(p) in (int, slice) for p in parts)
        return self.builder.call(getitem, (self, key), may_raise=not basic)

    def placed(self, shape: tuple[int, ...], dtype: Any, key: Any) -> Any:
        """Return zeros with the value at a basic index."""
        return self.builder.call(placed, (self, shape, dtype, key))

    # Conversions that would let a number out

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise Untraceable("an array of it")

    def __bool__(self) -> bool:
        raise Untraceable("a decision by it")

    __iter__ = None


class Constant(Var):
    """A value that is the same in every run."""

    __slots__ = ()


class Feed(Var):
    """An input of the plan."""

    __slots__ = ()
