"""JVP rules: element by element, from their slopes."""

from __future__ import annotations

from tapegraph.differentiation.jvps.rules import rows_of
from tapegraph.differentiation.slopes.elementwise import SLOPES

JVPS = rows_of(SLOPES)
