"""TensorFlow nodes: neural networks.

Images lie channels last: TensorFlow's CPU kernels for channels first lack float64, and are slower.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.lowering.rows import (
    GUARDS,
    TO_FIRST,
    TO_LAST,
    Result,
    Row,
    Rule,
    WithGradient,
    cast_to,
    channels_last,
    ints,
    keeping_zeros,
    number_like,
    own_gradient,
    permuted,
    raw,
    reduced,
    reordered,
    reshaped,
    selected,
    shape_of,
    summed_to,
    taped,
    with_own_gradient,
)
from tapegraph.lowering.rows.linalg import product_keeping_zeros
from tapegraph.lowering.runtime import GraphTensor, tf
from tapegraph.ops.nn import Pair, valid_counts


def _of_channels_first(rule: Rule) -> Rule:
    def lowered(out: Result, x: GraphTensor, *rest: GraphTensor, **attrs: object) -> GraphTensor:
        image = reordered(x, TO_LAST)
        y = rule(Result(channels_last(out.shape), out.dtype), image, *rest, **attrs)
        return reordered(y, TO_FIRST)

    return lowered


def _conv2d(
    out: Result, x: GraphTensor, k: GraphTensor, *, stride: Pair, pad: Pair, dilation: Pair
) -> GraphTensor:
    if "float" not in out.dtype:
        how = {"stride": stride, "pad": pad, "dilation": dilation}
        return _convolved_by_columns(out, x, k, product=tf.matmul, **how)
    if 0 in out.shape or 0 in k.shape:
        return tf.zeros(out.shape, out.dtype)
    image = _padded(x, pad)
    kernel = permuted(k, (2, 3, 1, 0))
    if _apart(k, dilation) == (1, 1):
        return raw.Conv2D(input=image, filter=kernel, strides=[1, *stride, 1], padding="VALID")
    return _dilated(image, kernel, stride, _apart(k, dilation))


def _apart(k: GraphTensor, dilation: Pair) -> Pair:
    """Return the distance of a kernel's pixels: 1 if it has only one."""
    rows, columns = (d if n > 1 else 1 for d, n in zip(dilation, k.shape[2:], strict=True))
    return rows, columns


def _dilated(image: GraphTensor, kernel: GraphTensor, stride: Pair, dilation: Pair) -> GraphTensor:
    """Convolve every d-th pixel as a separate image.

    On the CPU, TensorFlow has no gradient of a dilated convolution. Every stride is 1 until the
    end: pixels a stride apart may be of different images.
    """
    borders = np.array([[0, -n % d] for n, d in zip(image.shape[1:3], dilation, strict=True)])
    apart = raw.SpaceToBatchND(input=image, block_shape=ints(dilation), paddings=borders)
    y = raw.Conv2D(input=apart, filter=kernel, strides=[1, 1, 1, 1], padding="VALID")
    y = raw.BatchToSpaceND(input=y, block_shape=ints(dilation), crops=borders)
    return y if stride == (1, 1) else y[:, :: stride[0], :: stride[1]]


def _convolved_by_columns(
    out: Result,
    x: GraphTensor,
    k: GraphTensor,
    *,
    stride: Pair,
    pad: Pair,
    dilation: Pair,
    product: Callable[[GraphTensor, GraphTensor], GraphTensor],
) -> GraphTensor:
    o, c, kh, kw = k.shape
    n, oh, ow, _ = out.shape
    image = _padded(x, pad)
    ends = ((oh - 1) * stride[0] + 1, (ow - 1) * stride[1] + 1)
    reads = [
        image[:, i : i + ends[0] : stride[0], j : j + ends[1] : stride[1]]
        for i in range(0, kh * dilation[0], dilation[0])
        for j in range(0, kw * dilation[1], dilation[1])
    ]
    columns = reshaped(raw.Pack(values=reads, axis=3), (n * oh * ow, len(reads) * c))
    kernel = reshaped(permuted(k, (2, 3, 1, 0)), (len(reads) * c, o))
    return reshaped(product(columns, kernel), out.shape)


