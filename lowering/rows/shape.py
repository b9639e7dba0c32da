"""TensorFlow nodes: shapes and joins."""

from __future__ import annotations

from tapegraph.lowering.rows.rules import Result, Row, Rule, ints, permuted, raw, reshaped
from tapegraph.lowering.runtime import GraphTensor


def _concat(out: Result, *parts: GraphTensor, axis: int) -> GraphTensor:
    if len(parts) == 1:
        return raw.Identity(input=parts[0])  # ConcatV2 takes two or more
    return raw.ConcatV2(values=list(parts), axis=axis)


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
}
