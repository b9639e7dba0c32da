"""The table of lowerings and what every row of it may use.

A rule ``rule(out, *inputs, **attrs)`` emits the TensorFlow nodes of one operation: ``inputs`` are
graph tensors, ``out`` is the `Result` that the tape recorded. Where there is more to say of an
operation than its rule, it is a `Row`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from tapegraph.lowering.runtime import tensorflow

Rule = Callable[..., Any]


class Size:
    """The length of a free axis, known when the graph runs: it counts as an int in a shape.

    :ivar tensor: The length, an int64 of no axes.
    """

    __slots__ = ("tensor",)

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __mul__(self, other: Any) -> Size:
        return Size(self.tensor * _length(other))

    def __add__(self, other: Any) -> Size:
        return Size(self.tensor + _length(other))

    def __sub__(self, other: Any) -> Size:
        return Size(self.tensor - _length(other))

    __rmul__, __radd__ = __mul__, __add__

    def __rsub__(self, other: Any) -> Size:
        return Size(_length(other) - self.tensor)


def _length(n: Any) -> Any:
    return n.tensor if isinstance(n, Size) else graph_constant(int(n), "int64")


def shape_of(x: Any) -> tuple[Any, ...]:
    """Return the shape of a tensor, with a `Size` for each axis that is free."""
    if None not in x.shape:
        return tuple(x.shape)
    lengths = raw.Shape(input=x, out_type="int64")
    return tuple(Size(lengths[i]) if n is None else n for i, n in enumerate(x.shape))


def known(shape: tuple[Any, ...]) -> tuple[int | None, ...]:
    """Return a shape as TensorFlow writes it, with None for what is free."""
    return tuple(None if isinstance(n, Size) else n for n in shape)


def broadcast_shape(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """Return the shape that tensors broadcast to."""
    axes = zip_longest(*(reversed(shape_of(x)) for x in tensors), fillvalue=1)
    return tuple(next((n for n in lengths if n != 1), 1) for lengths in axes)[::-1]


class Result(NamedTuple):
    """Shape and dtype that the tape recorded for an entry; a free axis has a `Size`."""

    shape: tuple[Any, ...]
    dtype: str


class Row(NamedTuple):
    """The rule of an operation, and what is known of it.

    ``xla``: with XLA it gives the same in all its cases, NaN and ties included. ``reads_rows``
    returns from the attributes whether it reads whole rows of its first input.
    """

    rule: Rule
    xla: bool = False
    reads_rows: Callable[..., bool] | None = None

    def reads_rows_with(self, attrs: Mapping[str, Any]) -> bool:
        """Return whether it reads whole rows of its first input, with these attributes."""
        return self.reads_rows is not None and self.reads_rows(**attrs)


LOWERINGS: dict[str, Row] = {}
# Rules with a gradient of their own in which a zero cotangent absorbs what it meets.
KEEPING_ZEROS: set[Rule] = set()


def keeps_zeros(rule: Rule) -> Rule:
    """Register a rule that needs no other one where zeros must absorb."""
    KEEPING_ZEROS.add(rule)
    return rule


# The orders of axes that take images from channels first to last, and back.
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


class RawOps:
    """``tf.raw_ops``, looked up when used: the families are imported without TensorFlow."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tensorflow().raw_ops, name)


raw = RawOps()


# Where a graph holds its constants: a step would have hundreds of the same axes and numbers. They
# hold the graph, so a table outside it would keep every graph there ever was.
_CONSTANTS = "_tapegraph_constants"


def graph_constant(value: Any, dtype: Any, shape: tuple[int, ...] = ()) -> Any:
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


def ints(values: Any) -> Any:
    """Return an int64 constant, or what takes its place where there is a `Size` among them."""
    values = list(values)
    if any(isinstance(v, Size) for v in values):
        return raw.Pack(values=[_length(v) for v in values], axis=0)
    numbers = [int(v) for v in values]
    return graph_constant(numbers, "int64", (len(numbers),))


