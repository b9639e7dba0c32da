"""A recorded function as an ONNX file of opset 18, for inference.

A rule ``rule(out, *inputs, **attrs)`` adds an operation's nodes and returns a result of ``out``'s
shape and dtype.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from tapegraph.errors import message
from tapegraph.exporting import (
    Arguments,
    EqualRows,
    FreeFunction,
    Length,
    ParameterNames,
    Places,
    output_names,
)
from tapegraph.ops.elementwise import GELU_CUBIC, GELU_SCALE, LN2, LN10
from tapegraph.recording.op import INPUT
from tapegraph.recording.program import Interpreter, Recording, touches_complex
from tapegraph.saving import files
from tapegraph.typed import DType, Fun, Pytree

# A file is one message of protobuf's, of 2**31 bytes at most: nodes and names included.
LARGEST = 2_000_000_000
# Nodes that onnxruntime has for float32 alone.
_FLOAT32 = set("Acos Acosh Asin Asinh Atan Atanh AveragePool Conv Cosh Det Erf Sinh Tan".split())
# Those that give truths, or places, whatever their inputs are.
_TRUTHS = set("Equal Greater GreaterOrEqual IsNaN Less LessOrEqual".split())
_PLACES = set("ArgMax ArgMin Shape TopK".split())
# Those that it has for every type. Of the others it has few for booleans, and for integers that are
# narrow or unsigned: these are computed in wider ones, and wrap around as they come back.
_EVERY_TYPE = set(
    "And Cast Concat Expand Gather GatherElements GatherND Identity Not Or Reshape Shape Slice "
    "Transpose Xor".split()
)
_WIDER = dict.fromkeys(("bool", "int8", "int16", "uint8", "uint16"), "int32")
# Operations right for uint64 in int64, and those that onnxruntime has for uint64.
_WRAPPING = set("Add CumSum Einsum Equal MatMul Mul Neg ReduceProd ReduceSum Sub Where".split())
_UNSIGNED = set("Div Max Min Mod".split())


class NoNode(Exception):
    """An operation, or its dtype, has no node."""


class OnnxGraph:
    """The nodes and constants of a model, and the length of its batch."""

    def __init__(self, onnx: Any, taken: Iterable[str]) -> None:
        self._onnx = onnx
        self.type_of = onnx.helper.np_dtype_to_tensor_dtype  # ONNX's number of a dtype
        self._taken = set(taken)
        self._numbers = count()
        self._nbytes = 0
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.batch: Any = None
        self.stem = "batch"  # of new names: the operation that they belong to

    def constant(self, value: Any, dtype: Any, name: str | None = None) -> Wire:
        name, array = name or self._new("constant"), np.array(value, dtype, order="C")
        self._nbytes += array.nbytes
        if self._nbytes > LARGEST:
            received = f"parameters and constants of more than {LARGEST:,} bytes"
            fix = "Name a folder, for a SavedModel."
            raise ValueError(message("export", received, "less, for one ONNX file", fix))
        self.initializers.append(self._onnx.numpy_helper.from_array(array, name))
        return Wire(self, name, array.dtype, array.shape)

    def node(self, kind: str, *inputs: Wire, dtype: Any = None, at: int = 0, **attrs: Any) -> Wire:
        """Add a node, and return its first result, or the one at a position."""
        given = inputs[kind == "Where"].dtype
        if kind in _FLOAT32 and given != np.float32:
            raise NoNode(f"onnxruntime has {kind} only for float32: export it in float32")
        wide = _wide(kind, given)
        if wide != given:
            wires = [
                x.to(wide) if x.dtype == given and (kind, i) != ("Where", 0) else x
                for i, x in enumerate(inputs)
            ]
            found = self.node(kind, *wires, at=at, **attrs)
            return found if kind in _TRUTHS | _PLACES else found.to(given)
        names = [self._new(self.stem) for _ in range(at + 1)]
        node = self._onnx.helper.make_node(
            kind, [x.name for x in inputs], names, names[-1], **attrs
        )
        self.nodes.append(node)
        other = "bool" if kind in _TRUTHS else "int64" if kind in _PLACES else given
        return Wire(self, names[-1], np.dtype(dtype or other))

    def _new(self, stem: str) -> str:
        return next(n for i in self._numbers if (n := f"{stem}_{i}") not in self._taken)

    def ints(self, values: Iterable[object]) -> Wire:
        """Return integers as a vector; the model computes each `Length` among them."""
        values = list(values)
        if not any(isinstance(n, Length) for n in values):
            return self.constant(values, np.int64)
        parts = [self.number(n, np.int64).node("Reshape", self.ints([1])) for n in values]
        return self.node("Concat", *parts, axis=0)

    def number(self, value: object, dtype: object) -> Wire:
        if not isinstance(value, Length):
            return self.constant(value, dtype)
        grown: Wire = self.batch if value.per == 1 else self.batch * value.per
        return (grown + value.base if value.base else grown).to(dtype)


def _wide(kind: str, dtype: DType) -> DType:
    """Return the type in which onnxruntime computes a node, for most the type itself."""
    if dtype.kind not in "biu" or kind in _EVERY_TYPE:
        return dtype
    if kind == "Pow":  # computed in float64: numbers that fit there wrap around correctly
        wide = np.dtype(np.int64)
    elif dtype == np.uint64:
        wide = dtype if kind in _UNSIGNED else np.dtype(np.int64)
    else:
        wide = np.dtype("int64" if dtype == np.uint32 else _WIDER.get(dtype.name, dtype))
    if dtype == np.uint64 and kind not in _WRAPPING | _UNSIGNED:
        raise NoNode(f"onnxruntime has no {kind} for uint64; convert it with astype")
    return wide


def _formula(kind: str) -> Callable[..., Wire]:
    return lambda self, *others: self.node(kind, *others)


@dataclass(frozen=True, eq=False)
class Wire:
    """A value of the graph, whose formulas add nodes; only operands' shapes are known."""

    graph: OnnxGraph
    name: str
    dtype: DType
    shape: tuple[Any, ...] = ()

    __add__, __sub__, __mul__, __truediv__ = map(_formula, ("Add", "Sub", "Mul", "Div"))
    __and__, __or__, __lt__, __gt__ = map(_formula, ("And", "Or", "Less", "Greater"))
    __le__, __ge__, equal = map(_formula, ("LessOrEqual", "GreaterOrEqual", "Equal"))
    __neg__, __invert__ = map(_formula, ("Neg", "Not"))

    def node(self, kind: str, *others: object, **attrs: Any) -> Wire:
        wires = (x if isinstance(x, Wire) else self.like(x) for x in others)
        return self.graph.node(kind, self, *wires, **attrs)

    def like(self, value: object) -> Wire:
        return self.graph.number(value, self.dtype)

    def to(self, dtype: Any) -> Wire:
        if self.dtype == dtype:
            return self
        cast = self.node("Cast", dtype=dtype, to=self.graph.type_of(np.dtype(dtype)))
        return replace(cast, shape=self.shape)

    def over(self, kind: str, axes: Iterable[int], keepdims: bool = True) -> Wire:
        attrs = {"keepdims": int(keepdims), "noop_with_empty_axes": 1}
        return self.node(kind, self.graph.ints(axes), **attrs)

    def reshaped(self, shape: tuple[object, ...], *, exactly: bool = False) -> Wire:
        """Reshape it; with ``exactly`` the model checks each length."""
        if not exactly and 0 not in shape and sum(isinstance(n, Length) for n in shape) == 1:
            shape = tuple(-1 if isinstance(n, Length) else n for n in shape)
        return self.node("Reshape", self.graph.ints(shape), allowzero=int(0 in shape or exactly))

    def where(self, x: Any, y: Any) -> Wire:
        """Return ``x`` where this is true, else ``y``, which is no Python number."""
        return self.node("Where", x if isinstance(x, Wire) else y.like(x), y)

    def is_nan(self) -> Wire:
        """Return where it is NaN; an integer never is."""
        return self.node("IsNaN") if self.dtype.kind == "f" else ~self.equal(self)


