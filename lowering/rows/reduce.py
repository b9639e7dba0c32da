"""TensorFlow nodes: sums, extremes, statistics, softmax."""

from __future__ import annotations

import math
import operator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.lowering.rows import (
    Result,
    Row,
    Rule,
    WithGradient,
    cast_to,
    ints,
    is_large,
    keeping_zeros,
    number_like,
    permuted,
    raw,
    reduced,
    reshaped,
    selected,
    shape_of,
    unless,
    with_gradient,
    with_own_gradient,
)
from tapegraph.lowering.runtime import GraphTensor, tf
from tapegraph.ops.reduce import kept_shape, last_order
from tapegraph.typed import Fun


def _over_axes(node: str) -> Rule:
    """Return the rule of a reduction, in its result's dtype: NumPy adds bools as integers."""

    def rule(out: Result, x: GraphTensor, *, axis: tuple[int, ...], keepdims: bool) -> GraphTensor:
        return reduced(node, cast_to(x, out.dtype), axis, keepdims=keepdims)

    return rule


def _by_slope(node: str, slope: Fun) -> Rule:
    """Return the rule of a reduction whose gradient is ``slope(x, y, axis)`` for an element."""

    @with_own_gradient
    def rule(out: Result, x: GraphTensor, *, axis: tuple[int, ...], keepdims: bool) -> WithGradient:
        kept = kept_shape(shape_of(x), axis)
        y = reduced(node, x, axis, keepdims=keepdims)

        def gradient(g: GraphTensor) -> GraphTensor:
            full = raw.BroadcastTo(input=reshaped(g, kept), shape=ints(shape_of(x)))
            return raw.MulNoNan(x=slope(x, reshaped(y, kept), axis), y=full)

        return y, gradient

    return rule


def _chosen(x: GraphTensor, y: GraphTensor, axis: tuple[int, ...]) -> GraphTensor:
    """Share one among the chosen elements: those equal to ``y``, or the NaNs."""
    same = raw.Equal(x=x, y=y, incompatible_shape_error=True)
    chosen = raw.Cast(x=same | raw.IsNan(x=x), DstT=x.dtype)
    return chosen / reduced("Sum", chosen, axis, keepdims=True)


def _others(x: GraphTensor, y: GraphTensor, axis: tuple[int, ...]) -> GraphTensor:
    """Multiply all other elements along the axes."""
    order = last_order(len(x.shape), axis)
    moved = permuted(x, order)
    rest = len(order) - len(axis)
    shape = shape_of(moved)
    flat = reshaped(moved, (*shape[:rest], math.prod(shape[rest:])))
    before, after = (
        raw.Cumprod(x=flat, axis=rest, exclusive=True, reverse=reverse) for reverse in (False, True)
    )
    others = reshaped(before * after, shape)
    return permuted(others, sorted(range(len(order)), key=order.__getitem__))


def _softmax(out: Result, x: GraphTensor, *, axis: int, times: Fun = operator.mul) -> GraphTensor:
    """Emit the operation with a product ``times`` of a factor and a cotangent."""
    is_last = axis == len(out.shape) - 1
    if is_last and times is operator.mul:
        return raw.Softmax(logits=x)  # with a gradient of TensorFlow's, which is this one

    def compute(x: GraphTensor) -> GraphTensor:
        if is_last:
            return raw.Softmax(logits=x)
        # Plain nodes: Softmax takes the last axis alone, and two transposes take longer.
        exps = raw.Exp(x=x - reduced("Max", x, [axis], keepdims=True))
        return exps / reduced("Sum", exps, [axis], keepdims=True)

    def gradient(g: GraphTensor, y: GraphTensor, x: GraphTensor) -> list[GraphTensor]:
        return [times(y, g - reduced("Sum", times(y, g), [axis], keepdims=True))]

    return with_gradient(compute, gradient, x)


@with_own_gradient
def _cumsum(out: Result, x: GraphTensor, *, axis: int) -> WithGradient:
    return _running_sum(x, axis), lambda g: _running_sum(g, axis, reverse=True)


def _running_sum(x: GraphTensor, axis: int, *, reverse: bool = False) -> GraphTensor:
    def one_by_one() -> GraphTensor:
        return raw.Cumsum(x=x, axis=axis, exclusive=False, reverse=reverse)

    may_be_quick = axis == x.shape.rank - 1 and is_large(x) and x.dtype.is_floating
    block = next((b for b in BLOCKS if x.shape[axis] % b == 0), None) if may_be_quick else None
    if block is None:
        return one_by_one()
    quick = _sums_of_blocks(x, block, reverse)
    # A product with zeros carries a NaN and an infinity backwards too.
    return unless(raw.IsFinite(x=reduced("Sum", quick)), quick, one_by_one)


