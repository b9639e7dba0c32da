"""TensorFlow nodes: over axes: sums, extremes, statistics, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tapegraph.lowering.rules import (
    BOTH,
    TO_FIRST,
    Row,
    Rule,
    converted,
    ints,
    number,
    permuted,
    raw,
    reshaped,
)
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.reduce import kept_shape, last_order
from tapegraph.recording.op import Attrs


def _sum(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    # NumPy adds up bools as integers.
    return raw.Sum(input=converted(x, out.dtype), axis=ints(axis), keep_dims=keepdims)


def _mean(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return raw.Mean(input=converted(x, out.dtype), axis=ints(axis), keep_dims=keepdims)


def _softmax(out: Any, x: Any, *, axis: int) -> Any:
    last = len(out.shape) - 1
    if axis == last:
        return raw.Softmax(logits=x)
    swap = list(range(last + 1))
    swap[axis], swap[last] = last, axis
    return permuted(raw.Softmax(logits=permuted(x, swap)), swap)


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
    """Return the first place of the largest element, or of a NaN, as NumPy does."""
    along = 0 if axis is None else axis
    x = reshaped(x, (-1,)) if axis is None else x
    if x.dtype == tensorflow().bool:
        x = raw.Cast(x=x, DstT="int32")
    found = _first(x, along)
    if x.dtype.is_floating:
        nan = raw.IsNan(x=x)
        some = raw.Any(input=nan, axis=ints([along]), keep_dims=False)
        found = raw.SelectV2(
            condition=some, t=_first(raw.Cast(x=nan, DstT="int32"), along), e=found
        )
    return reshaped(found, out.shape)


def _first(x: Any, axis: int) -> Any:
    return raw.ArgMax(input=x, dimension=axis, output_type="int64")


def _argmin(out: Any, x: Any, *, axis: int | None, keepdims: bool) -> Any:
    x = raw.Cast(x=x, DstT="int32") if x.dtype == tensorflow().bool else x
    below = raw.Neg(x=x) if x.dtype.is_floating else raw.Invert(x=x)
    return _argmax(out, below, axis=axis, keepdims=keepdims)


def _truths(node: str) -> Rule:
    def rule(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
        true = raw.Cast(x=x, DstT=tensorflow().bool)
        return getattr(raw, node)(input=true, axis=ints(axis), keep_dims=keepdims)

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
    "sum": Row(_sum, BOTH),
    "mean": Row(_mean, BOTH),
    "softmax": Row(_softmax, BOTH),
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
