"""Clipping gradients: all of them to a norm, or each element to an interval."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from tapegraph.errors import message, warn
from tapegraph.optim.options import (
    AVERAGING,
    Leaf,
    Leaves,
    gradients_of,
    named_params,
    number,
    replace_gradient,
)
from tapegraph.recording.node import as_float, as_leaf
from tapegraph.recording.scopes import no_grad
from tapegraph.row_sparse import RowSparse
from tapegraph.tensors.tensor import Tensor

# PyTorch's, so that a norm of zero does not divide.
_EPS = 1e-6
# Below this the squares of float64 numbers vanish.
_SMALLEST = 1e-150


def clip_grad_norm(params: Leaves, max_norm: float) -> Tensor:
    """Scale all gradients by one factor, so that their norm together is at most ``max_norm``.

    With the norm ``n`` of all gradients as one vector, each becomes ``g * min(1, max_norm / (n +
    1e-6))``, PyTorch's formula, without overflow or underflow. If the norm is infinite or NaN,
    every gradient becomes NaN, with a `RuntimeWarning` except in compiled steps: a finite step
    would hide it.

    :param params: The leaves, or a model for `parameters`; leaves without a gradient stay as they
        are.
    :param max_norm: Not negative; infinite to learn only the norm.
    :returns: Tensor. The norm before, a float64 constant of shape ().
    :raises TypeError: Something in ``params`` is not a leaf, or ``max_norm`` is no number.
    :raises ValueError: A parameter occurs twice in a list, or ``max_norm`` is negative or NaN.

    >>> x = tg.param([3.0, 4.0])
    >>> (x * x).sum().backward()
    >>> norm = tg.clip_grad_norm([x], max_norm=5.0)
    >>> norm.item()
    10.0
    >>> x.grad.round(5)
    array([3., 4.])
    """
    op = "clip_grad_norm"
    limit = _limit(op, "max_norm", max_norm)
    leaves = _averaged(op, params)
    with no_grad():
        found = _gradients(leaves)
        norm = _norm([_elements(g) for _, g in found])
        factor = np.minimum(limit / (norm + _EPS), 1.0)
        factor = np.where(np.isfinite(norm), factor, np.nan)
        if not isinstance(factor, Tensor):
            if factor == 1.0:
                return as_leaf(np.asarray(norm))
            if not np.isfinite(norm):
                _warn_of(found, norm)
                found = [(p, g.dense() if isinstance(g, RowSparse) else g) for p, g in found]
        _replace(found, lambda x: x * factor.astype(x.dtype))
    return norm if isinstance(norm, Tensor) else as_leaf(np.asarray(norm))


def clip_grad_value(params: Leaves, limit: float) -> None:
    """Limit each element of the gradients to ``[-limit, limit]``; NaN stays NaN.

    :param params: As for `clip_grad_norm`.
    :param limit: Not negative.
    :raises TypeError, ValueError: As for `clip_grad_norm`; or a gradient is complex.

    >>> x = tg.param([0.5, -4.0])
    >>> (x * x).sum().backward()
    >>> tg.clip_grad_value([x], 2.0)
    >>> x.grad
    array([ 1., -2.])
    """
    op = "clip_grad_value"
    limit = _limit(op, "limit", limit)
    leaves = _averaged(op, params)
    with no_grad():
        found = _gradients(leaves)
        if any(g.dtype.kind == "c" for _, g in found):
            fix = "Write tg.clip_grad_norm, which scales them."
            raise TypeError(message(op, "a complex gradient", "real ones", fix))
        _replace(found, lambda x: np.minimum(np.maximum(x, -limit), limit))


def _averaged(op: str, params: Leaves) -> list[Leaf]:
    _, leaves = named_params(op, params)
    averaging = AVERAGING.value()
    if averaging is not None:
        averaging.average(leaves)
    return leaves


def _limit(op: str, name: str, value: float) -> float:
    return np.inf if value == np.inf else number(op, name, as_float(value, op, name))


def _gradients(leaves: list[Leaf]) -> list[tuple[Leaf, Any]]:
    pairs = zip(leaves, gradients_of(leaves, rows=True), strict=True)
    return [(p, g) for p, g in pairs if g is not None and g.shape.count(0) == 0]


def _elements(g: object) -> Any:
    return g.values if isinstance(g, RowSparse) else g


def _replace(found: list[tuple[Leaf, Any]], f: Callable[[Any], Any]) -> None:
    changed = [
        (p, RowSparse(g.rows, f(g.values), g.shape) if isinstance(g, RowSparse) else f(g))
        for p, g in found
    ]
    for p, g in changed:
        replace_gradient(p, g)


def _norm(gradients: list[Any]) -> Any:
    """Return the norm of all gradients as one vector, in float64: an array or a tensor."""
    gradients = [np.abs(g) if g.dtype.kind == "c" else g for g in gradients if 0 not in g.shape]
    if not gradients:
        return np.zeros(())
    peaks = [np.maximum(np.max(g), -np.min(g)).astype(np.float64) for g in gradients]
    peak = reduce(np.maximum, peaks)
    # Of numbers of at most 1 no square overflows.
    scale = np.where(np.isfinite(peak), np.maximum(peak, _SMALLEST), 1.0)
    parts = [g / scale for g in gradients]
    total = reduce(np.add, [np.vdot(part, part) for part in parts])
    return np.where(np.isfinite(peak), scale * np.sqrt(total), peak)


def _warn_of(found: list[tuple[Leaf, Any]], norm: object) -> None:
    """Warn, before any change, of gradients whose norm is not a number to divide by."""
    for place, (p, g) in enumerate(found):
        if not np.isfinite(_elements(g)).all():
            name = getattr(p, "name", None) or getattr(p, "label", "") or str(place)
            where = f"; the first that is not finite is of parameter {name!r}"
            break
    else:
        where = ""
    warn(
        f"clip_grad_norm: received gradients of norm {norm}, which no factor makes finite, so "
        f"that all become NaN; expected finite gradients{where}.",
        RuntimeWarning,
    )
