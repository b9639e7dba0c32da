"""VJP rules: the functions of ``tg.special``, from their slopes."""

from __future__ import annotations

from tapegraph.differentiation.slopes.special import SLOPES
from tapegraph.fallback.rules import recorded_rows_of, rows_of

VJPS = rows_of(SLOPES)
RECORDED = recorded_rows_of(SLOPES)