# The rules

Rule = Callable[..., Wire]


def _one(kind: str) -> Rule:
    return lambda out, x, *others: x.node(kind, *others)


def _whole(kind: str) -> Rule:
    """Return the rule of a rounding, which leaves integers unchanged."""
    return lambda out, x: x.node(kind) if x.dtype.kind == "f" else x


def _truths(kind: str) -> Rule:
    return lambda out, x, *others: x.to(bool).node(kind, *(y.to(bool) for y in others))


def _gelu(out: Wire, x: Wire) -> Wire:
    bend = ((x * x * (GELU_SCALE * GELU_CUBIC) + GELU_SCALE) * x).node("Tanh")
    return (bend + 1.0) * 0.5 * x


def _log1p(out: Wire, x: Wire) -> Wire:
    """Emit ``log(1 + x)`` corrected for the rounding of ``1 + x``."""
    whole = x + 1.0
    left, log = whole - 1.0, whole.node("Log")
    none = left.equal(0.0)
    return none.where(x, (left >= math.inf).where(log, log * (x / none.where(1.0, left))))


def _logaddexp(out: Wire, a: Wire, b: Wire) -> Wire:
    gap = a.equal(b).where(0.0, a - b)  # not inf - inf
    return a.node("Max", b) + _log1p(out, (-gap.node("Abs")).node("Exp"))


