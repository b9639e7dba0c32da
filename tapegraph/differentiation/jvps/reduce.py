"""JVP rules: over axes: sums, extremes, statistics, softmax."""

from __future__ import annotations

from typing import Any

from tapegraph.differentiation.jvps.rules import Rule, linear_in_first, mul_strong, per_input, value
from tapegraph.ops import reduce
from tapegraph.ops.elementwise import where
from tapegraph.ops.shape import concat, reshape
from tapegraph.recording.node import as_leaf


def _softmax(t: Any, y: Any, x: Any, *, axis: int) -> Any:
    weighted = mul_strong(t, y)
    return weighted - mul_strong(reduce.sum(weighted, axis=axis, keepdims=True), y)


def _extreme(t: Any, y: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    data = value(x)
    chosen = (data == value(y).reshape(reduce.kept_shape(data.shape, axis))) | (data != data)
    count = chosen.sum(axis=axis, keepdims=keepdims, dtype=data.dtype)
    return reduce.sum(where(chosen, t, 0.0), axis, keepdims) / as_leaf(count)


def _prod(t: Any, y: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    """Multiply the elements two by two, each pair by the product rule."""
    x, t = reduce.merged(x, axis), reduce.merged(t, axis)
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        (a, b, rest), (ta, tb, t_rest) = _in_parts(x, half), _in_parts(t, half)
        x = concat([a * b, rest], -1)
        t = concat([mul_strong(ta, b) + mul_strong(tb, a), t_rest], -1)
    return reshape(t, y.shape) if x.shape[-1] else None


def _in_parts(x: Any, half: int) -> tuple[Any, Any, Any]:
    return x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]


def _cumprod(t: Any, y: Any, x: Any, *, axis: int) -> Any:
    """Multiply each element by those before it, twice as many each time."""
    whole = (slice(None),) * axis
    step = 1
    while step < y.shape[axis]:
        parts = (slice(None, step), slice(step, None), slice(None, -step))
        first, after, before = ((*whole, part) for part in parts)
        t = concat(
            [t[first], mul_strong(t[after], x[before]) + mul_strong(t[before], x[after])], axis
        )
        x = concat([x[first], x[after] * x[before]], axis)
        step *= 2
    return t


JVPS: dict[str, Rule] = {
    "sum": linear_in_first(reduce.SUM),
    "mean": linear_in_first(reduce.MEAN),
    "softmax": per_input(_softmax),
    "max": per_input(_extreme),
    "min": per_input(_extreme),
    "prod": per_input(_prod),
    "cumsum": linear_in_first(reduce.CUMSUM),
    "cumprod": per_input(_cumprod),
}
