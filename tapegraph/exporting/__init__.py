"""`export` and `function`: functions exported for batches of any size.

A function is recorded for batches of several sizes. A number that grows linearly over them is a
free length; any other difference is an error.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tapegraph.capture import Capture
from tapegraph.compiling.arguments import positional_names
from tapegraph.errors import check_callable, kind_of, message, path_of
from tapegraph.pytree import described, is_no_array, leaves
from tapegraph.recording.node import Node, numeric
from tapegraph.recording.op import INPUT, PARAM, SCALAR, OpKind
from tapegraph.recording.program import Program, Recording, SubProgram, identity
from tapegraph.recording.values import make, together
from tapegraph.tensors.parameters import collected
from tapegraph.typed import Array, ArrayLike, Fun, Pytree

# Consecutive sizes, so that a length grows by a whole number.
TWO_SIZES = (4, 5)


class Length(NamedTuple):
    """A length that grows with the batch: ``per * batch + base``."""

    per: int
    base: int


class Places(NamedTuple):
    """Places along an axis that grow with the batch: ``first + step * [0, 1, ...]``."""

    first: Array
    step: Array
    axis: int
    length: Length


class EqualRows(NamedTuple):
    """One row for every length that grows with the batch: `np.zeros((len(x), 3))`."""

    row: Array
    shape: tuple[int | Length, ...]


class Recorded(NamedTuple):
    """One recorded call of a function: its program, the leaves of its arguments, and its result."""

    recording: Recording
    inputs: list[int | None]  # the slot of each argument, None where nothing reads it
    result: Pytree  # of the function's own form, with tensors

    @property
    def values(self) -> list[Array]:
        return self.recording.seeds()


class _Differs(Exception):
    """Two recordings differ in a value that is not a linear length."""


class FreeFunction:
    """A function recorded for batches of several sizes, with free lengths where they differ.

    :ivar arrays, runs: The arguments of each size, and the recordings.
    :ivar program: The program of the first size, with a `Length` for each number that grows.
    :ivar parameters: The parameters that the function read, by slot.
    """

    def __init__(self, op: str, f: Fun, arrays: Sequence[Array], batched: Sequence[bool]) -> None:
        self.op = op
        self._f = f
        self.batched = list(batched)
        # Of the batches to record: two and that of the arguments, or two equal calls.
        self._sizes: tuple[int, ...] = (0, 0)
        if any(batched):
            own = len(arrays[self.batched.index(True)])
            self._sizes = (*TWO_SIZES, max(own, TWO_SIZES[1] + 2))
        self.arrays = [
            [
                np.take(array, np.arange(size) % len(array), axis=0) if free else array
                for array, free in zip(arrays, batched, strict=True)
            ]
            for size in self._sizes
        ]
        self.runs = [self._record(given, arrays) for given in self.arrays]
        self.recording = self.runs[0].recording
        self.program = self._free_program([run.recording for run in self.runs])
        self.parameters = {
            slot: self.recording.nodes[slot]
            for slot in self.program.fed
            if self.program.ops[slot] is PARAM and self.recording.nodes[slot]._requires_grad
        }

    def _record(self, arrays: list[Array], examples: Sequence[Array]) -> Recorded:
        try:
            return _record(self.op, self._f, arrays)
        except (ValueError, IndexError) as error:
            if not any(self.batched):
                raise
            failed = error
        _record(self.op, self._f, examples)  # which raises errors that any size has
        size = len(arrays[self.batched.index(True)])
        fix = "Write an expression for any batch, such as reshape(-1, n), or pass batch=False."
        received = f"a function that fails for a batch of {size}: {failed}"
        expected = "one that takes batches of any size"
        raise ValueError(message(self.op, received, expected, fix)) from failed

    def constant(self, slot: int) -> Any:
        return self._followed_constant([run.recording.values[slot] for run in self.runs])

    def _free_program(self, recordings: Sequence[Recording]) -> Program:
        """Return the program of several sizes with a `Length` for each that grows, or raise."""
        programs = [recording.program for recording in recordings]
        first, least = programs[0], min(map(len, programs))
        for slot in range(least):
            kinds = {
                (p.ops[slot], p.inputs[slot], p.dtypes[slot], len(p.shapes[slot]), *p.attrs[slot])
                for p in programs
            }
            if len(kinds) > 1:
                fix = "A loop or branch over the batch is one for its size: write array operations."
                raise self._refusal(recordings, slot, "another operation", fix)
        if len({len(p) for p in programs}) > 1:
            fix = "A loop over the batch is one for its size: write array operations."
            raise self._refusal(recordings, least - 1, "more operations after this one", fix)
        shapes, attrs = [], []
        for slot, op in enumerate(first.ops):
            try:
                shapes.append(self._followed([p.shapes[slot] for p in programs]))
                followed = self._followed([tuple(p.attrs[slot].values()) for p in programs])
                attrs.append(dict(zip(first.attrs[slot], followed, strict=True)))
            except _Differs as error:
                fix = "Lengths must grow evenly with the batch."
                raise self._refusal(recordings, slot, str(error), fix) from None
            if not first.inputs[slot] and op is not INPUT:
                self._check_constant(recordings, slot)
        return replace(first, attrs=attrs, shapes=shapes)

    def _followed(self, found: Sequence[Any]) -> Any:
        """Return what all sizes share, with a `Length` for each integer that grows linearly."""
        first = found[0]
        if isinstance(first, SubProgram):
            if len({body.inputs for body in found}) > 1:
                raise _Differs("a function that reads other arguments")
            return first.with_program(self._free_program([body.recording for body in found]))
        if isinstance(first, tuple) and len({len(x) for x in found}) == 1:
            return tuple(map(self._followed, zip(*found, strict=True)))
        if len({repr(identity(x)) for x in found}) == 1:
            return first
        if {type(x) for x in found} == {int} and any(self._sizes):
            per = found[1] - first
            length = Length(per, first - per * self._sizes[0])
            grown = zip(self._sizes, found, strict=True)
            if all(length.per * n + length.base == x for n, x in grown):
                return length
        raise _Differs(", then ".join(map(repr, found)))

    def _followed_constant(self, found: Sequence[Array]) -> Any:
        """Return a shared array, `EqualRows`, `Places`, or tuples of ints and `Length`."""
        first = found[0]
        if all(x.shape == first.shape and x.tobytes() == first.tobytes() for x in found):
            return first
        shape = self._followed([x.shape for x in found])
        grown = [axis for axis, n in enumerate(shape) if isinstance(n, Length)]
        row = first[tuple(slice(int(axis in grown) or None) for axis in range(first.ndim))]
        # Not of truths: np.arange(len(x)) < 100 has equal ones up to a batch that nobody tries.
        if grown and first.dtype.kind != "b":
            if all(np.broadcast_to(row, x.shape).tobytes() == x.tobytes() for x in found):
                return EqualRows(row, shape)
        if first.dtype.kind != "i":
            raise _Differs
        if not grown:
            return self._followed([_nested(x.tolist()) for x in found])
        axis, longest = grown[0], found[-1]
        steps = np.diff(longest, axis=axis)
        step = steps.take([0], axis)
        begins = all((longest.take(range(x.shape[axis]), axis) == x).all() for x in found)
        if len(grown) > 1 or not begins or (steps != step).any():
            raise _Differs
        return Places(longest.take([0], axis), step, axis, shape[axis])

    def _check_constant(self, recordings: Sequence[Recording], slot: int) -> None:
        """Raise if a number or array, other than integer places, depends on the batch."""
        found = [recording.values[slot] for recording in recordings]
        program = recordings[0].program
        if program.ops[slot] is SCALAR:
            if len({repr(identity(x)) for x in found}) > 1:
                text = ", then ".join(map(repr, found))
                fix = "Write mean() for a sum over len(x), or pass batch=False."
                raise self._refusal(recordings, slot, f"the number {text}", fix)
            return
        readers = [program.ops[i] for i in program.readers()[slot]]
        try:
            followed = self._followed_constant(found)
            if isinstance(followed, Places) and any(op.kind is not OpKind.INDEX for op in readers):
                raise _Differs
        except _Differs:
            fix = "Compute it from an argument, pass it as one, or pass batch=False."
            what = f"an array of shape {found[0].shape} with other numbers"
            raise self._refusal(recordings, slot, what, fix) from None

    def _refusal(
        self, recordings: Sequence[Recording], slot: int, what: str, fix: str
    ) -> ValueError:
        why = (
            "for another batch" if any(self.batched) else "in another call with the same arguments"
        )
        places = [_place(r, slot) for r in recordings if slot < len(r)]
        received = f"{_name(self._f)}, which has {what} {why}: {max(places, key=len)}"
        return ValueError(message(self.op, received, "the same program each time", fix))


def _record(op: str, f: Fun, arrays: Sequence[Array]) -> Recorded:
    """Record one call, and undo its changes of state."""
    capture = Capture()
    with capture:
        inputs = [capture.input(array) for array in arrays]
        result = f(*inputs)
        tensors = [x for _, x in leaves(result)] or [result]
        for x in tensors:
            if not isinstance(x, Node):
                fix = "Compute it with the arguments, and return tensors in a dict, list or tuple."
                raise TypeError(message(op, f"{kind_of(x)} as a result", "tensors", fix))
        recording = capture.recording(tensors)
    make(together(capture.undo))
    slots = {id(node): slot for slot, node in enumerate(recording.nodes)}
    if recording.program.updates or capture.gradients:
        received = f"{_name(f)}, which changes tensors or gradients from outside"
        fix = "Export the function of the loss; whoever loads it writes the training step."
        raise ValueError(message(op, received, "a function of its arguments alone", fix))
    drawn = [slots[id(leaf)] for leaf, _ in capture.readings if id(leaf) in slots]
    if drawn:
        what = "reads other numbers in every call, such as random draws"
        received = f"{_name(f)}, which {what}: {_place(recording, drawn[0])}"
        fix = "Leave dropout and noise out, or draw outside and pass the numbers in."
        raise ValueError(message(op, received, "a function of its arguments alone", fix))
    return Recorded(recording, [slots.get(id(x)) for x in inputs], result)


def _name(f: Fun) -> str:
    return str(getattr(f, "__name__", type(f).__name__))


def _nested(value: Pytree) -> Pytree:
    return tuple(map(_nested, value)) if isinstance(value, list) else value


def _place(recording: Recording, slot: int) -> str:
    """Name an entry with its line; for a leaf, its reader."""
    program = recording.program
    if program.inputs[slot]:
        return recording.describe(slot)
    readers = program.readers()[slot]
    return f"read by {recording.describe(min(readers))}" if readers else "the result"


# Names of a model's inputs, outputs and parameters


class Arguments(NamedTuple):
    """A function's arguments: names, examples, and which begin with the batch."""

    names: list[str]
    arrays: list[Array]
    batched: list[bool]


