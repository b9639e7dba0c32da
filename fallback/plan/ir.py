"""The instructions of a plan, none of which runs twice, and the values that they compute.

A rule or a forward runs once on such values, and each NumPy call becomes an instruction. Code that
would read a number (``if x.any():``, ``float(x)``, ``np.asarray(x)``), or that is not known here,
raises, and is then called as one function.
"""

# ruff: noqa: D102 - what a `Var` has is what an ndarray has

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import getitem
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from tapegraph.interrupts import raise_interrupt
from tapegraph.pytree import leaves, mapped
from tapegraph.recording.program import identity
from tapegraph.typed import Array, Fun

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


def _part(function: Any) -> Any:
    return property(lambda self: self.builder.call(function, (self,)))


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

    :ivar roots: The values that own its memory: itself, or a view's base.
    """

    __slots__ = ("builder", "hint", "roots", "value")

    def __init__(
        self, builder: Builder, value: Any, hint: str = "t", roots: tuple[Var, ...] = ()
    ) -> None:
        self.builder, self.value, self.hint, self.roots = builder, value, hint, roots or (self,)

    @property
    def owns(self) -> bool:
        return len(self.roots) == 1 and self.roots[0] is self

    # Its type

    shape, strides, dtype, ndim, size = map(_of_value, "shape strides dtype ndim size".split())

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

    reshape, transpose, swapaxes, ravel = map(_method, "reshape transpose swapaxes ravel".split())
    real, imag = map(_part, (np.real, np.imag))
    T = property(lambda self: self.transpose())

    def view(self, dtype: Any) -> Any:
        if dtype is np.ndarray:
            return self
        return self.builder.call("view", (self, np.dtype(dtype)))

    def astype(self, dtype: Any, copy: bool = True) -> Any:
        return self.builder.call("astype", (self, np.dtype(dtype)), {"copy": copy})

    def take(self, indices: object, axis: object = None) -> Any:
        return self.builder.call("take", (self, indices), {"axis": axis}, may_raise=True)

    def __getitem__(self, key: Any) -> Any:
        parts = key if isinstance(key, tuple) else (key,)
        basic = all(p is None or p is ... or type(p) in (int, slice) for p in parts)
        return self.builder.call(getitem, (self, key), may_raise=not basic)

    def placed(self, shape: tuple[int, ...], dtype: Any, key: Any) -> Any:
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


@dataclass(slots=True, eq=False)
class Instr:
    """One line of a plan.

    :ivar function: The function to call; a string names a method of the first argument.
    :ivar args, kwargs: `Var` values, which it ``reads``, plain ones, and trees of them.
    :ivar name: Its name in the plan, if not the function's own.
    :ivar takes_out, needs_out: It can, or must, write its result into an array passed as ``out``;
        if it is ``elementwise``, that array may be one of its operands.
    :ivar may_raise: It runs even if nobody reads its result.
    :ivar opaque: A user's function, which may keep its arguments.
    :ivar results: One value, or two for an operation that saves a value.
    :ivar unpacks: Its result is a tuple, perhaps of one.
    :ivar op, place: The user's operation that contains it, and the user's line.
    :ivar key: Equal for instructions with equal results.
    """

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    takes_out: bool = False
    elementwise: bool = False
    may_raise: bool = False
    opaque: bool = False
    needs_out: bool = field(init=False, default=False)
    results: list[Var] = field(init=False, default_factory=list)
    unpacks: bool = field(init=False, default=False)
    reads: list[Var] = field(init=False)
    op: str = field(init=False, default="")
    place: str = field(init=False, default="")
    key: Any = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.may_raise = self.may_raise or self.opaque
        self.reads = vars_in((self.args, self.kwargs))

    def run(self, *args: object, **kwargs: object) -> Any:
        if isinstance(self.function, str):
            return getattr(args[0], self.function)(*args[1:], **kwargs)
        return self.function(*args, **kwargs)

    def may_overwrite(self, var: Var) -> bool:
        return self.elementwise and _lies_alike(var, self.results[0])


class NanCheck(Instr):
    """The second look at gradients that hold a NaN, each under a new name."""

    def __init__(
        self, recompute: Fun, leaves: list[Var], grads: list[Var], hints: list[str]
    ) -> None:
        super().__init__(recompute, tuple(leaves), may_raise=True)
        self.grads = grads
        self.results = [
            Var(g.builder, g.value, hint, g.roots) for g, hint in zip(grads, hints, strict=True)
        ]
        self.reads = [*grads, *self.reads]  # and the values to compute them from again


class Builder:
    """The instructions of a plan, in order, each run once on the recorded values."""

    def __init__(self) -> None:
        self.instrs: list[Instr] = []
        self.op = self.place = ""
        self._seen: dict[Any, list[Var]] = {}
        self._constants: dict[int, Constant] = {}
        # Of the code that is being traced: what it may not write to, for it is someone else's or
        # seen elsewhere; and what it has written over.
        self._fixed: set[int] = set()
        self._gone: set[int] = set()

    def constant(self, value: object) -> Constant:
        return self._constants.setdefault(id(value), Constant(self, value, "c"))

    def computed(
        self,
        function: Fun,
        args: tuple[object, ...],
        kwargs: dict[str, Any],
        name: str,
        opaque: bool,
        hints: str | tuple[str, ...] = "t",
        given: object = None,
    ) -> Any:
        """Return a function's result: as the calls that it makes, or as one call.

        It is one call if the function does more with an array than can be written down, if the
        calls give other bits, or if it is ``opaque``: a user's own, or a loop. ``given`` is its
        result, if known.
        """
        if not opaque:
            mark = len(self.instrs)
            self._fixed = {id(var) for var in vars_in((args, kwargs))}
            self._gone = set()
            try:
                found = mapped(self._result, function(*args, **kwargs))
                if _same(concrete(found), function(*concrete(args), **concrete(kwargs))):
                    return found
            except Untraceable:
                pass
            except Exception as error:
                raise_interrupt(error)
            for instr in self.instrs[mark:]:
                del self._seen[instr.key]
            del self.instrs[mark:]
        call = Instr(function, args, kwargs, name, may_raise=True, opaque=opaque)
        found = self.emit_all(call, hints, None, given)
        return found[0] if isinstance(hints, str) else found

    def _result(self, x: object) -> Any:
        if isinstance(x, (np.ndarray, np.generic)):
            return self.constant(x)
        if x is None or (isinstance(x, Var) and id(x) not in self._gone):
            return x
        raise Untraceable(type(x).__name__)

    def call(
        self,
        function: Any,
        args: tuple[object, ...],
        kwargs: dict[str, Any] | None = None,
        out: Any = None,
        **traits: Any,
    ) -> Var:
        """Note a call that traced code makes; an array written into ``out`` is a new value."""

        def given(x: object) -> Any:
            return self.constant(x) if isinstance(x, (np.ndarray, np.generic)) else x

        instr = Instr(function, mapped(given, args), mapped(given, kwargs or {}), **traits)
        if not self._gone.isdisjoint(map(id, instr.reads)):
            raise Untraceable("has been overwritten")
        if out is not None and out.value.ndim:
            if id(out) in self._fixed:
                raise Untraceable("writing into an array that the code did not make")
            self._gone.add(id(out))
            return self.emit(instr, like=out)
        var = self.emit(instr)
        if var.roots[0] is not var:
            self._fixed.update(map(id, (var, *instr.reads)))
        return var

    def emit(self, instr: Instr, hint: str = "t", like: Var | None = None) -> Var:
        (var,) = self.emit_all(instr, hint, like)
        return var

    def emit_all(
        self, instr: Instr, hints: str | tuple[str, ...], like: Var | None, given: Any = None
    ) -> list[Var]:
        layout = None if like is None else (like.value.strides, like.value.dtype.str)
        key = (instr.function, layout, _key(instr.args), _key(instr.kwargs))
        known = None if instr.opaque else self._seen.get(key)
        if known is not None:
            return known
        args, kwargs = concrete(instr.args), concrete(instr.kwargs)
        out = instr.run(*args, **kwargs) if given is None else given
        if like is not None and layout != (out.strides, out.dtype.str):
            instr.needs_out = True
            out = instr.run(*args, **kwargs, out=np.empty_like(like.value))
        instr.unpacks = not isinstance(hints, str)
        outs, hints = ((out,), (hints,)) if isinstance(hints, str) else (out, hints)
        if not instr.may_raise and all(isinstance(v, Constant) for v in instr.reads):
            return [self.constant(out)]
        instr.results = [
            Var(self, o, hint, _roots(instr, o)) for o, hint in zip(outs, hints, strict=True)
        ]
        owns = type(out) is np.ndarray and instr.results[0].roots[0].value is out
        instr.takes_out = instr.takes_out and owns
        instr.op, instr.place, instr.key = self.op, self.place, key
        self.instrs.append(instr)
        self._seen[key] = instr.results
        return instr.results

    def array(self, var: Var) -> Var:
        """Return a value as an array: of a 0-d one NumPy makes a number."""
        if type(var.value) is np.ndarray:
            return var
        return self.emit(Instr(np.asarray, (var,)), var.hint)


def _roots(instr: Instr, out: object) -> tuple[Var, ...]:
    """Return the values in whose memory a result may lie in some run; () is its own."""
    found: dict[int, Var] = {}
    for var in instr.reads:
        if any(_may_be_of(instr, a, b) for a in _parts(out) for b in _parts(var.value)):
            found.update((id(root), root) for root in var.roots)
    return tuple(found.values())


def _parts(value: object) -> list[Any]:
    if value is None or isinstance(value, (np.generic, bool, int, float, complex)):
        return []
    return [p for v in value for p in _parts(v)] if isinstance(value, (tuple, list)) else [value]


def _may_be_of(instr: Instr, a: object, b: object) -> bool:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return True
    # A function may return its argument if the numbers allow that.
    returned = instr.may_raise and a.shape == b.shape and a.dtype == b.dtype
    return returned or np.may_share_memory(a, b)


def _lies_alike(a: Var, b: Var) -> bool:
    root, one, two = a.roots[0].value, a.value, b.value
    if len(a.roots) > 1 or not isinstance(root, np.ndarray) or root.nbytes != one.nbytes:
        return False
    # A call's result lies elsewhere, or is its argument.
    if root.ctypes.data != one.ctypes.data and np.may_share_memory(root, one):
        return False
    return bool((one.shape, one.strides, one.dtype) == (two.shape, two.strides, two.dtype))


def is_dense(array: Array) -> bool:
    """Return whether an array's elements fill its memory, in any order of the axes."""
    step = array.itemsize
    for length, stride in sorted(zip(array.shape, array.strides, strict=True), key=lambda x: x[1]):
        if length != 1 and stride != step:
            return False
        step *= length
    return math.prod(array.shape) > 0


