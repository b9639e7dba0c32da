"""The table of lowerings, its gaps, and the helpers of its rows.

A rule ``rule(out, *inputs, **attrs)`` emits an operation's TensorFlow nodes: ``inputs`` are graph
tensors, ``out`` is the recorded `Result`. A `Row` holds more about an operation than its rule.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from itertools import zip_longest
from typing import Any, Literal, NamedTuple, Union

import numpy as np

from tapegraph.engines.engine import EngineDeclined
from tapegraph.lowering.runtime import GraphTensor, tensorflow
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
    :ivar complex: The rule for complex numbers, or True for the same one. TensorFlow's gradients
        conjugate as ours do. Without it they run natively.
    :ivar strong_zero: The rule with strong zeros, if neither the rule nor the slopes supply it.
    :ivar shape: The result's shape from those of the operands, for eager kernels; those of
        element-wise operations broadcast.
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
        for body in subprograms(given):
            inner = body.program
            if GRADIENT in inner.ops:
                return f"{op.name} takes gradients inside, which a plain backward does natively"
            gap = gap_among(inner.ops, inner.attrs)
            if gap:
                return gap
    return None


class RawOps:
    """``tf.raw_ops``, looked up when used: the families are imported without TensorFlow."""

    def __getattr__(self, name: str) -> Callable[..., GraphTensor]:
        return getattr(tensorflow().raw_ops, name)


raw = RawOps()


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
    """Return the shape of a tensor, with a `Size` for each free axis."""
    if None not in x.shape:
        return tuple(x.shape)
    lengths = raw.Shape(input=x, out_type="int64")
    return tuple(Size(lengths[i]) if n is None else n for i, n in enumerate(x.shape))


def known(shape: tuple[AxisLength, ...]) -> tuple[int | None, ...]:
    """Return a shape as TensorFlow writes it, with None for free axes."""
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
    tf = tensorflow()
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
    """Return a scalar constant of another tensor's dtype, or a `Size` in it."""
    return scalar(value, like.dtype)


def cast_to(x: GraphTensor, dtype: object) -> GraphTensor:
    """Return a tensor in another dtype; the gradient of a number made complex is real again."""
    wanted = tensorflow().as_dtype(dtype)
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
    """Choose number by number between two tensors, or a tensor and a number."""
    if not isinstance(otherwise, float):
        chosen = number_like(chosen, otherwise) if isinstance(chosen, float) else chosen
    elif not isinstance(chosen, float):
        otherwise = number_like(otherwise, chosen)
    return raw.SelectV2(condition=condition, t=chosen, e=otherwise)


def keeping_zeros(factor: GraphTensor, g: GraphTensor) -> GraphTensor:
    """Multiply a cotangent by a factor, of which its zeros absorb any."""
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
    return tensorflow().cond(right, lambda: quick, careful)


# Collects the conditions for a graph's numbers to be valid; otherwise the native engine runs.
# None where nobody else does: then the graph branches.
GUARDS: ContextVar[list[GraphTensor] | None] = ContextVar("tapegraph_guards", default=None)


def own_gradient(compute: Callable[..., WithGradient], *operands: GraphTensor) -> Any:
    """Emit nodes with their own gradient: ``compute`` returns a result and its gradient."""
    tf = tensorflow()

    def lowered(*xs: GraphTensor) -> WithGradient:
        y, gradient = compute(*xs)
        # A gathered tensor's gradient is IndexedSlices.
        return y, lambda *gs: gradient(*(g if g is None else tf.convert_to_tensor(g) for g in gs))

    return tf.custom_gradient(lowered)(*operands)


def with_own_gradient(rule: Callable[..., WithGradient]) -> Rule:
    """Return the rule of nodes with their own gradient, which ``rule`` returns with the result."""

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
