"""A function recorded for batches of several sizes, and what in it follows the size.

Each recording knows its own lengths alone. What differs between those of two sizes and grows evenly
from one to the next, also to a third, is a free length; what differs otherwise is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapegraph.capture.capture import Capture
from tapegraph.errors import kind_of, message
from tapegraph.pytree import leaves
from tapegraph.recording.changes import make, together
from tapegraph.recording.node import Node
from tapegraph.recording.op import INPUT, PARAM, SCALAR
from tapegraph.recording.program import Program, Recording, identity
from tapegraph.typed import Array

# That follow each other, so that what a length grows by is a whole number.
TWO_SIZES = (4, 5)


class Length(NamedTuple):
    """A length that grows with the batch: ``per * batch + base``."""

    per: int
    base: int


class Places(NamedTuple):
    """Places along an axis that follow the batch evenly: ``first + step * [0, 1, ...]``."""

    first: Array
    step: Array
    axis: int
    length: Length


class Recorded(NamedTuple):
    """What one call of a function recorded: its program, its arguments' leaves, and its result."""

    recording: Recording
    inputs: list[int | None]  # the slot of each argument, None where nothing reads it
    result: Any  # of the function's own form, with tensors

    @property
    def values(self) -> list[Array]:
        """The results' arrays, in order."""
        return self.recording.seeds()


class FreeFunction:
    """A function recorded for batches of several sizes, with free lengths where they differ.

    :param arrays, runs: The arguments of each size, and what they recorded.
    :ivar program: That of the first size, with a `Length` in place of each number that follows.
    :ivar parameters: Those that the function read, by slot.
    """

    def __init__(
        self,
        op: str,
        f: Callable[..., Any],
        arrays: Sequence[Array],
        batched: Sequence[bool],
    ) -> None:
        self._op = op
        self.batched = list(batched)
        self._sizes = _sizes_of(arrays, batched)
        self.arrays = [_of_size(arrays, batched, size) for size in self._sizes]
        self.runs = [self._record(f, given, arrays) for given in self.arrays]
        self.recording = self.runs[0].recording
        self.program = _free_program(op, f, self.runs, self._sizes)
        self.parameters = {
            slot: self.recording.nodes[slot]
            for slot in self.program.fed
            if self.program.ops[slot] is PARAM and self.recording.nodes[slot]._requires_grad
        }

    def _record(
        self, f: Callable[..., Any], arrays: list[Array], examples: Sequence[Array]
    ) -> Recorded:
        try:
            return _record(self._op, f, arrays)
        except _Failed as failed:
            error = failed.error
            if not any(self.batched):
                raise error from None
            try:
                _record(self._op, f, examples)
            except _Failed as whatever_the_size:
                raise whatever_the_size.error from None
            size = len(arrays[self.batched.index(True)])
            fix = "Write what holds for any batch, as reshape(-1, n), or pass batch=False."
            received = f"a function that fails for a batch of {size}: {error}"
            expected = "one that takes batches of any size"
            raise ValueError(message(self._op, received, expected, fix)) from error

    def constant(self, slot: int) -> Any:
        """Return an array that each recording has, or what follows the batch in its place."""
        return _followed_constant([run.recording.values[slot] for run in self.runs], self._sizes)


