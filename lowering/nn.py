"""TensorFlow nodes: neural networks.

Images are lowered with their channels last: TensorFlow's CPU kernels for channels first lack
float64. Where two layers meet, the transposes cancel in the graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tapegraph.lowering.rules import Rule, ints, number, permuted, raw, reshaped
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops.nn import Pair, padded, planes, valid_counts


def _softmax_crossentropy(out: Any, logits: Any, targets: Any) -> Any:
    if targets.shape.rank == logits.shape.rank:
        # SoftmaxCrossEntropyWithLogits takes rows that sum to 1 for granted; these need not.
        weighted = raw.MulNoNan(x=raw.LogSoftmax(logits=logits), y=targets)
        rows = raw.Neg(x=raw.Sum(input=weighted, axis=ints([logits.shape.rank - 1])))
    else:
        count, classes = math.prod(logits.shape[:-1]), logits.shape[-1]
        if not classes:
            return raw.Mean(input=logits, axis=ints(range(logits.shape.rank)))  # of no rows
        if logits.shape.rank != 2:
            logits, targets = reshaped(logits, (count, classes)), reshaped(targets, (count,))
        rows, _ = raw.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=targets)
    return raw.Mean(input=rows, axis=ints(range(rows.shape.rank)))


def _mse_loss(out: Any, prediction: Any, target: Any) -> Any:
    squares = raw.SquaredDifference(x=prediction, y=target)
    return raw.Mean(input=squares, axis=ints(range(squares.shape.rank)))


def _layer_norm(out: Any, x: Any, gamma: Any, beta: Any, *, eps: float) -> Any:
    return layer_normalised(out, x, gamma, beta, eps=eps, times=lambda a, b: raw.Mul(x=a, y=b))


def layer_normalised(out: Any, x: Any, gamma: Any, beta: Any, *, eps: float, times: Rule) -> Any:
    """Lower ``layer_norm`` with ``times`` to multiply a factor by a cotangent."""
    tf = tensorflow()

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def normalised(x: Any) -> Any:
        centred = raw.Sub(x=x, y=_row_mean(x))
        variance = _row_mean(raw.Mul(x=centred, y=centred))
        inverse = raw.Reciprocal(x=raw.Sqrt(x=raw.AddV2(x=variance, y=number(eps, x))))
        normal = raw.Mul(x=centred, y=inverse)

        def gradient(g: Any) -> Any:
            along = _row_mean(times(normal, g))
            return times(inverse, g - _row_mean(g) - times(normal, along))

        return normal, gradient

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def scaled(normal: Any, gamma: Any) -> Any:
        def gradient(g: Any) -> tuple[Any, Any]:
            return times(gamma, g), _summed_to(times(normal, g), gamma.shape)

        return raw.Mul(x=normal, y=gamma), gradient

    normal = normalised(x if x.dtype.is_floating else raw.Cast(x=x, DstT=out.dtype))
    normal, gamma, beta = (_in_dtype(out, v) for v in (normal, gamma, beta))
    return raw.AddV2(x=scaled(normal, gamma), y=beta)


def _in_dtype(out: Any, x: Any) -> Any:
    return x if x.dtype == out.dtype else raw.Cast(x=x, DstT=out.dtype)


def _row_mean(x: Any) -> Any:
    return raw.Mean(input=x, axis=ints([x.shape.rank - 1]), keep_dims=True)


def _summed_to(g: Any, shape: Any) -> Any:
    """Sum a gradient over the axes along which its operand was broadcast."""
    extra = g.shape.rank - shape.rank
    kept = (1,) * extra + tuple(shape)
    axes = [i for i, n in enumerate(kept) if i < extra or (n == 1 and g.shape[i] != 1)]
    return reshaped(raw.Sum(input=g, axis=ints(axes)), tuple(shape)) if axes else g


def _conv2d(out: Any, x: Any, k: Any, *, stride: Pair, pad: Pair, dilation: Pair) -> Any:
    if not _in_dtype(out, k).dtype.is_floating:
        return convolved_by_columns(
            out, x, k, stride=stride, pad=pad, dilation=dilation, product=tensorflow().matmul
        )
    if 0 in out.shape or 0 in k.shape:
        return tensorflow().zeros(out.shape, out.dtype)
    image, kernel = _image(_in_dtype(out, x), pad), permuted(_in_dtype(out, k), (2, 3, 1, 0))
    if _apart(k, dilation) == (1, 1):
        y = raw.Conv2D(input=image, filter=kernel, strides=[1, *stride, 1], padding="VALID")
    else:
        y = _dilated(image, kernel, stride, _apart(k, dilation))
    return _channels_first(y)


def _apart(k: Any, dilation: Pair) -> Pair:
    """Return how far apart a kernel's pixels stand: 1 where it has but one."""
    rows, columns = (d if n > 1 else 1 for d, n in zip(dilation, k.shape[2:], strict=True))
    return rows, columns


