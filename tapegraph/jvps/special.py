"""Tangents of the operations of ``tapegraph/ops/special.py``."""

from __future__ import annotations

import math
from typing import Any

from tapegraph.jvps.rules import Rule, each, times
from tapegraph.ops.elementwise import exp
from tapegraph.ops.special import digamma, polygamma

_HALF_ROOT_PI = math.sqrt(math.pi) / 2.0


def _polygamma(t: Any, y: Any, x: Any, *, n: int) -> Any:
    return times(t, polygamma(n + 1, x))


def _betaln(t: Any, a: Any, b: Any) -> Any:
    return times(t, digamma(a) - digamma(a + b))


JVPS: dict[str, Rule] = {
    "erf": each(lambda t, y, x: times(t, exp(-x * x) / _HALF_ROOT_PI)),
    "erfc": each(lambda t, y, x: times(-t, exp(-x * x) / _HALF_ROOT_PI)),
    "erfinv": each(lambda t, y, x: times(t, _HALF_ROOT_PI * exp(y * y))),
    "gamma": each(lambda t, y, x: times(t, y * digamma(x))),
    "gammaln": each(lambda t, y, x: times(t, digamma(x))),
    "polygamma": each(_polygamma),
    "betaln": each(lambda t, y, a, b: _betaln(t, a, b), lambda t, y, a, b: _betaln(t, b, a)),
}
