"""Reductions as TensorFlow nodes."""

from __future__ import annotations

from typing import Any

from tapegraph.lowering.rules import Rule, ints, permuted, raw


def _sum(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return raw.Sum(input=x, axis=ints(axis), keep_dims=keepdims)


def _mean(out: Any, x: Any, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return raw.Mean(input=x, axis=ints(axis), keep_dims=keepdims)


def _softmax(out: Any, x: Any, *, axis: int) -> Any:
    last = len(out.shape) - 1
    if axis == last:
        return raw.Softmax(logits=x)
    swap = list(range(last + 1))
    swap[axis], swap[last] = last, axis
    return permuted(raw.Softmax(logits=permuted(x, swap)), swap)


LOWERINGS: dict[str, Rule] = {"sum": _sum, "mean": _mean, "softmax": _softmax}