def _arguments_of(f: Fun, examples: Sequence[object], batch: bool) -> Arguments:
    """Return the arguments that examples stand for; the first of them sets the batch size."""
    if not examples:
        fix = "Pass one per argument: tg.export(f, path, x)."
        raise TypeError(message("export", "no examples", "an array per argument", fix))
    names = positional_names(f)[: len(examples)]
    names += [f"input_{i}" for i in range(len(names), len(examples))]
    for x, name in zip(examples, names, strict=True):
        if is_no_array(x):
            received = f"a {type(x).__name__} for {name!r}"
            fix = "Close over parameters: lambda x: f(params, x). Pass several arrays one by one."
            raise TypeError(message("export", received, "an array per argument", fix))
    arrays = [numeric(x, "export", name) for x, name in zip(examples, names, strict=True)]
    lengths = [len(x) for x in arrays if x.ndim]
    if batch and not (lengths and lengths[0]):
        received = "examples of shapes " + ", ".join(str(x.shape) for x in arrays)
        fix = "Pass an example with a leading axis, or batch=False."
        raise ValueError(message("export", received, "a batch of one or more", fix))
    batched = [batch and x.ndim > 0 and len(x) == lengths[0] for x in arrays]
    return Arguments(names, arrays, batched)


def output_names(result: Pytree) -> list[str]:
    """Return the names of a function's results: ``output``, or a dict's keys."""
    if isinstance(result, Mapping):
        named = dict(result)
    elif isinstance(result, (list, tuple)):
        named = {f"output_{i}": x for i, x in enumerate(result)}
    else:
        return ["output"]
    if not all(isinstance(name, str) and isinstance(x, Node) for name, x in named.items()):
        expected = "a tensor, or a dict, list or tuple of tensors, keyed by names"
        raise TypeError(message("export", f"a result of structure {described(result)}", expected))
    return list(named)


