"""TensorFlow nodes: the functions of ``tg.special``."""

from __future__ import annotations

import math
from typing import Any

from tapegraph.lowering.rows.graph_tracer import by_slopes
from tapegraph.lowering.rows.rules import Rule, keeps_zeros, number_like, raw, with_gradient
from tapegraph.lowering.unsupported import NotLowered


def _gamma(out: Any, x: Any) -> Any:
    return raw.Mul(x=raw.Exp(x=raw.Lgamma(x=x)), y=_gammasgn(out, x))


def _polygamma(out: Any, x: Any, *, n: int) -> Any:
    if n:
        return raw.Polygamma(a=number_like(n, x), x=x)
    pole = raw.RealDiv(x=number_like(-1.0, x), y=x)  # TensorFlow's node is NaN at 0
    return raw.SelectV2(condition=x == 0.0, t=pole, e=raw.Digamma(x=x))


def _gammasgn(out: Any, x: Any) -> Any:
    """Return -1 from each odd number below zero to the next, and NaN at the poles there."""
    floor = raw.Floor(x=x)
    odd = raw.FloorMod(x=floor, y=number_like(2.0, x)) == 1.0
    sign = raw.SelectV2(condition=odd & (x < 0.0), t=number_like(-1.0, x), e=number_like(1.0, x))
    undefined = ((floor == x) & (x < 0.0)) | raw.IsNan(x=x)
    return raw.SelectV2(condition=undefined, t=number_like(math.nan, x), e=sign)


def _betaln(out: Any, a: Any, b: Any) -> Any:
    both = raw.AddV2(x=raw.Lgamma(x=a), y=raw.Lgamma(x=b))
    return raw.Sub(x=both, y=raw.Lgamma(x=raw.AddV2(x=a, y=b)))


def _beta(out: Any, a: Any, b: Any) -> Any:
    signs = [_gammasgn(out, x) for x in (a, b, raw.AddV2(x=a, y=b))]
    size = raw.Exp(x=_betaln(out, a, b))
    return raw.Mul(x=raw.Mul(x=size, y=signs[0]), y=raw.Mul(x=signs[1], y=signs[2]))


def _xlogy(out: Any, x: Any, y: Any) -> Any:
    return raw.SelectV2(condition=raw.IsNan(x=y), t=y, e=raw.Xlogy(x=x, y=y))


def _xlog1py(out: Any, x: Any, y: Any) -> Any:
    return raw.SelectV2(condition=raw.IsNan(x=y), t=y, e=raw.Xlog1py(x=x, y=y))


def _entr(out: Any, x: Any) -> Any:
    inside = raw.Neg(x=raw.Xlogy(x=x, y=x))
    return raw.SelectV2(condition=x < 0.0, t=number_like(-math.inf, x), e=inside)


@keeps_zeros
def _bessel_i(out: Any, x: Any, *, n: int) -> Any:
    return _bessel(out, x, n, (raw.BesselI0, raw.BesselI1), 1.0)


@keeps_zeros
def _bessel_j(out: Any, x: Any, *, n: int) -> Any:
    return _bessel(out, x, n, (raw.BesselJ0, raw.BesselJ1), -1.0)


def _bessel(out: Any, x: Any, n: int, nodes: tuple[Any, Any], side: float) -> Any:
    """Emit a Bessel function of order 0 or 1.

    TensorFlow's own slope of I1 at 0 is 1, and the table's needs order 2, of which it has no node.
    """
    if n > 1:
        raise NotLowered(f"a Bessel function of order {n} has no node in TensorFlow")

    def gradient(g: Any, y: Any, x: Any) -> Any:
        if n == 0:
            return raw.MulNoNan(x=side * nodes[1](x=x), y=g)
        ratio = raw.SelectV2(condition=x == 0.0, t=number_like(0.5, x), e=y / x)
        # Where both have overflowed the larger one is left.
        ratio = raw.SelectV2(condition=raw.IsInf(x=y), t=number_like(0.0, x), e=ratio)
        return raw.MulNoNan(x=nodes[0](x=x) - ratio, y=g)

    return with_gradient(out, lambda x: nodes[n](x=x), gradient, x)


LOWERINGS: dict[str, Rule] = {
    "erf": lambda out, x: raw.Erf(x=x),
    "erfc": lambda out, x: raw.Erfc(x=x),
    "erfinv": lambda out, x: raw.Erfinv(x=x),
    "gamma": by_slopes("gamma", _gamma),
    "gammaln": by_slopes("gammaln", lambda out, x: raw.Lgamma(x=x)),
    "polygamma": by_slopes("polygamma", _polygamma),
    "betaln": by_slopes("betaln", _betaln),
    "beta": by_slopes("beta", _beta),
    "gammasgn": _gammasgn,
    "xlogy": by_slopes("xlogy", _xlogy),
    "xlog1py": by_slopes("xlog1py", _xlog1py),
    "entr": by_slopes("entr", _entr),
    "bessel_i": _bessel_i,
    "bessel_j": _bessel_j,
}
