"""A function of arrays as a SavedModel, checked against the function itself."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tapegraph.errors import message
from tapegraph.exporting.names import Arguments, output_names
from tapegraph.lowering.export.function import Function, Variables
from tapegraph.lowering.rows.rules import NotLowered
from tapegraph.lowering.runtime import tensorflow
from tapegraph.testing import PARITY_TOLERANCE
from tapegraph.typed import Array, Pytree


def export(
    f: Callable[..., Any],
    path: str | os.PathLike[str],
    arguments: Arguments,
    params: Pytree,
) -> None:
    """Write a SavedModel; see `tapegraph.export`."""
    tf = tensorflow()
    names, arrays, batched = arguments
    variables = Variables("export", params)
    function = Function("export", f, arrays, batched, variables)
    result = function.recorded.runs[0].result
    outputs = output_names("export", result)
    types = [
        tf.TensorSpec((None, *x.shape[1:]) if free else x.shape, x.dtype, name=name)
        for x, free, name in zip(arrays, batched, names, strict=True)
    ]

    def serve(*feeds: Any) -> dict[str, Any]:
        return dict(zip(outputs, function.results(feeds), strict=True))

    def differentiated(feeds: Sequence[Any], *, strong_zero: bool) -> list[Any]:
        with tf.GradientTape() as tape:
            (loss,) = function.results(feeds, strong_zero=strong_zero)
        sources = list(variables.by_name.values())
        zero = tf.UnconnectedGradients.ZERO
        found = tape.gradient(loss, sources, unconnected_gradients=zero)
        return [loss, *map(tf.convert_to_tensor, found)]

    def value_and_gradients(*feeds: Any) -> dict[str, Any]:
        found = differentiated(feeds, strong_zero=False)
        if not any(op.rules for op in function.recorded.program.ops):
            # As in tapegraph, a zero absorbs what it meets where a gradient is no number.
            right = ~tf.reduce_any([tf.reduce_any(tf.math.is_nan(g)) for g in found])
            absorbing = partial(differentiated, feeds, strong_zero=True)
            found = tf.cond(right, lambda: found, absorbing)
        names = ["loss", *(f"gradient_{name}" for name in variables.by_name)]
        return dict(zip(names, found, strict=True))

    def traced(compute: Callable[..., Any]) -> Any:
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
    _check(module.serve, function, variables)
    tf.saved_model.save(
        module,
        os.fspath(path),
        signatures=signatures,
        options=tf.saved_model.SaveOptions(experimental_custom_gradients=True),
    )


def _check(serve: Any, function: Function, variables: Variables) -> None:
    """Refuse a graph that gives other numbers than the function, at the last of its sizes."""
    tf = tensorflow()
    inputs, wanted = function.recorded.arrays[-1], function.recorded.runs[-1].values
    feeds = list(map(tf.constant, inputs))
    for got, value in zip(serve(*feeds).values(), wanted, strict=True):
        _compare(got.numpy(), value)
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


def _compare(got: Array, wanted: Array) -> None:
    relative, absolute = PARITY_TOLERANCE.get(wanted.dtype.name, (0.0, 0.0))
    if not np.allclose(got, wanted, relative, absolute, equal_nan=True):
        worst = np.max(np.abs(got - wanted))
        received = f"numbers of TensorFlow's that are off by {worst:.3g}"
        fix = "Check the lowering of your own operations."
        raise RuntimeError(message("export", received, "those of the function", fix))
