"""Conversions and rounding as TensorFlow nodes."""

from __future__ import annotations

from typing import Any

from tapegraph.lowering.rules import Rule, number, raw


def _astype(out: Any, x: Any, *, dtype: str) -> Any:
    return raw.Cast(x=x, DstT=dtype)


def _round(out: Any, x: Any, *, decimals: int) -> Any:
    if decimals == 0:
        return raw.Round(x=x)
    scale = number(10.0 ** abs(decimals), x)
    if decimals > 0:
        return raw.RealDiv(x=raw.Round(x=raw.Mul(x=x, y=scale)), y=scale)
    return raw.Mul(x=raw.Round(x=raw.RealDiv(x=x, y=scale)), y=scale)


LOWERINGS: dict[str, Rule] = {"astype": _astype, "round": _round}