BLOCKS = range(16, 65)


def _sums_of_blocks(x: GraphTensor, block: int, reverse: bool) -> GraphTensor:
    """Sum blocks by a triangle of ones, four times as fast as Cumsum, and add the blocks before."""
    shape = (*x.shape[:-1], x.shape[-1] // block, block)
    ones = np.triu(np.ones((block, block), x.dtype.as_numpy_dtype))
    triangle = tf.constant(ones.T if reverse else ones)
    within = reshaped(raw.MatMul(a=reshaped(x, (-1, block)), b=triangle), shape)
    last = [0] * (len(shape) - 1) + [0 if reverse else block - 1]
    totals = raw.Slice(input=within, begin=ints(last), size=ints((*shape[:-1], 1)))
    others = raw.Cumsum(x=totals, axis=len(shape) - 2, exclusive=True, reverse=reverse)
    return reshaped(within + others, tuple(x.shape))


@with_own_gradient
def _cumprod(out: Result, x: GraphTensor, *, axis: int) -> WithGradient:
    y = raw.Cumprod(x=x, axis=axis, exclusive=False, reverse=False)

    def gradient(g: GraphTensor) -> GraphTensor:
        # h[k] = g[k] + x[k+1] h[k+1] by doubling; then dx[k] = h[k] y[k-1].
        h, reach = g, _shifted(x, 1, axis)
        length: Any = out.shape[axis]  # a `Size` compares with no number, and is refused
        step = 1
        while step < length:
            h += raw.MulNoNan(x=reach, y=_shifted(h, step, axis, filling=0.0))
            reach *= _shifted(reach, step, axis)
            step *= 2
        before = raw.Cumprod(x=x, axis=axis, exclusive=True, reverse=False)
        return raw.MulNoNan(x=before, y=h)

    return y, gradient


def _shifted(x: GraphTensor, step: int, axis: int, filling: float = 1.0) -> GraphTensor:
    shape = list(shape_of(x))
    if not shape[axis]:
        return x
    begin = [step if a == axis else 0 for a in range(len(shape))]
    moved = raw.Slice(input=x, begin=ints(begin), size=ints([-1] * len(shape)))
    shape[axis] = step
    fill = raw.Fill(dims=ints(shape), value=number_like(filling, x))
    return raw.ConcatV2(values=[moved, fill], axis=axis)


def _place(node: str) -> Rule:
    """Return the rule of the first place of an extreme element, or of a NaN, as in NumPy."""

    def rule(out: Result, x: GraphTensor, *, axis: int | None, keepdims: bool) -> GraphTensor:
        along = 0 if axis is None else axis
        x = reshaped(x, (-1,)) if axis is None else x
        if x.dtype == tf.bool:
            x = raw.Cast(x=x, DstT="int32")
        found = _first(node, x, along)
        if x.dtype.is_floating and is_large(x):
            total = reduced("Sum", x)
            found = unless(total == total, found, lambda: _first_nan(x, along, found))
        elif x.dtype.is_floating:
            found = _first_nan(x, along, found)
        return reshaped(found, out.shape)

    return rule


def _first(node: str, x: GraphTensor, axis: int) -> GraphTensor:
    return getattr(raw, node)(input=x, dimension=axis, output_type="int64")


def _first_nan(x: GraphTensor, axis: int, otherwise: GraphTensor) -> GraphTensor:
    nan = raw.IsNan(x=x)
    first = _first("ArgMax", raw.Cast(x=nan, DstT="int32"), axis)
    return selected(reduced("Any", nan, [axis]), first, otherwise)


LOWERINGS: dict[str, Row | Rule] = {
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "all": _over_axes("All"),
    "any": _over_axes("Any"),
    "sum": Row(_over_axes("Sum"), xla=True, complex=True),
    "mean": Row(_over_axes("Mean"), xla=True, complex=True),
    "softmax": Row(_softmax, xla=True, strong_zero=partial(_softmax, times=keeping_zeros)),
    "max": _by_slope("Max", _chosen),
    "min": _by_slope("Min", _chosen),
    "prod": Row(_by_slope("Prod", _others), complex=_over_axes("Prod")),
    "cumsum": Row(_cumsum, complex=True),
    "cumprod": _cumprod,
}
