"""Losses: means, sums or tables of the costs of predictions; and one-hot rows."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph.arrays import check_one_of, one_integer
from tapegraph.errors import message, warn
from tapegraph.kinds import Kind
from tapegraph.numpy_warnings import watched
from tapegraph.ops.elementwise import astype, clip, where
from tapegraph.ops.index import in_range, integers_of, take_along_axis
from tapegraph.ops.nn import MSE_LOSS, SOFTMAX_CROSSENTROPY
from tapegraph.ops.reduce import mean, sum
from tapegraph.ops.shape import expand_dims, squeeze
from tapegraph.ops.special import log_softmax, softplus
from tapegraph.recording.node import as_float, as_leaf, get_default_dtype
from tapegraph.recording.numpy_functions import numbers
from tapegraph.recording.record import apply, floating, tensor_like
from tapegraph.typed import ArrayLike, DType, DuckArray, Fun

__all__ = ["binary_crossentropy", "mse_loss", "one_hot", "smooth_l1", "softmax_crossentropy"]

REDUCTIONS: dict[str, Fun] = {"mean": mean, "sum": sum, "none": lambda losses: losses}


def softmax_crossentropy(
    logits: Kind | ArrayLike,
    targets: Kind | ArrayLike,
    *,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Kind:
    """Mean over rows of the cross-entropy between softmax(logits) and the targets.

    ``-mean(sum(targets * log_softmax(logits)))`` by log-sum-exp, without clipping. The classes are
    on the last axis; the options are PyTorch's.

    :param logits: Of shape (..., classes), unnormalised, float32 or float64.
    :param targets: Class indices, of shape (...), or one-hot rows or probabilities, (..., classes).
    :param ignore_index: A class index, in range or not, whose rows cost nothing and do not count in
        the mean, which is NaN without other rows. Only with class indices.
    :param label_smoothing: The share ``s`` of every target to spread evenly over all classes, in
        [0, 1]: ``(1 - s) * targets + s / classes``.
    :param reduction: {"mean", "sum", "none"}, over the rows' losses.
    :returns: Tensor. 0-d, or of the rows' shape for "none"; of the logits' dtype.
    :raises IndexError: A class index is out of range.
    :raises TypeError: Class indices are not integers.
    :raises ValueError: The shapes do not fit, an option is out of range or unknown, or rows of
        probabilities have an ``ignore_index``.

    >>> round(tg.softmax_crossentropy([[0.0, 0.0], [5.0, 1.0]], [1, -1], ignore_index=-1).item(), 4)
    0.6931
    """
    name = "softmax_crossentropy"
    total = _reduction(name, reduction)
    smoothing = as_float(label_smoothing, name, "label_smoothing")
    if not 0.0 <= smoothing <= 1.0:
        raise ValueError(message(name, f"label_smoothing={smoothing}", "a share in [0, 1]"))
    scores, wanted = floating(name, logits, "logits"), tensor_like(name, targets, "targets")
    if scores.ndim == 0 or wanted.shape not in (scores.shape, scores.shape[:-1]):
        received = f"logits of shape {scores.shape} and targets of shape {wanted.shape}"
        expected = "targets of the logits' shape (one-hot) or without its last axis (classes)"
        raise ValueError(message(name, received, expected))
    if wanted.shape == scores.shape:
        if ignore_index is not None:
            received = f"ignore_index={ignore_index} and targets of the logits' shape"
            fix = "Leave it out, and set the rows to ignore to zero."
            raise ValueError(message(name, received, "class indices with it", fix))
        wanted = _as_constant(name, wanted, scores.dtype)
        common = np.result_type(scores.dtype, wanted.dtype)
        scores, wanted = astype(scores, common, copy=False), astype(wanted, common, copy=False)
        if smoothing == 0.0 and reduction == "mean":
            return apply(SOFTMAX_CROSSENTROPY, (scores, wanted))
        if smoothing:
            wanted = wanted * (1.0 - smoothing) + smoothing / scores.shape[-1]
        return total(-sum(_weighed(wanted, log_softmax(scores, -1)), -1))
    if ignore_index is not None:
        array = numbers(wanted)
        kept = array != one_integer(name, "ignore_index", ignore_index)
        wanted = tensor_like(name, np.where(kept, array, 0))
    classes = in_range(name, "class", integers_of(name, "targets", wanted), scores.shape[-1])
    classes = as_leaf(classes) if isinstance(classes, np.ndarray) else classes
    if ignore_index is None and smoothing == 0.0 and reduction == "mean":
        return apply(SOFTMAX_CROSSENTROPY, (scores, classes))
    logarithms = log_softmax(scores, -1)
    places = expand_dims(classes, -1)
    losses = -squeeze(take_along_axis(logarithms, numbers(places), -1), -1)
    if smoothing:
        losses = losses * (1.0 - smoothing) - mean(logarithms, -1) * smoothing
    if ignore_index is None:
        return total(losses)
    losses = where(kept, losses, 0.0)
    if reduction != "mean":
        return total(losses)
    return sum(losses) / sum(np.where(kept, *np.array([1, 0], scores.dtype)))


def _as_constant(name: str, targets: DuckArray, dtype: DType) -> DuckArray:
    """Return targets in a dtype, unless a gradient flows to them: then NumPy's rules hold."""
    if targets.dtype == dtype or targets.requires_grad:
        return targets
    return tensor_like(name, watched(name, numbers(targets).astype, dtype))


