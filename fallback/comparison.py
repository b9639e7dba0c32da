"""Gradients: choosing, rounding and signs, element by element."""

from __future__ import annotations

from tapegraph.fallback.rules import Joint, Rule

VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {}
