"""Tangents of the operations of ``tapegraph/ops/arrange.py``."""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import Rule, linear
from tapegraph.ops import arrange

JVPS: dict[str, Rule] = {"broadcast_to": linear(arrange.BROADCAST_TO)}
