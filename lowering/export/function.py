"""A recorded function as TensorFlow nodes, with its parameters in variables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegraph.errors import message
from tapegraph.exporting.names import ParameterNames
from tapegraph.exporting.recorded import FreeFunction, Length, Places
from tapegraph.lowering.rows.rules import NotLowered, Size, ints, reshaped, scalar
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.translate import emit_entry, row_of
from tapegraph.pytree import replaced
from tapegraph.recording.op import INPUT
from tapegraph.recording.program import Recording
from tapegraph.typed import Array, Pytree


class Variables:
    """The variables of parameters, made when they are first met.

    :ivar by_name: In the order in which they were met.
    """

    def __init__(self, op: str, params: Pytree) -> None:
        self._names = ParameterNames(op, params)
        self.by_name: dict[str, Any] = {}
        for param in self._names.given:
            self.of(param)

    def of(self, param: Any) -> Any:
        """Return the variable of a parameter; None of one that is to stay a constant."""
        name = self._names.of(param)
        if name is None:
            return None
        if name not in self.by_name:
            tf = tensorflow()
            with tf.init_scope():  # no part of a function that is being traced
                text = re.sub(r"[^A-Za-z0-9_.]", "_", name)
                self.by_name[name] = tf.Variable(param.detach().numpy(), name=text)
        return self.by_name[name]


class Function:
    """A function of arrays, recorded for arguments of some types.

    :param op: Who asks, for messages.
    :param f: The function.
    :param arrays: Arguments of the right shapes and dtypes.
    :param batched: Which of them have a free leading axis.
    :param variables: Where the parameters are.
    :ivar recorded: What was recorded for batches of several sizes.
    """

    def __init__(
        self,
        op: str,
        f: Callable[..., Any],
        arrays: Sequence[Array],
        batched: Sequence[bool],
        variables: Variables,
    ) -> None:
        self._op = op
        self._variables = variables
        self.recorded = recorded = FreeFunction(op, f, arrays, batched)
        _check_nodes(op, recorded.recording)
        # Each is made in the order of reading.
        found = recorded.parameters.items()
        self._state = {s: p for s, p in found if variables.of(p) is not None}

    def __call__(self, feeds: Sequence[Any]) -> Any:
        """Emit it in the graph that is being traced; return its result, in the function's form."""
        return replaced(self.recorded.runs[0].result, iter(self.results(feeds)))

    def results(self, feeds: Sequence[Any], *, strong_zero: bool = False) -> list[Any]:
        """Emit it; return its results in order."""
        tf = tensorflow()
        batch = None
        if any(self.recorded.batched):
            first = feeds[self.recorded.batched.index(True)]
            batch = tf.shape(first, out_type=tf.int64)[0]
        tensors = self._leaves(feeds, batch)
        recording = self._of_batch(batch)
        program, describe = recording.program, self.recorded.recording.describe
        for slot, op in enumerate(program.ops):
            if not program.inputs[slot]:
                continue
            try:
                result = emit_entry(recording, slot, tensors, strong_zero=strong_zero, whole=True)
            except (TypeError, ValueError) as error:
                if batch is None:
                    raise
                expected = "an operation that TensorFlow has for it"
                received = f"{describe(slot)}, for batches of any size"
                fix = f"Pass batch=False. ({type(error).__name__}: {error})"
                raise NotLowered(message(self._op, received, expected, fix)) from error
            if not program.needs[slot] and any(program.needs[i] for i in program.inputs[slot]):
                result = tf.stop_gradient(result) if op.differentiable != () else result
            tensors[slot] = result
        return [tf.identity(tensors[slot]) for slot in program.outputs]

    def _leaves(self, feeds: Sequence[Any], batch: Any) -> list[Any]:
        """Return a list of every slot's tensor, with those of leaves in their places."""
        program = self.recorded.program
        tensors: list[Any] = [None] * len(program)
        for slot in program.fed:
            if program.ops[slot] is INPUT:
                continue
            if slot in self._state:
                tensors[slot] = self._variables.of(self._state[slot]).read_value()
                continue
            tensors[slot] = _constant(self.recorded.constant(slot), batch)
        for place, feed in zip(self.recorded.runs[0].inputs, feeds, strict=True):
            if place is not None:
                tensors[place] = feed
        return tensors

    def _of_batch(self, batch: Any) -> Recording:
        """Return what was recorded with the lengths of this batch."""
        known, p = self.recorded.recording, self.recorded.program
        shapes = [_sized(shape, batch) for shape in p.shapes]
        attrs = [{name: _sized(value, batch) for name, value in a.items()} for a in p.attrs]
        columns = (shapes, p.dtypes, p.needs, p.leaves, p.outputs, p.wanted)
        program = type(p)(p.ops, p.inputs, attrs, *columns)
        return Recording(program, known.values, known.nodes)