def mse_loss(prediction: Kind | ArrayLike, target: Kind | ArrayLike) -> Kind:
    """Mean of the squared differences of all elements, ``mean((prediction - target)**2)``.

    :param prediction, target: Floats of one shape; a constant target takes the other dtype.
    :returns: 0-d, of the prediction's dtype.
    :raises ValueError: The shapes differ.

    >>> tg.mse_loss([1.0, 5.0], [0.0, 2.0]).item()
    5.0
    """
    broadcast = "tg.mean((a - b)**2)"
    return apply(MSE_LOSS, _pair("mse_loss", prediction, target, broadcast))


def binary_crossentropy(
    logits: Kind | ArrayLike, targets: Kind | ArrayLike, reduction: str = "mean"
) -> Kind:
    """Cross entropy of ``sigmoid(logits)``, without overflow or cancellation.

    It is ``targets * softplus(-logits) + (1 - targets) * softplus(logits)``.

    :param logits, targets: Floats of one shape; targets that are no probabilities warn.
    :param reduction: {"mean", "sum", "none"}, over the elements' losses.
    :returns: Tensor. 0-d, or of the logits' shape for "none".
    :raises ValueError: The shapes differ, or the reduction is unknown.

    >>> tg.binary_crossentropy([1000.0, -1000.0], [1.0, 1.0]).item()
    500.0
    """
    name = "binary_crossentropy"
    total = _reduction(name, reduction)
    x, y = _pair(name, logits, targets)
    given = getattr(y, "_array", None)
    if given is not None and given.size and (given.min() < -0.01 or given.max() > 1.01):
        received = f"targets from {given.min():.3g} to {given.max():.3g}"
        fix = (
            "The logits come first, tg.binary_crossentropy(logits, targets); for labels of -1 and "
            "1 write (labels + 1) / 2."
        )
        warn(message(name, received, "probabilities, from 0 to 1", fix), UserWarning)
    return total(_weighed(y, softplus(-x)) + _weighed(1.0 - y, softplus(x)))


def smooth_l1(
    prediction: Kind | ArrayLike,
    target: Kind | ArrayLike,
    beta: float = 1.0,
    reduction: str = "mean",
) -> Kind:
    """Squares of small differences and sizes of large ones, ``r**2 / (2 * beta)`` up to ``beta``.

    Beyond ``beta`` it is ``abs(r) - beta / 2``, with ``r = prediction - target``.

    :param prediction, target, beta: Floats of one shape, and the start of the linear part.
    :param reduction: {"mean", "sum", "none"}, over the elements' losses.
    :returns: Tensor. 0-d, or of the prediction's shape for "none".
    :raises ValueError: The shapes differ, ``beta`` is not above 0, or the reduction is unknown.

    >>> tg.smooth_l1([1.0, 3.0], [0.0, 0.0], reduction="none").numpy()
    array([0.5, 2.5])
    """
    name = "smooth_l1"
    total, edge = _reduction(name, reduction), as_float(beta, name, "beta")
    if not 0.0 < edge < np.inf:
        raise ValueError(message(name, f"beta={edge}", "a number above 0", "Pass 1.0."))
    x, y = _pair(name, prediction, target)
    residual = x - y
    near = clip(residual, -edge, edge)
    return total(near * (residual - near * 0.5) / edge)


# Classes


def one_hot(labels: Kind | ArrayLike, num_classes: int, dtype: npt.DTypeLike | None = None) -> Kind:
    """Rows of zeros with a one in the place of each label, without a gradient.

    :param labels: Any shape, each in [0, num_classes).
    :param num_classes, dtype: The length of a row, and its dtype, by default `get_default_dtype`'s.
    :returns: Tensor, shape (..., num_classes).
    :raises IndexError: A label is out of range.
    :raises TypeError: Labels are not integers.
    :raises ValueError: ``num_classes`` is negative.

    >>> tg.one_hot([2, 0], 3).data.tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    name = "one_hot"
    count = one_integer(name, "num_classes", num_classes)
    if count < 0:
        raise ValueError(message(name, f"num_classes={count}", "0 or more"))
    places = in_range(name, "label", integers_of(name, "labels", labels), count)
    rows = np.expand_dims(places, -1) == np.arange(count)
    return tensor_like(name, rows.astype(get_default_dtype() if dtype is None else dtype))


# Inputs


def _pair(
    name: str,
    prediction: DuckArray,
    target: DuckArray,
    broadcast: str = "tg.broadcast_arrays(a, b) first",
) -> tuple[DuckArray, DuckArray]:
    """Return both as tensors of one shape, a constant one in the first one's dtype."""
    x = floating(name, prediction, "prediction")
    y = tensor_like(name, target, "target")
    if x.shape != y.shape:
        received = f"a prediction of shape {x.shape} and a target of shape {y.shape}"
        fix = f"Reshape one of them, or write {broadcast} for broadcasting."
        raise ValueError(message(name, received, "equal shapes", fix))
    return x, _as_constant(name, y, x.dtype)


def _reduction(name: str, reduction: str) -> Fun:
    check_one_of(name, "reduction", reduction, *REDUCTIONS)
    return REDUCTIONS[reduction]


def _weighed(weights: DuckArray, losses: Any) -> DuckArray:
    """Return ``weights * losses``, in which weight 0 absorbs an infinite loss."""
    counted = np.logical_or(np.isfinite(numbers(losses)), numbers(weights) != 0)
    counted = np.logical_or(counted, np.isnan(numbers(losses)))
    return weights * where(counted, losses, 0.0)
