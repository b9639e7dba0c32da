"""What a captured call is given: the leaves that stand for it, and where a run finds their values.

A float stands as a `FloatArg`, which takes the dtype of what it meets.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tapegraph.capture.capture import Capture
from tapegraph.compiling.arguments import LeafSpec
from tapegraph.differentiation import stored
from tapegraph.errors import message
from tapegraph.recording import numpy_functions
from tapegraph.recording.capture_mode import BY_VALUE, ConcretizationError
from tapegraph.recording.node import Node
from tapegraph.recording.op import OPS, Attrs
from tapegraph.recording.program import identity
from tapegraph.recording.record import ELEMENTWISE, apply
from tapegraph.tensors.array_methods import ArrayMethods

# Gives a leaf's value in a run, from the arguments and from what every run reads anew.
Reader = Callable[[list[Any], list[Any]], Any]
# Python's own arithmetic, which every run does anew: a tuple of the name and the operands.
Expression = tuple[Any, ...]
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs")
}
_ARITHMETIC["round"] = round
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


def evaluated(expression: Any, given: list[Any]) -> Any:
    """Return an expression's number, from the arguments' arrays and floats."""
    if type(expression) is not tuple:
        return expression
    name, *operands = expression
    if name == "argument":
        return given[operands[0]]
    return _ARITHMETIC[name](*(evaluated(x, given) for x in operands))


def _arguments_of(expression: Any) -> frozenset[int]:
    if type(expression) is not tuple:
        return frozenset()
    name, *operands = expression
    if name == "argument":
        return frozenset(operands)
    return frozenset().union(*map(_arguments_of, operands))


class Inputs:
    """The leaves of a captured call that stand for what it was given."""

    def __init__(self, capture: Capture, given: list[Any]) -> None:
        self.capture = capture
        self.sources: list[tuple[Reader, Any]] = []
        self.positions: dict[int, int] = {}  # of arguments, by the id of what stands for each
        self.floats: dict[Any, Any] = {}
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

    def float(self, position: int, reads: dict[int, bool] | None = None) -> FloatArg:
        """Return what stands for a float, which may be read where that is noted in ``reads``."""
        return FloatArg(self, self._given[position], ("argument", position), reads)


class FloatArg(ArrayMethods):
    """A float that every call gives anew; with arrays it computes as a Python number does.

    So it does with other numbers: what Python makes of them is a `FloatArg` too.

    :param inputs: Where its leaves are entered: one per dtype that it is met in.
    :param value: The number of this call.
    :param expression: Which of the arguments' arrays and floats it is, or how it is computed from
        them.
    :param reads: The arguments that may be read as plain numbers after all, and whether they have
        been: these are floats that the function sees in its closure or an attribute.
    """

    __slots__ = ("_expression", "_inputs_of", "_reads", "_value")

    requires_grad = False
    shape: tuple[int, ...] = ()
    ndim, size, imag = 0, 1, 0.0  # type: ignore[assignment]
    dtype = np.dtype(np.float64)  # until it meets an array

    def __init__(
        self,
        inputs: Inputs,
        value: float,
        expression: Expression,
        reads: dict[int, bool] | None = None,
    ) -> None:
        self._inputs_of = inputs
        self._value = value
        self._expression = expression
        self._reads = reads

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """float: where the function asks by ``isinstance``, it goes the way of its eager calls."""
        return float

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        """Run an operation with the number as an array of the others' dtype."""
        operands = tuple(numpy_functions.met_with(x, inputs) for x in inputs)
        call = ELEMENTWISE.get(name)
        return call(*operands) if call else apply(OPS[name], operands, dict(attrs))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if not numpy_functions.is_known(ufunc):
            plain = (x.read(ufunc.__name__) if type(x) is FloatArg else x for x in inputs)
            return getattr(ufunc, method)(*plain, **options)
        return numpy_functions.array_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if not numpy_functions.is_known(function):
            raise self._frozen(f"{function.__module__}.{function.__name__}")
        return numpy_functions.array_function(function, args, options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.read("numpy.asarray"), dtype)

    @property
    def may_be_read(self) -> bool:
        """Whether it may become a plain number after all."""
        return self._reads is not None and _arguments_of(self._expression) <= self._reads.keys()

    def read(self, conversion: str, fix: str = _ARRAYS) -> float:
        """Return the plain number, and remember that it was read."""
        if self._reads is None or not self.may_be_read:
            raise self._frozen(conversion, fix)
        self._reads.update(dict.fromkeys(_arguments_of(self._expression), True))
        return self._value

    def tensor(self, dtype: Any = np.float64) -> Any:
        """Return the number as a leaf of the program."""
        kind = np.dtype(dtype)
        inputs, key = self._inputs_of, (kind, identity(self._expression))
        if key not in inputs.floats:
            leaf = inputs.capture.input(np.asarray(self._value, kind))
            expression = self._expression
            leaf._attrs = {"number": expression}  # two recordings must agree on it
            source = lambda given, read: np.asarray(evaluated(expression, given), kind)  # noqa: E731
            inputs.sources.append((source, leaf))
            inputs.floats[key] = leaf
            if expression[0] == "argument":
                inputs.positions[id(leaf)] = expression[1]
        return inputs.floats[key]

    __tapegraph_float__ = tensor

    def detach(self) -> Any:
        """Return the number as a tensor."""
        return self.tensor()

    @property
    def real(self) -> FloatArg:
        """The number itself, as of a float."""
        return self

    def conjugate(self) -> FloatArg:
        """Return the number itself, as of a float."""
        return self

    def _frozen(self, conversion: str, fix: str = _ARRAYS) -> ConcretizationError:
        received = f"a float argument ({self._value!r}), whose number every call gives anew"
        return ConcretizationError(message(conversion, received, "arithmetic with it", fix))

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:  # which gives an int
            return round(self.read("round", "Write np.round(k)."))
        return self._computed("round", (self, digits))

    def _computed(self, name: str, operands: tuple[Any, ...]) -> FloatArg:
        """Return what Python makes of numbers, as a number of the program."""
        expressions = (x._expression if type(x) is FloatArg else x for x in operands)
        values = (x._value if type(x) is FloatArg else x for x in operands)
        value = _ARITHMETIC[name](*values)
        reads = next((x._reads for x in operands if type(x) is FloatArg and x._reads), None)
        expression = (name, *expressions)
        return FloatArg(self._inputs_of, value, expression, reads)

    def __repr__(self) -> str:
        return repr(self.read("repr")) if self.may_be_read else f"FloatArg({self._value!r})"


def _python(name: str, reflected: bool = False) -> Callable[..., Any]:
    """Make the method of an operator: Python's arithmetic among numbers, and else an operation."""
    method = f"__r{name}__" if reflected else f"__{name}__"
    operation: Any = getattr(ArrayMethods, method, None)

    def compute(self: FloatArg, *others: Any) -> Any:
        if any(type(x) not in (FloatArg, float, int, bool) for x in others):
            return operation(self, *others) if operation else NotImplemented
        operands = (self, *others)
        return self._computed(name, operands[::-1] if reflected else operands)

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
