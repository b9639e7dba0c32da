"""TensorFlow nodes: shapes and joins, indexing, sorting, splitting."""

from __future__ import annotations

import math
from typing import Any

from tapegraph.lowering.rows import (
    NotLowered,
    Result,
    Row,
    Rule,
    WithGradient,
    broadcast_shape,
    cast_to,
    ints,
    is_large,
    known,
    number_like,
    own_gradient,
    permuted,
    raw,
    repeated_to,
    reshaped,
    scalar,
    selected,
    shape_of,
)
from tapegraph.lowering.runtime import GraphTensor, tf


def _concat(out: Result, *parts: GraphTensor, axis: int) -> GraphTensor:
    if len(parts) == 1:
        return raw.Identity(input=parts[0])  # ConcatV2 takes two or more
    return raw.ConcatV2(values=list(parts), axis=axis)


def _gather(out: Result, x: Any, indices: GraphTensor, *, axis: int) -> GraphTensor:
    if 0 in x.shape:  # nothing is taken of it, and TensorFlow's gradient refuses to spread that
        return reshaped(x, out.shape)
    if not isinstance(x, tf.Tensor):  # a variable that has no other reader
        return raw.ResourceGather(resource=x.handle, indices=indices, dtype=x.dtype)
    last = len(x.shape) - 1
    of_last = 0 < axis == last and indices.shape.rank == 1 and None not in indices.shape
    if of_last and is_large(x) and 2 * indices.shape[0] > x.shape[-1]:
        # Whole rows are taken several times quicker than single numbers, and put back so too.
        order = (last, *range(last))
        rows = raw.GatherV2(params=permuted(x, order), indices=indices, axis=0)
        return permuted(rows, (*range(1, last + 1), 0))
    return raw.GatherV2(params=x, indices=indices, axis=axis)


def _getitem(
    out: Result, x: GraphTensor, begin: GraphTensor, end: GraphTensor, plan: tuple[object, ...]
) -> GraphTensor:
    if len(x.shape) > 8:  # TensorFlow's gradient of StridedSlice is wrong there, without an error
        raise NotLowered("getitem of more than 8 axes has a wrong gradient in TensorFlow")
    steps = [part[1] if isinstance(part, tuple) else 1 for part in plan]
    if None in x.shape and min(steps) > 0:  # -1, as of x[:-3] for a batch of 2, would be the last
        end = raw.Maximum(x=end, y=number_like(0, end))
    taken = raw.StridedSlice(
        input=x,
        begin=begin,
        end=end,
        strides=ints(steps),
        begin_mask=0,
        end_mask=0,
        ellipsis_mask=0,
        new_axis_mask=sum(1 << i for i, part in enumerate(plan) if part is None),
        shrink_axis_mask=sum(1 << i for i, part in enumerate(plan) if part == "int"),
    )
    sliced = zip(x.shape, (part for part in plan if part is not None), strict=True)
    if any(n is None and isinstance(part, tuple) and type(part[0]) is int for n, part in sliced):
        return raw.EnsureShape(input=taken, shape=known(out.shape))  # of a batch that may be short
    taken.set_shape(known(out.shape))  # the fed offsets move the block, never its size
    return taken


def _getitem_with_gradient(
    out: Result, x: GraphTensor, begin: GraphTensor, end: GraphTensor, *, plan: tuple[object, ...]
) -> GraphTensor:
    def lowered(x: GraphTensor) -> WithGradient:
        taken = _getitem(out, *_rows_taken(x, begin, end, plan))
        return taken, lambda g: _put_back(g, shape_of(x), begin, plan)

    return own_gradient(lowered, x)


def _rows_taken(
    x: GraphTensor, begin: GraphTensor, end: GraphTensor, plan: tuple[Any, ...]
) -> tuple[Any, ...]:
    """Gather strided elements along any axis but the last, eight times as fast as slices."""
    axes = [i for i, part in enumerate(plan) if part is not None]
    for axis, i in enumerate(axes[:-1]):
        count, step = plan[i] if isinstance(plan[i], tuple) else (1, 1)
        if step != 1 and count and is_large(x):
            rows = begin[i] + ints(range(0, count * step, step))
            x = raw.GatherV2(params=x, indices=rows, axis=axis)
            whole = [j == i for j in range(len(plan))]
            begin = raw.SelectV2(condition=whole, t=number_like(0, begin), e=begin)
            end = raw.SelectV2(condition=whole, t=number_like(count, end), e=end)
            plan = (*plan[:i], (count, 1), *plan[i + 1 :])
    return x, begin, end, plan