def _mod(out: Wire, a: Wire, b: Wire) -> Wire:
    if a.dtype.kind != "f":
        return a.node("Mod", b)
    rest = a.node("Mod", b, fmod=1)
    return (rest * b.node("Sign") < 0.0).where(rest + b, rest)


def _floor_divide(out: Wire, a: Wire, b: Wire) -> Wire:
    """Emit NumPy's quotient, consistent with the remainder: 1.0 // 0.1 is 9."""
    if a.dtype.kind != "f":
        return (a - _mod(out, a, b)) / b
    rest = a.node("Mod", b, fmod=1)
    parts = (a - rest) / b - (rest * b.node("Sign") < 0.0).to(a.dtype)
    low = parts.node("Floor")
    return b.equal(0.0).where(a / b, low + (parts - low > 0.5).to(a.dtype))


def _clip(out: Wire, x: Wire, low: Wire, high: Wire) -> Wire:
    raised = ((x > low) | x.is_nan()).where(x, low)
    return ((raised < high) | raised.is_nan()).where(raised, high)


def _round(out: Wire, x: Wire, *, decimals: int) -> Wire:
    if x.dtype.kind != "f":
        if decimals >= 0:
            return x
        x = x.to(np.float64)
    if decimals <= 0:
        return (x / 10.0**-decimals).node("Round") * 10.0**-decimals
    return (x * 10.0**decimals).node("Round") / x.like(10.0**decimals)


def _reduced(kind: str) -> Rule:
    return lambda out, x, *, axis, keepdims: x.over(kind, axis, keepdims)


def _some(x: Wire, axis: Iterable[int], keepdims: bool = True) -> Wire:
    return x.to(np.int32).over("ReduceSum", axis, keepdims) > 0


def _extreme(kind: str) -> Rule:
    """Return the rule of an extreme, or of NaN, which the node ignores."""

    def rule(out: Wire, x: Wire, *, axis: tuple[int, ...], keepdims: bool) -> Wire:
        y = x.over(kind, axis, keepdims)
        return _some(x.is_nan(), axis, keepdims).where(math.nan, y) if x.dtype.kind == "f" else y

    return rule


def _place(kind: str) -> Rule:
    """Return the rule of an extreme's first place, or of a NaN's."""

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


def _within(out: Wire, x: Wire, *, low: int, high: int, said: str) -> Wire:
    x = x.to(np.int64)
    inside = (x < 0).where(x + high, x)
    return ((x >= low) & (x < high)).where(inside, x.like(high))  # or a later gather fails


def _argsort(out: Wire, x: Wire, *, axis: int) -> Wire:
    """Emit the stable order with NaN last, which TopK does not give."""

    def order(x: Wire) -> Wire:
        count = out.graph.ints([out.shape[axis]])
        return x.node("TopK", count, at=1, axis=axis, largest=0)

    if x.dtype.kind != "f":
        return order(x.to(np.int32) if x.dtype == bool else x)
    first = order(x.is_nan().where(math.inf, x))
    behind = x.is_nan().to(np.int32).node("GatherElements", first, axis=axis)
    return first.node("GatherElements", order(behind), axis=axis)


def _roll(out: Wire, x: Wire, *, shift: tuple[object, ...], axis: tuple[int, ...]) -> Wire:
    ints = out.graph.ints
    for distance, along in zip(shift, axis, strict=True):
        cut = -ints([distance]).node("Mod", ints([out.shape[along]]))
        tail = x.node("Slice", cut, ints([np.iinfo(np.int64).max]), ints([along]))
        x = tail.node("Concat", x.node("Slice", ints([0]), cut, ints([along])), axis=along)
    return x


def _einsum(out: Wire, *operands: Wire, spec: str) -> Wire:
    if any(0 in x.shape for x in operands):  # on which onnxruntime 1.23 crashes
        return out.like(0).node("Expand", out.graph.ints(out.shape))
    return out.graph.node("Einsum", *operands, equation=spec)


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


