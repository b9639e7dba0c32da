"""Operations of neural networks."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tapegraph.arrays import int_tuple, pair, spreads
from tapegraph.errors import message
from tapegraph.kinds import Kind
from tapegraph.ops import index
from tapegraph.ops.reduce import add_up
from tapegraph.ops.shape import expand_dims, reshape, squeeze, swapaxes
from tapegraph.recording.node import as_float
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply, floating, tensor_like
from tapegraph.typed import Array, ArrayLike, DuckArray, Shape

__all__ = ["avg_pool2d", "conv1d", "conv2d", "conv_transpose2d", "layer_norm", "max_pool2d"]

Pair = tuple[int, int]


def windows(x: Array, size: Pair, stride: Pair, dilation: Pair = (1, 1)) -> Array:
    """View ``(a, h, w, b)`` as ``(a, kh, kw, oh, ow, b)``: the elements at each kernel offset."""
    a, h, w, b = x.shape
    (kh, kw), (sh, sw), (dh, dw) = size, stride, dilation
    oh, ow = (h - dh * (kh - 1) - 1) // sh + 1, (w - dw * (kw - 1) - 1) // sw + 1
    ba, bh, bw, bb = x.strides
    strides = (ba, bh * dh, bw * dw, bh * sh, bw * sw, bb)
    return as_strided(x, (a, kh, kw, oh, ow, b), strides, writeable=False)


def planes(x: Array, size: Pair, stride: Pair, dilation: Pair = (1, 1)) -> list[Array]:
    """View ``(n, c, h, w)`` as one ``(n, c, oh, ow)`` an offset in the window, row by row."""

    def slices(length: int, size: int, step: int, apart: int) -> list[slice]:
        last = (length - apart * (size - 1) - 1) // step * step
        return [slice(i * apart, i * apart + last + 1, step) for i in range(size)]

    rows, columns = map(slices, x.shape[2:], size, stride, dilation)
    return [x[:, :, r, c] for r in rows for c in columns]


def padded(x: Array, pad: Pair, value: float = 0.0) -> Array:
    if pad == (0, 0):
        return x
    out: Array = np.full_like(x, value, shape=padded_shape(x.shape, pad))
    cropped(out, pad)[...] = x
    return out


def padded_shape(shape: tuple[int, ...], pad: Pair) -> tuple[int, ...]:
    n, c, h, w = shape
    return (n, c, h + 2 * pad[0], w + 2 * pad[1])


def cropped(x: DuckArray, pad: Pair) -> DuckArray:
    ph, pw = pad
    return x[:, :, ph : x.shape[2] - ph, pw : x.shape[3] - pw]


def images_last(x: Array) -> Array:
    """Return ``(n, c, h, w)`` as ``(c, h, w, n)``, the memory layout of convolutions' results."""
    return np.asanyarray(x.transpose(1, 2, 3, 0), order="C")


def images_first(x: Array) -> Array:
    return x.transpose(3, 0, 1, 2)


def overlap_add(parts: Array, shape: tuple[int, ...], stride: Pair, dilation: Pair) -> Array:
    """Add ``(c, kh, kw, oh, ow, n)`` into ``(c, h, w, n)``: the transpose of `windows`."""
    out = np.zeros(shape, dtype=parts.dtype)
    c, kh, kw, *rest = parts.shape
    by_offset = parts.reshape(c, kh * kw, *rest).swapaxes(0, 1)
    places = planes(images_first(out), (kh, kw), stride, dilation)
    for plane, part in zip(places, by_offset, strict=True):
        plane += images_first(part)
    return out


def valid_counts(shape: tuple[int, ...], ksize: Pair, stride: Pair, pad: Pair) -> Array:
    """Return how many elements of each pooling window are not padding, ``(1, 1, oh, ow)``."""
    ones = np.ones((1, 1, *shape[2:]))
    return np.add.reduce(planes(padded(ones, pad), ksize, stride))


