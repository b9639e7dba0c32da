"""What a captured call is given: the leaves that stand for it, and where a run finds their values.

A float stands as a `FloatArg`, which takes the dtype of what it meets.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegraph.capture.capture import BY_VALUE, Capture
from tapegraph.compiling.arguments import LeafSpec
from tapegraph.compiling.float_arithmetic import FloatArithmetic, FloatProgram, NotReal
from tapegraph.errors import ConcretizationError, message
from tapegraph.interrupts import in_handler
from tapegraph.recording import numpy_functions, stored
from tapegraph.recording.node import Node
from tapegraph.recording.op import OPS, Attrs
from tapegraph.recording.record import ELEMENTWISE, apply
from tapegraph.recording.scopes import recorder
from tapegraph.tensors.array_methods import ArrayMethods

# Gives a leaf's value in a run, from the arguments and from what every run reads anew.
Reader = Callable[[list[Any], list[Any]], Any]
_ARRAYS = (
    "Write tg.tensor(k) for an array of it, k * np.ones(shape) for np.full(shape, k), "
    "np.stack([k, x]) for np.array([k, x]); in place of a list of numbers pass an array."
)
_FUNCTIONS = f"Write np.sqrt(k) for math.sqrt(k), and so on. {BY_VALUE}"


@dataclass(slots=True)
class Argument:
    """An argument's array or float."""

    position: int

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        """Return it for one run."""
        return given[self.position]


@dataclass(slots=True)
class Reading:
    """What every run reads anew, such as a learning rate or random numbers."""

    position: int

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        """Return it for one run."""
        return read[self.position]


@dataclass(slots=True)
class GradientBefore:
    """The gradient that a leaf has when a run begins."""

    leaf: Node

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        """Return it for one run."""
        return stored.read(self.leaf)


@dataclass(slots=True)
class Converted:
    """What another source gives, in another dtype."""

    source: Reader
    dtype: Any

    def __call__(self, given: list[Any], read: list[Any]) -> Any:
        """Return it for one run."""
        return np.asarray(self.source(given, read), self.dtype)


class Inputs:
    """The leaves of a captured call that stand for what it was given.

    :param given: The arguments' arrays and floats.
    :param may_be_read: How many of them, the last ones, may be read as plain numbers after all: the
        floats that the function sees in its closure or an attribute.
    :ivar sources: What gives each leaf its value in a run.
    :ivar positions: Which argument a leaf stands for, by its id.
    :ivar numbers: The floats, and what Python computes from them.
    """

    def __init__(self, capture: Capture, given: list[Any], may_be_read: int = 0) -> None:
        self.capture = capture
        self.sources: list[tuple[Reader, Any]] = []
        self.positions: dict[int, int] = {}
        self.numbers = FloatArithmetic()
        self.readable = (1 << len(given)) - (1 << (len(given) - may_be_read))  # of arguments, bits
        self._was_read = 0
        self._floats: dict[tuple[Any, int], Any] = {}  # leaves, by dtype and place
        self._given = given
        self._left = iter(range(len(given)))

    def argument(self, leaf: LeafSpec) -> Any:
        """Return what the function is given for the next argument."""
        position = next(self._left)
        if type(self._given[position]) is float:
            return self.float(position)
        tensor = self.capture.input(self._given[position])
        self.sources.append((Argument(position), tensor))
        self.positions[id(tensor)] = position
        if leaf.kind[0] == "array":
            self.capture.of_caller.add(id(tensor))
        elif leaf.kind[0] == "tensor":
            self.capture.tensors_of_caller.add(id(tensor))
        return tensor

    def float(self, position: int) -> FloatArg:
        """Return what stands for a float."""
        value = float(self._given[position])  # in an attribute, it may be another capture's
        return FloatArg(self, value, self.numbers.argument(position, value))

    def read(self, place: int) -> None:
        """Remember that the function has read a number as a plain one."""
        self._was_read |= self.numbers.arguments[place]

    def was_read(self, position: int) -> bool:
        """Return whether the function has read an argument, or what it computed from that."""
        return bool(self._was_read >> position & 1)

    def leaf(self, place: int, dtype: Any) -> Any:
        """Return a number as a leaf of the program, one for each dtype."""
        key = (dtype, place)
        if key not in self._floats:
            leaf = self._floats[key] = self.capture.input(
                np.asarray(self.numbers.values[place], dtype)
            )
            leaf._attrs = {"number": place}  # two recordings must agree on it
            made_by, position = self.numbers.made_by[place][:2]
            if made_by == "argument":
                self.positions[id(leaf)] = position
        return self._floats[key]

    def float_program(self, leaves: Container[int], readings: int) -> FloatProgram | None:
        """Return what computes the numbers of leaves in a run, and enter where they read them.

        None where there are none. Numbers that the program does not use, nobody computes.

        :param leaves: The ids of the leaves that the program has.
        :param readings: How many others every run reads anew, before these.
        """
        kept = [(key, leaf) for key, leaf in self._floats.items() if id(leaf) in leaves]
        for i, (_, leaf) in enumerate(kept):
            leaf._attrs["number"] = i
            self.sources.append((Reading(readings + i), leaf))
        results = [(place, dtype) for (dtype, place), _ in kept]
        return self.numbers.program(results) if results else None


