"""Strong zeros: a zero cotangent absorbs what it meets, in the second run after a NaN.

Each rule keeps its nodes; only its gradient is replaced by products that give 0 for 0 * inf.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tapegraph.arrays.strong_zeros import strong_product
from tapegraph.differentiation.slopes import SLOPES, Linear
from tapegraph.lowering.rows.graph_tracer import GraphTracer, by_slopes, tensor_of
from tapegraph.lowering.rows.linalg import strong_zero_einsum
from tapegraph.lowering.rows.nn import convolved_by_columns, layer_normalised, of_channels_first
from tapegraph.lowering.rows.rules import (
    KEEPING_ZEROS,
    Rule,
    int_axes,
    own_gradient,
    raw,
    reshaped,
    shape_of,
    summed_to,
    with_gradient,
)
from tapegraph.lowering.runtime import tensorflow


def with_strong_zeros(name: str, rule: Rule) -> Rule:
    """Return a rule with the same result whose gradient keeps zeros."""
    if rule in KEEPING_ZEROS:
        return rule
    if any(not isinstance(slope, Linear | None) for slope in SLOPES.get(name, ())):
        return by_slopes(name, rule, strong_zero=True)
    if name == "softmax":
        return lambda out, x, *, axis: _softmax(rule, out, x, axis)
    if name in ("matmul", "batch_matmul"):
        return lambda out, a, b: _matmul(rule, out, a, b)
    if name == "einsum":
        return lambda out, *xs, spec: strong_zero_einsum(rule, out, *xs, spec=spec)
    if name == "layer_norm":
        return partial(layer_normalised, times=lambda factor, g: raw.MulNoNan(x=factor, y=g))
    if name == "conv2d":
        product = partial(_matmul, lambda out, a, b: raw.MatMul(a=a, b=b), None)
        return of_channels_first(partial(convolved_by_columns, product=product))
    if name in ("softmax_crossentropy", "mse_loss"):
        return lambda out, *xs: _scaled(rule, out, *xs)
    return rule


def _softmax(rule: Rule, out: Any, x: Any, axis: int) -> Any:
    def gradient(g: Any, y: Any, x: Any) -> Any:
        weighted = raw.MulNoNan(x=y, y=g)
        total = raw.Sum(input=weighted, axis=int_axes([axis]), keep_dims=True)
        return weighted - raw.MulNoNan(x=y, y=total * tensorflow().ones_like(y))

    return with_gradient(out, partial(rule, out, axis=axis), gradient, x)


def _scaled(rule: Rule, out: Any, *operands: Any) -> Any:
    """Keep zeros of a 0-d result's cotangent."""
    tf = tensorflow()

    def lowered(*xs: Any) -> Any:
        def gradient(g: Any) -> list[Any]:
            inexact = [x for x in xs if x.dtype.is_floating]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(inexact)
                again = rule(out, *xs)
            slopes = iter(
                tape.gradient(again, inexact, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            )
            return [
                raw.MulNoNan(x=(d := next(slopes)), y=g * tf.ones_like(d))
                if x.dtype.is_floating
                else None
                for x in xs
            ]

        return rule(out, *xs), gradient

    return own_gradient(lowered, *operands)


def _matmul(rule: Rule, out: Any, a: Any, b: Any) -> Any:
    tf = tensorflow()

    def lowered(a: Any, b: Any) -> Any:
        def gradient(g: Any) -> list[Any]:
            left = a[None, :] if a.shape.rank == 1 else a
            right = b[:, None] if b.shape.rank == 1 else b
            g = tf.convert_to_tensor(g)  # that of a gathered product comes as IndexedSlices
            if a.shape.rank == 1:
                g = tf.expand_dims(g, -1 if b.shape.rank == 1 else -2)
            if b.shape.rank == 1:
                g = tf.expand_dims(g, -1)
            ga = _product(g, tf.linalg.matrix_transpose(right), cotangent_first=True)
            gb = _product(tf.linalg.matrix_transpose(left), g, cotangent_first=False)
            grads = summed_to(ga, left), summed_to(gb, right)
            return [reshaped(grad, shape_of(x)) for grad, x in zip(grads, (a, b), strict=True)]

        return rule(out, a, b), gradient

    return own_gradient(lowered, a, b)


def _product(a: Any, b: Any, *, cotangent_first: bool) -> Any:
    """Multiply matrices so that a zero of the cotangent adds nothing."""
    dtype = a.dtype

    def product(x: GraphTracer, y: GraphTracer) -> GraphTracer:
        tensors = (tensor_of(z, dtype) for z in (x, y))
        return GraphTracer(tensorflow().matmul(*tensors), dtype)

    factors = (GraphTracer(x, dtype) for x in (a, b))
    found = strong_product(*factors, cotangent_first=cotangent_first, product=product)
    return tensor_of(found, dtype)