def _constant(found: Any, batch: Any) -> Any:
    """Return what all recordings have, or what follows the batch, as a tensor."""
    tf = tensorflow()
    if isinstance(found, np.ndarray):
        return tf.constant(found)
    if not isinstance(found, Places):
        return ints(_sized(found, batch))
    count = scalar(_sized(found.length, batch), found.first.dtype)
    shape = [-1 if axis == found.axis else 1 for axis in range(found.first.ndim)]
    return found.first + found.step * reshaped(tf.range(count), tuple(shape))


def _sized(value: Any, batch: Any) -> Any:
    """Return an attribute or a shape with a `Size` for each `Length`."""
    if isinstance(value, Length):
        return Size(batch) if value == (1, 0) else Size(batch) * value.per + value.base
    return tuple(_sized(part, batch) for part in value) if type(value) is tuple else value


def function(f: Callable[..., Any], params: Pytree = None) -> Any:
    """Return a function of arrays as a ``tf.function``; see `tapegraph.function`."""
    tf = tensorflow()
    variables = Variables("function", params)
    signature = inspect.signature(f)

    def traced(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        feeds = [x if tf.is_tensor(x) else tf.constant(np.asarray(x)) for x in given.args]
        if given.kwargs:
            received = f"the keyword-only argument {next(iter(given.kwargs))!r}"
            raise TypeError(message("function", received, "positional arguments"))
        return Function("function", f, *_stand_ins(feeds), variables)(feeds)

    traced.__name__ = re.sub(r"\W", "_", getattr(f, "__name__", "function")) or "function"
    made = tf.function(traced, autograph=False)
    made.parameters = variables.by_name
    return made


def _stand_ins(feeds: Sequence[Any]) -> tuple[list[Array], list[bool]]:
    """Return arrays of the types of tensors, and which have a free leading axis."""
    arrays, batched = [], []
    for i, x in enumerate(feeds):
        shape = x.shape
        if shape.rank is None or None in shape[1:]:
            fix = "Set it with tensor.set_shape, or an input_signature."
            received = f"argument {i} of shape {shape}"
            raise ValueError(message("function", received, "one free axis, the first", fix))
        batched.append(shape.rank > 0 and shape[0] is None)
        lengths = [1 if n is None else n for n in shape]
        arrays.append(_plain(lengths, x.dtype.as_numpy_dtype))
    return arrays, batched


def _plain(shape: list[int], dtype: Any) -> Array:
    """Return numbers that most functions are defined for: places are 0, matrices regular."""
    array = np.zeros(shape, dtype)
    if array.dtype.kind == "f":
        array += 0.5
        if array.ndim > 1:
            rows = np.arange(min(shape[-2:]))
            array[..., rows, rows] = 1.0
    return array


def _check_nodes(op: str, recording: Recording) -> None:
    """Refuse an operation without a node in TensorFlow, at its line."""
    program = recording.program
    for slot, kind in enumerate(program.ops):
        if program.inputs[slot]:
            try:
                row_of(kind, whole=True)
            except NotLowered as error:
                received = f"{recording.describe(slot)}: {error}"
                fix = "An operation of your own takes one with tg.defop(lowering=)."
                raise NotLowered(
                    message(op, received, "operations with a node in TensorFlow", fix)
                ) from None
