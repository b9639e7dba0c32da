"""VJP rules: the functions of ``tg.special``, from their slopes."""

from __future__ import annotations

from tapegraph.differentiation.slopes.special import SLOPES
from tapegraph.fallback.rules import rows_of

VJPS = RECORDED = rows_of(SLOPES)
