"""TensorFlow nodes: shapes and joins."""

from __future__ import annotations

from typing import Any

from tapegraph.lowering.rows.rules import Row, Rule, ints, permuted, raw, reshaped


def _concat(out: Any, *parts: Any, axis: int) -> Any:
    if len(parts) == 1:
        return raw.Identity(input=parts[0])  # ConcatV2 takes two or more
    return raw.ConcatV2(values=list(parts), axis=axis)


def _broadcast_to(out: Any, x: Any, *, shape: tuple[int, ...]) -> Any:
    return raw.BroadcastTo(input=x, shape=ints(shape))


LOWERINGS: dict[str, Row | Rule] = {
    "transpose": Row(
        lambda out, x, *, axes: permuted(x, axes),
        xla=True,
        complex=True,
        shape=lambda x, *, axes: tuple(x[axis] for axis in axes),
    ),
    "reshape": Row(lambda out, x, *, shape: reshaped(x, shape), xla=True, complex=True),
    "concat": Row(_concat, xla=True, complex=True),
    "broadcast_to": Row(_broadcast_to, xla=True, complex=True),
}
