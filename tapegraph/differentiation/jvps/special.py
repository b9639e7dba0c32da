"""JVP rules: the functions of ``tg.special``, from their slopes."""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import rows_of
from tapegraph.differentiation.slopes.special import SLOPES

JVPS = rows_of(SLOPES)