class _Failed(Exception):
    """The function raised an error, which may be for the size of the batch."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def _record(op: str, f: Callable[..., Any], arrays: Sequence[Array]) -> Recorded:
    """Record one call; whatever state it changed is taken back."""
    capture = Capture()
    with capture:
        inputs = [capture.input(array) for array in arrays]
        try:
            result = f(*inputs)
        except (ValueError, IndexError) as error:
            raise _Failed(error) from error
        tensors = [_result(op, x) for _, x in leaves(result, "the result")]
        recording = capture.recording(tensors)
    make(together(capture.undo))
    slots = {id(node): slot for slot, node in enumerate(recording.nodes)}
    if recording.program.updates or capture.gradients:
        received = f"{_name(f)}, which changes tensors or gradients from outside"
        fix = "Export what computes the loss; a training step belongs to who loads it."
        raise ValueError(message(op, received, "a function of its arguments alone", fix))
    drawn = [slots[id(leaf)] for leaf, _ in capture.readings if id(leaf) in slots]
    if drawn:
        what = "reads numbers anew in every call, such as random draws"
        received = f"{_name(f)}, which {what}: {_place(recording, drawn[0])}"
        fix = "Leave dropout and noise out, or draw outside and pass the numbers in."
        raise ValueError(message(op, received, "a function of its arguments alone", fix))
    return Recorded(recording, [slots.get(id(x)) for x in inputs], result)


def _result(op: str, value: Any) -> Node:
    if isinstance(value, Node):
        return value
    fix = "Compute it with the arguments, and return tensors in a dict, list or tuple."
    raise TypeError(message(op, f"{kind_of(value)} as a result", "tensors", fix))


def _name(f: Any) -> str:
    return str(getattr(f, "__name__", type(f).__name__))


def _of_size(arrays: Sequence[Array], batched: Sequence[bool], size: int) -> list[Array]:
    """Return arguments with batches of another size, of the same rows in turn."""
    return [
        np.take(array, np.arange(size) % len(array), axis=0) if free else array
        for array, free in zip(arrays, batched, strict=True)
    ]


def _sizes_of(arrays: Sequence[Array], batched: Sequence[bool]) -> tuple[int, ...]:
    """Return the sizes to record batches of: two, and that of the arguments to check.

    Without a batch it is recorded twice, to find what is another number in every call.
    """
    if not any(batched):
        return (0, 0)
    own = len(arrays[list(batched).index(True)])
    return (*TWO_SIZES, max(own, TWO_SIZES[1] + 2))


def _free_program(
    op: str, f: Callable[..., Any], runs: Sequence[Recorded], sizes: Sequence[int]
) -> Program:
    """Return the program of several sizes, with a `Length` in place of each number that follows.

    :raises ValueError: The function does something else for another size; names the first such
        line.
    """
    first = runs[0].recording
    programs = [run.recording.program for run in runs]

    def refuse(slot: int, what: str, fix: str) -> ValueError:
        why = "for another batch" if any(sizes) else "in another call with the same arguments"
        places = [_place(r.recording, slot) for r in runs if slot < len(r.recording)]
        received = f"{_name(f)}, which has {what} {why}: {max(places, key=len)}"
        return ValueError(message(op, received, "the same program each time", fix))

    for slot in range(min(map(len, programs))):
        columns = {
            (p.ops[slot], p.inputs[slot], p.dtypes[slot], len(p.shapes[slot])) for p in programs
        }
        if len(columns) > 1 or len({tuple(p.attrs[slot]) for p in programs}) > 1:
            fix = "A loop or branch over the batch is one for its size: write array operations."
            raise refuse(slot, "another operation", fix)
    if len({len(p) for p in programs}) > 1:
        fix = "A loop over the batch is one for its size: write array operations."
        raise refuse(min(map(len, programs)) - 1, "more operations after this one", fix)

    shapes, attrs = [], []
    for slot in range(len(first)):
        fix = "Lengths must grow evenly with the batch."
        try:
            shapes.append(_followed([p.shapes[slot] for p in programs], sizes))
            keys = tuple(programs[0].attrs[slot])
            values = [tuple(p.attrs[slot].values()) for p in programs]
            attrs.append(dict(zip(keys, _followed(values, sizes), strict=True)))
        except _Differs as error:
            raise refuse(slot, str(error), fix) from None
        if not programs[0].inputs[slot] and programs[0].ops[slot] is not INPUT:
            _check_constant(runs, slot, sizes, refuse)
    p = programs[0]
    columns_kept = (p.needs, p.leaves, p.outputs, p.wanted)
    return Program(p.ops, p.inputs, attrs, shapes, p.dtypes, *columns_kept)


def _check_constant(
    runs: Sequence[Recorded],
    slot: int,
    sizes: Sequence[int],
    refuse: Callable[[int, str, str], ValueError],
) -> None:
    """Refuse a number or an array that is another for another batch, but for whole places."""
    found = [run.recording.values[slot] for run in runs]
    if runs[0].recording.program.ops[slot] is SCALAR:
        if len({repr(identity(x)) for x in found}) > 1:
            text = ", then ".join(map(repr, found))
            fix = "Write mean() for a sum over len(x), or pass batch=False."
            raise refuse(slot, f"the number {text}", fix)
        return
    program = runs[0].recording.program
    readers = [op for op, read in zip(program.ops, program.inputs, strict=True) if slot in read]
    try:
        followed = _followed_constant(found, sizes)
        # Further inputs beside one that alone carries a gradient say where.
        if isinstance(followed, Places) and any(op.differentiable != (True,) for op in readers):
            raise _Differs
    except _Differs:
        fix = "Compute it from an argument, pass it as one, or pass batch=False."
        raise refuse(slot, f"an array of shape {found[0].shape} with other numbers", fix) from None


def _followed_constant(found: Sequence[Array], sizes: Sequence[int]) -> Any:
    """Return an array that each recording has, `Places`, or nested tuples of ints and `Length`."""
    first = found[0]
    if all(x.shape == first.shape and x.tobytes() == first.tobytes() for x in found):
        return first
    if first.dtype.kind != "i":
        raise _Differs
    shape = _followed([x.shape for x in found], sizes)
    grown = [axis for axis, n in enumerate(shape) if isinstance(n, Length)]
    if not grown:
        return _followed([_nested(x.tolist()) for x in found], sizes)
    axis, longest = grown[0], found[-1]
    steps = np.diff(longest, axis=axis)
    step = steps.take([0], axis)
    begins = all((longest.take(range(x.shape[axis]), axis) == x).all() for x in found)
    if len(grown) > 1 or not begins or (steps != step).any():
        raise _Differs
    return Places(longest.take([0], axis), step, axis, shape[axis])


def _nested(value: Any) -> Any:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


class _Differs(Exception):
    """Two recordings have other values of something that is no even length."""


def _followed(found: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Return what all have, with a `Length` in place of each whole number that grows evenly."""
    first = found[0]
    if len({repr(identity(x)) for x in found}) == 1:
        return first
    kinds = {type(x) for x in found}
    if kinds == {tuple} and len({len(x) for x in found}) == 1:
        return tuple(_followed(parts, sizes) for parts in zip(*found, strict=True))
    if kinds == {int} and any(sizes):
        per = found[1] - first
        length = Length(per, first - per * sizes[0])
        if all(length.per * n + length.base == x for n, x in zip(sizes, found, strict=True)):
            return length
    raise _Differs(", then ".join(map(repr, found)))


def _place(recording: Recording, slot: int) -> str:
    """Name an entry with its line; of a leaf what reads it."""
    program = recording.program
    if program.inputs[slot]:
        return recording.describe(slot)
    readers = [i for i, inputs in enumerate(program.inputs) if slot in inputs]
    return f"read by {recording.describe(readers[0])}" if readers else "the result"
