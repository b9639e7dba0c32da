"""A recorded function as TensorFlow nodes, with its parameters in variables."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tapegraph.compiling.arguments import parameters as names_of
from tapegraph.errors import explain, kind_of
from tapegraph.lowering.export import recorded
from tapegraph.lowering.export.recorded import Length, Places, Recorded
from tapegraph.lowering.rows.rules import Size, ints, reshaped, scalar
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.translate import emit_entry
from tapegraph.lowering.unsupported import NotLowered
from tapegraph.pytree import described, replaced
from tapegraph.recording.node import Node
from tapegraph.recording.op import INPUT
from tapegraph.tensors.parameters import collected
from tapegraph.typed import Array, Pytree


class Variables:
    """The variables of parameters, made when they are first met.

    Attributes
    ----------
    by_name : dict of str to tf.Variable
        In the order in which they were met.
    """

    def __init__(self, op: str, params: Pytree) -> None:
        self._op = op
        self._given: dict[int, tuple[Node, str | None]] | None = None
        self.by_name: dict[str, Any] = {}
        self._held: dict[int, tuple[Node, Any]] = {}
        if params is not None:
            self._given = {}
            for name, param in named(op, params):
                self._given.setdefault(id(param), (param, name))
            for param, name in self._given.values():
                self._make(param, name or param.name)

    def of(self, param: Node) -> Any:
        """Return the variable of a parameter; None of one that is to stay a constant."""
        if id(param) not in self._held:
            if self._given is not None:
                return None
            self._make(param, param.name)
        return self._held[id(param)][1]

    def _make(self, param: Any, name: str | None) -> None:
        name = name or f"parameter_{len(self.by_name)}"
        if name in self.by_name:
            fix = "Give them names of their own with tg.param(name=), or pass params as a dict."
            received = f"two parameters named {name!r}"
            raise ValueError(explain(self._op, received, "one name each", fix))
        tf = tensorflow()
        with tf.init_scope():  # no part of a function that is being traced
            text = re.sub(r"[^A-Za-z0-9_.]", "_", name)
            variable = tf.Variable(param.detach().numpy(), name=text)
        self.by_name[name] = variable
        self._held[id(param)] = (param, variable)


def named(op: str, params: Pytree) -> Iterator[tuple[str | None, Node]]:
    """Yield the parameters of a model, under their paths where these hold a name."""
    found = collected(op, params)
    if not found:
        expected = "a dict, list or object that holds parameters"
        raise TypeError(explain(op, f"{kind_of(params)} for params", expected))
    for path, param in found.items():
        if not isinstance(param, Node):
            received = f"{kind_of(param)} at {path} of params"
            raise TypeError(explain(op, received, "tensors, as tg.param makes them"))
        yield (None if path.replace(".", "").isdigit() else path), param


class Function:
    """A function of arrays, recorded for arguments of some types.

    Parameters
    ----------
    op : str
        Who asks, for messages.
    f : callable
        The function.
    arrays : sequence of ndarray
        Arguments of the right shapes and dtypes.
    batched : sequence of bool
        Which of them have a free leading axis.
    variables : Variables
        Where the parameters are.

    Attributes
    ----------
    runs : list of Recorded
        One for each size of the batch.
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
        self._batched = list(batched)
        self._variables = variables
        batch = any(batched)
        self._sizes = recorded.sizes_of(arrays, batched)
        self.arrays = [recorded.of_size(arrays, batched, size) for size in self._sizes]
        self.runs = [self._record(f, given, arrays, batch) for given in self.arrays]
        self._recording = self.runs[0].recording
        recorded.check_lines(op, self._recording)
        self.program = recorded.free_program(op, f, self.runs, self._sizes)
        found = recorded.parameters_of(self._recording)
        self._state = {s: p for s, p in found.items() if variables.of(p) is not None}

    def _record(
        self,
        f: Callable[..., Any],
        arrays: list[Array],
        examples: Sequence[Array],
        batch: bool,
    ) -> Recorded:
        try:
            return recorded.record(self._op, f, arrays)
        except recorded.Failed as failed:
            error = failed.error
            if not batch:
                raise error from None
            try:
                recorded.record(self._op, f, examples)
            except recorded.Failed as whatever_the_size:
                raise whatever_the_size.error from None
            size = len(arrays[self._batched.index(True)])
            fix = "Write what holds for any batch, as reshape(-1, n), or pass batch=False."
            received = f"a function that fails for a batch of {size}: {error}"
            expected = "one that takes batches of any size"
            raise ValueError(explain(self._op, received, expected, fix)) from error

    def __call__(self, feeds: Sequence[Any]) -> Any:
        """Emit it in the graph that is being traced; return its result, in the function's form."""
        return replaced(self.runs[0].result, iter(self.results(feeds)))

    def results(self, feeds: Sequence[Any], *, strong_zero: bool = False) -> list[Any]:
        """Emit it; return its results in order."""
        tf = tensorflow()
        batch = None
        if any(self._batched):
            first = feeds[self._batched.index(True)]
            batch = tf.shape(first, out_type=tf.int64)[0]
        tensors = self._leaves(feeds, batch)
        program = self._of_batch(batch)
        numbers = {slot: self._recording.values[slot] for slot in program.scalars}
        describe = self._recording.describe
        for slot, op in enumerate(program.ops):
            if not program.inputs[slot]:
                continue
            try:
                result = emit_entry(
                    tf,
                    program,
                    slot,
                    tensors,
                    numbers,
                    strong_zero=strong_zero,
                    whole=True,
                    describe=describe,
                )
            except (TypeError, ValueError) as error:
                if batch is None:
                    raise
                expected = "an operation that TensorFlow has for it"
                received = f"{describe(slot)}, for batches of any size"
                fix = f"Pass batch=False. ({type(error).__name__}: {error})"
                raise NotLowered(explain(self._op, received, expected, fix)) from error
            if not program.needs[slot] and any(program.needs[i] for i in program.inputs[slot]):
                result = tf.stop_gradient(result) if op.differentiable != () else result
            tensors[slot] = result
        return [tf.identity(tensors[slot]) for slot in program.outputs]

    def _leaves(self, feeds: Sequence[Any], batch: Any) -> list[Any]:
        """Return a list of every slot's tensor, with those of leaves in their places."""
        program = self.program
        tensors: list[Any] = [None] * len(program)
        for slot in program.fed:
            if program.ops[slot] is INPUT:
                continue
            if slot in self._state:
                tensors[slot] = self._variables.of(self._state[slot]).read_value()
                continue
            values = [r.recording.values[slot] for r in self.runs]
            found = recorded.followed_constant(values, self._sizes)
            tensors[slot] = _constant(found, batch)
        for place, feed in zip(self.runs[0].inputs, feeds, strict=True):
            if place is not None:
                tensors[place] = feed
        return tensors

    def _of_batch(self, batch: Any) -> Any:
        """Return the program with the lengths of this batch."""
        p = self.program
        shapes = [_sized(shape, batch) for shape in p.shapes]
        attrs = [{name: _sized(value, batch) for name, value in a.items()} for a in p.attrs]
        return type(p)(
            p.ops, p.inputs, attrs, shapes, p.dtypes, p.needs, p.leaves, p.outputs, p.wanted
        )


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
            raise TypeError(explain("function", received, "positional arguments"))
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
            raise ValueError(explain("function", received, "one free axis, the first", fix))
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


def input_names(f: Callable[..., Any], count: int) -> list[str]:
    """Return the names of a function's arguments."""
    names = names_of(f)[:count]
    return names + [f"input_{i}" for i in range(len(names), count)]


def output_names(op: str, result: Any) -> list[str]:
    """Return the names of what a function returns: ``output``, or a dict's keys."""
    if isinstance(result, Mapping):
        names = list(result)
        parts = list(result.values())
    elif isinstance(result, (list, tuple)):
        names = [f"output_{i}" for i in range(len(result))]
        parts = list(result)
    else:
        return ["output"]
    if not all(isinstance(name, str) for name in names) or not all(
        isinstance(part, Node) for part in parts
    ):
        expected = "a tensor, or a dict, list or tuple of tensors, keyed by names"
        raise TypeError(explain(op, f"a result of structure {described(result)}", expected))
    return names
