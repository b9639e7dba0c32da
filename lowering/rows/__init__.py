"""The table of lowerings, its gaps, and the helpers of its rows.

A rule ``rule(out, *inputs, **attrs)`` emits an operation's TensorFlow nodes: ``inputs`` are graph
tensors, ``out`` is the recorded `Result`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, Union

import numpy as np

from tapegraph.differentiation.slopes import SLOPES, Linear, rule_of
from tapegraph.engines.engine import EngineDeclined
from tapegraph.lowering.runtime import GraphTensor, Later, tensorflow, tf
from tapegraph.recording import numpy_functions
from tapegraph.recording.op import GRADIENT, Attrs, Op
from tapegraph.recording.program import Recording, subprograms
from tapegraph.typed import Fun

Rule = Fun
# Results, and the function that gives the gradient of each operand from those of the results.
WithGradient = tuple[GraphTensor | Sequence[GraphTensor], Fun]
AxisLength = Union[int, "Size"]


class Result(NamedTuple):
    """Shape and dtype that the tape recorded for an entry; a free axis has a `Size`."""

    shape: tuple[AxisLength, ...]
    dtype: str


class Row(NamedTuple):
    """The rule of an operation, and its properties.

    :ivar xla: XLA gives the same numbers in all cases, NaN and ties included, whatever other such
        operations it fuses; or a predicate on an entry.
    :ivar complex: The rule for complex numbers, or True for the same one; without it they run
        natively.
    :ivar strong_zero: The rule with strong zeros, if neither the rule nor the slopes supply it.
    :ivar shape: The result's shape from those of the operands, for eager kernels.
    :ivar reads_rows: A predicate on attributes: it reads whole rows of its first input.
    :ivar whole: The rule in whole programs, if the node of a plain backward is not the fastest.
    """

    rule: Rule
    xla: bool | Callable[[Recording, int], bool] = False
    complex: Rule | Literal[True] | None = None
    strong_zero: Rule | None = None
    shape: Callable[..., tuple[int, ...]] | None = None
    reads_rows: Callable[..., bool] = lambda **attrs: False
    whole: Rule | None = None


LOWERINGS: dict[str, Row] = {}
# Differentiable operations of the table that have no lowering in this version, and why.
GAPS: dict[str, str] = {
    **dict.fromkeys(
        ("layer_norm", "conv2d", "max_pool2d", "avg_pool2d", "convolve"),
        "runs in the native engine in this version",
    ),
    "erfcx": "has no node in TensorFlow",
    "log_ndtr": "has no node in TensorFlow, and its gradient needs erfcx",
    "eigh": "gives vectors up to their sign, and TensorFlow's choice of it is not NumPy's",
    "eig": "gives vectors up to their phase, and TensorFlow's choice of it is not NumPy's",
    "qr": "gives columns up to their sign, and TensorFlow's choice of it is not NumPy's",
    "svd": "gives vectors up to their sign, and TensorFlow's choice of it is not NumPy's",
}


NO_ROW = "has no lowering"
# Entries outside the table.
_OF_ENTRIES = {
    "at_run_time": "is a derivative of a while_loop without max_steps, which each run records anew"
}


class NotLowered(EngineDeclined):
    """A program holds an operation with no lowering; the message names it."""


class MetNaN(NotLowered):
    """The graph of a program with a user's operation gave a NaN, and may have lost zeros."""

    grads: list[Any]


# Entries whose inner programs are lowered with them.
LOOPS = ("scan", "while_loop", "cond")
# The draw of random numbers in one of them, which calls NumPy.
DRAWN = "random_draw"


def gap_among(ops: Sequence[Op], attrs: Iterable[Attrs]) -> str | None:
    """Return the sentence about an operation known to have no lowering, or None."""
    loops = False
    for op in dict.fromkeys(ops):
        if op.name in LOOPS:
            loops = True
        elif op.name in GAPS or (op.rules and op.rules.lowering is None and op.name != DRAWN):
            return f"{op.name} {GAPS.get(op.name) or _OF_ENTRIES.get(op.name, NO_ROW)}"
    for op, given in zip(ops, attrs, strict=True) if loops else ():
        for inner in (body.program for body in subprograms(given)):
            if GRADIENT in inner.ops:
                return f"{op.name} takes gradients inside, which a plain backward does natively"
            if gap := gap_among(inner.ops, inner.attrs):
                return gap
    return None


raw: Any = Later(lambda: tensorflow().raw_ops)


# ------------------------------------------------------------------ shapes


