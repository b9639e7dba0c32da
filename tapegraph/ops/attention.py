"""Attention, composed of recorded operations."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegraph.errors import message
from tapegraph.ops.elementwise import where
from tapegraph.ops.linalg import matmul
from tapegraph.ops.reduce import softmax
from tapegraph.ops.shape import swapaxes
from tapegraph.recording.node import as_float
from tapegraph.recording.numpy_functions import numbers
from tapegraph.recording.record import tensor_like
from tapegraph.typed import ArrayLike

if TYPE_CHECKING:
    from tapegraph.typed import Kind

__all__ = ["scaled_dot_product_attention"]


def scaled_dot_product_attention(
    q: Kind | ArrayLike,
    k: Kind | ArrayLike,
    v: Kind | ArrayLike,
    mask: Kind | ArrayLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
) -> Kind:
    """Means of the values, weighed by how much each query meets each key.

    ``softmax(scale * q @ k.T + mask) @ v`` (Vaswani et al., 2017). A query that may look at no key
    gives zeros, as in PyTorch.

    :param q: Of shape (..., queries, d). Float32 or float64; the axes before the last two
        broadcast, and are heads and examples.
    :param k: Of shape (..., keys, d). Keys.
    :param v: Of shape (..., keys, e). Values.
    :param mask: Broadcasts to (..., queries, keys): of bools, True where a query may look; of
        floats, what is added to the scores.
    :param is_causal: Whether query ``i`` looks at keys up to ``i`` alone; without a mask.
    :param scale: What scores are multiplied by, ``1 / sqrt(d)`` where not given.
    :returns: Tensor, shape (..., queries, e).
    :raises ValueError: The shapes do not fit, or ``is_causal`` comes with a mask.

    >>> q, k, v = [[0.0], [1.0]], [[1.0], [1.0]], [[2.0], [4.0]]
    >>> tg.scaled_dot_product_attention(q, k, v, is_causal=True).data
    array([[2.],
           [3.]])
    """
    name = "scaled_dot_product_attention"
    queries, keys = tensor_like(name, q, "q"), tensor_like(name, k, "k")
    values = tensor_like(name, v, "v")
    shapes = [x.shape for x in (queries, keys, values)]
    if min(map(len, shapes)) < 2 or not _fit(*shapes):
        raise ValueError(
            message(
                name,
                f"q of shape {shapes[0]}, k of shape {shapes[1]}, v of shape {shapes[2]}",
                "q (..., queries, d), k (..., keys, d) and v (..., keys, e)",
            )
        )
    if is_causal and mask is not None:
        fix = "Pass a mask of bools, np.tril(mask)."
        raise ValueError(message(name, "a mask with is_causal=True", "one of them", fix))
    if scale is None:
        factor = 1.0 / math.sqrt(max(1, shapes[0][-1]))
    else:
        factor = as_float(scale, name, "scale")
    scores = matmul(queries * factor, swapaxes(keys, -1, -2))
    seen: Any = None
    if is_causal:
        seen = np.tri(*scores.shape[-2:], dtype=np.bool_)
    elif mask is not None:
        added = tensor_like(name, mask, "mask")
        _check_mask(name, added.shape, scores.shape)
        seen = numbers(added)
        if added.dtype != np.bool_:
            seen = seen != -np.inf
            scores = scores + where(seen, added, 0.0)
    if seen is None:
        return matmul(softmax(scores, -1), values)
    # The lowest number and not -inf, whose softmax would be NaN where a query sees nothing.
    lowest = float(np.finfo(scores.dtype).min)
    weights = softmax(where(seen, scores, lowest), -1)
    return matmul(where(seen, weights, 0.0), values)


def _fit(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(q[:-2], k[:-2], v[:-2])
    except ValueError:
        return False
    return q[-1] == k[-1] and k[-2] == v[-2]


def _check_mask(name: str, mask: tuple[int, ...], scores: tuple[int, ...]) -> None:
    try:
        fits = np.broadcast_shapes(mask, scores) == scores
    except ValueError:
        fits = False
    if not fits:
        received = f"a mask of shape {mask} for scores of shape {scores}"
        raise ValueError(message(name, received, "one that broadcasts to the scores' shape"))