def _layer_norm(x: Array, gamma: DuckArray, beta: DuckArray, *, eps: float) -> DuckArray:
    centred = x - _row_mean(x)
    variance = np.expand_dims(np.vecdot(centred, centred), -1) / x.shape[-1]
    inverse = 1.0 / np.sqrt(variance + eps)
    centred *= inverse
    y = centred * gamma
    if np.result_type(y, beta) != y.dtype:
        return y + beta, (centred, inverse)
    y += beta
    return y, (centred, inverse)


def _row_mean(x: Array) -> DuckArray:
    return add_up(x, axis=-1, keepdims=True) / x.shape[-1]


def _conv2d(x: Array, k: Array, *, stride: Pair, pad: Pair, dilation: Pair) -> DuckArray:
    o = k.shape[0]
    view = windows(images_last(padded(x, pad)), k.shape[2:], stride, dilation)
    oh, ow, n = view.shape[3:]
    columns = view.reshape(math.prod(k.shape[1:]), oh * ow * n)
    out = np.matmul(k.reshape(o, columns.shape[0]), columns)
    return images_first(out.reshape(o, oh, ow, n)), columns


def _max_pool2d(x: Array, *, ksize: Pair, stride: Pair, pad: Pair) -> DuckArray:
    first, *others = planes(padded(x, pad, -np.inf), ksize, stride)
    best = np.array(first)
    for plane in others:
        best = np.maximum(best, plane, out=best)
    return best


def firsts(x: Array, best: Array, ksize: Pair, stride: Pair, pad: Pair) -> Iterator[Array]:
    """Yield, for each offset in the window, where the first maximum stands there."""
    open_windows = np.ones_like(best, dtype=np.bool_)
    nan = np.isnan(best) if np.isnan(np.sum(best)) else None
    inside = planes(padded(np.ones((1, 1, *x.shape[2:]), np.bool_), pad, False), ksize, stride)
    for plane, pixels in zip(planes(padded(x, pad, -np.inf), ksize, stride), inside, strict=True):
        here = plane == best
        if nan is not None:
            here |= np.isnan(plane) & nan
        here &= open_windows
        if pad != (0, 0):
            here &= pixels  # -inf in the image is a maximum that padding equals
        open_windows ^= here
        yield here


def _avg_pool2d(x: Array, *, ksize: Pair, stride: Pair, pad: Pair) -> DuckArray:
    total: Array = np.add.reduce(planes(padded(x, pad), ksize, stride))
    return total / valid_counts(x.shape, ksize, stride, pad).astype(x.dtype)


def _softmax_crossentropy(logits: Array, targets: Array) -> DuckArray:
    shifted = logits - logits.max(axis=-1, keepdims=True, initial=-np.inf)
    exps = np.exp(shifted)
    total = exps.sum(axis=-1, keepdims=True)
    if targets.ndim < logits.ndim:
        picked = shifted.ravel().take(places_of(targets, logits.shape[-1]))
        picked -= np.log(total).ravel()
        return -np.add.reduce(picked) / picked.dtype.type(picked.size), (exps, total)
    log_probabilities = shifted - np.log(total)
    # 0 * log(0) is 0 here: a class of no weight costs nothing.
    weighted = np.multiply(
        targets, log_probabilities, where=targets != 0, out=np.zeros_like(log_probabilities)
    )
    rows = add_up(weighted, axis=-1)
    return -add_up(rows, axis=None) / rows.size, (exps, total)


def places_of(classes: Array, count: int) -> Array:
    return classes.ravel() + np.arange(classes.size) * count


def _mse_loss(prediction: Array, target: Array) -> DuckArray:
    residual = np.subtract(prediction, target)
    flat = residual.ravel("K")
    return np.dot(flat, flat) / flat.size, residual


LAYER_NORM = Op("layer_norm", _layer_norm, saves=True, promotes=False)
CONV2D = Op("conv2d", _conv2d, saves=True)
MAX_POOL2D = Op("max_pool2d", _max_pool2d)
AVG_POOL2D = Op("avg_pool2d", _avg_pool2d)
SOFTMAX_CROSSENTROPY = Op("softmax_crossentropy", _softmax_crossentropy, saves=True, promotes=False)
MSE_LOSS = Op("mse_loss", _mse_loss, saves=True)


