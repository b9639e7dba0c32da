"""Convolutions made of `conv2d`: of one dimension, and the transpose of the one of two."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tapegraph.arrays.axes import int_tuple, pair
from tapegraph.errors import message
from tapegraph.ops import index
from tapegraph.ops.nn import conv2d
from tapegraph.ops.shape import expand_dims, reshape, squeeze, swapaxes
from tapegraph.recording.record import tensor_like
from tapegraph.typed import ArrayLike, Shape

if TYPE_CHECKING:
    from tapegraph.typed import Kind

__all__ = ["conv1d", "conv_transpose2d"]


def conv1d(
    x: Kind | ArrayLike, k: Kind | ArrayLike, stride: int = 1, pad: int = 0, dilation: int = 1
) -> Kind:
    """One-dimensional convolution (cross-correlation) of signals with kernels.

    :param x: Of shape (n, c, l). Signals.
    :param k: Of shape (o, c, kl). Kernels, one per output channel.
    :param stride, pad, dilation: Steps in samples; padding is with zeros on both sides.
    :returns: Tensor, shape (n, o, (l + 2 pad - dilation (kl - 1) - 1) // stride + 1).
    :raises ValueError: An operand is not 3-D, the channels differ, or the kernel is longer than the
        signal.

    >>> tg.conv1d([[[1.0, 2.0, 4.0]]], [[[1.0, -1.0]]]).data
    array([[[-1., -2.]]])
    """
    name = "conv1d"
    signals, kernels = tensor_like(name, x), tensor_like(name, k, "k")
    if signals.ndim != 3 or kernels.ndim != 3 or signals.shape[1] != kernels.shape[1]:
        raise ValueError(
            message(
                name,
                f"x of shape {signals.shape} and k of shape {kernels.shape}",
                "x (n, c, l) and k (o, c, kl) with the same number of channels c",
            )
        )
    step, border, apart = (
        _one(name, argument, value, least)
        for argument, value, least in (
            ("stride", stride, 1),
            ("pad", pad, 0),
            ("dilation", dilation, 1),
        )
    )
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
    """Transpose of `conv2d` in its images: what its gradient computes, as a layer that enlarges.

    Computed as the convolution of the images, spread apart by ``stride``, with the turned kernels.

    :param x: Of shape (n, c, h, w). Images.
    :param k: Of shape (c, o, kh, kw). Kernels, one row of them per input channel.
    :param stride, pad: Those of the convolution that this is the transpose of, (height, width).
    :param output_pad: Rows and columns more, at the end; fewer than the stride or the dilation.
    :param dilation: The convolution's, as ``stride`` and ``pad``.
    :returns: Tensor, shape (n, o, oh, ow). ``oh = (h - 1) stride - 2 pad + dilation (kh - 1) +
        output_pad + 1``, and ``ow`` likewise.
    :raises ValueError: An operand is not 4-D, the channels differ, or nothing would be left.

    >>> tg.conv_transpose2d([[[[1.0, 2.0]]]], np.ones((1, 1, 1, 2)), stride=2).data[0, 0]
    array([[1., 1., 2., 2.]])
    """
    name = "conv_transpose2d"
    images, kernels = tensor_like(name, x), tensor_like(name, k, "k")
    step, border = pair(name, "stride", stride, 1), pair(name, "pad", pad, 0)
    apart, more = pair(name, "dilation", dilation, 1), pair(name, "output_pad", output_pad, 0)
    if images.ndim != 4 or kernels.ndim != 4 or images.shape[1] != kernels.shape[0]:
        raise ValueError(
            message(
                name,
                f"x of shape {images.shape} and k of shape {kernels.shape}",
                "x (n, c, h, w) and k (c, o, kh, kw) with the same number of channels c",
            )
        )
    if any(m >= max(s, d) for m, s, d in zip(more, step, apart, strict=True)):
        received = f"output_pad={more} with stride {step} and dilation {apart}"
        raise ValueError(message(name, received, "less than the stride or the dilation"))
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


def _spread(x: Any, step: tuple[int, int]) -> Any:
    """Put ``step - 1`` rows and columns of zeros between those of images."""
    if step == (1, 1):
        return x
    n, c, h, w = x.shape
    cells = reshape(x, (n, c, h, 1, w, 1))
    zeros = [(0, 0)] * 3 + [(0, step[0] - 1), (0, 0), (0, step[1] - 1)]
    wide = reshape(index.pad(cells, zeros), (n, c, h * step[0], w * step[1]))
    return wide[:, :, : (h - 1) * step[0] + 1, : (w - 1) * step[1] + 1]


def _framed(x: Any, frame: list[tuple[int, int]]) -> Any:
    """Pad the last two axes; a negative width takes away."""
    widths = [(0, 0), (0, 0)] + [(max(0, a), max(0, b)) for a, b in frame]
    padded = index.pad(x, widths) if any(map(any, widths)) else x
    (top, bottom), (left, right) = [(max(0, -a), max(0, -b)) for a, b in frame]
    h, w = padded.shape[2:]
    return padded[:, :, top : h - bottom, left : w - right]


def _one(name: str, argument: str, value: Any, least: int) -> int:
    numbers = int_tuple(name, argument, value)
    if len(numbers) != 1 or numbers[0] < least:
        expected = f"an integer, at least {least}"
        raise ValueError(message(name, f"{argument}={value!r}", expected))
    return numbers[0]
