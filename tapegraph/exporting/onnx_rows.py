"""ONNX nodes of the operations, for inference: of opset 18.

A rule ``rule(out, *inputs, **attrs)`` returns a result, of which ``out`` has the shape and dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tapegraph.exporting.onnx_graph import Wire
from tapegraph.exporting.recorded import Length
from tapegraph.ops.elementwise import GELU_CUBIC, GELU_SCALE, LN2, LN10

Rule = Callable[..., Wire]


def _one(kind: str) -> Rule:
    return lambda out, x, *others: x.node(kind, *others)


def _truths(kind: str) -> Rule:
    return lambda out, x, *others: x.to(bool).node(kind, *(y.to(bool) for y in others))


def _gelu(out: Wire, x: Wire) -> Wire:
    bend = ((x * x * (GELU_SCALE * GELU_CUBIC) + GELU_SCALE) * x).node("Tanh")
    return (bend + 1.0) * 0.5 * x


def _log1p(out: Wire, x: Wire) -> Wire:
    """Emit ``log(1 + x)`` times ``x`` by what rounding ``1 + x`` left of it."""
    whole = x + 1.0
    left, log = whole - 1.0, whole.node("Log")
    none = left.equal(0.0)
    return none.where(x, (left >= math.inf).where(log, log * (x / none.where(1.0, left))))


def _logaddexp(out: Wire, a: Wire, b: Wire) -> Wire:
    gap = a.equal(b).where(0.0, a - b)  # not inf - inf
    return a.node("Max", b) + _log1p(out, (-gap.node("Abs")).node("Exp"))


def _mod(out: Wire, a: Wire, b: Wire) -> Wire:
    """Emit C's remainder, with the divisor added where its sign is another."""
    if a.dtype.kind != "f":
        return a.node("Mod", b)
    rest = a.node("Mod", b, fmod=1)
    return (rest * b.node("Sign") < 0.0).where(rest + b, rest)


def _floor_divide(out: Wire, a: Wire, b: Wire) -> Wire:
    """Emit NumPy's whole part, which goes with the remainder: that of 1.0 // 0.1 is 9."""
    if a.dtype.kind != "f":
        return (a - _mod(out, a, b)) / b
    rest = a.node("Mod", b, fmod=1)
    parts = (a - rest) / b - (rest * b.node("Sign") < 0.0).to(a.dtype)
    low = parts.node("Floor")
    return b.equal(0.0).where(a / b, low + (parts - low > 0.5).to(a.dtype))


def _round(out: Wire, x: Wire, *, decimals: int) -> Wire:
    if decimals <= 0:
        return (x / 10.0**-decimals).node("Round") * 10.0**-decimals
    return (x * 10.0**decimals).node("Round") / x.like(10.0**decimals)


def _reduced(kind: str) -> Rule:
    return lambda out, x, *, axis, keepdims: x.to(out.dtype).over(kind, axis, keepdims)


def _some(x: Wire, axis: Iterable[int], keepdims: bool = True) -> Wire:
    return x.to(np.int32).over("ReduceSum", axis, keepdims) > 0


def _extreme(kind: str) -> Rule:
    """Return the rule of the largest or the smallest, or of a NaN, which the node passes over."""

    def rule(out: Wire, x: Wire, *, axis: tuple[int, ...], keepdims: bool) -> Wire:
        y = x.over(kind, axis, keepdims)
        return _some(x.is_nan(), axis, keepdims).where(math.nan, y) if x.dtype.kind == "f" else y

    return rule


def _place(kind: str) -> Rule:
    """Return the rule of the first place of the largest or the smallest, or of a NaN."""

    def rule(out: Wire, x: Wire, *, axis: int | None, keepdims: bool) -> Wire:
        x = x.to(np.int32) if x.dtype == bool else x
        x, along = (x.reshaped((-1,)), 0) if axis is None else (x, axis)
        nan = x.is_nan()
        first = nan.to(np.int32).node("ArgMax", axis=along)
        return _some(nan, [along]).where(first, x.node(kind, axis=along)).reshaped(out.shape)

    return rule


def _norm(out: Wire, x: Wire, *, axis: tuple[int, ...], keepdims: bool, ord: float) -> Wire:
    if math.isinf(ord):
        rule = _extreme("ReduceMax" if ord > 0 else "ReduceMin")
        return rule(out, x.node("Abs"), axis=axis, keepdims=keepdims)
    powers = x * x if ord == 2 else x.node("Abs").node("Pow", ord)
    total = powers.over("ReduceSum", axis, keepdims)
    return total.node("Sqrt") if ord == 2 else total.node("Pow", 1.0 / ord)


