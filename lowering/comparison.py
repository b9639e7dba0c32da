"""The operations of ``tapegraph/ops/comparison.py`` as TensorFlow nodes."""

from __future__ import annotations

from typing import Any

from tapegraph.lowering.rules import Rule, number, raw, with_gradient


def _maximum(out: Any, a: Any, b: Any) -> Any:
    # TensorFlow gives the first operand all of a tie: half of each order is half a tie each.
    return _halves(raw.Maximum(x=a, y=b), raw.Maximum(x=b, y=a))


def _minimum(out: Any, a: Any, b: Any) -> Any:
    return _halves(raw.Minimum(x=a, y=b), raw.Minimum(x=b, y=a))


def _without_nan(rule: Rule) -> Rule:
    """Return a rule that is given the other operand where one is NaN."""

    def lowered(out: Any, a: Any, b: Any) -> Any:
        one = raw.SelectV2(condition=raw.IsNan(x=a), t=b, e=a)
        other = raw.SelectV2(condition=raw.IsNan(x=b), t=a, e=b)
        return rule(out, one, other)

    return lowered


def _halves(one: Any, other: Any) -> Any:
    half = number(0.5, one)
    return raw.AddV2(x=raw.Mul(x=one, y=half), y=raw.Mul(x=other, y=half))


def _trunc(out: Any, x: Any) -> Any:
    return raw.Mul(x=raw.Sign(x=x), y=raw.Floor(x=raw.Abs(x=x)))


def _mod(out: Any, a: Any, b: Any) -> Any:
    def gradient(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
        # FloorDiv rounds a / b first, and can be one too many.
        return g, -g * raw.Rint(x=raw.RealDiv(x=a - y, y=b))

    return with_gradient(out, lambda a, b: raw.FloorMod(x=a, y=b), gradient, a, b)


LOWERINGS: dict[str, Rule] = {
    "maximum": _maximum,
    "minimum": _minimum,
    "fmax": _without_nan(_maximum),
    "fmin": _without_nan(_minimum),
    "sign": lambda out, x: raw.Sign(x=x),
    "floor": lambda out, x: raw.Floor(x=x),
    "ceil": lambda out, x: raw.Ceil(x=x),
    "rint": lambda out, x: raw.Rint(x=x),
    "trunc": _trunc,
    "mod": _mod,
}