class FloatArg(ArrayMethods):
    """A float that every call gives anew; with arrays it computes as a Python number does.

    So it does with other numbers: what Python makes of them is a `FloatArg` too. One that stands in
    an attribute can be met by code outside the capture, in another thread: there it is a float.

    :param inputs: Where its arithmetic, and its leaves, are entered.
    :param value: The number of this call.
    :param place: Its place in the arithmetic.
    """

    __slots__ = ("_inputs_of", "_place", "_value")

    requires_grad = False
    shape: tuple[int, ...] = ()
    ndim, size, imag = 0, 1, 0.0  # type: ignore[assignment]
    dtype = np.dtype(np.float64)  # until it meets an array

    def __init__(self, inputs: Inputs, value: float, place: int) -> None:
        self._inputs_of = inputs
        self._value = value
        self._place = place

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """float: where the function asks by ``isinstance``, it goes the way of its eager calls."""
        return float

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        """Run an operation with the number as an array of the others' dtype."""
        given = tuple(map(_as_met, inputs))
        operands = tuple(numpy_functions.met_with(x, given) for x in given)
        call = ELEMENTWISE.get(name)
        return call(*operands) if call else apply(OPS[name], operands, dict(attrs))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if self.is_outside:
            return getattr(ufunc, method)(*map(_as_met, inputs), **options)
        if not numpy_functions.is_known(ufunc):
            plain = (x.read(ufunc.__name__) if type(x) is FloatArg else x for x in inputs)
            return getattr(ufunc, method)(*plain, **options)
        return numpy_functions.array_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if self.is_outside:
            return function(*_as_met(args), **{key: _as_met(x) for key, x in options.items()})
        if not numpy_functions.is_known(function):
            raise self._frozen(f"{function.__module__}.{function.__name__}")
        return numpy_functions.array_function(function, args, options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.read("numpy.asarray"), dtype)

    @property
    def is_outside(self) -> bool:
        """Whether it is met outside of its capture, where it is a plain number."""
        return recorder() is not self._inputs_of.capture

    @property
    def may_be_read(self) -> bool:
        """Whether it may become a plain number after all."""
        inputs = self._inputs_of
        return not inputs.numbers.arguments[self._place] & ~inputs.readable or self.is_outside

    def read(self, conversion: str, fix: str = _ARRAYS) -> float:
        """Return the plain number, and remember that it was read, if that was by the function."""
        if self.is_outside or in_handler(self._inputs_of.capture.frame):
            return self._value
        if not self.may_be_read:
            raise self._frozen(conversion, fix)
        self._inputs_of.read(self._place)
        return self._value

    def tensor(self, dtype: Any = np.float64) -> Any:
        """Return the number as a leaf of the program."""
        return (
            self._value if self.is_outside else self._inputs_of.leaf(self._place, np.dtype(dtype))
        )

    __tapegraph_float__ = tensor

    def __reduce__(self) -> Any:
        return float, (self.read("pickle"),)

    def __copy__(self) -> Any:
        return _as_met(self)

    def __deepcopy__(self, memo: Any) -> Any:
        return _as_met(self)

    def detach(self) -> Any:
        """Return the number as a tensor."""
        return self.tensor()

    @property
    def real(self) -> Any:
        """The number itself, as of a float."""
        return _as_met(self)

    def conjugate(self) -> Any:
        """Return the number itself, as of a float."""
        return _as_met(self)

    def _frozen(self, conversion: str, fix: str = _ARRAYS) -> ConcretizationError:
        received = f"a float argument ({self._value!r}), whose number every call gives anew"
        return ConcretizationError(message(conversion, received, "arithmetic with it", fix))

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:  # which gives an int
            return round(self.read("round", "Write np.round(k)."))
        if self.is_outside:
            return round(self._value, digits)
        return self._computed("round", (self, digits))

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def _computed(self, name: str, operands: tuple[Any, ...]) -> Any:
        """Return what Python makes of numbers, as a number of the program."""
        numbers = self._inputs_of.numbers
        places = [x._place if type(x) is FloatArg else numbers.constant(x) for x in operands]
        try:
            place = numbers.computed(name, places[0], places[-1])
        except NotReal:
            return self._complex(operands)
        return FloatArg(self._inputs_of, numbers.values[place], place)

    def _complex(self, operands: tuple[Any, ...]) -> complex:
        """Return a power that is complex, as plain numbers: where it is a float it is fed."""
        base, exponent = (x._value if type(x) is FloatArg else x for x in operands)
        floats = [x for x in operands if type(x) is FloatArg]
        if not all(x.may_be_read for x in floats):
            received = f"a float argument, in {base!r} ** {exponent!r}, which is complex"
            fix = "Write (k + 0j) ** p for a number that is complex in every call."
            raise ConcretizationError(message("**", received, "a power that is a float", fix))
        for x in floats:
            x.read("**")
        return base**exponent  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return repr(self.read("repr")) if self.may_be_read else f"FloatArg({self._value!r})"