def _mul_strong(out: Wire, a: Wire, b: Wire, *, absorbs: tuple[bool, bool]) -> Wire:
    zero, product = a.like(0.0), a * b
    for x, strong in zip((a, b), absorbs, strict=True):
        product = x.equal(zero).where(zero, product) if strong else product
    return product


def _div_strong(out: Wire, a: Wire, b: Wire, *, absorbs: tuple[bool, bool]) -> Wire:
    zero, quotient = a.like(0.0), a / b
    if absorbs[0]:
        quotient = a.equal(zero).where(zero, quotient)
    return ((b - b).is_nan() & ~b.is_nan()).where(zero, quotient) if absorbs[1] else quotient


# Those that are one node, of the same name or another; and formulas, by their names.
_SAME = (
    "add sub mul div pow neg sin cos tan sinh cosh exp log sqrt tanh sigmoid relu abs sign "
    "equal less greater erf det"
)
_OTHER = (
    "arcsin=Asin arccos=Acos arctan=Atan arcsinh=Asinh arccosh=Acosh arctanh=Atanh maximum=Max "
    "minimum=Min less_equal=LessOrEqual greater_equal=GreaterOrEqual detach=Identity "
    "matmul=MatMul batch_matmul=MatMul"
)
_FORMULAS = _gelu, _log1p, _logaddexp, _mod, _floor_divide, _round, _norm, _einsum, _layer_norm
_STRONG = _mul_strong, _div_strong
_MOVES = _getitem, _index, _within, _argsort, _roll
ROWS: dict[str, Rule] = {
    **{op: _one(op.capitalize()) for op in _SAME.split()},
    **{op: _one(kind) for op, kind in (pair.split("=") for pair in _OTHER.split())},
    **{rule.__name__[1:]: rule for rule in (*_FORMULAS, *_STRONG, *_MOVES)},
    **{f"logical_{kind.lower()}": _truths(kind) for kind in ("And", "Or", "Xor", "Not")},
    **{op: _whole(kind) for op, kind in (("floor", "Floor"), ("ceil", "Ceil"), ("rint", "Round"))},
    "silu": lambda out, x: x * x.node("Sigmoid"),
    "cbrt": lambda out, x: x.node("Sign") * x.node("Abs").node("Pow", 1.0 / 3.0),
    "log2": lambda out, x: x.node("Log") / x.like(LN2),
    "log10": lambda out, x: x.node("Log") / x.like(LN10),
    "exp2": lambda out, x: x.like(2.0).node("Pow", x),
    "expm1": lambda out, x: (x * 0.5).node("Tanh") * (x.node("Exp") + 1.0),  # precise near 0
    "fmax": lambda out, a, b: ((a >= b) | b.is_nan()).where(a, b),
    "fmin": lambda out, a, b: ((a <= b) | b.is_nan()).where(a, b),
    "trunc": lambda out, x: x.node("Sign") * _whole("Floor")(out, x.node("Abs")),
    "astype": lambda out, x, *, dtype: x.to(np.dtype(dtype)),
    "clip": _clip,
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
    "conv2d": lambda out, x, k, *, stride, pad, dilation: x.node(
        "Conv", k, strides=stride, pads=(*pad, *pad), dilations=dilation
    ),
    "max_pool2d": _pool("MaxPool"),
    "avg_pool2d": _pool("AveragePool"),
}


# The file


