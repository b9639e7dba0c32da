"""An ONNX graph while it is made, and its values, which rules write formulas with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from tapegraph.exporting.recorded import Length

# Nodes that onnxruntime has for float32 alone.
_FLOAT32 = set("Acos Acosh Asin Asinh Atan Atanh AveragePool Conv Cosh Det Erf Sinh Tan".split())
# Those that give truths, or places, whatever their inputs are.
_TRUTHS = set("Equal Greater GreaterOrEqual IsNaN Less LessOrEqual".split())
_PLACES = set("ArgMax ArgMin Shape TopK".split())


class NoNode(Exception):
    """There is no node for an operation, or not for its dtype."""


class OnnxGraph:
    """The nodes and constants of a model, and the length of its batch."""

    def __init__(self, onnx: Any, taken: Iterable[str]) -> None:
        self._onnx = onnx
        self.type_of = onnx.helper.np_dtype_to_tensor_dtype  # ONNX's number of a dtype
        self._taken = set(taken)
        self._numbers = count()
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.batch: Any = None
        self.stem = "batch"  # of new names: the operation that they belong to

    def constant(self, value: Any, dtype: Any, name: str | None = None) -> Wire:
        """Return a constant."""
        name, array = name or self._new("constant"), np.array(value, dtype, order="C")
        self.initializers.append(self._onnx.numpy_helper.from_array(array, name))
        return Wire(self, name, array.dtype, array.shape)

    def node(self, kind: str, *inputs: Wire, dtype: Any = None, at: int = 0, **attrs: Any) -> Wire:
        """Add a node, and return its result, the first or the one in a place."""
        given = inputs[kind == "Where"].dtype
        if kind in _FLOAT32 and given != np.float32:
            raise NoNode(f"onnxruntime has {kind} for float32 alone, in which it can be exported")
        names = [self._new(self.stem) for _ in range(at + 1)]
        make, wires = self._onnx.helper.make_node, [x.name for x in inputs]
        self.nodes.append(make(kind, wires, names, names[-1], **attrs))
        other = "bool" if kind in _TRUTHS else "int64" if kind in _PLACES else given
        return Wire(self, names[-1], np.dtype(dtype or other))

    def _new(self, stem: str) -> str:
        return next(n for i in self._numbers if (n := f"{stem}_{i}") not in self._taken)

    def ints(self, values: Iterable[Any]) -> Wire:
        """Return whole numbers side by side; the model finds out each `Length` among them."""
        values = list(values)
        if not any(isinstance(n, Length) for n in values):
            return self.constant(values, np.int64)
        parts = [self.number(n, np.int64).node("Reshape", self.ints([1])) for n in values]
        return self.node("Concat", *parts, axis=0)

    def number(self, value: Any, dtype: Any) -> Wire:
        """Return a number, or a `Length`, in a dtype."""
        if not isinstance(value, Length):
            return self.constant(value, dtype)
        grown: Wire = self.batch if value.per == 1 else self.batch * value.per
        return (grown + value.base if value.base else grown).to(dtype)


def _formula(kind: str) -> Callable[..., Wire]:
    return lambda self, *others: self.node(kind, *others)


@dataclass(frozen=True, eq=False)
class Wire:
    """A value of the graph, whose formulas add nodes; the shapes of operands alone are known."""

    graph: OnnxGraph
    name: str
    dtype: np.dtype[Any]
    shape: tuple[Any, ...] = ()

    __add__, __sub__, __mul__, __truediv__ = map(_formula, ("Add", "Sub", "Mul", "Div"))
    __and__, __or__, __lt__, __gt__ = map(_formula, ("And", "Or", "Less", "Greater"))
    __le__, __ge__, equal = map(_formula, ("LessOrEqual", "GreaterOrEqual", "Equal"))
    __neg__, __invert__ = map(_formula, ("Neg", "Not"))

    def node(self, kind: str, *others: Any, **attrs: Any) -> Wire:
        """Add a node of which this is the first input."""
        wires = (x if isinstance(x, Wire) else self.like(x) for x in others)
        return self.graph.node(kind, self, *wires, **attrs)

    def like(self, value: Any) -> Wire:
        """Return a number, or a `Length`, in this dtype."""
        return self.graph.number(value, self.dtype)

    def to(self, dtype: Any) -> Wire:
        """Return it in another dtype."""
        if self.dtype == dtype:
            return self
        cast = self.node("Cast", dtype=dtype, to=self.graph.type_of(np.dtype(dtype)))
        return replace(cast, shape=self.shape)

    def over(self, kind: str, axes: Iterable[int], keepdims: bool = True) -> Wire:
        """Reduce it over axes; over none it stays."""
        attrs = {"keepdims": int(keepdims), "noop_with_empty_axes": 1}
        return self.node(kind, self.graph.ints(axes), **attrs)

    def reshaped(self, shape: tuple[Any, ...], *, exactly: bool = False) -> Wire:
        """Return it in another shape, of which the model checks each length if it is to."""
        if not exactly and 0 not in shape and sum(isinstance(n, Length) for n in shape) == 1:
            shape = tuple(-1 if isinstance(n, Length) else n for n in shape)
        return self.node("Reshape", self.graph.ints(shape), allowzero=int(0 in shape or exactly))

    def where(self, x: Any, y: Any) -> Wire:
        """Return ``x`` where this is true, and ``y``, no Python number, elsewhere."""
        return self.node("Where", x if isinstance(x, Wire) else y.like(x), y)

    def is_nan(self) -> Wire:
        """Return where it is no number; an integer always is."""
        return self.node("IsNaN") if self.dtype.kind == "f" else ~self.equal(self)