def _max_pool2d(
    out: Result, x: GraphTensor, *, ksize: Pair, stride: Pair, pad: Pair
) -> GraphTensor:
    """Emit a maximum of windows, of which the first largest pixel takes the gradient."""
    if 0 in out.shape:
        return reshaped(x, out.shape)
    windows = _windows(ksize, stride)
    guards = GUARDS.get()

    def spread(image: GraphTensor, best: GraphTensor, g: GraphTensor) -> GraphTensor:
        return raw.MaxPoolGrad(orig_input=image, orig_output=best, grad=g, **windows)

    def pooled(image: GraphTensor) -> WithGradient:
        best = raw.MaxPool(input=image, **windows)
        # TensorFlow's kernels skip a NaN, and know nothing below the lowest number.
        plain = raw.IsFinite(x=reduced("Sum", x)) & (reduced("Min", best) > x.dtype.min)
        if guards is not None:
            guards.append(plain)
            return best, lambda g: spread(image, best, g)
        inside = _padded(tf.ones_like(x), pad)

        def best_of_any() -> GraphTensor:
            y = best
            for value, _, _, won in _kinds(image, best, inside, windows):
                if value is not None:
                    y = selected(won, float(value), y)
            return y

        def gradient(g: GraphTensor) -> GraphTensor:
            def spread_any() -> GraphTensor:
                kinds = _kinds(image, best, inside, windows)
                parts = [spread(at, top, selected(won, g, 0.0)) for _, at, top, won in kinds]
                return raw.AddN(inputs=parts)

            # Beside its MaxPool, and in no branch, it becomes oneDNN's kernel: 20 times faster.
            spread_plain = spread(image, best, g)
            return tf.cond(plain, lambda: spread_plain, spread_any)

        return tf.cond(plain, lambda: best, best_of_any), gradient

    return own_gradient(pooled, _padded(x, pad, -math.inf))


def _kinds(
    image: GraphTensor, best: GraphTensor, inside: GraphTensor, windows: dict[str, object]
) -> Iterator[tuple[float | None, GraphTensor, GraphTensor, GraphTensor]]:
    """Yield candidates for a maximum, the greatest first, each with the windows that it wins.

    Each is its value, unless TensorFlow found it; an image whose first maximum is the window's own;
    the maxima of that image; and the windows.
    """
    lowest = image.dtype.min
    waiting = tf.ones_like(best, dtype="bool")
    for value, here in (
        (math.nan, raw.IsNan(x=image)),
        (None, image > lowest),
        (lowest, image == lowest),
        (-math.inf, inside > 0.0),
    ):
        mask = raw.Cast(x=here, DstT=image.dtype)
        top = raw.MaxPool(input=mask, **windows)
        won = waiting & (top > 0.0)
        waiting &= top == 0.0
        yield (None, image, best, won) if value is None else (value, mask, top, won)


def _avg_pool2d(
    out: Result, x: GraphTensor, *, ksize: Pair, stride: Pair, pad: Pair
) -> GraphTensor:
    if 0 in out.shape:
        return reshaped(x, out.shape)
    y = raw.AvgPool(value=_padded(x, pad), **_windows(ksize, stride))
    if pad != (0, 0):  # which is not counted
        first = tuple(x.shape[i] for i in TO_FIRST)
        counts = valid_counts(first, ksize, stride, pad).transpose(TO_LAST)
        y *= tf.constant(math.prod(ksize) / counts, y.dtype)
    return y


def _windows(ksize: Pair, stride: Pair) -> dict[str, Any]:
    return {"ksize": [1, *ksize, 1], "strides": [1, *stride, 1], "padding": "VALID"}


def _padded(image: GraphTensor, pad: Pair, value: float = 0.0) -> GraphTensor:
    if pad == (0, 0):
        return image
    borders = np.array([[0, 0], [pad[0]] * 2, [pad[1]] * 2, [0, 0]])
    return raw.PadV2(input=image, paddings=borders, constant_values=number_like(value, image))


def _softmax_crossentropy(out: Result, logits: GraphTensor, targets: GraphTensor) -> GraphTensor:
    if targets.shape.rank == logits.shape.rank:
        # SoftmaxCrossEntropyWithLogits takes rows that sum to 1 for granted; these need not.
        weighted = raw.MulNoNan(x=raw.LogSoftmax(logits=logits), y=targets)
        rows = -reduced("Sum", weighted, [logits.shape.rank - 1])
    else:
        classes = logits.shape[-1]
        if not classes:
            return reduced("Mean", logits)  # of no rows
        if logits.shape.rank != 2:
            count = math.prod(shape_of(logits)[:-1])
            logits, targets = reshaped(logits, (count, classes)), reshaped(targets, (count,))
        rows = _row_losses(logits, targets)
    return reduced("Mean", rows)