def _put_back(
    g: GraphTensor, shape: tuple[Any, ...], begin: GraphTensor, plan: tuple[object, ...]
) -> GraphTensor:
    """Put a slice back among zeros by padding and rolling: ten times as fast as TensorFlow."""
    if not shape:
        return reshaped(g, shape)
    items = [i for i, part in enumerate(plan) if part is not None]
    counts, steps = zip(*((1, 1) if plan[i] == "int" else plan[i] for i in items), strict=True)
    backwards = [axis for axis, step in enumerate(steps) if step < 0]
    g = reshaped(g, counts)
    if backwards:
        g = raw.ReverseV2(tensor=g, axis=ints(backwards))
    for axis, step in enumerate(map(abs, steps)):
        if step > 1:
            g = _spread_out(g, axis, step)
    room = [n - have for n, have in zip(shape, shape_of(g), strict=True)]
    moved = [axis for axis, more in enumerate(room) if more != 0]
    if not moved:
        return g
    first = [(n - 1) * step if step < 0 else 0 for n, step in zip(counts, steps, strict=True)]
    shift = raw.GatherV2(params=begin, indices=ints(items[a] for a in moved), axis=0)
    g = raw.Pad(input=g, paddings=raw.Pack(values=[ints([0] * len(room)), ints(room)], axis=1))
    return raw.Roll(input=g, shift=shift + ints(first[a] for a in moved), axis=ints(moved))


def _spread_out(g: GraphTensor, axis: int, step: int) -> GraphTensor:
    """Put zeros between the elements along an axis, so that they stand ``step`` apart."""
    shape = shape_of(g)
    before, count, after = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    beside = [(0, 0), (0, 0), (0, step - 1), (0, 0)]
    apart = raw.Pad(input=reshaped(g, (before, count, 1, after)), paddings=beside)
    span = (count - 1) * step + 1
    flat = reshaped(apart, (before, count * step, after))
    cut = raw.Slice(input=flat, begin=ints((0, 0, 0)), size=ints((before, span, after)))
    return reshaped(cut, (*shape[:axis], span, *shape[axis + 1 :]))


def _index(out: Result, x: GraphTensor, *arrays: GraphTensor, plan: tuple[str, ...]) -> GraphTensor:
    axes = [i for i, part in enumerate(plan) if part == "array"]
    if len(axes) == 1:
        return _gather(out, x, arrays[0], axis=axes[0])
    if 0 in x.shape:
        return reshaped(x, out.shape)
    shape = broadcast_shape(arrays)
    rest = [i for i, part in enumerate(plan) if part != "array"]
    if axes != list(range(len(axes))):
        x = permuted(x, axes + rest)
    taken = _taken(x, [repeated_to(a, shape) for a in arrays])
    # NumPy puts the indexed axes first where they stand apart, and in their place otherwise.
    if rest and axes[0] > 0 and axes == list(range(axes[0], axes[-1] + 1)):
        n, before = len(shape), axes[0]
        order = [*range(n, n + before), *range(n), *range(n + before, n + len(rest))]
        taken = permuted(taken, order)
    return taken


def _taken(x: GraphTensor, places: list[GraphTensor]) -> GraphTensor:

    def lowered(x: GraphTensor) -> WithGradient:
        axes, rank = len(places), places[0].shape.rank
        taken = raw.GatherNd(params=x, indices=raw.Pack(values=places, axis=rank))

        def gradient(g: GraphTensor) -> GraphTensor:
            # A fifth of ScatterNd's time.
            flat = places[0]
            shape = shape_of(x)
            for place, length in zip(places[1:], shape[1:axes], strict=True):
                flat = flat * number_like(length, flat) + place
            count = number_like(math.prod(shape[:axes]), flat)
            summed = raw.UnsortedSegmentSum(data=g, segment_ids=flat, num_segments=count)
            return reshaped(summed, shape)

        return taken, gradient

    return own_gradient(lowered, x)


