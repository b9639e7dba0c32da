"""Tracers: what array code is run on to see which calls of NumPy it makes.

A rule or a forward is run once on tracers. Each call of NumPy becomes an instruction of the plan;
whatever would let a number out (``if x.any():``, ``float(x)``, ``np.asarray(x)``), and whatever is
not known here, raises, and the code is then called as the function that it is.
"""

# ruff: noqa: D102 - what a tracer has is what an ndarray has
from __future__ import annotations

from collections.abc import Callable
from operator import getitem
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegraph.fallback.plan.ir import Builder, Instr, Var, concrete, map_tree
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


def _of_value(name: str) -> Any:
    """Make a property that the recorded value has."""
    return property(lambda self: getattr(self.var.value, name))


def _method(name: str) -> Any:
    """Make a method whose call becomes an instruction."""
    return lambda self, *args: self._emit(name, (self, *args))


class PlanTracer(NDArrayOperatorsMixin):
    """Stands for an array in code that is run to be written down.

    A ``fixed`` one may not be written to: it is someone else's, or part of its memory is seen
    elsewhere.
    """

    def __init__(self, builder: Builder, var: Var, fixed: bool) -> None:
        self._builder = builder
        self.var = var
        self._fixed = fixed

    # Its type

    shape = _of_value("shape")
    strides = _of_value("strides")
    dtype = _of_value("dtype")
    ndim = _of_value("ndim")
    size = _of_value("size")

    @property
    def real(self) -> Any:
        return self._emit(np.real, (self,))

    @property
    def imag(self) -> Any:
        return self._emit(np.imag, (self,))

    # Calls

    def _emit(
        self,
        function: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
        out: Any = None,
        **traits: Any,
    ) -> Any:
        tracers: list[PlanTracer] = []

        def given(x: Any) -> Any:
            if isinstance(x, PlanTracer):
                tracers.append(x)
                return x.var
            return self._builder.constant(x) if isinstance(x, (np.ndarray, np.generic)) else x

        instr = Instr(function, map_tree(given, args), map_tree(given, kwargs or {}), **traits)
        if out is not None and out.var.value.ndim:
            if not isinstance(out, PlanTracer) or out._fixed:
                raise Untraceable("writing into an array of someone else's")
            out.var = self._builder.emit(instr, like=out.var)
            return out
        var = self._builder.emit(instr)
        view = var.roots[0] is not var
        for tracer in tracers:
            tracer._fixed = tracer._fixed or view
        return PlanTracer(self._builder, var, fixed=view)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        (out,) = kwargs.pop("out", (None,))
        if ufunc.nout != 1 or "where" in kwargs or method not in ("__call__", "reduce"):
            raise Untraceable(ufunc.__name__)
        if method == "reduce":
            usual = {"keepdims": False, "dtype": None}
            kwargs = {k: v for k, v in kwargs.items() if k not in usual or v is not usual[k]}
            return self._emit(ufunc.reduce, inputs, kwargs, out, takes_out=True)
        each = ufunc.signature is None
        return self._emit(ufunc, inputs, kwargs, out, takes_out=True, elementwise=each)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in _OF_TYPE:
            plain = [x.var.value if isinstance(x, PlanTracer) else x for x in args]
            return function(*plain, **kwargs)
        if function in _METHODS and isinstance(args[0], PlanTracer):
            return getattr(args[0], _METHODS[function])(*args[1:], **kwargs)
        if function not in _FUNCTIONS or "out" in kwargs:
            raise Untraceable(function.__name__)
        traits = {"takes_out": _FUNCTIONS[function], "elementwise": function is np.clip}
        return self._emit(function, args, kwargs, **traits)

    def __pow__(self, other: Any) -> Any:
        return self._power(self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._power(other, self)

    def __ipow__(self, other: Any) -> Any:
        raise Untraceable("**=")

    def _power(self, a: Any, b: Any) -> Any:
        """Return ``a ** b``, for which NumPy has shorter ways than ``np.power``."""
        if isinstance(a, PlanTracer) and a.ndim and a.dtype.kind == "f" and type(b) in (int, float):
            if b == 2:
                return np.square(a)
            if b not in (-1, 0, 0.5, 1):
                return np.power(a, b)
        return self._emit(pow, (a, b))

    def sum(self, axis: Any = None, **options: Any) -> Any:
        return np.add.reduce(self, axis=axis, **options)

    def max(self, axis: Any = None, **options: Any) -> Any:
        return np.maximum.reduce(self, axis=axis, **options)

    def min(self, axis: Any = None, **options: Any) -> Any:
        return np.minimum.reduce(self, axis=axis, **options)

    def mean(self, axis: Any = None, keepdims: bool = False) -> Any:
        return self._emit(np.mean, (self,), {"axis": axis, "keepdims": keepdims}, takes_out=True)

    reshape = _method("reshape")
    transpose = _method("transpose")
    swapaxes = _method("swapaxes")
    ravel = _method("ravel")

    def view(self, dtype: Any) -> Any:
        if dtype is np.ndarray:
            return self
        return self._emit("view", (self, np.dtype(dtype)))

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        return self._emit("astype", (self, np.dtype(dtype)), {"copy": copy})

    def take(self, indices: Any, axis: Any = None) -> Any:
        return self._emit("take", (self, indices), {"axis": axis}, may_raise=True)

    @property
    def T(self) -> Any:
        return self.transpose()

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        basic = all(p is None or p is ... or type(p) in (int, slice) for p in parts)
        return self._emit(getitem, (self, key), may_raise=not basic)

    # What would let a number out

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise Untraceable("an array of it")

    def __bool__(self) -> bool:
        raise Untraceable("a decision by it")

    __iter__ = None


def run_on_tracers(
    builder: Builder, function: Callable[..., Any], args: Any, kwargs: Any, want: Any = None
) -> Any:
    """Run array code on tracers; return what it gives, as values of the plan.

    Raise `Untraceable`, with nothing noted, where the code does more with an array than can be
    written down.
    """

    def tracer(x: Any) -> Any:
        return PlanTracer(builder, x, fixed=True) if isinstance(x, Var) else x

    def var(x: Any) -> Any:
        if isinstance(x, PlanTracer):
            return x.var
        if isinstance(x, (np.ndarray, np.generic)):
            return builder.constant(x)
        if x is None:
            return None
        raise Untraceable(type(x).__name__)

    mark = len(builder.instrs)
    try:
        found = map_tree(var, function(*map_tree(tracer, args), **map_tree(tracer, kwargs)))
        if want is None:
            want = function(*concrete(args), **concrete(kwargs))
        if not _same(concrete(found), want):
            raise Untraceable("other numbers")
    except Exception as error:
        builder.forget(mark)
        if isinstance(error, Untraceable):
            raise
        raise_interrupt(error)
        raise Untraceable(str(error)) from error
    return found


def _same(a: Any, b: Any) -> bool:
    """Return whether two results are equal to the bit, of one layout."""
    if isinstance(a, (tuple, list)):
        return isinstance(b, (tuple, list)) and len(a) == len(b) and all(map(_same, a, b))
    if a is None or b is None:
        return a is b
    if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(a.strides == b.strides and a.tobytes() == b.tobytes())
