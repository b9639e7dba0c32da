"""TensorFlow nodes: the functions of ``tg.special``."""

from __future__ import annotations

import math

from tapegraph.lowering.rows.graph_tracer import by_slopes
from tapegraph.lowering.rows.rules import (
    NotLowered,
    Result,
    Row,
    Rule,
    number_like,
    raw,
    selected,
    with_gradient,
)
from tapegraph.lowering.runtime import GraphTensor


def _polygamma(out: Result, x: GraphTensor, *, n: int) -> GraphTensor:
    if n:
        return raw.Polygamma(a=number_like(n, x), x=x)
    return selected(x == 0.0, -1.0 / x, raw.Digamma(x=x))  # TensorFlow's node is NaN at 0


def _gammasgn(out: Result, x: GraphTensor) -> GraphTensor:
    """Return -1 from each odd number below zero to the next, and NaN at the poles there."""
    floor = raw.Floor(x=x)
    odd = raw.FloorMod(x=floor, y=number_like(2.0, x)) == 1.0
    sign = selected(odd & (x < 0.0), -1.0, raw.OnesLike(x=x))
    return selected(((floor == x) & (x < 0.0)) | raw.IsNan(x=x), math.nan, sign)


def _betaln(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    return raw.Lgamma(x=a) + raw.Lgamma(x=b) - raw.Lgamma(x=a + b)


def _beta(out: Result, a: GraphTensor, b: GraphTensor) -> GraphTensor:
    size = raw.Exp(x=_betaln(out, a, b))
    return size * _gammasgn(out, a) * (_gammasgn(out, b) * _gammasgn(out, a + b))


def _xlogy(out: Result, x: GraphTensor, y: GraphTensor) -> GraphTensor:
    return raw.SelectV2(condition=raw.IsNan(x=y), t=y, e=raw.Xlogy(x=x, y=y))


def _xlog1py(out: Result, x: GraphTensor, y: GraphTensor) -> GraphTensor:
    return raw.SelectV2(condition=raw.IsNan(x=y), t=y, e=raw.Xlog1py(x=x, y=y))


def _bessel(kind: str, side: float) -> Row:
    """Return the row of Bessel functions of a kind, of order 0 and 1.

    TensorFlow's slope of I1 at 0 is 1, and the table's needs order 2, which has no node. ``side``
    is the sign of the slope of order 0, by order 1.
    """

    def rule(out: Result, x: GraphTensor, *, n: int) -> GraphTensor:
        if n > 1:
            raise NotLowered(f"a Bessel function of order {n} has no node in TensorFlow")
        nodes = [getattr(raw, f"Bessel{kind}{order}") for order in (0, 1)]

        def gradient(g: GraphTensor, y: GraphTensor, x: GraphTensor) -> list[GraphTensor]:
            if n == 0:
                return [raw.MulNoNan(x=side * nodes[1](x=x), y=g)]
            ratio = selected(x == 0.0, 0.5, y / x)
            # Where both have overflowed the larger one is left.
            return [raw.MulNoNan(x=nodes[0](x=x) - selected(raw.IsInf(x=y), 0.0, ratio), y=g)]

        return with_gradient(lambda x: nodes[n](x=x), gradient, x)

    return Row(rule, strong_zero=rule)


LOWERINGS: dict[str, Row | Rule] = {
    "erf": lambda out, x: raw.Erf(x=x),
    "erfc": Row(lambda out, x: raw.Erfc(x=x), xla=True),
    "erfinv": lambda out, x: raw.Erfinv(x=x),
    "gamma": by_slopes("gamma", lambda out, x: raw.Exp(x=raw.Lgamma(x=x)) * _gammasgn(out, x)),
    "gammaln": by_slopes("gammaln", lambda out, x: raw.Lgamma(x=x)),
    "polygamma": by_slopes("polygamma", _polygamma),
    "betaln": by_slopes("betaln", _betaln),
    "beta": by_slopes("beta", _beta),
    "gammasgn": _gammasgn,
    "xlogy": by_slopes("xlogy", _xlogy),
    "xlog1py": by_slopes("xlog1py", _xlog1py),
    "entr": by_slopes("entr", lambda out, x: selected(x < 0.0, -math.inf, -raw.Xlogy(x=x, y=x))),
    "bessel_i": _bessel("I", 1.0),
    "bessel_j": _bessel("J", -1.0),
}
