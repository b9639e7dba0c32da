"""Gradients: extremes, products, spreads and running sums."""

from __future__ import annotations

from tapegraph.fallback.rules import Joint, Rule

VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {}
