"""Gradients: special functions, through SciPy."""

from __future__ import annotations

from tapegraph.fallback.rules import Joint, Rule

VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {}