def _dilated(image: Any, kernel: Any, stride: Pair, dilation: Pair) -> Any:
    """Convolve every d-th pixel as an image of its own.

    On the CPU, TensorFlow has no gradient of a dilated convolution. Every stride is 1 until the
    end: pixels that are a stride apart may be of different images.
    """
    missing = [-n % d for n, d in zip(image.shape[1:3], dilation, strict=True)]
    borders = np.array([[0, n] for n in missing])
    apart = raw.SpaceToBatchND(input=image, block_shape=ints(dilation), paddings=borders)
    y = raw.Conv2D(input=apart, filter=kernel, strides=[1, 1, 1, 1], padding="VALID")
    y = raw.BatchToSpaceND(input=y, block_shape=ints(dilation), crops=borders)
    return y if stride == (1, 1) else y[:, :: stride[0], :: stride[1]]


def convolved_by_columns(
    out: Any,
    x: Any,
    k: Any,
    *,
    stride: Pair,
    pad: Pair,
    dilation: Pair,
    product: Callable[[Any, Any], Any],
) -> Any:
    """Lower ``conv2d`` as a ``product`` of two matrices, as the native engine computes it."""
    o, c, *size = k.shape
    n, _, oh, ow = out.shape
    image = _image(_in_dtype(out, x), pad)
    reads = _planes(image, (size[0], size[1]), stride, dilation)
    columns = reshaped(raw.Pack(values=reads, axis=3), (n * oh * ow, len(reads) * c))
    kernel = reshaped(permuted(_in_dtype(out, k), (2, 3, 1, 0)), (len(reads) * c, o))
    return _channels_first(reshaped(product(columns, kernel), (n, oh, ow, o)))


def _max_pool2d(out: Any, x: Any, *, ksize: Pair, stride: Pair, pad: Pair) -> Any:
    if 0 in out.shape:
        return reshaped(x, out.shape)
    tf = tensorflow()
    windows = {"ksize": [1, *ksize, 1], "strides": [1, *stride, 1], "padding": "VALID"}
    # TensorFlow's kernels skip a NaN, and give the lowest number for a window of -inf.
    finite = raw.IsFinite(x=raw.Sum(input=x, axis=ints(range(4))))

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def pooled(image: Any) -> Any:
        def largest() -> Any:
            best, *others = _planes(image, ksize, stride)
            for plane in others:
                best = raw.Maximum(x=best, y=plane)
            return best

        y = tf.cond(finite, lambda: raw.MaxPool(input=image, **windows), largest)

        def gradient(g: Any) -> Any:
            def fused() -> Any:
                return raw.MaxPoolGrad(orig_input=image, orig_output=y, grad=g, **windows)

            return tf.cond(finite, fused, lambda: _to_firsts(g, y, image, ksize, stride, pad))

        return y, gradient

    return _channels_first(pooled(_image(x, pad, -math.inf)))


