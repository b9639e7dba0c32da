"""TensorFlow nodes: over axes: sums, extremes, statistics, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tapegraph.lowering.rules import (
    BOTH,
    Row,
    Rule,
    ints,
    is_large,
    number,
    permuted,
    raw,
    reshaped,
    unless,
)
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.reduce import kept_shape, last_order


def _sum(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return raw.Sum(input=_of(out, x), axis=ints(axis), keep_dims=keepdims)


def _mean(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return raw.Mean(input=_of(out, x), axis=ints(axis), keep_dims=keepdims)


def _of(out: Any, x: Any) -> Any:
    """Return an operand in the result's dtype: NumPy adds up bools as integers."""
    return x if x.dtype == out.dtype else raw.Cast(x=x, DstT=out.dtype)


def _softmax(out: Any, x: Any, *, axis: int) -> Any:
    last = len(out.shape) - 1
    return raw.Softmax(logits=x) if axis == last else _softmax_along(x, ints([axis]))


def _softmax_along(x: Any, axis: Any) -> Any:
    """Emit plain nodes: Softmax takes the last axis alone, and two transposes take longer."""

    def total(parts: Any) -> Any:
        return raw.Sum(input=parts, axis=axis, keep_dims=True)

    @tensorflow().custom_gradient  # type: ignore[untyped-decorator]
    def lowered(x: Any) -> Any:
        odds = raw.Exp(x=raw.Sub(x=x, y=raw.Max(input=x, axis=axis, keep_dims=True)))
        y = raw.RealDiv(x=odds, y=total(odds))

        def gradient(g: Any) -> Any:
            return raw.Mul(x=raw.Sub(x=g, y=total(raw.Mul(x=g, y=y))), y=y)

        return y, gradient

    return lowered(x)


def _max(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    y = raw.Max(input=x, axis=ints(axis), keep_dims=keepdims)
    return _reduced(x, y, axis, _chosen)


def _min(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    y = raw.Min(input=x, axis=ints(axis), keep_dims=keepdims)
    return _reduced(x, y, axis, _chosen)


def _prod(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    y = raw.Prod(input=x, axis=ints(axis), keep_dims=keepdims)
    return _reduced(x, y, axis, _others)


def _reduced(x: Any, y: Any, axis: tuple[int, ...], slope: Callable[..., Any]) -> Any:
    """Return a reduction ``y`` of ``x`` whose gradient is ``slope(x, y, axis)`` an element."""
    tf = tensorflow()
    kept = kept_shape(tuple(x.shape), axis)

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def lowered(x: Any) -> Any:
        def gradient(g: Any) -> Any:
            full = raw.BroadcastTo(input=reshaped(g, kept), shape=ints(x.shape))
            return raw.MulNoNan(x=slope(x, reshaped(y, kept), axis), y=full)

        return raw.Identity(input=y), gradient

    return lowered(x)


def _chosen(x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    """Share one among the elements that were chosen: those equal to ``y``, or the NaNs."""
    same = raw.Equal(x=x, y=y, incompatible_shape_error=True)
    nan = raw.IsNan(x=x)
    chosen = raw.Cast(x=raw.LogicalOr(x=same, y=nan), DstT=x.dtype)
    return raw.RealDiv(x=chosen, y=raw.Sum(input=chosen, axis=ints(axis), keep_dims=True))


def _others(x: Any, y: Any, axis: tuple[int, ...]) -> Any:
    """Multiply all other elements along the axes, without dividing."""
    order = last_order(len(x.shape), axis)
    moved = permuted(x, order)
    rest = len(order) - len(axis)
    flat = reshaped(moved, (*moved.shape[:rest], math.prod(moved.shape[rest:])))
    products = [
        raw.Cumprod(x=flat, axis=tensorflow().constant(rest), exclusive=True, reverse=reverse)
        for reverse in (False, True)
    ]
    others = reshaped(raw.Mul(x=products[0], y=products[1]), tuple(moved.shape))
    return permuted(others, sorted(range(len(order)), key=order.__getitem__))


def _cumsum(out: Any, x: Any, *, axis: int) -> Any:
    return raw.Cumsum(x=x, axis=tensorflow().constant(axis), exclusive=False, reverse=False)


def _cumprod(out: Any, x: Any, *, axis: int) -> Any:
    tf = tensorflow()
    along, n = tf.constant(axis), out.shape[axis]

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def lowered(x: Any) -> Any:
        def gradient(g: Any) -> Any:
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

        return raw.Cumprod(x=x, axis=along, exclusive=False, reverse=False), gradient

    return lowered(x)


def _shifted(x: Any, step: int, axis: int, filling: float = 1.0) -> Any:
    """Move elements ``step`` places down an axis, filling up behind them."""
    tf = tensorflow()
    shape = list(x.shape)
    if not shape[axis]:
        return x
    begin = [step if a == axis else 0 for a in range(len(shape))]
    moved = raw.Slice(input=x, begin=ints(begin), size=ints([-1] * len(shape)))
    shape[axis] = step
    fill = raw.Fill(dims=ints(shape), value=number(filling, x))
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
            total = raw.Sum(input=x, axis=ints(range(x.shape.rank)))  # NaN where there is one
            found = unless(total == total, found, lambda: _first_nan(x, along, found))
        else:
            found = _first_nan(x, along, found)
    return reshaped(found, out.shape)


def _first(node: str, x: Any, axis: int) -> Any:
    return getattr(raw, node)(input=x, dimension=axis, output_type="int64")


def _first_nan(x: Any, axis: int, otherwise: Any) -> Any:
    nan = raw.IsNan(x=x)
    some = raw.Any(input=nan, axis=ints([axis]), keep_dims=False)
    first = _first("ArgMax", raw.Cast(x=nan, DstT="int32"), axis)
    return raw.SelectV2(condition=some, t=first, e=otherwise)


def _truths(node: str) -> Rule:
    def rule(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
        true = raw.Cast(x=x, DstT=tensorflow().bool)
        return getattr(raw, node)(input=true, axis=ints(axis), keep_dims=keepdims)

    return rule


LOWERINGS: dict[str, Row | Rule] = {
    "argmax": _argmax,
    "argmin": _argmin,
    "all": _truths("All"),
    "any": _truths("Any"),
    "sum": Row(_sum, BOTH),
    "mean": Row(_mean, BOTH),
    "softmax": Row(_softmax, BOTH),
    "max": _max,
    "min": _min,
    "prod": _prod,
    "cumsum": _cumsum,
    "cumprod": _cumprod,
}
