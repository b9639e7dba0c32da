"""The table of lowerings and what every row of it may use.

A row is a function ``rule(out, *inputs, **attrs)`` that emits the TensorFlow nodes of one
operation: ``inputs`` are graph tensors, ``out`` is the `Result` that the tape recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from tapegraph.ir import Program
from tapegraph.lowering.runtime import tensorflow

Rule = Callable[..., Any]


class Result(NamedTuple):
    """Shape and dtype that the tape recorded for an entry."""

    shape: tuple[int, ...]
    dtype: str


# Differentiable operations of the table that have no lowering in this version, and why.
GAPS: dict[str, str] = {
    "layer_norm": "runs in the native engine in this version",
    "conv2d": "runs in the native engine in this version",
    "max_pool2d": "runs in the native engine in this version",
    "avg_pool2d": "runs in the native engine in this version",
    "eigh": "gives vectors up to their sign, and TensorFlow's choice of it is not NumPy's",
    "svd": "gives vectors up to their sign, and TensorFlow's choice of it is not NumPy's",
}

LOWERINGS: dict[str, Rule] = {}


class NotLowered(Exception):
    """A program holds an operation with no lowering; the message names it."""


def check_gaps(program: Program) -> None:
    """Refuse a program with an operation that is known to have no lowering.

    Raises
    ------
    NotLowered
        Names the operation and says why.
    """
    for op in program.ops:
        if op.name in GAPS or (op.rules is not None and op.rules.lowering is None):
            raise NotLowered(f"{op.name} {GAPS.get(op.name, 'has no lowering')}")


class RawOps:
    """``tf.raw_ops``, looked up when used: the families are imported without TensorFlow."""

    def __getattr__(self, name: str) -> Any:
        return getattr(tensorflow().raw_ops, name)


raw = RawOps()


def ints(values: Any) -> Any:
    """Return an int64 constant."""
    tf = tensorflow()
    numbers = [int(v) for v in values]
    return tf.constant(numbers, dtype=tf.int64, shape=(len(numbers),))


def number(value: float, like: Any) -> Any:
    """Return a scalar constant of another tensor's dtype."""
    return tensorflow().constant(value, dtype=like.dtype)


def reshaped(x: Any, shape: tuple[int, ...]) -> Any:
    """Return a tensor in another shape."""
    return raw.Reshape(tensor=x, shape=ints(shape))


def permuted(x: Any, axes: Any) -> Any:
    """Return a tensor with its axes in another order."""
    return raw.Transpose(x=x, perm=ints(axes))