def layer_norm(
    x: Kind | ArrayLike, gamma: Kind | ArrayLike, beta: Kind | ArrayLike, eps: float = 1e-05
) -> Kind:
    """Normalise the last axis to mean 0 and variance 1, then scale and shift.

    ``gamma * (x - mean) / sqrt(var + eps) + beta``, the biased variance (Ba et al., 2016).

    :param x: Of shape (..., d), float32 or float64.
    :param gamma, beta, eps: Broadcast to ``x``'s shape, usually of shape (d,); a number.
    :returns: Tensor of ``x``'s shape.
    :raises ValueError: ``x`` is 0-d, or ``gamma`` or ``beta`` does not broadcast to ``x``'s shape.

    >>> tg.layer_norm([[1.0, 3.0]], [1.0, 1.0], [0.0, 0.0], eps=0.0).data
    array([[-1.,  1.]])
    """
    name = "layer_norm"
    array = tensor_like(name, x)
    scale, shift = tensor_like(name, gamma, "gamma"), tensor_like(name, beta, "beta")
    if array.ndim == 0 or not all(spreads(v.shape, array.shape) for v in (scale, shift)):
        shapes = f"gamma of shape {scale.shape}, beta of shape {shift.shape}"
        expected = "x of 1-D or more, and gamma and beta that broadcast to its shape"
        raise ValueError(message(name, f"x of shape {array.shape}, {shapes}", expected))
    return apply(LAYER_NORM, (array, scale, shift), {"eps": as_float(eps, name, "eps")})


def conv2d(
    x: Kind | ArrayLike, k: Kind | ArrayLike, stride: Shape = 1, pad: Shape = 0, dilation: Shape = 1
) -> Kind:
    """Two-dimensional convolution (cross-correlation) of images with kernels.

    :param x, k: Images (n, c, h, w), and kernels (o, c, kh, kw), one per output channel.
    :param stride, pad, dilation: Steps in pixels, (height, width); zeros pad both sides.
    :returns: Tensor, shape (n, o, oh, ow), ``oh = (h + 2 pad - dilation (kh - 1) - 1) // stride +
        1``, ``ow`` likewise.
    :raises ValueError: An operand is not 4-D, channels differ, or the kernel exceeds the image.

    >>> tg.conv2d(np.ones((1, 1, 3, 3)), np.ones((1, 1, 2, 2))).data[0, 0].tolist()
    [[4.0, 4.0], [4.0, 4.0]]
    """
    name = "conv2d"
    images, kernels = _images_and_kernels(name, x, k, "x (n, c, h, w) and k (o, c, kh, kw)")
    attrs = {
        "stride": pair(name, "stride", stride, 1),
        "pad": pair(name, "pad", pad, 0),
        "dilation": pair(name, "dilation", dilation, 1),
    }
    dilated = zip(attrs["dilation"], kernels.shape[2:], strict=True)
    _check_reach(name, images.shape, tuple(d * (s - 1) + 1 for d, s in dilated), attrs["pad"])
    return apply(CONV2D, (images, kernels), attrs)


def _images_and_kernels(
    name: str, x: DuckArray, k: DuckArray, expected: str, ndim: int = 4, channels: int = 1
) -> tuple[DuckArray, DuckArray]:
    """Return both as tensors; the kernels' axis ``channels`` must match the images' second."""
    images, kernels = tensor_like(name, x), tensor_like(name, k, "k")
    if not images.ndim == kernels.ndim == ndim or images.shape[1] != kernels.shape[channels]:
        received = f"x of shape {images.shape} and k of shape {kernels.shape}"
        expected = f"{expected} with the same number of channels c"
        raise ValueError(message(name, received, expected))
    return images, kernels


