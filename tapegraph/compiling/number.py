"""`Number`: a float argument of a compiled function, which takes the dtype of what it meets."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.errors import explain
from tapegraph.recording.concretization import ConcretizationError
from tapegraph.recording.node import Node
from tapegraph.recording.op import OPS, Attrs
from tapegraph.recording.record import ELEMENTWISE, apply
from tapegraph.recording.structure import identity
from tapegraph.tensors.array_methods import ArrayMethods

# Python's own arithmetic, which every run does anew: a tuple of the name and the operands.
Expression = tuple[Any, ...]
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    name: getattr(operator, name)
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "neg", "pos", "abs")
}
_ARITHMETIC["round"] = round


def evaluated(expression: Any, given: list[Any]) -> Any:
    """Return an expression's number, from the arguments' arrays and floats."""
    if type(expression) is not tuple:
        return expression
    name, *operands = expression
    if name == "argument":
        return given[operands[0]]
    return _ARITHMETIC[name](*(evaluated(x, given) for x in operands))


class Number(ArrayMethods):
    """A float that every call gives anew; with arrays it computes as a Python number does.

    So it does with other numbers: what Python makes of them is a `Number` too.

    Parameters
    ----------
    whole : Whole
        What records.
    value : float
        The number of this call.
    expression : tuple
        Which of the arguments' arrays and floats it is, or how it is computed from them.
    inputs : list
        Where its leaves are entered: one per dtype that it is met in.
    leaves : dict
        Those there are, shared with what is computed from the same arguments.
    """

    __slots__ = ("_expression", "_inputs_of", "_leaves", "_value", "_whole")

    def __init__(
        self,
        whole: Any,
        value: float,
        expression: Expression,
        inputs: list[Any],
        leaves: dict[Any, Any],
    ) -> None:
        self._whole = whole
        self._value = value
        self._expression = expression
        self._inputs_of = inputs
        self._leaves = leaves

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        """Run an operation with the number as an array of the others' dtype."""
        arrays = [x._array.dtype for x in inputs if isinstance(x, Node)]
        floats = [dtype for dtype in arrays if dtype.kind == "f"]
        dtype = np.result_type(*floats) if floats else np.dtype(np.float64)
        operands = tuple(x.tensor(dtype) if type(x) is Number else x for x in inputs)
        call = ELEMENTWISE.get(name)
        return call(*operands) if call else apply(OPS[name], operands, dict(attrs))

    def tensor(self, dtype: Any = np.float64) -> Any:
        """Return the number as a leaf of the program."""
        kind = np.dtype(dtype)
        key = kind, identity(self._expression)
        if key not in self._leaves:
            leaf = self._whole.input(np.asarray(self._value, kind))
            expression = self._expression
            leaf._attrs = {"number": expression}  # two recordings must agree on it
            source = lambda given, read: np.asarray(evaluated(expression, given), kind)  # noqa: E731
            self._inputs_of.append((source, leaf))
            self._leaves[key] = leaf
        return self._leaves[key]

    def detach(self) -> Any:
        """Return the number as a tensor."""
        return self.tensor()

    @property
    def requires_grad(self) -> bool:
        """False: it is an argument."""
        return False

    @property
    def shape(self) -> tuple[int, ...]:
        """That of a number."""
        return ()

    @property
    def ndim(self) -> int:
        """0."""
        return 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """float64, until it meets an array."""
        return np.dtype(np.float64)

    def _frozen(self, conversion: str) -> ConcretizationError:
        received = f"a float argument ({self._value!r}), whose number every call gives anew"
        return ConcretizationError(
            explain(conversion, received, "arithmetic with it", "Pass an int, which is fixed.")
        )

    def __float__(self) -> float:
        raise self._frozen("float")

    def __bool__(self) -> bool:
        raise self._frozen("bool")

    def __int__(self) -> int:
        raise self._frozen("int")

    def __hash__(self) -> int:
        raise self._frozen("hash")

    def __format__(self, spec: str) -> str:
        raise self._frozen("format")

    def __repr__(self) -> str:
        return f"Number({self._value!r})"


def _python(name: str, reflected: bool = False) -> Callable[..., Any]:
    """Make the method of an operator: Python's arithmetic among numbers, and else an operation."""
    method = f"__r{name}__" if reflected else f"__{name}__"
    operation: Any = getattr(ArrayMethods, method, None)

    def compute(self: Number, *others: Any) -> Any:
        if any(type(x) not in (Number, float, int, bool) for x in others):
            return operation(self, *others) if operation else NotImplemented
        operands = [x._expression if type(x) is Number else x for x in (self, *others)]
        values = [x._value if type(x) is Number else x for x in (self, *others)]
        if reflected:
            operands, values = operands[::-1], values[::-1]
        value = _ARITHMETIC[name](*values)
        return Number(self._whole, value, (name, *operands), self._inputs_of, self._leaves)

    compute.__name__ = method
    return compute


for _name in _ARITHMETIC:
    setattr(Number, f"__{_name}__", _python(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(Number, f"__r{_name}__", _python(_name, reflected=True))
