"""Functions of arrays as TensorFlow's own: SavedModels, and functions for TensorFlow code."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tapegraph.errors import message, sentence
from tapegraph.exporting import (
    Arguments,
    EqualRows,
    FreeFunction,
    Length,
    ParameterNames,
    Places,
    output_names,
)
from tapegraph.lowering.rows import LOOPS, NotLowered, Size, ints, reshaped, scalar, taped
from tapegraph.lowering.runtime import GraphTensor, tensorflow, tf
from tapegraph.lowering.translate import Translator, stopped
from tapegraph.pytree import replaced
from tapegraph.recording.op import INPUT, OpKind
from tapegraph.recording.program import Program, Recording, SubProgram, subprograms
from tapegraph.testing import PARITY_TOLERANCE
from tapegraph.typed import Array, Fun, Pytree


class Variables:
    """The variables of parameters, made on first use; ``by_name`` keeps that order."""

    def __init__(self, op: str, params: Pytree) -> None:
        self._names = ParameterNames(op, params)
        self.by_name: dict[str, Any] = {}
        for param in self._names.given:
            self.of(param)

    def of(self, param: Any) -> Any:
        """Return a parameter's variable; None if it stays a constant."""
        name = self._names.of(param)
        if name is None:
            return None
        if name not in self.by_name:
            with tf.init_scope():  # outside any function that TensorFlow traces
                text = re.sub(r"[^A-Za-z0-9_.]", "_", name)
                text = re.sub("^_", "p_", text)  # no name in TensorFlow begins with _
                self.by_name[name] = tf.Variable(
                    param.detach().numpy(), name=text, experimental_enable_variable_lifting=False
                )
        return self.by_name[name]


class Function:
    """A recorded function, to be emitted in graphs, with its parameters in variables."""

    def __init__(self, recorded: FreeFunction, variables: Variables) -> None:
        self.recorded = recorded
        # Each is made in the order of reading.
        made = {slot: variables.of(param) for slot, param in recorded.parameters.items()}
        self._state = {slot: made[slot] for slot in made if made[slot] is not None}

    def results(
        self, feeds: Sequence[GraphTensor], *, strong_zero: bool = False
    ) -> list[GraphTensor]:
        recorded = self.recorded
        batch = None
        if any(recorded.batched):
            first = feeds[recorded.batched.index(True)]
            batch = tf.shape(first, out_type=tf.int64)[0]
        leaves = {slot: variable.read_value() for slot, variable in self._state.items()}
        for slot in recorded.program.fed:
            if slot not in leaves and recorded.program.ops[slot] is not INPUT:
                leaves[slot] = _constant(recorded.constant(slot), batch)
        places = zip(recorded.runs[0].inputs, feeds, strict=True)
        leaves.update((slot, feed) for slot, feed in places if slot is not None)
        emits = _FreeTranslator(recorded, batch, strong_zero=strong_zero)
        emits.run(leaves)
        return [tf.identity(emits.values[slot]) for slot in emits.program.outputs]


class _FreeTranslator(Translator):
    """Emits a function for batches of one size, or of any."""

    def __init__(self, recorded: FreeFunction, batch: object, *, strong_zero: bool) -> None:
        known = recorded.recording
        recording = Recording(_sized(recorded.program, batch), known.values, known.nodes)
        super().__init__(recording, strong_zero=strong_zero, whole=True)
        self._recorded = recorded
        self._batch = batch

    def operation(self, slot: int) -> GraphTensor:
        program, op = self.program, self.program.ops[slot]
        asked, entry = self._recorded.op, self._recorded.recording.describe(slot)
        try:
            result = super().operation(slot)
        except NotLowered as error:
            expected = "operations with a node in TensorFlow"
            fix = "An operation of your own takes one with tg.defop(lowering=)."
            raise NotLowered(message(asked, f"{entry}: {error}", expected, fix)) from None
        except (TypeError, ValueError) as error:
            if self._batch is None:
                raise
            expected = "an operation that TensorFlow has for it"
            fix = f"Pass batch=False. ({type(error).__name__}: {error})"
            received = f"{entry}, for batches of any size"
            raise NotLowered(message(asked, received, expected, fix)) from error
        if not program.needs[slot] and any(program.needs[i] for i in program.inputs[slot]):
            result = result if op.kind is OpKind.COMPARISON else stopped(result)
        return result


