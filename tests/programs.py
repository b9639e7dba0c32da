"""Random programs over the public operations, as data: drawn, shrunk and printed by hypothesis.

`programs()` draws a `Program`; ``program.run(*tensors)`` replays it on any inputs of the same
shapes. Programs stay where finite differences mean something: values are kept small, logarithms
and roots are of positive numbers, and kinks and ties are not come near.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import tapegraph as tg

LARGEST = 4.0  # of a value, before it is scaled down
MOST_ELEMENTS = 48  # of a result
CLEARANCE = 0.01  # between a value and a kink, or two candidates for a maximum

SHAPES = [(3,), (2, 3), (3, 3), (), (3, 1), (1, 3), (2, 1, 3), (2, 3, 3), (1, 2, 3, 3)]

# Functions of tensors alone, where the public call is written otherwise.
CALLS: dict[str, Callable[..., Any]] = {
    "getitem": lambda x, key: x[key],
    "concat": lambda *parts, axis: tg.concat(parts, axis=axis),
    "where": lambda a, b, cond: tg.where(cond, a, b),
}


@dataclass(frozen=True)
class Step:
    """One call: slots (int) and Python scalars (float) as operands, plain data as options."""

    op: str
    operands: tuple[int | float, ...]
    options: dict[str, Any]

    def __call__(self, pool: list[Any]) -> Any:
        call = CALLS.get(self.op) or getattr(tg, self.op)
        operands = [pool[x] if isinstance(x, int) else x for x in self.operands]
        return call(*operands, **self.options)

    def __repr__(self) -> str:
        operands = [f"%{x}" if isinstance(x, int) else repr(x) for x in self.operands]
        options = [f"{name}={value!r}" for name, value in self.options.items()]
        return f"{self.op}({', '.join(operands + options)})"


@dataclass(frozen=True, repr=False)
class Program:
    """Float64 inputs, and steps that read them and each other; slot 0 is the first input."""

    inputs: tuple[np.ndarray, ...]
    steps: tuple[Step, ...]

    def run(self, *inputs: Any) -> Any:
        """Replay on tensors, and return every result that no step reads, in one vector."""
        pool = list(inputs)
        for step in self.steps:
            pool.append(step(pool))
        read = {x for step in self.steps for x in step.operands if isinstance(x, int)}
        unread = [pool[i] for i in range(len(inputs), len(pool)) if i not in read]
        return tg.concat([tg.reshape(value, -1) for value in unread])

    def __repr__(self) -> str:
        lines = [f"%{i} = {x.tolist()}" for i, x in enumerate(self.inputs)]
        lines += [f"%{i} = {step}" for i, step in enumerate(self.steps, len(self.inputs))]
        return "Program(\n    " + "\n    ".join(lines) + "\n)"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))  # hypothesis would print the fields


@dataclass
class Builder:
    """A program being drawn: its steps so far, the value of every slot, and those to read."""

    draw: Callable[..., Any]
    values: list[np.ndarray]
    readable: list[int]
    steps: list[Step] = field(default_factory=list)

    def emit(self, op: str, *operands: int | float, **options: Any) -> int:
        """Append a step, scale its result down if it is large, and return the result's slot."""
        step = Step(op, operands, options)
        value = np.asarray(step([tg.tensor(v) for v in self.values]))
        self.steps.append(step)
        self.values.append(value)
        slot = len(self.values) - 1
        size = float(np.abs(value).max(initial=0.0))
        if size > LARGEST:
            return self.emit("mul", slot, 2.0 ** -math.ceil(math.log2(size)))
        self.readable.append(slot)
        return slot

    def above_zero(self, x: int) -> int:
        """Emit steps that turn any slot into positive numbers."""
        return self.emit("add", self.emit("mul", x, x), 0.5)

    def pick(self, choices: Iterable[Any]) -> Any:
        """Draw one of some choices; shrinking prefers the first."""
        return self.draw(st.sampled_from(list(choices)))

    def fitting(self, fits: Callable[[np.ndarray], bool]) -> list[int]:
        """Return the slots whose value fits, the latest first."""
        return [slot for slot in reversed(self.readable) if fits(self.values[slot])]

    def slot(self, fits: Callable[[np.ndarray], bool]) -> int:
        """Draw a slot whose value fits."""
        return self.pick(self.fitting(fits))

    def axis(self, x: int) -> int:
        """Draw an axis of a slot, in either way of counting."""
        ndim = self.values[x].ndim
        return self.pick(itertools.chain(range(-1, -ndim - 1, -1), range(ndim)))

    def numbers(self, shape: tuple[int, ...], below: int) -> Any:
        """Draw integers from [0, below), in nested lists."""
        flat = self.draw(
            st.lists(
                st.integers(0, below - 1), min_size=math.prod(shape), max_size=math.prod(shape)
            )
        )
        return np.array(flat, dtype=np.int64).reshape(shape).tolist()


