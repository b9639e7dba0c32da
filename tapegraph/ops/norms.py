"""Normalisations of networks, composed of recorded operations; `layer_norm` is one of its own."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegraph.arrays.axes import one_axis
from tapegraph.errors import message
from tapegraph.ops import reduce
from tapegraph.ops.elementwise import sqrt, square
from tapegraph.ops.shape import reshape
from tapegraph.recording.node import as_float
from tapegraph.recording.record import tensor_like
from tapegraph.typed import ArrayLike

if TYPE_CHECKING:
    from tapegraph.typed import Kind

__all__ = ["batch_norm", "group_norm", "rms_norm"]


def rms_norm(
    x: Kind | ArrayLike, weight: Kind | ArrayLike | None = None, eps: float | None = None
) -> Kind:
    """Divide the last axis by its root mean square, then scale.

    ``weight * x / sqrt(mean(x**2) + eps)`` (Zhang and Sennrich, 2019).

    :param x: Of shape (..., d). Float32 or float64.
    :param weight: Scale, of shape (d,); 1 where not given.
    :param eps: Added to the mean square; the rounding of ``x``'s dtype where not given, as in
        PyTorch.
    :returns: Tensor of ``x``'s shape.
    :raises ValueError: ``x`` is 0-d, or ``weight`` has another shape.

    >>> tg.rms_norm([[3.0, 3.0]], [1.0, 2.0], eps=0.0).data
    array([[1., 2.]])
    """
    name = "rms_norm"
    array = _floats(name, x, 1)
    added = float(np.finfo(array.dtype).eps) if eps is None else as_float(eps, name, "eps")
    size = sqrt(reduce.mean(square(array), -1, keepdims=True) + added)
    return _scaled(name, array / size, weight, None, array.ndim - 1)


def group_norm(
    x: Kind | ArrayLike,
    num_groups: int,
    weight: Kind | ArrayLike | None = None,
    bias: Kind | ArrayLike | None = None,
    eps: float = 1e-05,
) -> Kind:
    """Normalise groups of channels of each example to mean 0 and variance 1, then scale and shift.

    ``weight * (x - mean) / sqrt(var + eps) + bias`` with the biased variance of a group (Wu and He,
    2018). One group a channel is an instance norm.

    :param x: Of shape (n, c, ...). Float32 or float64; channels on axis 1.
    :param num_groups: A divisor of the number of channels; neighbours are a group.
    :param weight, bias: Scale and shift of each channel, of shape (c,); 1 and 0 where not given.
    :param eps: Added to the variance.
    :returns: Tensor of ``x``'s shape.
    :raises ValueError: ``x`` has no axis 1, the groups do not divide the channels, or ``weight`` or
        ``bias`` has another shape.

    >>> tg.group_norm([[1.0, 3.0, 5.0, 9.0]], 2, eps=0.0).data
    array([[-1.,  1., -1.,  1.]])
    """
    name = "group_norm"
    array = _floats(name, x, 2)
    n, c = array.shape[:2]
    if num_groups < 1 or c % num_groups:
        received = f"num_groups={num_groups} for {c} channels"
        raise ValueError(message(name, received, "a divisor of the number of channels"))
    table = reshape(array, (n, num_groups, math.prod(array.shape[1:]) // num_groups))
    centred = table - reduce.mean(table, -1, keepdims=True)
    variance = reduce.mean(square(centred), -1, keepdims=True)
    normal = centred / sqrt(variance + as_float(eps, name, "eps"))
    return _scaled(name, reshape(normal, array.shape), weight, bias, 1)


def batch_norm(
    x: Kind | ArrayLike,
    mean: Kind | ArrayLike | None = None,
    var: Kind | ArrayLike | None = None,
    weight: Kind | ArrayLike | None = None,
    bias: Kind | ArrayLike | None = None,
    eps: float = 1e-05,
    axis: int = 1,
) -> Kind:
    """Normalise each channel by a mean and a variance, then scale and shift.

    ``weight * (x - mean) / sqrt(var + eps) + bias`` (Ioffe and Szegedy, 2015). Without ``mean`` and
    ``var`` they are the batch's own, the variance the biased one, and their gradient is part of
    ``x``'s. Nothing is kept between calls: a step that keeps running ones computes the batch's with
    ``tg.mean`` and ``tg.var``, passes them here, and assigns what it keeps.

    :param x: Float32 or float64.
    :param mean, var: Tensor or array_like of shape (c,), the length of ``x``'s axis ``axis``: both
        or none.
    :param weight, bias: Scale and shift of each channel, of shape (c,); 1 and 0 where not given.
    :param eps: Added to the variance.
    :param axis: The axis of the channels; 1 as in PyTorch, -1 for channels that are last.
    :returns: Tensor of ``x``'s shape.
    :raises ValueError: One of ``mean`` and ``var`` is missing, or an argument has not the shape
        (c,).

    >>> tg.batch_norm([[1.0, 5.0], [3.0, 9.0]], eps=0.0).data
    array([[-1., -1.],
           [ 1.,  1.]])
    >>> tg.batch_norm([[1.0, 5.0]], mean=[0.0, 5.0], var=[4.0, 1.0], eps=0.0).data
    array([[0.5, 0. ]])
    """
    name = "batch_norm"
    array = _floats(name, x, 1)
    along = one_axis(name, axis, array.ndim)
    if (mean is None) != (var is None):
        missing = "mean" if mean is None else "var"
        raise ValueError(message(name, f"no {missing}", "mean and var, or none of them"))
    others = tuple(i for i in range(array.ndim) if i != along)
    if mean is None:
        centred = array - reduce.mean(array, others, keepdims=True)
        variance = reduce.mean(square(centred), others, keepdims=True)
    else:
        centred = array - _of_channels(name, "mean", mean, array.shape, along)
        variance = _of_channels(name, "var", var, array.shape, along)
    normal = centred / sqrt(variance + as_float(eps, name, "eps"))
    return _scaled(name, normal, weight, bias, along)


def _floats(name: str, x: Any, least: int) -> Any:
    array = tensor_like(name, x)
    if array.ndim < least:
        raise ValueError(message(name, f"x of shape {array.shape}", f"x of {least}-D or more"))
    return array if array.dtype.kind == "f" else array * 1.0


def _scaled(name: str, x: Any, weight: Any, bias: Any, axis: int) -> Any:
    if weight is not None:
        x = x * _of_channels(name, "weight", weight, x.shape, axis)
    if bias is not None:
        x = x + _of_channels(name, "bias", bias, x.shape, axis)
    return x


def _of_channels(name: str, argument: str, value: Any, shape: tuple[int, ...], axis: int) -> Any:
    """Return one value a channel in the shape that broadcasts along the channels' axis."""
    array = tensor_like(name, value, argument)
    if array.shape != (shape[axis],):
        received = f"{argument} of shape {array.shape} for x of shape {shape}"
        raise ValueError(message(name, received, f"{argument} of shape {(shape[axis],)}"))
    return reshape(array, (shape[axis],) + (1,) * (len(shape) - axis - 1))