class ParameterNames:
    """The names of the parameters in ``params``, or of all that the function reads."""

    def __init__(self, op: str, params: Pytree) -> None:
        self._op = op
        self._all = params is None
        self._named: dict[str, Node] = {}
        self._names: dict[int, str] = {}
        if self._all:
            return
        found = collected(op, params)
        if not found:
            expected = "a dict, list or object that holds parameters"
            raise TypeError(message(op, f"{kind_of(params)} for params", expected))
        for path, param in found.items():
            if not isinstance(param, Node):
                received = f"{kind_of(param)} at {path} of params"
                raise TypeError(message(op, received, "tensors, as tg.param makes them"))
            if param._requires_grad and id(param) not in self._names:  # a frozen one is a constant
                is_number = path.replace(".", "").isdigit()  # of a place in a list
                self._add(param, param.name if is_number else path)

    @property
    def given(self) -> list[Node]:
        return list(self._named.values())

    def of(self, param: Node) -> str | None:
        """Return a parameter's name, or None if it is exported as a constant."""
        if self._all and id(param) not in self._names:
            self._add(param, param.name)
        return self._names.get(id(param))

    def _add(self, param: Node, name: str | None) -> None:
        name = name or f"parameter_{len(self._named)}"
        if name in self._named:
            fix = "Give them names of their own with tg.param(name=), or pass params as a dict."
            received = f"two parameters named {name!r}"
            raise ValueError(message(self._op, received, "one name each", fix))
        self._named[name] = param
        self._names[id(param)] = name