def _as_met(value: Any) -> Any:
    """Return a number outside of its capture as a plain one, in lists and tuples too."""
    if type(value) in (list, tuple):
        return type(value)(map(_as_met, value))
    return value._value if type(value) is FloatArg and value.is_outside else value


def _python(name: str, reflected: bool = False) -> Callable[..., Any]:
    """Make the method of an operator: Python's arithmetic among numbers, and else an operation."""
    method = f"__r{name}__" if reflected else f"__{name}__"
    operation: Any = getattr(ArrayMethods, method, None)

    def compute(self: FloatArg, *others: Any) -> Any:
        operands = (self, *map(_as_met, others))
        if reflected:
            operands = operands[::-1]
        if self.is_outside:
            return getattr(operator, name)(*map(_as_met, operands))
        if any(type(x) not in (FloatArg, float, int, bool) for x in operands):
            return operation(self, *others) if operation else NotImplemented
        return self._computed(name, operands)

    compute.__name__ = method
    return compute


def _conversion(name: str, conversion: str, fix: str) -> Callable[..., Any]:
    """Make the method of a conversion that would freeze an argument's number."""

    def convert(self: FloatArg, *args: Any) -> Any:
        return getattr(self.read(conversion, fix), name)(*args)

    convert.__name__ = name
    return convert


for _name in ("neg", "pos", "abs"):
    setattr(FloatArg, f"__{_name}__", _python(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(FloatArg, f"__{_name}__", _python(_name))
    setattr(FloatArg, f"__r{_name}__", _python(_name, reflected=True))
for _name in ("float", "int", "trunc", "floor", "ceil"):
    setattr(FloatArg, f"__{_name}__", _conversion(f"__{_name}__", _name, _FUNCTIONS))
for _name in ("bool", "hash", "str", "format"):
    setattr(FloatArg, f"__{_name}__", _conversion(f"__{_name}__", _name, BY_VALUE))
for _name in ("is_integer", "as_integer_ratio", "hex"):
    setattr(FloatArg, _name, _conversion(_name, _name, BY_VALUE))


def _comparison(name: str) -> Callable[..., Any]:
    """Make the method of a comparison: Python's among numbers that may be read."""
    operation: Any = getattr(ArrayMethods, name)

    def compare(self: FloatArg, other: Any) -> Any:
        other = _as_met(other)
        if self.is_outside:
            return getattr(operator, name)(self._value, other)
        plain = other._value if type(other) is FloatArg and other.may_be_read else other
        if not self.may_be_read or type(plain) not in (float, int, bool):
            return operation(self, other)
        if plain is not other:
            other.read(name)
        return getattr(self.read(name), name)(plain)

    compare.__name__ = name
    return compare


for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(FloatArg, f"__{_name}__", _comparison(f"__{_name}__"))