def conv1d(
    x: Kind | ArrayLike, k: Kind | ArrayLike, stride: int = 1, pad: int = 0, dilation: int = 1
) -> Kind:
    """One-dimensional convolution (cross-correlation) of signals with kernels.

    :param x, k: Signals (n, c, l), and kernels (o, c, kl), one per output channel.
    :param stride, pad, dilation: Steps in samples; zeros pad both sides.
    :returns: Tensor, shape (n, o, (l + 2 pad - dilation (kl - 1) - 1) // stride + 1).
    :raises ValueError: An operand is not 3-D, channels differ, or the kernel exceeds the signal.

    >>> tg.conv1d([[[1.0, 2.0, 4.0]]], [[[1.0, -1.0]]]).data
    array([[[-1., -2.]]])
    """
    name = "conv1d"
    signals, kernels = _images_and_kernels(name, x, k, "x (n, c, l) and k (o, c, kl)", ndim=3)
    step = _one(name, "stride", stride, 1)
    border = _one(name, "pad", pad, 0)
    apart = _one(name, "dilation", dilation, 1)
    images, rows = expand_dims(signals, 2), expand_dims(kernels, 2)
    return squeeze(conv2d(images, rows, (1, step), (0, border), (1, apart)), 2)


def conv_transpose2d(
    x: Kind | ArrayLike,
    k: Kind | ArrayLike,
    stride: Shape = 1,
    pad: Shape = 0,
    output_pad: Shape = 0,
    dilation: Shape = 1,
) -> Kind:
    """Transpose of `conv2d` in its images: its gradient, as a layer that enlarges.

    :param x, k: Images (n, c, h, w), and kernels (c, o, kh, kw), a row of them per input channel.
    :param stride, pad: Those of the transposed convolution, (height, width).
    :param output_pad: Extra rows and columns at the end; fewer than the stride or the dilation.
    :param dilation: The convolution's, as ``stride`` and ``pad``.
    :returns: Tensor, shape (n, o, oh, ow), ``oh = (h - 1) stride - 2 pad + dilation (kh - 1) +
        output_pad + 1``, ``ow`` likewise.
    :raises ValueError: An operand is not 4-D, channels differ, or the result is empty.

    >>> tg.conv_transpose2d([[[[1.0, 2.0]]]], np.ones((1, 1, 1, 2)), stride=2).data[0, 0]
    array([[1., 1., 2., 2.]])
    """
    name = "conv_transpose2d"
    expected = "x (n, c, h, w) and k (c, o, kh, kw)"
    images, kernels = _images_and_kernels(name, x, k, expected, channels=0)
    step, border = pair(name, "stride", stride, 1), pair(name, "pad", pad, 0)
    apart, more = pair(name, "dilation", dilation, 1), pair(name, "output_pad", output_pad, 0)
    if any(m >= max(s, d) for m, s, d in zip(more, step, apart, strict=True)):
        received = f"output_pad={more} with stride {step} and dilation {apart}"
        raise ValueError(message(name, received, "output_pad below the stride or the dilation"))
    reach = [d * (s - 1) for d, s in zip(apart, kernels.shape[2:], strict=True)]
    ends = zip(reach, border, more, strict=True)
    frame = [(r - p, r - p + m) for r, p, m in ends]
    spread = [(n - 1) * s + 1 for n, s in zip(images.shape[2:], step, strict=True)]
    size = [n + sum(f) - r for n, f, r in zip(spread, frame, reach, strict=True)]
    if min(*size, *images.shape[2:], *kernels.shape[2:]) < 1:
        received = f"x of shape {images.shape} and k of shape {kernels.shape} with pad {border}"
        raise ValueError(message(name, received, "a result of at least one pixel"))
    turned = swapaxes(index.flip(kernels, (2, 3)), 0, 1)
    return conv2d(_framed(_spread(images, step), frame), turned, 1, 0, apart)