def int_axes(axes: Any) -> Any:
    """Return axes to reduce: int32, as TensorFlow's own gradients want them beside a free axis."""
    axes = [int(axis) for axis in axes]
    return graph_constant(axes, "int32", (len(axes),))


def number_like(value: Any, like: Any) -> Any:
    """Return a scalar constant of another tensor's dtype, or a `Size` in it."""
    return scalar(value, like.dtype)


def scalar(value: Any, dtype: Any) -> Any:
    """Return a scalar constant, or a `Size`, in a dtype."""
    return cast_to(value.tensor, dtype) if isinstance(value, Size) else graph_constant(value, dtype)


def cast_to(x: Any, dtype: Any) -> Any:
    """Return a tensor in another dtype; the gradient of a number made complex is real again."""
    wanted = tensorflow().as_dtype(dtype)
    if x.dtype == wanted:
        return x
    if wanted.is_complex and not x.dtype.is_complex:  # of a Cast, TensorFlow's own warns
        real = cast_to(x, wanted.real_dtype)
        return raw.Complex(real=real, imag=raw.ZerosLike(x=real), Tout=wanted)
    return raw.Cast(x=x, DstT=wanted)


def reshaped(x: Any, shape: tuple[Any, ...]) -> Any:
    """Return a tensor in another shape."""
    return raw.Reshape(tensor=x, shape=ints(shape))


def permuted(x: Any, axes: Any) -> Any:
    """Return a tensor with its axes in another order."""
    return raw.Transpose(x=x, perm=ints(axes))


def reordered(x: Any, axes: tuple[int, ...]) -> Any:
    """Return a tensor with its axes in another order: a reshape where no number moves."""
    shape = shape_of(x)
    if [i for i in axes if shape[i] != 1] == [i for i, n in enumerate(shape) if n != 1]:
        return reshaped(x, tuple(shape[i] for i in axes))
    return permuted(x, axes)


def channels_last(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of images when their channels come last."""
    return tuple(shape[i] for i in TO_LAST)


# From so many elements on, a look whether the quick nodes are right costs less than others take.
_LARGE = 1 << 14


def is_large(x: Any) -> bool:
    """Return whether a tensor has so many elements that quick nodes are worth a condition.

    One with a free axis may have few.
    """
    return None not in x.shape and bool(math.prod(x.shape) >= _LARGE)


def finfo(x: Any) -> Any:
    """Return what NumPy knows of the range and the digits of a tensor's floats."""
    return np.finfo(x.dtype.as_numpy_dtype)


def unless(right: Any, quick: Any, careful: Callable[[], Any]) -> Any:
    """Return what quick nodes gave where that is right, and what others give where it is not."""
    return tensorflow().cond(right, lambda: quick, careful)


def summed_to(g: Any, x: Any) -> Any:
    """Sum a gradient over the axes along which its operand ``x`` was broadcast."""
    extra = g.shape.rank - x.shape.rank
    kept = (1,) * extra + tuple(x.shape)
    axes = [i for i, n in enumerate(kept) if i < extra or (n == 1 and g.shape[i] != 1)]
    return reshaped(raw.Sum(input=g, axis=int_axes(axes)), shape_of(x)) if axes else g


def own_gradient(compute: Callable[..., Any], *operands: Any) -> Any:
    """Emit nodes with a gradient of their own: ``compute`` returns a result and its gradient."""
    return tensorflow().custom_gradient(compute)(*operands)


def with_gradient(out: Any, compute: Rule, gradient: Callable[..., Any], *operands: Any) -> Any:
    """Emit nodes whose own gradient is not the one agreed, with the one that is.

    ``gradient(g, y, *operands)`` gives a full-shape gradient per operand.
    """

    def lowered(*xs: Any) -> Any:
        y = compute(*xs)
        return y, lambda g: gradient(g, y, *xs)

    # At full size; broadcast_to's own gradient sums back.
    shape = known(out.shape)
    full = (
        x if tuple(x.shape) == shape else raw.BroadcastTo(input=x, shape=ints(out.shape))
        for x in operands
    )
    return own_gradient(lowered, *full)