def _constant(found: object, batch: GraphTensor | None) -> Any:
    """Return a value that all recordings share, or the formula of the batch, as a tensor."""
    if isinstance(found, np.ndarray):
        return tf.constant(found)
    if isinstance(found, EqualRows):
        return tf.broadcast_to(found.row, ints(_sized(found.shape, batch)))
    if not isinstance(found, Places):
        return ints(_sized(found, batch))
    count = scalar(_sized(found.length, batch), found.first.dtype)
    shape = [-1 if axis == found.axis else 1 for axis in range(found.first.ndim)]
    return found.first + found.step * reshaped(tf.range(count), tuple(shape))


def _sized(value: object, batch: object) -> Any:
    """Return an attribute, a shape or a program with a `Size` for each `Length`."""
    if isinstance(value, SubProgram):
        return value.with_program(_sized(value.program, batch))
    if isinstance(value, Program):
        attrs = [{name: _sized(x, batch) for name, x in a.items()} for a in value.attrs]
        return replace(value, attrs=attrs, shapes=[_sized(shape, batch) for shape in value.shapes])
    if isinstance(value, Length):
        return Size(batch) if value == (1, 0) else Size(batch) * value.per + value.base
    return tuple(_sized(part, batch) for part in value) if type(value) is tuple else value


def function(f: Fun, params: Pytree = None) -> Any:
    tensorflow()  # which refuses at once where it cannot run
    variables = Variables("function", params)
    signature = inspect.signature(f)

    def traced(*args: GraphTensor, **kwargs: object) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        feeds = [x if tf.is_tensor(x) else tf.constant(np.asarray(x)) for x in given.args]
        if given.kwargs:
            received = f"the keyword-only argument {next(iter(given.kwargs))!r}"
            raise TypeError(message("function", received, "positional arguments"))
        made = Function(FreeFunction("function", f, *_stand_ins(feeds)), variables)
        return replaced(made.recorded.runs[0].result, iter(made.results(feeds)))

    traced.__name__ = re.sub(r"\W", "_", getattr(f, "__name__", "function")) or "function"
    # TensorFlow warns of functions that are traced often, and counts by the wrapped function.
    traced.__signature__, traced.__wrapped__ = inspect.signature(traced), f  # type: ignore[attr-defined]
    made = tf.function(traced, autograph=False)
    made.parameters = variables.by_name
    return made


def _stand_ins(feeds: Sequence[GraphTensor]) -> tuple[list[Array], list[bool]]:
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
    """Return numbers in the domain of most functions: indices are 0, matrices invertible."""
    array = np.zeros(shape, dtype)
    if array.dtype.kind == "f":
        array += 0.5
        if array.ndim > 1:
            rows = np.arange(min(shape[-2:]))
            array[..., rows, rows] = 1.0
    return array


# SavedModels


