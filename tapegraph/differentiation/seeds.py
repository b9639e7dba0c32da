"""Seeds: the cotangent of a result, as a user gives it or as ones, and as a sweep carries it."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.errors import message, sentence
from tapegraph.recording.node import Node, numeric
from tapegraph.recording.record import keep_parts
from tapegraph.typed import Array


def conjugated(g: Any) -> Any:
    """Return a gradient as a cotangent inside a sweep, which carries conjugates, or the reverse."""
    if g.dtype.kind != "c":
        return g
    return RowSparse(g.rows, np.conj(g.values), g.shape) if type(g) is RowSparse else np.conj(g)


def cotangent_of(y: Node, seed: object = None, *, borrow: bool = False) -> Array:
    """Return the seed as an array of y's type, ones by default; ``borrow`` allows a view."""
    data = y._array
    if seed is None and data.dtype.kind == "c":
        text = (
            f"the result is complex ({data.dtype}), and only a real loss has a gradient. Take its "
            ".real or tg.abs of it, pass a seed, or differentiate a holomorphic function by "
            "tg.grad(f, holomorphic=True)."
        )
        raise TypeError(sentence("backward", text))
    if seed is None:  # of one number, in a quarter of the time
        return np.ones_like(data) if data.shape else np.array(1, data.dtype)
    if isinstance(seed, Node) and not seed._requires_grad:
        seed = seed._array
    if borrow and type(seed) is np.ndarray and seed.dtype == data.dtype and seed.dtype.isnative:
        if seed.shape == data.shape:
            view = seed.view()
            view.flags.writeable = False
            return view
    array = numeric(seed, "backward", "seed")
    keep_parts("backward", "a seed", array.dtype, data.dtype)
    array = array.astype(data.dtype, copy=False)
    if array.shape != data.shape:
        raise ValueError(
            message("backward", f"a seed of shape {array.shape}", f"y's shape {data.shape}")
        )
    return array