def export(f: Fun, path: str, arguments: Arguments, params: Pytree) -> None:
    try:
        onnx = importlib.import_module("onnx")
    except ImportError:
        fix = 'Install it: pip install "onnx>=1.17"; or name a folder, for a SavedModel.'
        received = "a path that ends in .onnx in an environment without onnx"
        raise ImportError(message("export", received, "the package onnx", fix)) from None
    recorded = FreeFunction("export", f, arguments.arrays, arguments.batched)
    named = ParameterNames("export", params)
    parameters = {slot: named.of(param) for slot, param in recorded.parameters.items()}
    outputs = output_names(recorded.runs[0].result)
    taken = [*arguments.names, *filter(None, parameters.values()), *outputs]
    if "" in outputs:
        received, fix = "an output named ''", "Rename the key."
        raise ValueError(message("export", received, "a name, as ONNX requires", fix))
    for name in taken:
        if taken.count(name) > 1:
            received = f"{name!r} as the name of two inputs, parameters or outputs"
            fix = "Rename the parameter, with tg.param(name=), or the key of the output."
            raise ValueError(message("export", received, "one name each", fix))
    graph, program = OnnxGraph(onnx, taken), recorded.program

    def typed(name: str, dtype: object, shape: tuple[object, ...]) -> Any:
        lengths = [{(1, 0): "batch"}.get(n) if isinstance(n, Length) else n for n in shape]
        return onnx.helper.make_tensor_value_info(name, graph.type_of(dtype), lengths)

    inputs = []
    for name, x, free in zip(*arguments, strict=True):
        inputs.append(typed(name, x.dtype, (Length(1, 0), *x.shape[1:]) if free else x.shape))
        if free and graph.batch is None:
            graph.batch = Wire(graph, name, x.dtype).node("Shape", end=1).reshaped(())
    leaves = {
        slot: _constant(graph, recorded, slot, parameters.get(slot))
        for slot in program.fed
        if program.ops[slot] is not INPUT
    }
    for name, slot in zip(arguments.names, recorded.runs[0].inputs, strict=True):
        if slot is not None:
            leaves[slot] = Wire(graph, name, program.dtypes[slot], program.shapes[slot])
    emits = _Emission(graph, recorded)
    emits.run(leaves)
    results = []
    for name, slot in zip(outputs, program.outputs, strict=True):
        found = emits.values[slot].name
        graph.nodes.append(onnx.helper.make_node("Identity", [found], [name], name))
        results.append(typed(name, program.dtypes[slot], program.shapes[slot]))
    model = onnx.helper.make_model(
        onnx.helper.make_graph(graph.nodes, "function", inputs, results, graph.initializers),
        opset_imports=[onnx.helper.make_opsetid("", 18)],  # which onnxruntime has since 1.14
        ir_version=8,
        producer_name="tapegraph",
    )
    onnx.checker.check_model(model, full_check=True)
    files.write_file("export", path, lambda beside: onnx.save_model(model, beside))


class _Emission(Interpreter):
    def __init__(self, graph: OnnxGraph, recorded: FreeFunction) -> None:
        known = recorded.recording
        super().__init__(Recording(recorded.program, known.values, known.nodes))
        self._graph = graph
        self._known = known

    def operation(self, slot: int) -> Wire:
        graph, program, op = self._graph, self.program, self.program.ops[slot]
        graph.stem, row = op.name, ROWS.get(op.name)
        out = Wire(graph, "", program.dtypes[slot], program.shapes[slot])
        try:
            if row is None or touches_complex(program, slot):
                raise NoNode("no nodes in ONNX for it, or none for its dtype")
            if 0 in out.shape and not any(isinstance(n, Length) for n in out.shape):
                return graph.constant(np.zeros(out.shape), out.dtype)  # nodes fail for none
            found = row(out, *self.converted(slot, self.values), **program.attrs[slot])
        except NoNode as error:
            received = f"{self._known.describe(slot)}: {error}"
            expected, fix = "operations with nodes in ONNX", "Name a folder, for a SavedModel."
            raise NotImplementedError(message("export", received, expected, fix)) from None
        return Wire(graph, found.to(out.dtype).name, out.dtype, out.shape)

    def derivatives(self, slot: int) -> dict[int, Wire]:
        return {slot: self.operation(slot)}

    def constant(self, number: object, dtype: object) -> Wire:
        return self._graph.constant(number, dtype)

    def cast(self, value: Any, dtype: DType) -> Any:
        return value.to(dtype)


def _constant(graph: OnnxGraph, recorded: FreeFunction, slot: int, name: str | None) -> Wire:
    dtype, shape = recorded.program.dtypes[slot], recorded.program.shapes[slot]
    found = recorded.constant(slot)
    if isinstance(found, np.ndarray):
        return graph.constant(found, dtype, name)
    if isinstance(found, EqualRows):
        wire = graph.constant(found.row, dtype).node("Expand", graph.ints(found.shape))
    elif isinstance(found, Places):
        steps = graph.constant(0, np.int64).node("Range", found.length, 1)
        along = tuple(-1 if axis == found.axis else 1 for axis in range(len(shape)))
        first, step = (graph.constant(part, np.int64) for part in (found.first, found.step))
        wire = first + step * steps.reshaped(along)
    else:
        wire = graph.ints(found if shape else [found]).reshaped(shape)
    return Wire(graph, wire.to(dtype).name, dtype, shape)