# What a slot must be for a family of steps to start from it.


def is_any(x: np.ndarray) -> bool:
    return True


def has_axes(x: np.ndarray) -> bool:
    return x.ndim > 0


def is_off_kinks(x: np.ndarray) -> bool:
    return bool(np.abs(x).min(initial=np.inf) > CLEARANCE)


def is_spread_out(x: np.ndarray) -> bool:
    return x.ndim > 0 and bool(x.std(axis=-1).min() > 0.2)


def is_image(x: np.ndarray) -> bool:
    return 2 <= x.ndim <= 4 and min(x.shape[-2:]) >= 2


def is_image_without_ties(x: np.ndarray) -> bool:
    return is_image(x) and bool(np.diff(np.sort(x, axis=None)).min() > CLEARANCE)


def is_small_enough(shape: tuple[int, ...]) -> bool:
    return len(shape) <= 4 and math.prod(shape) <= MOST_ELEMENTS


def broadcasts_with(x: np.ndarray) -> Callable[[np.ndarray], bool]:
    def fits(other: np.ndarray) -> bool:
        try:
            shape = np.broadcast_shapes(x.shape, other.shape)
        except ValueError:
            return False
        return shape == x.shape or is_small_enough(shape)

    return fits


def broadcasts_to(x: np.ndarray) -> Callable[[np.ndarray], bool]:
    fits = broadcasts_with(x)
    return lambda other: fits(other) and np.broadcast_shapes(x.shape, other.shape) == x.shape


# Families: each emits the steps of one kind of operation on a slot.


def smooth(b: Builder, x: int) -> None:
    b.emit(b.pick(["neg", "sin", "tanh", "cos", "exp", "sigmoid", "gelu", "silu"]), x)


def kinked(b: Builder, x: int) -> None:
    b.emit(b.pick(["relu", "abs"]), x)


def singular(b: Builder, x: int) -> None:
    op = b.pick(["log", "sqrt", "tan"])
    b.emit(op, b.emit("tanh", x) if op == "tan" else b.above_zero(x))


def arithmetic(b: Builder, x: int) -> None:
    op = b.pick(["add", "mul", "sub", "div"])
    other = b.slot(broadcasts_with(b.values[x]))
    b.emit(op, x, b.above_zero(other) if op == "div" else other)


def arithmetic_with_scalar(b: Builder, x: int) -> None:
    op, number = b.pick(["add", "mul", "sub", "div"]), b.pick([2.0, -0.5, 1.5])
    if b.pick([True, False]):
        b.emit(op, x, number)
    else:
        b.emit(op, number, b.above_zero(x) if op == "div" else x)


def power(b: Builder, x: int) -> None:
    kind = b.pick(["square", "cube", "root", "exponential", "tensors"])
    if kind in ("square", "cube"):
        b.emit("pow", x, 2.0 if kind == "square" else 3.0)
    elif kind == "root":
        b.emit("pow", b.above_zero(x), b.pick([0.5, -1.0, -0.5]))
    elif kind == "exponential":
        b.emit("pow", 1.5, x)
    else:
        other = b.slot(broadcasts_with(b.values[x]))
        b.emit("pow", b.above_zero(x), other)


def product(b: Builder, x: int) -> None:
    def fits(other: np.ndarray) -> bool:
        try:
            return is_small_enough(np.matmul(b.values[x], other).shape)
        except ValueError:
            return False

    others = b.fitting(fits)
    if others and b.pick([True, False]):
        b.emit("matmul", x, b.pick(others))
    elif b.values[x].ndim > 1:
        order = list(range(b.values[x].ndim))
        order[-2:] = order[:-3:-1]
        b.emit("matmul", x, b.emit("transpose", x, axes=tuple(order)))
    else:
        b.emit("matmul", x, x)


