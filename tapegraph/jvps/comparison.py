"""Tangents of the operations of ``tapegraph/ops/comparison.py``."""

from __future__ import annotations

from tapegraph.jvps.rules import Rule

JVPS: dict[str, Rule] = {}