def _scatter(
    out: Result, x: GraphTensor, places: GraphTensor, *, shape: tuple[int, ...]
) -> GraphTensor:
    def lowered(x: GraphTensor) -> WithGradient:
        # A tenth of ScatterNd's time, and whose own gradient would look for negative places.
        count = scalar(math.prod(shape), "int64")
        if is_large(x) and x.dtype.is_floating:  # in half as long, but not of few
            numbers, at = reshaped(x, (-1,)), reshaped(places, (-1,))
            flat = raw.DenseBincount(input=at, size=count, weights=numbers, binary_output=False)
        else:
            flat = raw.UnsortedSegmentSum(data=x, segment_ids=places, num_segments=count)

        def gradient(g: GraphTensor) -> GraphTensor:
            return raw.GatherV2(params=reshaped(g, (-1,)), indices=places, axis=0)

        return reshaped(flat, shape), gradient

    return own_gradient(lowered, x)


def _within(out: Result, x: GraphTensor, *, low: int, high: int, said: str) -> GraphTensor:
    x = cast_to(x, "int64")
    end = number_like(high, x)
    inside = (x >= number_like(low, x)) & (x < end)
    from_the_end = raw.SelectV2(condition=x < 0, t=x + end, e=x)
    # No place: a later gather raises.
    return raw.SelectV2(condition=inside, t=from_the_end, e=number_like(-1, x))


def _argsort(out: Result, x: GraphTensor, *, axis: int) -> GraphTensor:
    """Return the stable order, NaN last: `TopKV2` is stable, but does not order NaN."""
    last, length = len(out.shape) - 1, scalar(out.shape[axis], "int32")
    swap = list(range(last + 1))
    swap[axis], swap[last] = last, axis

    def smallest_first(negated: GraphTensor) -> GraphTensor:
        return raw.TopKV2(input=negated, k=length, sorted=True, index_type="int64")[1]

    x = permuted(x, swap)
    if not x.dtype.is_floating:
        x = cast_to(x, "int32") if x.dtype == tf.bool else x
        return permuted(smallest_first(raw.Invert(x=x)), swap)
    nan = raw.IsNan(x=x)
    order = smallest_first(-selected(nan, math.inf, x))
    behind = tf.gather(raw.Cast(x=nan, DstT="int32"), order, batch_dims=last)
    apart = smallest_first(raw.Invert(x=behind))
    return permuted(tf.gather(order, apart, batch_dims=last), swap)


def _searchsorted(out: Result, a: GraphTensor, v: GraphTensor, *, side: str) -> GraphTensor:
    node = raw.LowerBound if side == "left" else raw.UpperBound
    rows, places = reshaped(a, (1, -1)), reshaped(v, (1, -1))
    return reshaped(node(sorted_inputs=rows, values=places, out_type="int64"), out.shape)


LOWERINGS: dict[str, Row | Rule] = {
    "transpose": Row(
        lambda out, x, *, axes: permuted(x, axes),
        xla=True,
        complex=True,
        shape=lambda x, *, axes: tuple(x[axis] for axis in axes),
    ),
    "reshape": Row(lambda out, x, *, shape: reshaped(x, shape), xla=True, complex=True),
    "concat": Row(_concat, xla=True, complex=True),
    "broadcast_to": Row(
        lambda out, x, *, shape: raw.BroadcastTo(input=x, shape=ints(shape)), xla=True, complex=True
    ),
    "part": Row(lambda out, outputs, *, output: outputs[output], xla=True, complex=True),
    "roll": Row(
        lambda out, x, *, shift, axis: raw.Roll(input=x, shift=ints(shift), axis=ints(axis)),
        xla=True,
        complex=True,
    ),
    "within": Row(_within, xla=True),
    "argsort": _argsort,
    # Sorted is parted too, at every place.
    "argpartition": lambda out, x, *, kth, axis: _argsort(out, x, axis=axis),
    "searchsorted": _searchsorted,
    "tensor_slice": Row(
        lambda out, x, begin, *, size: raw.Slice(input=x, begin=begin, size=ints(size)),
        xla=True,
        complex=True,
    ),
    "gather": Row(_gather, xla=True, complex=True, reads_rows=lambda *, axis: axis == 0),
    "getitem": Row(_getitem_with_gradient, xla=True, complex=True),
    "index": Row(
        _index,
        xla=True,
        complex=True,
        reads_rows=lambda *, plan: plan[0] == "array" and plan.count("array") == 1,
    ),
    "scatter": Row(_scatter, complex=True),
}
