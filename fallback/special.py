"""VJP rules: the functions of ``tg.special``, from their slopes."""

from __future__ import annotations

from tapegraph.differentiation.slopes.special import SLOPES
from tapegraph.fallback.rules import Row, rows_of

VJPS = rows_of(SLOPES)

# As they stand they run on Tensors too.
RECORDED: dict[str, Row] = {}
