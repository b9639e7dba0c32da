"""`Number`: a float argument of a compiled function, which takes the dtype of what it meets."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.errors import explain
from tapegraph.recording.concretization import ConcretizationError
from tapegraph.recording.node import Node
from tapegraph.recording.op import OPS, Attrs
from tapegraph.recording.record import ELEMENTWISE, apply
from tapegraph.tensors.array_methods import ArrayMethods


class Number(ArrayMethods):
    """A float that every call gives anew; with arrays it computes as a Python number does.

    Parameters
    ----------
    whole : Whole
        What records.
    value : float
        The number of this call.
    position : int
        Which of the arguments' arrays and floats it is.
    inputs : list
        Where its leaves are entered: one per dtype that it is met in.
    """

    __slots__ = ("_inputs_of", "_leaves", "_position", "_value", "_whole")

    def __init__(self, whole: Any, value: float, position: int, inputs: list[Any]) -> None:
        self._whole = whole
        self._value = value
        self._position = position
        self._inputs_of = inputs
        self._leaves: dict[Any, Any] = {}

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
        if kind not in self._leaves:
            leaf = self._whole.input(np.asarray(self._value, kind))
            position = self._position
            self._inputs_of.append((lambda given, read: np.asarray(given[position], kind), leaf))
            self._leaves[kind] = leaf
        return self._leaves[kind]

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

    def __repr__(self) -> str:
        return f"Number({self._value!r})"