def _getitem(out: Wire, x: Wire, begin: Wire, end: Wire, *, plan: tuple[Any, ...]) -> Wire:
    ints, kept = out.graph.ints, [i for i, part in enumerate(plan) if part is not None]
    free = any(isinstance(n, Length) for n in x.shape)
    if len(kept) < len(plan):
        begin, end = begin.node("Gather", ints(kept)), end.node("Gather", ints(kept))
    if kept:
        steps = [plan[i][1] if isinstance(plan[i], tuple) else 1 for i in kept]
        if free and min(steps) > 0:
            end = end.node("Max", 0)  # -1, as of x[:-3] for a batch of 2, would be the last
        x = x.node("Slice", begin, end, ints(range(len(kept))), ints(steps))
    # A batch that has fewer rows than are taken is an error.
    plain = not free and all(isinstance(part, tuple) for part in plan)
    return x if plain else x.reshaped(out.shape, exactly=free)


def _index(out: Wire, x: Wire, *arrays: Wire, plan: tuple[str, ...]) -> Wire:
    axes = [i for i, part in enumerate(plan) if part == "array"]
    if len(axes) == 1:
        return x.node("Gather", arrays[0].to(np.int64), axis=axes[0])
    rest = [i for i, part in enumerate(plan) if part != "array"]
    rank = len(out.shape) - len(rest)
    # NumPy puts the indexed axes first where they stand apart, and in their place otherwise.
    before = axes[0] if rest and axes == list(range(axes[0], axes[-1] + 1)) else 0
    shape = out.shape[before : before + rank]
    full = [a.to(np.int64).node("Expand", out.graph.ints(shape)) for a in arrays]
    places = out.graph.node("Concat", *(a.reshaped((*shape, 1)) for a in full), axis=rank)
    taken = x.node("Transpose", perm=axes + rest).node("GatherND", places)
    order = [*range(rank, rank + before), *range(rank), *range(rank + before, len(out.shape))]
    return taken.node("Transpose", perm=order)


def _within(out: Wire, x: Wire, *, low: int, high: int) -> Wire:
    x = x.to(np.int64)
    inside = (x < 0).where(x + high, x)
    return ((x >= low) & (x < high)).where(inside, x.like(high))  # else what gathers by it fails


def _argsort(out: Wire, x: Wire, *, axis: int) -> Wire:
    """Emit the stable order, NaN last, of which TopK knows nothing."""

    def order(x: Wire) -> Wire:
        count = out.graph.ints([out.shape[axis]])
        return x.node("TopK", count, at=1, axis=axis, largest=0)

    if x.dtype.kind != "f":
        return order(x.to(np.int32) if x.dtype == bool else x)
    first = order(x.is_nan().where(math.inf, x))
    behind = x.is_nan().to(np.int32).node("GatherElements", first, axis=axis)
    return first.node("GatherElements", order(behind), axis=axis)


def _roll(out: Wire, x: Wire, *, shift: tuple[Any, ...], axis: tuple[int, ...]) -> Wire:
    ints = out.graph.ints
    for distance, along in zip(shift, axis, strict=True):
        cut = -ints([distance]).node("Mod", ints([out.shape[along]]))
        tail = x.node("Slice", cut, ints([np.iinfo(np.int64).max]), ints([along]))
        x = tail.node("Concat", x.node("Slice", ints([0]), cut, ints([along])), axis=along)
    return x


def _einsum(out: Wire, *operands: Wire, spec: str) -> Wire:
    if any(0 in x.shape for x in operands):  # of which onnxruntime 1.23 crashes
        return out.like(0).node("Expand", out.graph.ints(out.shape))
    return out.graph.node("Einsum", *(x.to(out.dtype) for x in operands), equation=spec)


def _pool(kind: str) -> Rule:
    return lambda out, x, *, ksize, stride, pad: x.node(
        kind, kernel_shape=ksize, strides=stride, pads=(*pad, *pad)
    )


def _layer_norm(out: Wire, x: Wire, *affine: Wire, eps: float) -> Wire:
    x, gamma, beta = (part.to(out.dtype) for part in (x, *affine))
    if out.dtype == np.float32 and gamma.shape == beta.shape == x.shape[-1:]:
        return x.node("LayerNormalization", gamma, beta, epsilon=eps)
    centred = x - x.over("ReduceMean", [len(x.shape) - 1])
    variance = (centred * centred).over("ReduceMean", [len(x.shape) - 1])
    return centred / (variance + eps).node("Sqrt") * gamma + beta


