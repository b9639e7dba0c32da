"""Tangents of the operations of ``tapegraph/ops/creation.py``."""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import Rule, linear
from tapegraph.ops import creation

JVPS: dict[str, Rule] = {
    "astype": linear(creation.ASTYPE),
    "round": lambda tangents, y, x, *, decimals: None,
}
