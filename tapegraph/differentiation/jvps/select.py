"""Tangents of the operations of ``tapegraph/ops/select.py``."""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import Rule

JVPS: dict[str, Rule] = {}
