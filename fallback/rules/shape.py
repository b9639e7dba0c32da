"""VJP rules: shapes and joins."""

from __future__ import annotations

import numpy as np

from tapegraph.fallback.rules import Gradients, JointVJP, Row
from tapegraph.typed import Array, Cotangent


def _transpose(g: Cotangent, y: Array, x: Array, *, axes: tuple[int, ...]) -> Array:
    return g.transpose(tuple(sorted(range(len(axes)), key=axes.__getitem__)))


def _concat(needs: list[bool], g: Cotangent, y: Array, *arrays: Array, axis: int) -> Gradients:
    ends = np.cumsum([a.shape[axis] for a in arrays])
    before = (slice(None),) * axis
    return [
        g[before + (slice(end - a.shape[axis], end),)] if needed else None
        for a, end, needed in zip(arrays, ends.tolist(), needs, strict=True)
    ]


VJPS: dict[str, Row] = {
    "transpose": (_transpose,),
    "reshape": (lambda g, y, x, *, shape: g.reshape(x.shape),),
    "concat": JointVJP(_concat),
    "broadcast_to": (lambda g, y, x, *, shape: g,),  # the sweep sums over the copies,
}