def _row_losses(logits: GraphTensor, targets: GraphTensor) -> GraphTensor:
    """Return the cross-entropy of each row, three times as fast as TensorFlow's sparse loss."""
    places = raw.ExpandDims(input=targets, axis=1)

    def lowered(logits: GraphTensor) -> WithGradient:
        shifted = logits - reduced("Max", logits, [1], keepdims=True)
        exps = raw.Exp(x=shifted)
        total = reduced("Sum", exps, [1], keepdims=True)
        picked = raw.GatherV2(params=shifted, indices=places, axis=1, batch_dims=1)
        rows = raw.Squeeze(input=raw.Log(x=total) - picked, axis=[1])

        def gradient(g: GraphTensor) -> GraphTensor:
            one, zero = number_like(1.0, logits), number_like(0.0, logits)
            chosen = raw.OneHot(
                indices=targets, depth=logits.shape[1], on_value=one, off_value=zero
            )
            return (exps / total - chosen) * raw.ExpandDims(input=g, axis=1)

        return rows, gradient

    return own_gradient(lowered, logits)


def _loss_keeping_zeros(rule: Rule) -> Rule:
    """Return the rule of a 0-d result in which zeros of its cotangent absorb."""

    @with_own_gradient
    def keeping(out: Result, *xs: GraphTensor) -> WithGradient:

        def gradient(g: GraphTensor) -> list[GraphTensor | None]:
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([x for x in xs if x.dtype.is_floating])
                again = rule(out, *xs)
            return [
                raw.MulNoNan(x=slope, y=raw.BroadcastTo(input=g, shape=ints(shape_of(x))))
                if x.dtype.is_floating
                else None
                for slope, x in zip(taped(tape, again, xs), xs, strict=True)
            ]

        return rule(out, *xs), gradient

    return keeping


def _layer_norm(
    out: Result,
    x: GraphTensor,
    gamma: GraphTensor,
    beta: GraphTensor,
    *,
    eps: float,
    times: Rule = operator.mul,
) -> GraphTensor:
    """Emit the operation with a product ``times`` of a factor and a cotangent."""

    def normalised(x: GraphTensor) -> WithGradient:
        centred = x - _row_mean(x)
        inverse = raw.Reciprocal(x=raw.Sqrt(x=_row_mean(centred * centred) + eps))
        normal = centred * inverse

        def gradient(g: GraphTensor) -> GraphTensor:
            along = _row_mean(times(normal, g))
            return times(inverse, g - _row_mean(g) - times(normal, along))

        return normal, gradient

    def scaled(normal: GraphTensor, gamma: GraphTensor) -> WithGradient:
        def gradient(g: GraphTensor) -> tuple[GraphTensor, GraphTensor]:
            return times(gamma, g), summed_to(times(normal, g), gamma)

        return normal * gamma, gradient

    # Every step in the precision that NumPy computes it in.
    normal = own_gradient(normalised, x if x.dtype.is_floating else cast_to(x, "float64"))
    kind = np.result_type(normal.dtype.as_numpy_dtype, gamma.dtype.as_numpy_dtype)
    y = own_gradient(scaled, cast_to(normal, kind), cast_to(gamma, kind))
    return cast_to(y, out.dtype) + cast_to(beta, out.dtype)


def _row_mean(x: GraphTensor) -> GraphTensor:
    return reduced("Mean", x, [x.shape.rank - 1], keepdims=True)


def _conv2d_keeping_zeros(out: Result, x: GraphTensor, k: GraphTensor, **attrs: Any) -> GraphTensor:
    product = product_keeping_zeros(lambda out, a, b: raw.MatMul(a=a, b=b))
    return _convolved_by_columns(out, x, k, product=partial(product, None), **attrs)


def _mse_loss(out: Result, prediction: GraphTensor, target: GraphTensor) -> GraphTensor:
    return reduced("Mean", raw.SquaredDifference(x=prediction, y=target))


LOWERINGS: dict[str, Row | Rule] = {
    "softmax_crossentropy": Row(
        _softmax_crossentropy, xla=True, strong_zero=_loss_keeping_zeros(_softmax_crossentropy)
    ),
    "mse_loss": Row(_mse_loss, xla=True, strong_zero=_loss_keeping_zeros(_mse_loss)),
}

# Layers whose first input and result are images channels last.
LAST_LOWERINGS: dict[str, Rule] = {
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
}

# Used where a capture becomes one graph; a plain backward runs these natively.
WHOLE_LOWERINGS: dict[str, Row] = {
    "layer_norm": Row(_layer_norm, xla=True, strong_zero=partial(_layer_norm, times=keeping_zeros)),
    "conv2d": Row(
        _of_channels_first(_conv2d), strong_zero=_of_channels_first(_conv2d_keeping_zeros)
    ),
    "max_pool2d": Row(_of_channels_first(_max_pool2d)),
    "avg_pool2d": Row(_of_channels_first(_avg_pool2d)),
}
