"""Layers of networks, composed of operations: activations, norms, attention, dropout."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph import random
from tapegraph.arrays import one_axis, spreads
from tapegraph.errors import kind_of, message
from tapegraph.kinds import Kind
from tapegraph.ops import reduce
from tapegraph.ops.elementwise import expm1, sqrt, square, where
from tapegraph.ops.linalg import matmul
from tapegraph.ops.shape import reshape, swapaxes
from tapegraph.recording.node import as_float
from tapegraph.recording.numpy_functions import numbers
from tapegraph.recording.record import floating, tensor_like
from tapegraph.typed import ArrayLike, DuckArray

__all__ = [
    "batch_norm", "dropout", "elu", "group_norm", "leaky_relu", "rms_norm",
    "scaled_dot_product_attention",
]  # fmt: skip


def leaky_relu(x: Kind | ArrayLike, negative_slope: float = 0.01) -> Kind:
    """``x`` above 0 and ``negative_slope * x`` elsewhere; the derivative at 0 is the slope.

    :param x, negative_slope: Floats of any shape, and the factor of those that are not above 0.
    :returns: Tensor of ``x``'s shape and dtype.

    >>> tg.leaky_relu([-2.0, 3.0], 0.5).numpy()
    array([-1.,  3.])
    """
    array = tensor_like("leaky_relu", x)
    return where(array > 0, array, array * negative_slope)


def elu(x: Kind | ArrayLike, alpha: float = 1.0) -> Kind:
    """``x`` above 0 and ``alpha * (exp(x) - 1)`` elsewhere; the derivative at 0 is ``alpha``.

    :param x, alpha: Floats of any shape, and the negated limit far below 0.
    :returns: Tensor of ``x``'s shape and dtype.

    >>> tg.elu([-1000.0, 3.0]).numpy()
    array([-1.,  3.])
    """
    array = tensor_like("elu", x)
    above = array > 0
    # The branch not taken would overflow.
    return where(above, array, expm1(where(above, 0.0, array)) * alpha)


# Norms


def rms_norm(
    x: Kind | ArrayLike, weight: Kind | ArrayLike | None = None, eps: float | None = None
) -> Kind:
    """Divide the last axis by its root mean square, then scale (Zhang and Sennrich, 2019).

    It is ``weight * x / sqrt(mean(x**2) + eps)``.

    :param x: Of shape (..., d), float32 or float64.
    :param weight: Scale, of shape (d,); 1 by default.
    :param eps: By default the rounding of ``x``'s dtype, as in PyTorch.
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

    :param x: Of shape (n, c, ...), float32 or float64.
    :param num_groups: A divisor of the number of channels; neighbours are a group.
    :param weight, bias, eps: Of shape (c,), by default 1 and 0; a number.
    :returns: Tensor of ``x``'s shape.
    :raises ValueError: The groups do not divide the channels, or an argument has another shape.

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

    ``weight * (x - mean) / sqrt(var + eps) + bias`` (Ioffe and Szegedy, 2015). Nothing is kept
    between calls: a step that keeps running ones computes the batch's with ``tg.mean`` and
    ``tg.var``, passes them here, and assigns what it keeps.

    :param x: Float32 or float64.
    :param mean, var: Of shape (c,), both or none: by default the batch's own, the variance biased,
        through which gradients flow too.
    :param weight, bias, eps: Of shape (c,), by default 1 and 0; a number.
    :param axis: The axis of the channels; 1 as in PyTorch, -1 for channels that are last.
    :returns: Tensor of ``x``'s shape.
    :raises ValueError: One of ``mean`` and ``var`` is missing, or a shape is not (c,).

    >>> tg.batch_norm([[1.0, 5.0], [3.0, 9.0]], eps=0.0).data.tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """
    name = "batch_norm"
    array = _floats(name, x, 1)
    along = one_axis(name, axis, array.ndim)
    if (mean is None) != (var is None):
        missing = "mean" if mean is None else "var"
        raise ValueError(message(name, f"no {missing}", "both mean and var, or neither"))
    others = tuple(i for i in range(array.ndim) if i != along)
    if mean is None:
        centred = array - reduce.mean(array, others, keepdims=True)
        variance = reduce.mean(square(centred), others, keepdims=True)
    else:
        centred = array - _of_channels(name, "mean", mean, array.shape, along)
        variance = _of_channels(name, "var", var, array.shape, along)
    normal = centred / sqrt(variance + as_float(eps, name, "eps"))
    return _scaled(name, normal, weight, bias, along)


def _floats(name: str, x: DuckArray, least: int) -> DuckArray:
    array = floating(name, x)
    if array.ndim < least:
        raise ValueError(message(name, f"x of shape {array.shape}", f"x of {least}-D or more"))
    return array


def _scaled(name: str, x: DuckArray, weight: DuckArray, bias: DuckArray, axis: int) -> DuckArray:
    if weight is not None:
        x = x * _of_channels(name, "weight", weight, x.shape, axis)
    if bias is not None:
        x = x + _of_channels(name, "bias", bias, x.shape, axis)
    return x


def _of_channels(
    name: str, argument: str, value: DuckArray, shape: tuple[int, ...], axis: int
) -> DuckArray:
    array = tensor_like(name, value, argument)
    if array.shape != (shape[axis],):
        received = f"{argument} of shape {array.shape} for x of shape {shape}"
        raise ValueError(message(name, received, f"{argument} of shape {(shape[axis],)}"))
    return reshape(array, (shape[axis],) + (1,) * (len(shape) - axis - 1))


# Attention


def scaled_dot_product_attention(
    q: Kind | ArrayLike,
    k: Kind | ArrayLike,
    v: Kind | ArrayLike,
    mask: Kind | ArrayLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Kind:
    """Return the mean of the values, weighted by the match of each query with each key.

    ``softmax(scale * q @ k.T + mask) @ v`` (Vaswani et al., 2017). A query that may look at no key
    gives zeros, as in PyTorch.

    :param q, k, v: Of shapes (..., queries, d), (..., keys, d) and (..., keys, e), whose leading
        axes broadcast; float32 or float64.
    :param mask: Broadcasts to (..., queries, keys): bools, True where a query may look, or floats
        to add to the scores.
    :param is_causal: Whether query ``i`` looks only at keys up to ``i``; without a mask.
    :param scale: The factor of the scores, by default ``1 / sqrt(d)``.
    :returns: Tensor, shape (..., queries, e).
    :raises TypeError: The mask is of neither bools nor floats.
    :raises ValueError: The shapes do not fit, or ``is_causal`` comes with a mask.

    >>> q, k, v = [[0.0], [1.0]], [[1.0], [1.0]], [[2.0], [4.0]]
    >>> tg.scaled_dot_product_attention(q, k, v, is_causal=True).data.tolist()
    [[2.0], [3.0]]
    """
    name = "scaled_dot_product_attention"
    queries, keys = tensor_like(name, q, "q"), tensor_like(name, k, "k")
    values = tensor_like(name, v, "v")
    shapes = [x.shape for x in (queries, keys, values)]
    if min(map(len, shapes)) < 2 or not _fit(*shapes):
        received = f"q of shape {shapes[0]}, k of shape {shapes[1]}, v of shape {shapes[2]}"
        expected = "q (..., queries, d), k (..., keys, d) and v (..., keys, e)"
        raise ValueError(message(name, received, expected))
    if is_causal and mask is not None:
        fix = "Pass a mask of bools, np.tril(mask)."
        raise ValueError(message(name, "a mask with is_causal=True", "one of them", fix))
    if scale is None:
        scale = 1.0 / math.sqrt(max(1, shapes[0][-1]))
    scores = matmul(queries * as_float(scale, name, "scale"), swapaxes(keys, -1, -2))
    seen: Any = None
    if is_causal:
        seen = np.tri(*scores.shape[-2:], dtype=np.bool_)
    elif mask is not None:
        added = tensor_like(name, mask, "mask")
        if not spreads(added.shape, scores.shape):
            received = f"a mask of shape {added.shape} for scores of shape {scores.shape}"
            raise ValueError(message(name, received, "one that broadcasts to the scores' shape"))
        if added.dtype.kind not in "bf":
            fix = "Write mask != 0 for a mask of ones and zeros, or mask.astype(float) to add it."
            raise TypeError(message(name, f"a mask of {added.dtype}", "bools or floats", fix))
        seen = numbers(added)
        if added.dtype != np.bool_:
            seen = seen != -np.inf
            scores = scores + where(seen, added, 0.0)
    if seen is None:
        return matmul(reduce.softmax(scores, -1), values)
    # The lowest number and not -inf, whose softmax would be NaN where a query sees nothing.
    lowest = float(np.finfo(scores.dtype).min)
    weights = reduce.softmax(where(seen, scores, lowest), -1)
    return matmul(where(seen, weights, 0.0), values)


def _fit(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(q[:-2], k[:-2], v[:-2])
    except ValueError:
        return False
    return q[-1] == k[-1] and k[-2] == v[-2]


# Dropout


def dropout(x: Kind | ArrayLike, p: float = 0.5, training: bool = True) -> Kind:
    """Set elements to zero at random and scale the others by ``1 / (1 - p)``: inverted dropout.

    It multiplies by ``tg.random.dropout_mask(x.shape, p)`` (Srivastava et al., 2014), but dropped
    elements and their gradients are zero even for NaN. A captured step draws anew in every run.

    :param x: Any shape; integers become float64.
    :param p: The share to drop, in [0, 1].
    :param training: Whether to drop anything: False when a trained network is used.
    :returns: ``x`` itself, and nothing drawn, where ``p`` is 0 or ``training`` is False.
    :raises TypeError: ``p`` is not a number, or ``training`` no bool.
    :raises ValueError: ``p`` is not in [0, 1].

    >>> tg.random.seed(0)
    >>> tg.dropout([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 0.5).data
    array([ 2.,  0.,  0.,  0., 10., 12.])
    """
    name = "dropout"
    array, rate = tensor_like(name, x), random.share(name, p)
    if getattr(training, "dtype", type(training)) not in (bool, np.bool_):  # "eval" is true
        received = f"{kind_of(training)} for 'training'"
        raise TypeError(message(name, received, "True or False"))
    if not training or rate == 0.0:
        return array
    return where(random.keep_mask(array.shape, rate), array, 0.0) * random.keep_scale(rate)
