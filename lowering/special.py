"""TensorFlow nodes: the functions of ``tg.special``."""

from __future__ import annotations

import math
from typing import Any

from tapegraph.lowering.gaps import NotLowered
from tapegraph.lowering.rules import Rule, number, raw, with_gradient


def _gamma(out: Any, x: Any) -> Any:
    return raw.Mul(x=raw.Exp(x=_gammaln(out, x)), y=_gammasgn(out, x))


def _gammaln(out: Any, x: Any) -> Any:
    return with_gradient(out, lambda x: raw.Lgamma(x=x), lambda g, y, x: g * _digamma(x), x)


def _digamma(x: Any) -> Any:
    """Emit the digamma function, which is NaN at 0 in TensorFlow's node."""
    pole = raw.RealDiv(x=number(-1.0, x), y=x)
    return raw.SelectV2(condition=x == 0.0, t=pole, e=raw.Digamma(x=x))


def _polygamma(out: Any, x: Any, *, n: int) -> Any:
    if n:
        return raw.Polygamma(a=number(n, x), x=x)
    return with_gradient(out, _digamma, lambda g, y, x: g * raw.Polygamma(a=number(1, x), x=x), x)


def _gammasgn(out: Any, x: Any) -> Any:
    """Return -1 from each odd number below zero to the next, and NaN at the poles there."""
    floor = raw.Floor(x=x)
    odd = raw.FloorMod(x=floor, y=number(2.0, x)) == 1.0
    sign = raw.SelectV2(condition=odd & (x < 0.0), t=number(-1.0, x), e=number(1.0, x))
    undefined = ((floor == x) & (x < 0.0)) | raw.IsNan(x=x)
    return raw.SelectV2(condition=undefined, t=number(math.nan, x), e=sign)


def _betaln(out: Any, a: Any, b: Any) -> Any:
    def compute(a: Any, b: Any) -> Any:
        both = raw.AddV2(x=raw.Lgamma(x=a), y=raw.Lgamma(x=b))
        return raw.Sub(x=both, y=raw.Lgamma(x=raw.AddV2(x=a, y=b)))

    def gradient(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
        of_sum = _digamma(raw.AddV2(x=a, y=b))
        return g * (_digamma(a) - of_sum), g * (_digamma(b) - of_sum)

    return with_gradient(out, compute, gradient, a, b)


def _beta(out: Any, a: Any, b: Any) -> Any:
    signs = [_gammasgn(out, x) for x in (a, b, raw.AddV2(x=a, y=b))]
    size = raw.Exp(x=_betaln(out, a, b))
    return raw.Mul(x=raw.Mul(x=size, y=signs[0]), y=raw.Mul(x=signs[1], y=signs[2]))


def _xlogy(out: Any, x: Any, y: Any) -> Any:
    return _log_times(out, raw.Xlogy, raw.Log, x, y, 0.0)


def _xlog1py(out: Any, x: Any, y: Any) -> Any:
    return _log_times(out, raw.Xlog1py, raw.Log1p, x, y, 1.0)


def _log_times(out: Any, node: Any, logarithm: Any, x: Any, y: Any, shift: float) -> Any:
    """Emit ``x log(shift + y)``, whose own gradient by ``x`` is 0 wherever ``x`` is 0."""

    def compute(x: Any, y: Any) -> Any:
        return raw.SelectV2(condition=raw.IsNan(x=y), t=y, e=node(x=x, y=y))

    def gradient(g: Any, out: Any, x: Any, y: Any) -> tuple[Any, Any]:
        flat = (x == 0.0) & (shift + y <= 0.0)
        slope = logarithm(x=raw.SelectV2(condition=flat, t=number(1.0, y), e=y))
        by_x = raw.SelectV2(condition=flat, t=number(0.0, x), e=slope)
        return g * by_x, g * raw.Xdivy(x=x, y=shift + y)

    return with_gradient(out, compute, gradient, x, y)


def _entr(out: Any, x: Any) -> Any:
    def compute(x: Any) -> Any:
        inside = raw.Neg(x=raw.Xlogy(x=x, y=x))
        return raw.SelectV2(condition=x < 0.0, t=number(-math.inf, x), e=inside)

    return with_gradient(out, compute, lambda g, y, x: g * (-raw.Log(x=x) - 1.0), x)


def _bessel_i(out: Any, x: Any, *, n: int) -> Any:
    return _bessel(out, x, n, (raw.BesselI0, raw.BesselI1), 1.0)


def _bessel_j(out: Any, x: Any, *, n: int) -> Any:
    return _bessel(out, x, n, (raw.BesselJ0, raw.BesselJ1), -1.0)


def _bessel(out: Any, x: Any, n: int, nodes: tuple[Any, Any], side: float) -> Any:
    """Emit a Bessel function of order 0 or 1; TensorFlow's own slope of I1 at 0 is 1."""
    if n > 1:
        raise NotLowered(f"a Bessel function of order {n} has no node in TensorFlow")

    def gradient(g: Any, y: Any, x: Any) -> Any:
        if n == 0:
            return g * (side * nodes[1](x=x))
        ratio = raw.SelectV2(condition=x == 0.0, t=number(0.5, x), e=y / x)
        # Where both have overflowed the larger one is left.
        ratio = raw.SelectV2(condition=raw.IsInf(x=y), t=number(0.0, x), e=ratio)
        return g * (nodes[0](x=x) - ratio)

    return with_gradient(out, lambda x: nodes[n](x=x), gradient, x)


LOWERINGS: dict[str, Rule] = {
    "erf": lambda out, x: raw.Erf(x=x),
    "erfc": lambda out, x: raw.Erfc(x=x),
    "erfinv": lambda out, x: raw.Erfinv(x=x),
    "gamma": _gamma,
    "gammaln": _gammaln,
    "polygamma": _polygamma,
    "betaln": _betaln,
    "beta": _beta,
    "gammasgn": _gammasgn,
    "xlogy": _xlogy,
    "xlog1py": _xlog1py,
    "entr": _entr,
    "bessel_i": _bessel_i,
    "bessel_j": _bessel_j,
}
