"""Gradients of joining, splitting, stacking, repeating and turning."""

from __future__ import annotations

from tapegraph.fallback.rules import Joint, Rule

VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "broadcast_to": (lambda g, y, x, *, shape: g,),  # the sweep sums over the copies
}