# The public functions

_FORM = "Write tg.export(f, path, x), with an example for each argument of f."
_OTHER_FORMATS = (".h5", ".hdf5", ".keras", ".pb", ".tflite")


def export(
    f: Fun,
    path: str | os.PathLike[str],
    *examples: ArrayLike,
    params: Pytree = None,
    batch: bool = True,
) -> None:
    """Write a function of arrays as a TensorFlow SavedModel or ONNX, which needs no tapegraph.

    The function is recorded for batches of three sizes; numbers that grow with the batch become
    lengths of the model.

    :param f: Takes arrays or tensors by position, and returns a tensor, or a dict, list or tuple of
        tensors. Parameters that it reads become variables, other tensors and arrays constants.
    :param path: The folder to write, for a SavedModel; or a file that ends in ``.onnx``, for
        inference alone.
    :param *examples: One per argument, of its dtype and of the shape of a real batch, whose rows
        make the batches of other sizes.
    :param params: A dict, list or object whose `parameters` become variables, by their paths (those
        in a list by their own names), while others become constants. By default all parameters that
        the function reads become variables, by their own names, or ``parameter_0``, ``parameter_1``
        and so on in the order of reading. In ONNX they are initializers of these names.
    :param batch: Whether the leading axis is free: that of the first example, and of others as
        long.
    :raises ValueError: The function differs with the size of the batch (the message names the
        line), draws random numbers, or changes state; names repeat, or are invalid in the format;
        an ONNX file would exceed 2 GB; or the path ends in another format's suffix.
    :raises TypeError: An argument or a result is of the wrong kind.
    :raises tapegraph.lowering.NotLowered, NotImplementedError: An operation has no node in
        TensorFlow, or none in ONNX for its dtype.
    :raises tapegraph.lowering.Unavailable, ImportError: TensorFlow, or the package onnx, is not
        installed.
    :raises OSError: The path cannot be written.

    Signatures: ``serving_default``, also named ``serve``, takes the function's arguments by name
    and gives its results as ``output``, or by the keys of the dict, or as ``output_0`` and so on.
    Where the result is a single float without axes, ``value_and_gradients`` gives ``loss`` and
    ``gradient_<name>`` for each variable. The loaded model's ``parameters`` are its variables by
    name. An ONNX file has the inputs and outputs of ``serving_default``; its operators are those of
    version 18, its batch has the name ``batch``.

    >>> import tempfile
    >>> w = tg.param([[1.0], [2.0]], name="w")
    >>> folder = tempfile.mkdtemp()
    >>> tg.export(lambda x: x @ w, folder, np.ones((8, 2)))
    >>> import tensorflow as tf
    >>> model = tf.saved_model.load(folder)
    >>> model.serve(np.array([[3.0, 4.0]]))["output"].numpy()
    array([[11.]])
    >>> sorted(model.parameters)
    ['w']
    """
    # By a string: the core knows no engine, and `import tapegraph` loads none.
    check_callable("export", f, fix=_FORM)
    where = path_of("export", path, _FORM)
    if where.lower().endswith(_OTHER_FORMATS):
        expected = "the folder of a SavedModel, or a file that ends in .onnx"
        fix = "Keras reads the folder by keras.layers.TFSMLayer, and LiteRT's converter takes it."
        raise ValueError(message("export", f"the path {where}", expected, fix))
    name = "exporting.onnx" if where.lower().endswith(".onnx") else "lowering.export"
    target = importlib.import_module(f"tapegraph.{name}")
    target.export(f, where, _arguments_of(f, examples, batch), params)


