"""As TensorFlow nodes: joining, splitting, stacking, repeating and turning."""

from __future__ import annotations

from typing import Any

from tapegraph.lowering.rules import Rule, ints, raw


def _broadcast_to(out: Any, x: Any, *, shape: tuple[int, ...]) -> Any:
    return raw.BroadcastTo(input=x, shape=ints(shape))


LOWERINGS: dict[str, Rule] = {"broadcast_to": _broadcast_to}