def export(f: Fun, path: str | os.PathLike[str], arguments: Arguments, params: Pytree) -> None:
    tensorflow()  # which refuses at once where it cannot run
    names, arrays, batched = arguments
    _check_names(names)
    variables = Variables("export", params)
    function = Function(FreeFunction("export", f, arrays, batched), variables)
    outputs = output_names(function.recorded.runs[0].result)
    types = [
        tf.TensorSpec((None, *x.shape[1:]) if free else x.shape, x.dtype, name=name)
        for x, free, name in zip(arrays, batched, names, strict=True)
    ]

    def serve(*feeds: GraphTensor) -> dict[str, GraphTensor]:
        return dict(zip(outputs, function.results(feeds), strict=True))

    def differentiated(feeds: Sequence[GraphTensor], *, strong_zero: bool) -> list[GraphTensor]:
        with tf.GradientTape() as tape:
            (loss,) = function.results(feeds, strong_zero=strong_zero)
        sources = list(variables.by_name.values())
        return [loss, *map(tf.convert_to_tensor, taped(tape, loss, sources))]

    def value_and_gradients(*feeds: GraphTensor) -> dict[str, GraphTensor]:
        found = differentiated(feeds, strong_zero=False)
        if not _holds_users(function.recorded.program):
            # As in tapegraph, a zero absorbs NaN in a gradient.
            right = ~tf.reduce_any([tf.reduce_any(tf.math.is_nan(g)) for g in found])
            absorbing = partial(differentiated, feeds, strong_zero=True)
            found = tf.cond(right, lambda: found, absorbing)
        names = ["loss", *(f"gradient_{name}" for name in variables.by_name)]
        return dict(zip(names, found, strict=True))

    def traced(compute: Fun) -> Any:
        compute.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        )
        return tf.function(compute, input_signature=types, autograph=False)

    module = tf.Module()
    module.parameters = variables.by_name
    module.serve = traced(serve)
    signatures = {"serving_default": module.serve, "serve": module.serve}
    (first, *others) = function.recorded.runs[0].values
    if not others and first.shape == () and first.dtype.kind == "f" and variables.by_name:
        module.value_and_gradients = traced(value_and_gradients)
        signatures["value_and_gradients"] = module.value_and_gradients
    module.__call__ = module.serve
    # TensorFlow counts the traces of calls, and would warn after some exports.
    _check(module.serve.get_concrete_function(), function, variables)
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    try:
        tf.saved_model.save(module, os.fspath(path), signatures=signatures, options=options)
    except tf.errors.OpError as error:
        received = f"{os.fspath(path)!r} ({type(error).__name__}: {error.message})"
        expected = "a folder that can be written, for a SavedModel"
        fix = "Or name a file that ends in .onnx."
        raise OSError(message("export", received, expected, fix)) from error


def _holds_users(program: Program) -> bool:
    return any(
        any(_holds_users(body.program) for body in subprograms(attrs))
        if op.name in LOOPS
        else op.rules
        for op, attrs in zip(program.ops, program.attrs, strict=True)
    )


def _check_names(names: Sequence[str]) -> None:
    """Raise for argument names that no SavedModel signature can have."""
    fix = "Rename it, or wrap the function: tg.export(lambda x: f(x), path, x)."
    for name in names:
        if name == "self" or not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
            expected = "a name of A-Z, a-z, 0-9 and _, a letter first, and not 'self'"
            raise ValueError(message("export", f"an argument named {name!r}", expected, fix))
        if sum(name.lower() == other.lower() for other in names) > 1:
            expected = "names that differ in more than the case of letters"
            raise ValueError(message("export", f"arguments named {names}", expected, fix))


def _check(serve: Any, function: Function, variables: Variables) -> None:
    """Raise if a graph's numbers differ from the function's, at the last of its sizes."""
    run = function.recorded.runs[-1]
    feeds = list(map(tf.constant, function.recorded.arrays[-1]))
    kinds = {np.dtype(dtype).name for dtype in run.recording.program.dtypes}
    coarse = "float32" if not kinds.isdisjoint(("float32", "complex64")) else None
    for result, value in zip(serve(*feeds).values(), run.values, strict=True):
        exact = value.dtype.kind not in "fc"
        tolerance = (0.0, 0.0) if exact else PARITY_TOLERANCE[coarse or value.dtype.name]
        got = result.numpy()
        if not np.allclose(got, value, *tolerance, equal_nan=True):
            text = (
                f"TensorFlow's numbers differ from the function's by "
                f"{np.max(np.abs(got - value)):.3g}. Check the lowering of your own operations."
            )
            raise RuntimeError(sentence("export", text))
    try:
        with tf.GradientTape() as tape:
            tape.watch([x for x in feeds if x.dtype.is_floating])
            found = serve(*feeds)
        tape.gradient(found, [*feeds, *variables.by_name.values()])
    except LookupError:  # an operation that has none in TensorFlow
        return
    except (TypeError, ValueError) as error:
        received = "a function whose gradient has no nodes for batches of any size"
        fix = f"Pass batch=False. ({type(error).__name__}: {error})"
        expected = "operations that TensorFlow differentiates"
        raise NotLowered(message("export", received, expected, fix)) from error
