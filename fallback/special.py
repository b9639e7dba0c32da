"""Gradients of ``tapegraph/ops/special.py``: the table of derivatives."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tapegraph.fallback.rules import Joint, Rule
from tapegraph.ir import Array
from tapegraph.ops.special import polygamma_of

_HALF_ROOT_PI = math.sqrt(math.pi) / 2.0


def _polygamma(g: Any, y: Array, x: Array, *, n: int) -> Any:
    return g * polygamma_of(n + 1, x)


def _betaln(g: Any, a: Any, b: Any) -> Any:
    return g * (polygamma_of(0, a) - polygamma_of(0, a + b))


VJPS: dict[str, tuple[Rule | None, ...] | Joint] = {
    "erf": (lambda g, y, x: g * np.exp(-x * x) / _HALF_ROOT_PI,),
    "erfc": (lambda g, y, x: -g * np.exp(-x * x) / _HALF_ROOT_PI,),
    "erfinv": (lambda g, y, x: g * (_HALF_ROOT_PI * np.exp(y * y)),),
    "gamma": (lambda g, y, x: g * (y * polygamma_of(0, x)),),
    "gammaln": (lambda g, y, x: g * polygamma_of(0, x),),
    "polygamma": (_polygamma,),
    "betaln": (lambda g, y, a, b: _betaln(g, a, b), lambda g, y, a, b: _betaln(g, b, a)),
}