def root_ids(values: Iterable[Var]) -> dict[int, None]:
    """Return the ids of the values in whose memory these lie, in order."""
    return dict.fromkeys(id(root) for var in values for root in var.roots)


def live(instrs: list[Instr], results: Iterable[Var]) -> list[Instr]:
    read = {id(var) for var in results}
    kept = []
    for instr in reversed(instrs):
        if instr.may_raise or any(id(var) in read for var in instr.results):
            kept.append(instr)
            read.update(id(var) for var in instr.reads)
    return kept[::-1]


def vars_in(tree: object) -> list[Var]:
    return [leaf for _, leaf in leaves(tree) if isinstance(leaf, Var)]


def concrete(tree: object) -> Any:
    return mapped(lambda x: x.value if isinstance(x, Var) else x, tree)


def _key(tree: object) -> Any:
    if isinstance(tree, (tuple, list)):
        return (type(tree), *map(_key, tree))
    if isinstance(tree, dict):
        return (dict, *((k, _key(v)) for k, v in tree.items()))
    if isinstance(tree, slice):
        return (slice, _key(tree.start), _key(tree.stop), _key(tree.step))
    if isinstance(tree, Var):
        return (Var, id(tree))
    return identity(tree)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (tuple, list)):
        return isinstance(b, (tuple, list)) and len(a) == len(b) and all(map(_same, a, b))
    if a is None or b is None:
        return a is b
    if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape:
        return False
    return bool(a.strides == b.strides and a.tobytes() == b.tobytes())
