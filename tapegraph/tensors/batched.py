"""`Batched`: one example of many that compute together; and the active calls of `vmap`, its levels.

An operation belongs to the highest level among its operands, whose examples share the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np
import numpy.typing as npt

from tapegraph.batching import BatchedCall, batching_rule
from tapegraph.draws import refuse_examples
from tapegraph.errors import ConcretizationError, message, sentence, warn
from tapegraph.ops.shape import alias, broadcast_to, moveaxis
from tapegraph.recording.lost_gradients import FILLED, raise_cause
from tapegraph.recording.node import as_leaf
from tapegraph.recording.numpy_functions import is_batched
from tapegraph.recording.op import DEFINED, OPS, Attrs
from tapegraph.recording.record import operand
from tapegraph.recording.scopes import RECORDER, recorder
from tapegraph.tensors.array_methods import AS_INDEX, ArrayMethods
from tapegraph.tensors.dual import Dual, dual_of
from tapegraph.tensors.tensor import Tensor
from tapegraph.typed import Array, DType


class SlowBatchingWarning(RuntimeWarning):
    """An operation without a batching rule runs one example at a time."""


class Batched(ArrayMethods):
    """All examples of a value, in the shape of one; ``inner`` has them along the first axis."""

    __slots__ = ("inner", "tag")
    __tapegraph_batched__ = True

    inner: Any
    tag: int

    def __init__(self, inner: object, tag: int) -> None:
        self.inner = inner
        self.tag = tag

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[object, ...], attrs: Attrs) -> Any:
        op = OPS.get(name) or DEFINED[name]
        operands = [x if type(x) is Batched else operand(name, x, "operand") for x in inputs]
        tag = max([x.tag for x in operands if type(x) is Batched])
        xs, batched, size = [], [], 0
        for x in operands:
            inside = type(x) is Batched and x.tag == tag
            if inside:
                x = x.inner
                size = x.shape[0]
            xs.append(x)
            batched.append(inside)
        call = BatchedCall(op, xs, batched, dict(attrs), size, tag)
        rule = batching_rule(op)
        if rule is None:
            text = (
                "the operation has no batching rule and runs one example at a time. Pass batch= "
                "to tg.defop."
            )
            warn(sentence(f"vmap: {name}", text), SlowBatchingWarning)
            rule = BatchedCall.one_by_one
        out = rule(call)
        return tuple(Batched(x, tag) for x in out) if op.several else Batched(out, tag)

    # Value and kind: those of one example

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner.shape[1:]

    @property
    def dtype(self) -> DType:
        return self.inner.dtype

    @property
    def ndim(self) -> int:
        return self.inner.ndim - 1

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def requires_grad(self) -> bool:
        return self.inner.requires_grad

    def detach(self) -> Batched:
        return Batched(self.inner.detach(), self.tag)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(message("len", "a 0-d example", "at least one axis"))
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<one of {self.inner.shape[0]} examples, of shape {self.shape} and {self.dtype}>"

    # Not possible for one example

    def _one_number(self, *args: object, choice: str = "", **options: object) -> NoReturn:
        choice = choice or f"{FILLED[0].upper()}{FILLED[1:]};"
        text = (
            f"the value differs between {self.inner.shape[0]} examples, so it has no plain number. "
            f"{choice} or return the tensor."
        )
        if self.dtype.kind in "iu":
            text += f" {AS_INDEX}"
        raise ConcretizationError(sentence("vmap", text))

    def __bool__(self) -> NoReturn:
        self._one_number(choice="Write tg.where(condition, a, b) for a choice,")

    __float__ = __int__ = __complex__ = __index__ = __array__ = _one_number
    __format__ = _one_number
    item = numpy = tolist = _one_number
    data = property(_one_number)

    def backward(self, seed: object = None) -> NoReturn:
        text = (
            "vmap does not support backward() of one example. Write tg.grad(f) inside vmap, or "
            "call backward() on the result of vmap."
        )
        raise RuntimeError(sentence("backward", text))

    def __setitem__(self, key: object, value: object) -> NoReturn:
        text = "elements of a tensor cannot be assigned. Use np.where or np.concatenate."
        raise TypeError(sentence("setitem", text))


# Levels


class Level(NamedTuple):
    """A call of `vmap`: its tag, larger inside, the number of examples, and what draws do."""

    tag: int
    size: int
    randomness: str


@contextmanager
def entered(level: Level) -> Iterator[None]:
    RECORDER.get().flows  # noqa: B018 - a thread's first use makes the recorder that it goes on with
    outer = RECORDER.get()
    RECORDER.set(ExamplesRecorder(outer, level))
    try:
        yield
    except ValueError as error:
        raise_cause(error)
        raise
    finally:
        RECORDER.set(outer)


@contextmanager
def entered_again(tag: int, size: int) -> Iterator[Level]:
    """Enter a level again for a block, perhaps an ended one, around its inner levels."""
    levels = recorder().levels
    level = next((each for each in levels if each.tag == tag), Level(tag, size, "error"))
    with inside_levels(sorted({*levels, level})):
        yield level


def up_to(tag: float) -> AbstractContextManager[None]:
    return inside_levels([level for level in recorder().levels if level.tag <= tag])


@contextmanager
def inside_levels(levels: Sequence[Level]) -> Iterator[None]:
    """Be inside some levels for a block: a derivative there spreads values to each of them."""
    here = found = RECORDER.get()
    for _ in here.levels:
        found = found._outer
    for level in levels:
        found = ExamplesRecorder(found, level)
    RECORDER.set(found)
    try:
        yield
    finally:
        RECORDER.set(here)


class ExamplesRecorder:
    """Records inside `vmap` for the recorder outside, with values of many examples.

    As in a capture, results of examples are recorded, also without a gradient, and their numbers
    cannot become plain ones.
    """

    def __init__(self, outer: Any, level: Level) -> None:
        self._outer = outer
        self._level = level
        self.levels: tuple[Level, ...] = (*outer.levels, level)
        self.result = outer.result  # at once, as every operation asks for it

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outer, name)

    def on(self, tape: Any) -> ExamplesRecorder:
        return ExamplesRecorder(self._outer.on(tape), self._level)

    def where_gradients_flow(self, flows: bool) -> ExamplesRecorder:
        return ExamplesRecorder(self._outer.where_gradients_flow(flows), self._level)

    def records(self, *values: object) -> bool:
        return any(map(is_batched, values)) or self._outer.records(*values)

    def read(self, value: object, conversion: str, fix: str) -> None:
        if is_batched(value):
            text = f"the value differs between the examples of vmap. {fix}"
            raise ConcretizationError(sentence(conversion, text))
        self._outer.read(value, conversion, fix)

    def draw(
        self, op: str, draw: Callable[[], Any], dtype: npt.DTypeLike, by: dict[str, float]
    ) -> Any:
        """Draw random numbers for all examples, in the order of a loop, or the same for all."""
        level = self._level
        self._check_draws(op)
        if level.randomness == "same":
            return self._outer.draw(op, draw, dtype, by)
        by = {**by, "examples": level.size}
        numbers = self._outer.draw(op, lambda: [draw() for _ in range(level.size)], dtype, by)
        plain = type(numbers) is np.ndarray
        return Batched(as_leaf(numbers) if plain else numbers, level.tag)

    def position(self, read: Callable[[], Array]) -> Any:
        """Return where the stream is, from which all examples draw the same."""
        self._check_draws("random")
        if self._level.randomness == "different":
            refuse_examples()
        return self._outer.position(read)

    def move_to(self, position: Any, write: Callable[[Array], None]) -> None:
        if is_batched(position):
            refuse_examples()
        self._outer.move_to(position, write)

    def _check_draws(self, op: str) -> None:
        if self._level.randomness == "error":
            text = (
                "vmap does not say how to draw random numbers. Write "
                'tg.vmap(f, randomness="different"), or "same" for one draw for all examples.'
            )
            raise RuntimeError(sentence(op, text))


def of_each_example(x: object) -> Any:
    for level in recorder().levels:
        x = at_level(x, level)
    return x


def at_level(x: Any, level: Level) -> Any:
    """Return a value with the examples of a level, repeated if it has none."""
    if type(x) is Batched and x.tag >= level.tag:
        return x if x.tag == level.tag else Batched(at_level(x.inner, level), x.tag)
    if type(x) is Dual and x.tag > level.tag:
        return dual_of(at_level(x.primal, level), at_level(x.tangent, level), x.tag)
    shape = (level.size, *x.shape)
    if type(x) is Tensor and not x.requires_grad and recorder().capture is None:
        # Of a constant that is a view NumPy's copy would have neighbours in memory example by
        # example.
        return Batched(as_leaf(np.broadcast_to(x._array.copy(), shape)), level.tag)
    return Batched(broadcast_to(x, shape), level.tag)


def of_one_example(x: Any, level: Level) -> Any:
    """Return the value of an example, of all examples along the first axis of a value."""
    if type(x) is Batched and x.tag > level.tag:
        return Batched(of_one_example(moveaxis(x.inner, 1, 0), level), x.tag)
    if type(x) is Dual and x.tag > level.tag:
        return dual_of(of_one_example(x.primal, level), of_one_example(x.tangent, level), x.tag)
    return Batched(x, level.tag)


def of_all_examples(x: Any, level: Level) -> Any:
    """Return all examples of a level along the first axis of a value, as one example has it."""
    x = at_level(x, level)
    if x.tag == level.tag:
        return x.inner
    if type(x) is Batched:
        return Batched(moveaxis(of_all_examples(x.inner, level), 0, 1), x.tag)
    return dual_of(of_all_examples(x.primal, level), of_all_examples(x.tangent, level), x.tag)


def levels_of(*values: object) -> list[Level]:
    tags: set[int] = set()
    left = list(values)
    for x in left:  # grows while it is walked
        if type(x) is Batched:
            tags.add(x.tag)
            left.append(x.inner)
        elif type(x) is Dual:
            left += (x.primal, x.tangent)
    return [level for level in recorder().levels if level.tag in tags]


def leaf_of_examples(array: Any, levels: Sequence[Level]) -> tuple[Any, Tensor]:
    """Return an array as a leaf of each example of some levels, and the tensor of all examples."""
    sizes = [level.size for level in levels]
    inside = leaf = alias(as_leaf(np.broadcast_to(array, (*sizes, *array.shape))))
    for level in levels:
        inside = Batched(inside, level.tag)
    return inside, leaf