def _to_firsts(g: Any, y: Any, image: Any, ksize: Pair, stride: Pair, pad: Pair) -> Any:
    """Send each window's cotangent to its first maximum, or to its first NaN."""
    tf = tensorflow()
    height, width = (n - 2 * p for n, p in zip(image.shape[1:3], pad, strict=True))
    inside = padded(np.ones((1, 1, height, width), np.bool_), pad, False)
    waiting = tf.ones_like(y, dtype=tf.bool)
    parts = []
    for plane, pixels in zip(
        _planes(image, ksize, stride), planes(inside, ksize, stride), strict=True
    ):
        here = (plane == y) | (raw.IsNan(x=plane) & raw.IsNan(x=y))
        here &= waiting & pixels.transpose(0, 2, 3, 1)
        waiting &= ~here
        parts.append(raw.SelectV2(condition=here, t=g, e=tf.zeros_like(g)))
    return _spread(parts, image, ksize, stride)


def _avg_pool2d(out: Any, x: Any, *, ksize: Pair, stride: Pair, pad: Pair) -> Any:
    if 0 in out.shape:
        return reshaped(x, out.shape)
    windows = {"ksize": [1, *ksize, 1], "strides": [1, *stride, 1], "padding": "VALID"}
    y = raw.AvgPool(value=_image(x, pad), **windows)
    if pad != (0, 0):  # which is not counted
        counts = valid_counts(tuple(x.shape), ksize, stride, pad).transpose(0, 2, 3, 1)
        y = raw.Mul(x=y, y=number(math.prod(ksize) / counts, y))
    return _channels_first(y)


def _image(x: Any, pad: Pair, value: float = 0.0) -> Any:
    """Return padded images, channels last."""
    image = permuted(x, (0, 2, 3, 1))
    if pad == (0, 0):
        return image
    borders = np.array([[0, 0], [pad[0]] * 2, [pad[1]] * 2, [0, 0]])
    return raw.PadV2(input=image, paddings=borders, constant_values=number(value, image))


def _channels_first(image: Any) -> Any:
    return permuted(image, (0, 3, 1, 2))


def _slices(image: Any, size: Pair, stride: Pair, dilation: Pair) -> list[dict[str, Any]]:
    """Return where each offset in the window reads an image, row by row."""

    def along(length: int, size: int, step: int, apart: int) -> list[tuple[int, int]]:
        last = (length - apart * (size - 1) - 1) // step * step
        return [(i * apart, i * apart + last + 1) for i in range(size)]

    rows, columns = map(along, image.shape[1:3], size, stride, dilation)
    n, *_, c = image.shape
    return [
        {
            "begin": ints([0, r[0], s[0], 0]),
            "end": ints([n, r[1], s[1], c]),
            "strides": ints([1, *stride, 1]),
        }
        for r in rows
        for s in columns
    ]


def _planes(image: Any, size: Pair, stride: Pair, dilation: Pair = (1, 1)) -> list[Any]:
    """Return what each offset in the window reads."""
    return [
        raw.StridedSlice(input=image, **read) for read in _slices(image, size, stride, dilation)
    ]


def _spread(parts: Sequence[Any], image: Any, size: Pair, stride: Pair) -> Any:
    """Add to each pixel what each offset in the window sends there: the transpose of `_planes`."""
    reads = _slices(image, size, stride, (1, 1))
    shape = ints(image.shape)
    return raw.AddN(
        inputs=[
            raw.StridedSliceGrad(shape=shape, dy=part, **read)
            for part, read in zip(parts, reads, strict=True)
        ]
    )


LOWERINGS: dict[str, Rule] = {
    "softmax_crossentropy": _softmax_crossentropy,
    "mse_loss": _mse_loss,
}

# Used where a whole recording becomes one graph; a plain backward runs these natively.
WHOLE_LOWERINGS: dict[str, Rule] = {
    "layer_norm": _layer_norm,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool2d,
    "avg_pool2d": _avg_pool2d,
}
