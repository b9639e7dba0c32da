"""Gradients: logarithms, exponentials, hyperbolic and inverse trigonometric functions, element by element."""

from __future__ import annotations

from tapegraph.fallback.rules import Joint, Rule

VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {}
