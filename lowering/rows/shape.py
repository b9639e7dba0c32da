"""TensorFlow nodes: other shapes of the same elements, and joins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tapegraph.lowering.rows.rules import TO_FIRST, Row, Rule, ints, permuted, raw, reshaped
from tapegraph.recording.op import Attrs


def _concat(out: Any, *parts: Any, axis: int) -> Any:
    if len(parts) == 1:
        return raw.Identity(input=parts[0])  # ConcatV2 takes two or more
    return raw.ConcatV2(values=list(parts), axis=axis)


def _broadcast_to(out: Any, x: Any, *, shape: tuple[int, ...]) -> Any:
    return raw.BroadcastTo(input=x, shape=ints(shape))


LOWERINGS: dict[str, Row | Rule] = {
    "transpose": Row(lambda out, x, *, axes: permuted(x, axes), xla=True, complex=True),
    "reshape": Row(lambda out, x, *, shape: reshaped(x, shape), xla=True, complex=True),
    "concat": Row(_concat, xla=True, complex=True),
    "broadcast_to": Row(_broadcast_to, xla=True, complex=True),
}

# What eager kernels compute forwards of, with the shape of the result.
EAGER: dict[str, Callable[..., tuple[int, ...]]] = {
    "transpose": lambda x, *, axes: tuple(x[axis] for axis in axes),
}
# The attributes for images channels last.
LAST_ATTRS: dict[str, Callable[[Attrs], Attrs]] = {
    "concat": lambda attrs: {**attrs, "axis": TO_FIRST[attrs["axis"]]},
}