def function(f: Fun, params: Pytree = None) -> Any:
    """Return a function of arrays as a ``tf.function``, for use inside TensorFlow.

    In ``tf.data.Dataset.map``, a Keras layer or another ``tf.function`` its nodes become part of
    the graph, which TensorFlow differentiates. It is recorded once per combination of types, as in
    `export`; a leading axis of unknown length stays free. It copies parameters at its first call,
    and does not see how they change later, as a ``tf.function`` of variables does.

    :param f: Takes tensors by position, and returns a tensor, or a dict, list or tuple of tensors.
    :param params: The variables' parameters, as in `export`.
    :returns: Tf.function. Its ``parameters`` are the variables by name; they start with the
        parameters' numbers when first read, and then change on their own.
    :raises ValueError, TypeError, tapegraph.lowering.NotLowered, tapegraph.lowering.Unavailable: As
        `export`, in a call with arguments of new types.

    >>> import tensorflow as tf
    >>> scaled = tg.function(lambda x: tg.tanh(x) * 2.0)
    >>> data = tf.data.Dataset.from_tensor_slices(np.zeros((3, 2))).batch(2).map(scaled)
    >>> [y.shape for y in data.as_numpy_iterator()]
    [(2, 2), (1, 2)]
    """
    check_callable("function", f)
    return importlib.import_module("tapegraph.lowering.export").function(f, params)
