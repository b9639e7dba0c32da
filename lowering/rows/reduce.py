"""TensorFlow nodes: over axes: sums, extremes, statistics, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.lowering.rows.rules import (
    TO_FIRST,
    Row,
    Rule,
    cast_to,
    finfo,
    int_axes,
    ints,
    is_large,
    number_like,
    own_gradient,
    permuted,
    raw,
    reshaped,
    shape_of,
    unless,
)
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.reduce import kept_shape, last_order
from tapegraph.recording.op import Attrs


def _sum(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    # NumPy adds up bools as integers.
    return raw.Sum(input=cast_to(x, out.dtype), axis=int_axes(axis), keep_dims=keepdims)


def _mean(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return raw.Mean(input=cast_to(x, out.dtype), axis=int_axes(axis), keep_dims=keepdims)


def _softmax(out: Any, x: Any, *, axis: int) -> Any:
    last = len(out.shape) - 1
    return raw.Softmax(logits=x) if axis == last else _softmax_along(x, int_axes([axis]))


def _softmax_along(x: Any, axis: Any) -> Any:
    """Emit plain nodes: Softmax takes the last axis alone, and two transposes take longer."""

    def total(parts: Any) -> Any:
        return raw.Sum(input=parts, axis=axis, keep_dims=True)

    def lowered(x: Any) -> Any:
        odds = raw.Exp(x=raw.Sub(x=x, y=raw.Max(input=x, axis=axis, keep_dims=True)))
        y = raw.RealDiv(x=odds, y=total(odds))

        def gradient(g: Any) -> Any:
            return raw.Mul(x=raw.Sub(x=g, y=total(raw.Mul(x=g, y=y))), y=y)

        return y, gradient

    return own_gradient(lowered, x)


def _max(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    y = raw.Max(input=x, axis=int_axes(axis), keep_dims=keepdims)
    return _reduced(x, y, axis, _chosen)


def _min(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    y = raw.Min(input=x, axis=int_axes(axis), keep_dims=keepdims)
    return _reduced(x, y, axis, _chosen)


def _prod(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    y = raw.Prod(input=x, axis=int_axes(axis), keep_dims=keepdims)
    return _reduced(x, y, axis, _others)


def _reduced(x: Any, y: Any, axis: tuple[int, ...], slope: Callable[..., Any]) -> Any:
    """Return a reduction ``y`` of ``x`` whose gradient is ``slope(x, y, axis)`` an element."""
    kept = kept_shape(shape_of(x), axis)

    def lowered(x: Any) -> Any:
        def gradient(g: Any) -> Any:
            full = raw.BroadcastTo(input=reshaped(g, kept), shape=ints(shape_of(x)))
            return raw.MulNoNan(x=slope(x, reshaped(y, kept), axis), y=full)

        return raw.Identity(input=y), gradient

    return own_gradient(lowered, x)


def _chosen(x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    """Share one among the elements that were chosen: those equal to ``y``, or the NaNs."""
    same = raw.Equal(x=x, y=y, incompatible_shape_error=True)
    nan = raw.IsNan(x=x)
    chosen = raw.Cast(x=raw.LogicalOr(x=same, y=nan), DstT=x.dtype)
    return raw.RealDiv(x=chosen, y=raw.Sum(input=chosen, axis=int_axes(axis), keep_dims=True))


def _others(x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    """Multiply all other elements along the axes; divide where no product leaves the range."""
    if not is_large(x):
        return _products_of_others(x, axis)
    sizes, every = raw.Abs(x=x), ints(range(x.shape.rank))
    most, least = raw.Max(input=sizes, axis=every), raw.Min(input=sizes, axis=every)
    reach = 2.0 ** (-float(finfo(x).minexp) / math.prod(x.shape[a] for a in axis))
    right = (most < reach) & (least > 1.0 / reach)
    return unless(right, raw.RealDiv(x=y, y=x), lambda: _products_of_others(x, axis))


def _products_of_others(x: Any, axis: tuple[int, ...]) -> Any:
    order = last_order(len(x.shape), axis)
    moved = permuted(x, order)
    rest = len(order) - len(axis)
    shape = shape_of(moved)
    flat = reshaped(moved, (*shape[:rest], math.prod(shape[rest:])))
    products = [
        raw.Cumprod(x=flat, axis=tensorflow().constant(rest), exclusive=True, reverse=reverse)
        for reverse in (False, True)
    ]
    others = reshaped(raw.Mul(x=products[0], y=products[1]), shape)
    return permuted(others, sorted(range(len(order)), key=order.__getitem__))


def _cumsum(out: Any, x: Any, *, axis: int) -> Any:
    def lowered(x: Any) -> Any:
        return _running_sum(x, axis), lambda g: _running_sum(g, axis, reverse=True)

    return own_gradient(lowered, x)


def _running_sum(x: Any, axis: int, *, reverse: bool = False) -> Any:
    def one_by_one() -> Any:
        along = tensorflow().constant(axis)
        return raw.Cumsum(x=x, axis=along, exclusive=False, reverse=reverse)

    if axis != x.shape.rank - 1 or not is_large(x):
        return one_by_one()
    block = next((b for b in BLOCKS if x.shape[axis] % b == 0), None)
    if block is None:
        return one_by_one()
    quick = _sums_of_blocks(x, block, reverse)
    # A product with zeros carries a NaN and an infinity backwards too.
    total = raw.Sum(input=quick, axis=int_axes(range(x.shape.rank)))
    return unless(raw.IsFinite(x=total), quick, one_by_one)


BLOCKS = range(16, 65)


def _sums_of_blocks(x: Any, block: int, reverse: bool) -> Any:
    """Add up blocks by a product with a triangle of ones, and before each what others come to.

    Cumsum adds one number at a time, which takes up to four times as long.
    """
    shape = (*x.shape[:-1], x.shape[-1] // block, block)
    ones = np.triu(np.ones((block, block), x.dtype.as_numpy_dtype))
    triangle = tensorflow().constant(ones.T if reverse else ones)
    within = reshaped(raw.MatMul(a=reshaped(x, (-1, block)), b=triangle), shape)
    last = [0] * (len(shape) - 1) + [0 if reverse else block - 1]
    totals = raw.Slice(input=within, begin=ints(last), size=ints((*shape[:-1], 1)))
    others = raw.Cumsum(
        x=totals, axis=tensorflow().constant(len(shape) - 2), exclusive=True, reverse=reverse
    )
    return reshaped(raw.AddV2(x=within, y=others), tuple(x.shape))


def _cumprod(out: Any, x: Any, *, axis: int) -> Any:
    tf = tensorflow()
    along, n = tf.constant(axis), out.shape[axis]

    def lowered(x: Any) -> Any:
        y = raw.Cumprod(x=x, axis=along, exclusive=False, reverse=False)

        def gradient(g: Any) -> Any:
            if not is_large(x):
                return by_doubling(g)
            sizes, every, limits = raw.Abs(x=y), ints(range(x.shape.rank)), finfo(x)
            least = number_like(float(limits.tiny / limits.eps), x)
            most = number_like(float(limits.max * limits.eps), x)
            right = (raw.Min(input=sizes, axis=every) > least) & (
                raw.Sum(input=sizes, axis=every) < most
            )
            sums = _running_sum(raw.Mul(x=g, y=y), axis, reverse=True)
            return unless(right, raw.RealDiv(x=sums, y=x), lambda: by_doubling(g))

        def by_doubling(g: Any) -> Any:
            # h[k] = g[k] + x[k+1] h[k+1] by doubling; then dx[k] = h[k] y[k-1].
            h, reach = g, _shifted(x, 1, axis)
            step = 1
            while step < n:
                far = raw.MulNoNan(x=reach, y=_shifted(h, step, axis, filling=0.0))
                h = raw.AddV2(x=h, y=far)
                reach = raw.Mul(x=reach, y=_shifted(reach, step, axis))
                step *= 2
            before = raw.Cumprod(x=x, axis=along, exclusive=True, reverse=False)
            return raw.MulNoNan(x=before, y=h)

        return y, gradient

    return own_gradient(lowered, x)


def _shifted(x: Any, step: int, axis: int, filling: float = 1.0) -> Any:
    """Move elements ``step`` places down an axis, filling up behind them."""
    tf = tensorflow()
    shape = list(shape_of(x))
    if not shape[axis]:
        return x
    begin = [step if a == axis else 0 for a in range(len(shape))]
    moved = raw.Slice(input=x, begin=ints(begin), size=ints([-1] * len(shape)))
    shape[axis] = step
    fill = raw.Fill(dims=ints(shape), value=number_like(filling, x))
    return raw.ConcatV2(values=[moved, fill], axis=tf.constant(axis))


def _argmax(out: Any, x: Any, *, axis: int | None, keepdims: bool) -> Any:
    return _place("ArgMax", out, x, axis)


def _argmin(out: Any, x: Any, *, axis: int | None, keepdims: bool) -> Any:
    return _place("ArgMin", out, x, axis)


def _place(node: str, out: Any, x: Any, axis: int | None) -> Any:
    """Return the first place of the largest or smallest element, or of a NaN, as NumPy does."""
    along = 0 if axis is None else axis
    x = reshaped(x, (-1,)) if axis is None else x
    if x.dtype == tensorflow().bool:
        x = raw.Cast(x=x, DstT="int32")
    found = _first(node, x, along)
    if x.dtype.is_floating:
        if is_large(x):
            total = raw.Sum(input=x, axis=int_axes(range(x.shape.rank)))  # NaN where there is one
            found = unless(total == total, found, lambda: _first_nan(x, along, found))
        else:
            found = _first_nan(x, along, found)
    return reshaped(found, out.shape)


def _first(node: str, x: Any, axis: int) -> Any:
    return getattr(raw, node)(input=x, dimension=axis, output_type="int64")


def _first_nan(x: Any, axis: int, otherwise: Any) -> Any:
    nan = raw.IsNan(x=x)
    some = raw.Any(input=nan, axis=int_axes([axis]), keep_dims=False)
    first = _first("ArgMax", raw.Cast(x=nan, DstT="int32"), axis)
    return raw.SelectV2(condition=some, t=first, e=otherwise)


def _truths(node: str) -> Rule:
    def rule(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
        true = raw.Cast(x=x, DstT=tensorflow().bool)
        return getattr(raw, node)(input=true, axis=int_axes(axis), keep_dims=keepdims)

    return rule


def _over(attrs: Attrs) -> Attrs | None:
    left = [TO_FIRST[a] for a in range(len(TO_FIRST)) if a not in attrs["axis"]]
    if not attrs["keepdims"] and left != sorted(left):
        return None
    return {**attrs, "axis": tuple(sorted(TO_FIRST[a] for a in attrs["axis"]))}


def _along(attrs: Attrs) -> Attrs:
    return {**attrs, "axis": TO_FIRST[attrs["axis"]]}


LOWERINGS: dict[str, Row | Rule] = {
    "argmax": _argmax,
    "argmin": _argmin,
    "all": _truths("All"),
    "any": _truths("Any"),
    "sum": Row(_sum, xla=True),
    "mean": Row(_mean, xla=True),
    "softmax": Row(_softmax, xla=True),
    "max": _max,
    "min": _min,
    "prod": _prod,
    "cumsum": _cumsum,
    "cumprod": _cumprod,
}

# The attributes for images channels last; None where the result would be neither layout.
LAST_ATTRS: dict[str, Callable[[Attrs], Attrs | None]] = {
    **dict.fromkeys(("sum", "mean", "max", "min"), _over),
    "softmax": _along,
}
