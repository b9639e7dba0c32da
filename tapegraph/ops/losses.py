"""Losses and activations of networks, composed of recorded operations."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tapegraph.errors import explain
from tapegraph.ops.elementwise import clip, expm1, where
from tapegraph.ops.nn import _as_constant
from tapegraph.ops.reduce import mean, sum
from tapegraph.ops.special import softplus
from tapegraph.recording.record import tensor_like
from tapegraph.typed import ArrayLike

if TYPE_CHECKING:
    from tapegraph.typed import Kind

__all__ = ["binary_crossentropy", "elu", "leaky_relu", "smooth_l1"]

REDUCTIONS = {"mean": mean, "sum": sum, "none": lambda losses: losses}


def leaky_relu(x: Kind | ArrayLike, negative_slope: float = 0.01) -> Kind:
    """``x`` above 0 and ``negative_slope * x`` elsewhere; the derivative at 0 is the slope.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.
    negative_slope : float
        The factor of what is not above 0.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.leaky_relu([-2.0, 3.0], 0.5).numpy()
    array([-1.,  3.])
    """
    array = tensor_like("leaky_relu", x)
    return where(array > 0, array, array * negative_slope)


def elu(x: Kind | ArrayLike, alpha: float = 1.0) -> Kind:
    """``x`` above 0 and ``alpha * (exp(x) - 1)`` elsewhere; the derivative at 0 is ``alpha``.

    Parameters
    ----------
    x : Tensor, array_like or number
        Any shape, float32 or float64.
    alpha : float
        What is approached far below 0, negated.

    Returns
    -------
    Tensor
        Of ``x``'s shape and dtype.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.elu([-1000.0, 3.0]).numpy()
    array([-1.,  3.])
    """
    array = tensor_like("elu", x)
    above = array > 0
    # The branch not taken would overflow.
    return where(above, array, expm1(where(above, 0.0, array)) * alpha)


def binary_crossentropy(
    logits: Kind | ArrayLike, targets: Kind | ArrayLike, reduction: str = "mean"
) -> Kind:
    """Cross entropy of ``sigmoid(logits)``, without overflow or cancellation.

    It is ``targets * softplus(-logits) + (1 - targets) * softplus(logits)``.

    Parameters
    ----------
    logits : Tensor or array_like
        Any shape, float32 or float64.
    targets : Tensor or array_like
        Probabilities, of the same shape.
    reduction : {"mean", "sum", "none"}
        What is made of the losses of the elements.

    Returns
    -------
    Tensor
        0-d, or of the logits' shape for "none".

    Raises
    ------
    ValueError
        The shapes differ, or the reduction is unknown.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.binary_crossentropy([1000.0, -1000.0], [1.0, 1.0]).item()
    500.0
    """
    x, y = _pair("binary_crossentropy", logits, targets, reduction)
    return REDUCTIONS[reduction](y * softplus(-x) + (1.0 - y) * softplus(x))


def smooth_l1(
    prediction: Kind | ArrayLike,
    target: Kind | ArrayLike,
    beta: float = 1.0,
    reduction: str = "mean",
) -> Kind:
    """Squares of small differences and sizes of large ones, ``r**2 / (2 * beta)`` up to ``beta``.

    Beyond, it is ``abs(r) - beta / 2``, with ``r = prediction - target``.

    Parameters
    ----------
    prediction : Tensor or array_like
        Any shape, float32 or float64.
    target : Tensor or array_like
        Of the same shape.
    beta : float
        Where the line begins, above 0.
    reduction : {"mean", "sum", "none"}
        What is made of the losses of the elements.

    Returns
    -------
    Tensor
        0-d, or of the prediction's shape for "none".

    Raises
    ------
    ValueError
        The shapes differ, ``beta`` is not above 0, or the reduction is unknown.

    Examples
    --------
    >>> import tapegraph as tg
    >>> tg.smooth_l1([1.0, 3.0], [0.0, 0.0], reduction="none").numpy()
    array([0.5, 2.5])
    """
    name = "smooth_l1"
    if not 0 < beta < math.inf:
        raise ValueError(explain(name, f"beta={beta!r}", "a number above 0", "Pass 1.0."))
    x, y = _pair(name, prediction, target, reduction)
    residual = x - y
    near = clip(residual, -beta, beta)
    return REDUCTIONS[reduction](near * (residual - near * 0.5) / beta)


def _pair(name: str, prediction: Any, target: Any, reduction: str) -> tuple[Any, Any]:
    """Return both as tensors of one shape, what needs no gradient in the first one's dtype."""
    x, y = tensor_like(name, prediction), tensor_like(name, target)
    if reduction not in REDUCTIONS:
        expected = '"mean", "sum" or "none"'
        raise ValueError(explain(name, f"reduction={reduction!r}", expected, "Pass one of them."))
    if x.shape != y.shape:
        got = f"a prediction of shape {x.shape} and a target of shape {y.shape}"
        raise ValueError(explain(name, got, "equal shapes", "Reshape one of them."))
    if x.dtype.kind != "f":
        x = x * 1.0
    return x, _as_constant(name, y, x.dtype)