class Size:
    """The length of a free axis, an int64 tensor, in place of an int in a shape."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: GraphTensor) -> None:
        self.tensor = tensor

    def __mul__(self, other: AxisLength) -> Size:
        return Size(self.tensor * scalar(other, "int64"))

    def __add__(self, other: AxisLength) -> Size:
        return Size(self.tensor + scalar(other, "int64"))

    def __sub__(self, other: AxisLength) -> Size:
        return Size(self.tensor - scalar(other, "int64"))

    __rmul__, __radd__ = __mul__, __add__

    def __rsub__(self, other: AxisLength) -> Size:
        return Size(scalar(other, "int64") - self.tensor)


def shape_of(x: GraphTensor) -> tuple[AxisLength, ...]:
    if None not in x.shape:
        return tuple(x.shape)
    lengths = raw.Shape(input=x, out_type="int64")
    return tuple(Size(lengths[i]) if n is None else n for i, n in enumerate(x.shape))


def known(shape: tuple[AxisLength, ...]) -> tuple[int | None, ...]:
    return tuple(None if isinstance(n, Size) else n for n in shape)


def broadcast_shape(tensors: Sequence[GraphTensor]) -> tuple[AxisLength, ...]:
    axes = zip_longest(*(reversed(shape_of(x)) for x in tensors), fillvalue=1)
    return tuple(next((n for n in lengths if n != 1), 1) for lengths in axes)[::-1]


def repeated_to(x: GraphTensor, shape: tuple[AxisLength, ...]) -> GraphTensor:
    return x if tuple(x.shape) == known(shape) else raw.BroadcastTo(input=x, shape=ints(shape))


def reshaped(x: GraphTensor, shape: tuple[AxisLength, ...]) -> GraphTensor:
    return raw.Reshape(tensor=x, shape=ints(shape))


def permuted(x: GraphTensor, axes: Iterable[int]) -> GraphTensor:
    return raw.Transpose(x=x, perm=ints(axes))


# The orders of axes that take images from channels first to last, and back.
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def reordered(x: GraphTensor, axes: tuple[int, ...]) -> GraphTensor:
    """Return a tensor with its axes in another order: a reshape if no number moves."""
    shape = shape_of(x)
    if [i for i in axes if shape[i] != 1] == [i for i, n in enumerate(shape) if n != 1]:
        return reshaped(x, tuple(shape[i] for i in axes))
    return permuted(x, axes)


def channels_last(shape: tuple[AxisLength, ...]) -> tuple[AxisLength, ...]:
    return tuple(shape[i] for i in TO_LAST)


# ------------------------------------------------------------------ numbers

# Where a graph holds its constants: a step would have hundreds of the same axes and numbers. They
# hold the graph, so a table outside it would keep every graph there ever was.
_CONSTANTS = "_tapegraph_constants"


def graph_constant(value: object, dtype: object, shape: tuple[int, ...] = ()) -> GraphTensor:
    """Return a constant of the graph that is being traced, which has it once."""
    if tf.executing_eagerly():
        return tf.constant(value, dtype, shape)
    graph = tf.compat.v1.get_default_graph()
    made = getattr(graph, _CONSTANTS, None)
    if made is None:
        made = {}
        setattr(graph, _CONSTANTS, made)
    key = repr(value), tf.as_dtype(dtype), shape  # by their text 0.0 and -0.0 differ
    if key not in made:
        made[key] = tf.constant(value, dtype, shape)
    return made[key]


def ints(values: Iterable[AxisLength], dtype: str = "int64") -> GraphTensor:
    """Return a constant of integers, or a tensor if a `Size` is among them."""
    values = list(values)
    fixed = [int(v) for v in values if not isinstance(v, Size)]
    if len(fixed) < len(values):
        return raw.Pack(values=[scalar(v, dtype) for v in values], axis=0)
    return graph_constant(fixed, dtype, (len(values),))


def scalar(value: object, dtype: object) -> GraphTensor:
    return cast_to(value.tensor, dtype) if isinstance(value, Size) else graph_constant(value, dtype)


def number_like(value: object, like: GraphTensor) -> GraphTensor:
    return scalar(value, like.dtype)


def cast_to(x: GraphTensor, dtype: object) -> GraphTensor:
    """Return a tensor in another dtype; the gradient of a number made complex is real again."""
    wanted = tf.as_dtype(dtype)
    if x.dtype == wanted:
        return x
    if wanted.is_complex and not x.dtype.is_complex:  # of a Cast, TensorFlow's own warns
        real = cast_to(x, wanted.real_dtype)
        return raw.Complex(real=real, imag=raw.ZerosLike(x=real), Tout=wanted)
    return raw.Cast(x=x, DstT=wanted)


def finfo(x: GraphTensor) -> np.finfo[np.floating[Any]]:
    return np.finfo(x.dtype.as_numpy_dtype)


# ------------------------------------------------------------------ nodes


def reduced(
    node: str, x: GraphTensor, axis: Iterable[int] | None = None, *, keepdims: bool = False
) -> GraphTensor:
    """Reduce over some axes, or over all, by a node such as ``Sum``: NaN if there is one."""
    axis = range(x.shape.rank) if axis is None else axis
    # int32, as TensorFlow's own gradients want axes beside a free one.
    return getattr(raw, node)(input=x, axis=ints(axis, "int32"), keep_dims=keepdims)


def summed_to(g: GraphTensor, x: GraphTensor) -> GraphTensor:
    """Sum a gradient over the axes along which its operand ``x`` was broadcast."""
    extra = g.shape.rank - x.shape.rank
    kept = (1,) * extra + tuple(x.shape)
    axes = [i for i, n in enumerate(kept) if i < extra or (n == 1 and g.shape[i] != 1)]
    return reshaped(reduced("Sum", g, axes), shape_of(x)) if axes else g


def selected(
    condition: GraphTensor, chosen: GraphTensor | float, otherwise: GraphTensor | float
) -> GraphTensor:
    if not isinstance(otherwise, float):
        chosen = number_like(chosen, otherwise) if isinstance(chosen, float) else chosen
    elif not isinstance(chosen, float):
        otherwise = number_like(otherwise, chosen)
    return raw.SelectV2(condition=condition, t=chosen, e=otherwise)


def keeping_zeros(factor: GraphTensor, g: GraphTensor) -> GraphTensor:
    return raw.MulNoNan(x=factor, y=g)


# From so many elements on, a look whether the quick nodes are right costs less than others take.
_LARGE = 1 << 14


def is_large(x: GraphTensor) -> bool:
    """Return whether quick nodes are worth a condition; a tensor with a free axis may be small."""
    return None not in x.shape and bool(math.prod(x.shape) >= _LARGE)


def unless(
    right: GraphTensor, quick: GraphTensor, careful: Callable[[], GraphTensor]
) -> GraphTensor:
    """Return the result of quick nodes where it is right, and else of careful ones."""
    return tf.cond(right, lambda: quick, careful)


# Collects the conditions for a graph's numbers to be valid; otherwise the native engine runs.
# None where nobody else does: then the graph branches.
GUARDS: ContextVar[list[GraphTensor] | None] = ContextVar("tapegraph_guards", default=None)


def own_gradient(compute: Callable[..., WithGradient], *operands: GraphTensor) -> Any:
    """Emit nodes with their own gradient: ``compute`` returns a result and its gradient."""

    def lowered(*xs: GraphTensor) -> WithGradient:
        y, gradient = compute(*xs)
        # A gathered tensor's gradient is IndexedSlices.
        return y, lambda *gs: gradient(*(g if g is None else tf.convert_to_tensor(g) for g in gs))

    return tf.custom_gradient(lowered)(*operands)


def taped(tape: Any, ys: Any, xs: Any, gs: Any = None) -> Any:
    """Return the gradients of what a tape has recorded, zeros where nothing flows."""
    zero = tf.UnconnectedGradients.ZERO
    return tape.gradient(ys, xs, output_gradients=gs, unconnected_gradients=zero)


def with_own_gradient(rule: Callable[..., WithGradient]) -> Rule:

    def lowered(out: Result, *operands: GraphTensor, **attrs: object) -> Any:
        return own_gradient(partial(rule, out, **attrs), *operands)

    return lowered


def with_gradient(
    compute: Rule, gradient: Callable[..., Sequence[GraphTensor]], *operands: GraphTensor
) -> GraphTensor:
    """Emit nodes with another gradient than TensorFlow's, ``gradient(g, y, *operands)``."""

    def lowered(*xs: GraphTensor) -> WithGradient:
        y = compute(*xs)
        return y, lambda g: [
            summed_to(grad, x) for grad, x in zip(gradient(g, y, *xs), xs, strict=True)
        ]

    return own_gradient(lowered, *operands)


# ------------------------------------------------------------------ slopes, run on tracers

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
        return tf.constant(x, dtype)
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
