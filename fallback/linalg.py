"""Gradients of matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ops.linalg import is_one_product, rows_of
from tapegraph.typed import Array


def _left(g: Any, y: Array, a: Array, b: Array) -> Any:
    if b.ndim == 1:
        return g[..., None] * b
    if a.ndim == 1:
        # A row times a stack: one gradient per matrix of the stack, summed by the sweep.
        return np.matmul(g[..., None, :], b.swapaxes(-1, -2))[..., 0, :]
    if is_one_product(g, b):
        return np.matmul(rows_of(g), b.T).reshape(a.shape)
    return np.matmul(g, b.swapaxes(-1, -2))


def _right(g: Any, y: Array, a: Array, b: Array) -> Any:
    if a.ndim == 1:
        return a[:, None] * g[..., None, :] if b.ndim > 1 else g * a
    if b.ndim == 1:
        return np.matmul(a.swapaxes(-1, -2), g[..., None])[..., 0]
    if is_one_product(a, b) and g.size:
        return np.matmul(rows_of(a).T, rows_of(g))
    return np.matmul(a.swapaxes(-1, -2), g)


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "matmul": (_left, _right),
    "batch_matmul": (_left, _right),
}