def _spread(x: DuckArray, step: tuple[int, int]) -> DuckArray:
    """Put ``step - 1`` rows and columns of zeros between those of images."""
    if step == (1, 1):
        return x
    n, c, h, w = x.shape
    cells = reshape(x, (n, c, h, 1, w, 1))
    zeros = [(0, 0)] * 3 + [(0, step[0] - 1), (0, 0), (0, step[1] - 1)]
    wide = reshape(index.pad(cells, zeros), (n, c, h * step[0], w * step[1]))
    return wide[:, :, : (h - 1) * step[0] + 1, : (w - 1) * step[1] + 1]


def _framed(x: DuckArray, frame: list[tuple[int, int]]) -> DuckArray:
    """Pad the last two axes; a negative width crops."""
    widths = [(0, 0), (0, 0)] + [(max(0, a), max(0, b)) for a, b in frame]
    padded = index.pad(x, widths) if any(map(any, widths)) else x
    (top, bottom), (left, right) = [(max(0, -a), max(0, -b)) for a, b in frame]
    h, w = padded.shape[2:]
    return padded[:, :, top : h - bottom, left : w - right]


def _one(name: str, argument: str, value: DuckArray, least: int) -> int:
    numbers = int_tuple(name, argument, value)
    if len(numbers) != 1 or numbers[0] < least:
        expected = f"an integer, at least {least}"
        raise ValueError(message(name, f"{argument}={value!r}", expected))
    return numbers[0]


def max_pool2d(
    x: Kind | ArrayLike, ksize: Shape, stride: Shape | None = None, pad: Shape = 0
) -> Kind:
    """Largest element of each window; the first one, row by row, takes the whole gradient.

    :param x: Images, of shape (n, c, h, w).
    :param ksize, stride: The window, and the step, by default ``ksize``, in pixels (height, width).
    :param pad: Padding on both sides, smaller than the window; it never wins.
    :returns: Tensor, shape (n, c, (h + 2 pad - ksize) // stride + 1, ...).
    :raises ValueError: ``x`` is not 4-D, the window exceeds the image, or the padding the window.

    >>> tg.max_pool2d(np.arange(4.0).reshape(1, 1, 2, 2), 2).item()
    3.0
    """
    return _pool("max_pool2d", MAX_POOL2D, x, ksize, stride, pad)


def avg_pool2d(
    x: Kind | ArrayLike, ksize: Shape, stride: Shape | None = None, pad: Shape = 0
) -> Kind:
    """Mean of each window; padding is not counted.

    :param x, ksize, stride, pad: As for `max_pool2d`.
    :returns: Tensor, shape (n, c, (h + 2 pad - ksize) // stride + 1, ...).
    :raises ValueError: As `max_pool2d`.

    >>> tg.avg_pool2d(np.arange(4.0).reshape(1, 1, 2, 2), 2).item()
    1.5
    """
    return _pool("avg_pool2d", AVG_POOL2D, x, ksize, stride, pad)


def _pool(name: str, op: Op, x: DuckArray, ksize: object, stride: object, pad: object) -> DuckArray:
    x = floating(name, x)
    size = pair(name, "ksize", ksize, 1)
    step = size if stride is None else pair(name, "stride", stride, 1)
    border = pair(name, "pad", pad, 0)
    if x.ndim != 4:
        raise ValueError(message(name, f"x of shape {x.shape}", "x of shape (n, c, h, w)"))
    if border[0] >= size[0] or border[1] >= size[1]:
        received = f"pad {border} with ksize {size}"
        raise ValueError(message(name, received, "a padding smaller than the window"))
    if 0 in x.shape[2:]:
        raise ValueError(message(name, f"images of shape {x.shape}", "at least one pixel"))
    _check_reach(name, x.shape, size, border)
    return apply(op, (x,), {"ksize": size, "stride": step, "pad": border})


def _check_reach(name: str, shape: tuple[int, ...], reach: tuple[int, ...], pad: Pair) -> None:
    room = (shape[2] + 2 * pad[0], shape[3] + 2 * pad[1])
    if reach[0] > room[0] or reach[1] > room[1] or min(reach) < 1:
        received = f"a window of {reach} on an image of shape {shape} padded to {room}"
        fix = "Pad the image or use a smaller window."
        raise ValueError(message(name, received, "a window that fits at least once", fix))