def reduction(b: Builder, x: int) -> None:
    op, keepdims = b.pick(["sum", "mean"]), b.pick([False, True])
    ndim = b.values[x].ndim
    axes = b.draw(st.none() | st.sets(st.integers(0, ndim - 1)) if ndim else st.none())
    b.emit(op, x, axis=axes if axes is None else tuple(sorted(axes)), keepdims=keepdims)


def softmax(b: Builder, x: int) -> None:
    b.emit("softmax", x, axis=b.axis(x))


def transpose(b: Builder, x: int) -> None:
    b.emit("transpose", x, axes=tuple(b.draw(st.permutations(range(b.values[x].ndim)))))


def reshape(b: Builder, x: int) -> None:
    shape = b.values[x].shape
    splits = [(-1, n) for n in (2, 3) if b.values[x].size % n == 0]
    wider = [(1, *shape), (*shape, 1)] if len(shape) < 4 else []
    b.emit("reshape", x, shape=b.pick([(-1,), shape[::-1], *splits, *wider]))


def block(b: Builder, x: int) -> None:
    begin, size = [], []
    for length in b.values[x].shape:
        begin.append(b.draw(st.integers(0, length - 1)))
        size.append(b.pick([-1, *range(1, length - begin[-1] + 1)]))
    b.emit("tensor_slice", x, begin=tuple(begin), size=tuple(size))


def basic_index(b: Builder, x: int) -> None:
    shape, leading = b.values[x].shape, b.pick([True, False])
    count = b.draw(st.integers(0, len(shape)))
    slices = [slice(None), slice(None, None, -1), slice(None, None, 2), slice(-1, None)]
    lengths = shape[:count] if leading else shape[len(shape) - count :]
    key = [b.pick([*slices, 0, length - 1, -length]) for length in lengths]
    if len(shape) < 4:
        key += b.pick([[], [None]])
    b.emit("getitem", x, key=(*key, ...) if leading else (..., *key))


def array_index(b: Builder, x: int) -> None:
    length, *rest = b.values[x].shape
    rows = b.numbers((b.pick([1, 2, 3]),), length)
    kind = b.pick(["rows", "mask", "pairs", "apart"])
    if kind == "mask":
        b.emit("getitem", x, key=[i in rows for i in range(length)])
    elif kind == "rows" or not rest:
        b.emit("getitem", x, key=[i - length for i in rows])
    else:
        between = (slice(None),) * (len(rest) - 1 if kind == "apart" else 0)
        last = rest[-1] if kind == "apart" else rest[0]
        b.emit("getitem", x, key=(rows, *between, b.numbers((len(rows),), last)))


def gather(b: Builder, x: int) -> None:
    axis = b.axis(x)
    indices = b.numbers(b.pick([(2,), (), (3,), (2, 2)]), b.values[x].shape[axis])
    result = np.take(b.values[x], indices, axis=axis)
    if is_small_enough(result.shape):
        b.emit("gather", x, indices=indices, axis=axis)


def concat(b: Builder, x: int) -> None:
    axis, shape = b.axis(x), b.values[x].shape

    def fits(other: np.ndarray) -> bool:
        if other.ndim != len(shape) or 3 * max(other.size, math.prod(shape)) > MOST_ELEMENTS:
            return other is b.values[x]
        return np.delete(other.shape, axis).tolist() == np.delete(shape, axis).tolist()

    b.emit("concat", x, *(b.slot(fits) for _ in range(b.pick([1, 0, 2]))), axis=axis)


def where(b: Builder, x: int) -> None:
    cond = b.numbers(b.values[x].shape, 2)
    other = b.slot(broadcasts_with(b.values[x]))
    a, c = b.pick([(x, other), (other, x), (x, 0.0), (1.5, x)])
    b.emit("where", a, c, cond=cond)


def layer_norm(b: Builder, x: int) -> None:
    fits = broadcasts_to(b.values[x])
    b.emit("layer_norm", x, b.slot(fits), b.slot(fits))


