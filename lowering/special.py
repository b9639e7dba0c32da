"""The operations of ``tapegraph/ops/special.py`` as TensorFlow nodes."""

from __future__ import annotations

from typing import Any

from tapegraph.lowering.rules import Rule, number, raw


def _gamma(out: Any, x: Any) -> Any:
    # Below zero the gamma function is negative from each odd number to the next.
    odd = raw.FloorMod(x=raw.Floor(x=x), y=number(2.0, x)) == 1.0
    sign = raw.SelectV2(condition=(x < 0.0) & odd, t=number(-1.0, x), e=number(1.0, x))
    return raw.Mul(x=raw.Exp(x=raw.Lgamma(x=x)), y=sign)


def _polygamma(out: Any, x: Any, *, n: int) -> Any:
    return raw.Polygamma(a=number(n, x), x=x) if n else raw.Digamma(x=x)


def _betaln(out: Any, a: Any, b: Any) -> Any:
    both = raw.AddV2(x=raw.Lgamma(x=a), y=raw.Lgamma(x=b))
    return raw.Sub(x=both, y=raw.Lgamma(x=raw.AddV2(x=a, y=b)))


LOWERINGS: dict[str, Rule] = {
    "erf": lambda out, x: raw.Erf(x=x),
    "erfc": lambda out, x: raw.Erfc(x=x),
    "erfinv": lambda out, x: raw.Erfinv(x=x),
    "gamma": _gamma,
    "gammaln": lambda out, x: raw.Lgamma(x=x),
    "polygamma": _polygamma,
    "betaln": _betaln,
}
