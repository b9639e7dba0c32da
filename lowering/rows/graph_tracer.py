"""Slopes in the graph: array code run on tracers emits the nodes of the table."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tapegraph.differentiation.slopes import SLOPES, Linear, rule_of
from tapegraph.lowering.rows.rules import (
    LOWERINGS,
    Result,
    Row,
    Rule,
    broadcast_shape,
    cast_to,
    raw,
    with_gradient,
)
from tapegraph.lowering.runtime import GraphTensor, tensorflow
from tapegraph.recording import numpy_functions
from tapegraph.recording.op import Attrs

_PREDICATES = {
    np.equal: "Equal",
    np.not_equal: "NotEqual",
    np.less: "Less",
    np.less_equal: "LessEqual",
    np.greater: "Greater",
    np.greater_equal: "GreaterEqual",
    np.bitwise_and: "LogicalAnd",
    np.bitwise_or: "LogicalOr",
    np.invert: "LogicalNot",
    np.logical_or: "LogicalOr",
    np.logical_not: "LogicalNot",
    np.isnan: "IsNan",
    np.isinf: "IsInf",
    np.isfinite: "IsFinite",
}


class GraphTracer(np.lib.mixins.NDArrayOperatorsMixin):
    """A graph tensor of floats, or a condition, that NumPy's functions compute with."""

    __slots__ = ("dtype", "tensor")

    def __init__(self, tensor: GraphTensor, dtype: Any) -> None:
        self.tensor = tensor
        self.dtype = dtype  # that of the floats, in which conditions count as 0 and 1

    @property
    def ndim(self) -> int:
        return len(self.tensor.shape)

    def astype(self, dtype: object, copy: bool = True) -> GraphTracer:
        return self

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: object) -> Any:
        node = _PREDICATES.get(ufunc)
        if node is None:
            return numpy_functions.array_ufunc(self, ufunc, method, *inputs, **options)
        tensors = [x.tensor if type(x) is GraphTracer else tensor_of(x, self.dtype) for x in inputs]
        return GraphTracer(getattr(raw, node)(**dict(zip("xy", tensors, strict=False))), self.dtype)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if function is not np.where:
            return numpy_functions.array_function(self, function, types, args, options)
        condition, *branches = args
        t, e = (tensor_of(x, self.dtype) for x in branches)
        return GraphTracer(raw.SelectV2(condition=condition.tensor, t=t, e=e), self.dtype)

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[object, ...], attrs: Attrs) -> GraphTracer:
        dtype = next(x.dtype for x in inputs if type(x) is GraphTracer)
        tensors = [tensor_of(x, dtype) for x in inputs]
        out = Result(broadcast_shape(tensors), dtype.name)
        return GraphTracer(LOWERINGS[name].rule(out, *tensors, **attrs), dtype)


def tensor_of(x: Any, dtype: Any) -> GraphTensor:
    if type(x) is not GraphTracer:
        return tensorflow().constant(x, dtype)
    return cast_to(x.tensor, dtype)


def by_slopes(name: str, rule: Rule, *, strong_zero: bool = False) -> Rule:
    """Return a rule with the gradient of the table of slopes in place of TensorFlow's."""

    def lowered(out: Result, *operands: GraphTensor, **attrs: object) -> GraphTensor:
        def gradient(g: GraphTensor, y: GraphTensor, *xs: GraphTensor) -> list[GraphTensor]:
            traced = [GraphTracer(x, y.dtype) for x in (g, y, *xs)]
            parts = [rule_of(slope)(*traced, **attrs) for slope in SLOPES[name]]
            if strong_zero:
                parts = [np.where(traced[0] == 0.0, 0.0, part) for part in parts]
            return [tensor_of(part, y.dtype) for part in parts]

        return with_gradient(partial(rule, out, **attrs), gradient, *operands)

    return lowered


def with_strong_zeros(name: str, row: Row) -> Rule:
    """Return an operation's rule in whose gradient a zero cotangent absorbs any factor."""
    if row.strong_zero is not None:
        return row.strong_zero
    if any(not isinstance(slope, Linear | None) for slope in SLOPES.get(name, ())):
        return by_slopes(name, row.rule, strong_zero=True)
    return row.rule