# Those that are one node, of the same name or another; and formulas, by their names.
_SAME = (
    "add sub mul div pow neg sin cos tan sinh cosh exp log sqrt tanh sigmoid relu abs sign floor "
    "ceil equal less greater erf det"
)
_OTHER = (
    "arcsin=Asin arccos=Acos arctan=Atan arcsinh=Asinh arccosh=Acosh arctanh=Atanh maximum=Max "
    "minimum=Min rint=Round less_equal=LessOrEqual greater_equal=GreaterOrEqual detach=Identity "
    "matmul=MatMul batch_matmul=MatMul"
)
_FORMULAS = _gelu, _log1p, _logaddexp, _mod, _floor_divide, _round, _norm, _einsum, _layer_norm
_MOVES = _getitem, _index, _within, _argsort, _roll
ROWS: dict[str, Rule] = {
    **{op: _one(op.capitalize()) for op in _SAME.split()},
    **{op: _one(kind) for op, kind in (pair.split("=") for pair in _OTHER.split())},
    **{rule.__name__[1:]: rule for rule in (*_FORMULAS, *_MOVES)},
    **{f"logical_{kind.lower()}": _truths(kind) for kind in ("And", "Or", "Xor", "Not")},
    "silu": lambda out, x: x * x.node("Sigmoid"),
    "cbrt": lambda out, x: x.node("Sign") * x.node("Abs").node("Pow", 1.0 / 3.0),
    "log2": lambda out, x: x.node("Log") / x.like(LN2),
    "log10": lambda out, x: x.node("Log") / x.like(LN10),
    "exp2": lambda out, x: x.like(2.0).node("Pow", x),
    "expm1": lambda out, x: (x * 0.5).node("Tanh") * (x.node("Exp") + 1.0),  # precise near 0
    "fmax": lambda out, a, b: ((a >= b) | b.is_nan()).where(a, b),
    "fmin": lambda out, a, b: ((a <= b) | b.is_nan()).where(a, b),
    "trunc": lambda out, x: x.node("Sign") * x.node("Abs").node("Floor"),
    "astype": lambda out, x, *, dtype: x.to(np.dtype(dtype)),
    "where": lambda out, cond, a, b: cond.to(bool).where(a, b),
    "not_equal": lambda out, a, b: ~a.equal(b),
    "isnan": lambda out, x: x.is_nan(),
    "isinf": lambda out, x: (x - x).is_nan() & ~x.is_nan(),
    "isfinite": lambda out, x: ~(x - x).is_nan(),
    "sum": _reduced("ReduceSum"),
    "mean": _reduced("ReduceMean"),
    "prod": _reduced("ReduceProd"),
    "max": _extreme("ReduceMax"),
    "min": _extreme("ReduceMin"),
    "any": lambda out, x, *, axis, keepdims: _some(x.to(bool), axis, keepdims),
    "all": lambda out, x, *, axis, keepdims: ~_some(~x.to(bool), axis, keepdims),
    "argmax": _place("ArgMax"),
    "argmin": _place("ArgMin"),
    "softmax": lambda out, x, *, axis: x.node("Softmax", axis=axis),
    "cumsum": lambda out, x, *, axis: x.node("CumSum", out.graph.constant(axis, np.int64)),
    "transpose": lambda out, x, *, axes: x.node("Transpose", perm=axes) if axes else x,
    "reshape": lambda out, x, *, shape: x.reshaped(shape),
    "broadcast_to": lambda out, x, *, shape: x.node("Expand", out.graph.ints(shape)),
    "concat": lambda out, *parts, axis: out.graph.node("Concat", *parts, axis=axis),
    "tensor_slice": lambda out, x, begin, *, size: _getitem(
        out, x, begin, begin + out.graph.ints(size), plan=tuple((n, 1) for n in size)
    ),
    "gather": lambda out, x, places, *, axis: x.node("Gather", places.to(np.int64), axis=axis),
    "argpartition": lambda out, x, *, kth, axis: _argsort(out, x, axis=axis),
    "conv2d": lambda out, x, k, *, stride, pad, dilation: x.to(out.dtype).node(
        "Conv", k.to(out.dtype), strides=stride, pads=(*pad, *pad), dilations=dilation
    ),
    "max_pool2d": _pool("MaxPool"),
    "avg_pool2d": _pool("AveragePool"),
}
