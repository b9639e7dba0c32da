"""VJP rules: shapes and joins, indexing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.fallback.rules import Gradients, JointVJP, Row, Rule, to_ndarray
from tapegraph.kinds import Tensor
from tapegraph.ops.index import (
    GATHER,
    GETITEM,
    INDEX,
    TENSOR_SLICE,
    advanced_key,
    basic_key,
    pad,
    rolled,
    scatter,
    slice_key,
)
from tapegraph.ops.shape import reshape
from tapegraph.recording.node import as_leaf
from tapegraph.recording.numpy_functions import numbers
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply
from tapegraph.recording.scopes import recorder
from tapegraph.row_sparse import RowSparse
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


def _zeros(g: Cotangent, x: Array) -> Array:
    if type(g) is np.ndarray:
        return np.zeros(x.shape, x.dtype)
    return np.zeros_like(g, shape=x.shape, dtype=x.dtype)


def _tensor_slice(
    g: Cotangent, y: Array, x: Array, begin: Array, *, size: tuple[int, ...]
) -> Array:
    out = _zeros(g, x)
    out[slice_key(begin, size)] = g
    return out


def _getitem(
    g: Cotangent, y: Array, x: Array, begin: Array, end: Array, *, plan: tuple[object, ...]
) -> Array:
    key = basic_key(begin, plan)
    if type(g) is not np.ndarray and hasattr(g, "placed"):  # of a plan
        return g.placed(x.shape, x.dtype, key)
    out = _zeros(g, x)
    out[key] = g
    return out


def _gather(g: Cotangent, y: Array, x: Array, indices: Array, *, axis: int) -> Array | RowSparse:
    if axis == 0:
        rows = RowSparse(
            indices.ravel(), to_ndarray(g).reshape(indices.size, *x.shape[1:]), x.shape
        )
        # Past the table's own length the dense form is the smaller one, as in sums.
        return rows if indices.size <= x.shape[0] else rows.dense()
    before, after = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    places = np.add.outer(np.arange(before) * x.shape[axis], indices.ravel())
    places = np.add.outer(places * after, np.arange(after))
    return _added_up(g, places, x)


def _index(g: Cotangent, y: Array, x: Array, *arrays: Array, plan: tuple[object, ...]) -> Array:
    if len(arrays) == x.ndim:
        return _added_up(g, np.ravel_multi_index(arrays, x.shape), x)
    out = _zeros(g, x)
    np.add.at(out, advanced_key(arrays, plan), g)
    return out


def _added_up(g: Cotangent, places: Array, x: Array) -> Array:
    """Add each element of the cotangent at its place in the flat array, for speed."""
    out = np.zeros(x.size, x.dtype)
    np.add.at(out, places.ravel(), to_ndarray(g).ravel())
    return out.reshape(x.shape)


def _recorded(op: Op) -> tuple[Rule]:
    """Return the row on Tensors: each element goes back to its place."""

    def rule(g: Cotangent, y: Array, x: Array, *indices: Array, **attrs: object) -> Tensor:
        every = as_leaf(np.arange(x.size).reshape(x.shape))
        return scatter(g, apply(op, (every, *indices), attrs), x.shape)

    return (rule,)


def _recorded_getitem(
    g: Cotangent, y: Array, x: Array, begin: Array, end: Array, *, plan: tuple[Any, ...]
) -> Tensor:
    """Put zeros around the cotangent of a block; of others, each element goes to its place."""
    steps = {part[1] for part in plan if isinstance(part, tuple)}
    if recorder().records(begin) or steps - {1}:
        return _recorded(GETITEM)[0](g, y, x, begin, end, plan=plan)
    starts = zip(plan, numbers(begin).tolist(), strict=True)
    along = [(1 if part == "int" else part[0], start) for part, start in starts if part is not None]
    lengths = tuple(length for length, _ in along)
    widths = [
        (start, total - start - length)
        for (length, start), total in zip(along, x.shape, strict=True)
    ]
    return pad(reshape(g, lengths), widths) if widths else reshape(g, ())


def _roll(
    g: Cotangent, y: Array, x: Array, *, shift: tuple[int, ...], axis: tuple[int, ...]
) -> Array:
    return rolled(g, shift=tuple(-distance for distance in shift), axis=axis)


VJPS: dict[str, Row] = {
    "transpose": (_transpose,),
    "reshape": (lambda g, y, x, *, shape: g.reshape(x.shape),),
    "concat": JointVJP(_concat),
    "broadcast_to": (lambda g, y, x, *, shape: g,),  # the sweep sums over the copies,
    "roll": (_roll,),
    "tensor_slice": (_tensor_slice,),
    "gather": (_gather,),
    "getitem": (_getitem,),
    "index": (_index,),
    "scatter": (lambda g, y, x, places, *, shape: g.reshape(-1)[places],),
}

RECORDED: dict[str, Row] = {
    **{op.name: _recorded(op) for op in (TENSOR_SLICE, GATHER, INDEX)},
    "getitem": (_recorded_getitem,),
    "roll": (lambda g, y, x, *, shift, axis: np.roll(g, tuple(-n for n in shift), axis),),
}