def crossentropy(b: Builder, x: int) -> None:
    *rows, classes = b.values[x].shape
    if b.pick([True, False]):
        b.emit("softmax_crossentropy", x, targets=b.numbers(tuple(rows), classes))
    else:
        other = b.slot(lambda value: value.shape == b.values[x].shape)
        b.emit("softmax_crossentropy", x, b.emit("softmax", other))


def mean_square(b: Builder, x: int) -> None:
    b.emit("mse_loss", x, b.slot(lambda value: value.shape == b.values[x].shape))


def convolution(b: Builder, x: int) -> None:
    image, pad = four_axes(b, x), b.pick([0, 1])
    shape = b.values[image].shape
    room = tuple(n + 2 * pad for n in shape[2:])

    def fits(kernel: np.ndarray) -> bool:
        if kernel.ndim != 4 or kernel.shape[1] != shape[1]:
            return False
        outputs = [r - k + 1 for r, k in zip(room, kernel.shape[2:], strict=True)]
        return min(outputs) > 0 and shape[0] * len(kernel) * math.prod(outputs) <= MOST_ELEMENTS

    kernels = b.fitting(fits)
    if kernels:
        kernel = b.pick(kernels)
        reach = [2 * k - 1 for k in b.values[kernel].shape[2:]]
        fits_dilated = all(r <= n for r, n in zip(reach, room, strict=True))
        dilation = b.pick([1, 2]) if fits_dilated else 1
        b.emit("conv2d", image, kernel, stride=b.pick([1, 2]), pad=pad, dilation=dilation)


def pool(b: Builder, x: int, op: str) -> None:
    stride, pad = b.pick([None, 1, 3]), b.pick([0, 1])
    out = 2 * b.values[x].size  # padding makes room for more windows than pixels
    if stride != 1 or out <= MOST_ELEMENTS:
        b.emit(op, four_axes(b, x), ksize=2, stride=stride, pad=pad)


def four_axes(b: Builder, x: int) -> int:
    shape = b.values[x].shape
    return x if len(shape) == 4 else b.emit("reshape", x, shape=(1,) * (4 - len(shape)) + shape)


# How often, from what, and the family; the first is what shrinking turns the others into.
FAMILIES: list[tuple[int, Callable[[np.ndarray], bool], Callable[[Builder, int], None]]] = [
    (3, is_any, smooth),
    (1, is_any, arithmetic),
    (1, is_any, arithmetic_with_scalar),
    (1, is_any, reduction),
    (1, has_axes, product),
    (1, has_axes, softmax),
    (1, is_any, transpose),
    (1, is_any, reshape),
    (1, is_any, basic_index),
    (1, has_axes, array_index),
    (1, has_axes, gather),
    (1, has_axes, concat),
    (1, is_any, where),
    (1, is_any, block),
    (1, is_any, power),
    (1, is_any, singular),
    (1, is_off_kinks, kinked),
    (1, is_spread_out, layer_norm),
    (1, has_axes, crossentropy),
    (1, is_any, mean_square),
    (2, is_image, convolution),
    (2, is_image, partial(pool, op="avg_pool2d")),
    (4, is_image_without_ties, partial(pool, op="max_pool2d")),
]


@st.composite
def programs(draw: Any, least: int = 3, most: int = 25) -> Program:
    """Draw a program of about `least` to `most` steps over one to three inputs."""
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    # Short numbers, so that a failing program is pleasant to read.
    inputs = tuple(np.asarray(rng.uniform(-2, 2, shape).round(2)) for shape in shapes)
    b = Builder(draw, list(inputs), list(range(len(inputs))))
    length = draw(st.integers(least, most))
    while len(b.steps) < length:
        x = b.slot(is_any)
        fitting = [[family] * often for often, fits, family in FAMILIES if fits(b.values[x])]
        b.pick(itertools.chain(*fitting))(b, x)
    return Program(inputs, tuple(b.steps))


def each_program(
    count: int, number: int, *drawn: Any, shrink: bool = False
) -> Callable[[Any], Any]:
    """Run a test on ``count`` programs, of a number always the same; or on other draws.

    :param shrink: Look for the smallest program that fails, which may take minutes.
    """
    suite = settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: seed(number)(suite(given(*(drawn or (programs(),)))(test)))
