"""Cases of ``tapegraph/ops/transcendental.py``."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tapegraph.ops import transcendental as ops
from tapegraph.testing.cases.case import Case, Input, anywhere, exactly, inf, nonzero, positive
from tapegraph.testing.cases.pairs import PAIRS, pairs
from tapegraph.typed import Array


def inside(*lengths: int) -> Input:
    """Sample from [-0.9, 0.9), inside the branch points of the inverse functions."""
    return lambda rng: rng.uniform(-0.9, 0.9, lengths)


def above_one(*lengths: int) -> Input:
    """Sample from [1.2, 3)."""
    return lambda rng: rng.uniform(1.2, 3.0, lengths)


def _inverse_hyperbolic_sine(x: Array) -> Any:
    return np.sign(x) * np.log(np.abs(x) + np.sqrt(x * x + 1))


# The operation, the same in NumPy by another way, where to sample.
UNARY: tuple[tuple[Callable[..., Any], Callable[..., Any], Callable[..., Input]], ...] = (
    (ops.cbrt, lambda x: np.sign(x) * np.abs(x) ** (1 / 3), nonzero),
    (ops.log1p, lambda x: np.log(1 + x), inside),
    (ops.expm1, lambda x: np.exp(x) - 1, anywhere),
    (ops.log2, lambda x: np.log(x) / math.log(2), positive),
    (ops.log10, lambda x: np.log(x) / math.log(10), positive),
    (ops.exp2, lambda x: 2.0**x, anywhere),
    (ops.sinh, lambda x: (np.exp(x) - np.exp(-x)) / 2, anywhere),
    (ops.cosh, lambda x: (np.exp(x) + np.exp(-x)) / 2, anywhere),
    (ops.arcsin, lambda x: np.arctan2(x, np.sqrt(1 - x * x)), inside),
    (ops.arccos, lambda x: np.arctan2(np.sqrt(1 - x * x), x), inside),
    (ops.arctan, lambda x: np.arctan2(x, 1.0), anywhere),
    (ops.arcsinh, _inverse_hyperbolic_sine, anywhere),
    (ops.arccosh, lambda x: np.log(x + np.sqrt(x * x - 1)), above_one),
    (ops.arctanh, lambda x: 0.5 * np.log((1 + x) / (1 - x)), inside),
    (ops.sinc, lambda x: np.sin(np.pi * x) / (np.pi * x), nonzero),
)
# What is made of other operations, and the one it records last.
COMPOSED: tuple[tuple[str, Callable[..., Any], Callable[..., Any], Callable[..., Input]], ...] = (
    ("mul", ops.square, np.square, anywhere),
    ("div", ops.reciprocal, np.reciprocal, nonzero),
    ("mul", ops.deg2rad, np.deg2rad, anywhere),
    ("mul", ops.rad2deg, np.rad2deg, anywhere),
)
BINARY: tuple[tuple[str, Any, Callable[..., Any], Any, Any], ...] = (
    ("arctan2", ops.arctan2, lambda a, b: np.angle(b + 1j * a), nonzero, nonzero),
    ("hypot", ops.hypot, lambda a, b: np.abs(a + 1j * b), nonzero, nonzero),
    ("logaddexp", ops.logaddexp, lambda a, b: np.log(np.exp(a) + np.exp(b)), anywhere, anywhere),
)


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    for function, reference, domain in UNARY:
        for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
            yield Case(function.__name__, label, function, (domain(*lengths),), reference=reference)
    for op, function, reference, domain in COMPOSED:
        for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
            label = f"{function.__name__}-{label}"
            yield Case(op, label, function, (domain(*lengths),), reference=reference)
    for op, function, reference, left, right in BINARY:
        yield from pairs(op, function, reference, left, right)
    yield from _composed_of_two()
    yield from _singular()


def _composed_of_two() -> Iterator[Case]:
    for label, a, b in PAIRS:
        yield Case(
            "logaddexp",
            f"logaddexp2-{label}",
            ops.logaddexp2,
            (anywhere(*a), anywhere(*b)),
            reference=np.logaddexp2,
        )
    yield Case(
        "pow",
        "float_power",
        ops.float_power,
        (positive(2, 3), anywhere(3)),
        reference=np.float_power,
    )
    yield Case(
        "pow",
        "float_power-integer",
        lambda x: ops.float_power(x, -2),
        (nonzero(2, 3),),
        reference=lambda x: np.float_power(x, -2),
    )


def _singular() -> Iterator[Case]:
    ends = exactly([-1.0, 1.0])
    huge = exactly([-1000.0, 1000.0])
    for function, label, point, gradient in (
        (ops.cbrt, "zero", exactly([0.0, 8.0]), [inf, 1.0 / 12.0]),
        (ops.log1p, "minus-one", exactly([-1.0, 0.0]), [inf, 1.0]),
        (ops.log2, "zero", exactly([0.0, 2.0]), [inf, 0.5 / math.log(2.0)]),
        (ops.log10, "zero", exactly([0.0, 2.0]), [inf, 0.5 / math.log(10.0)]),
        (ops.arcsin, "ends", ends, [inf, inf]),
        (ops.arccos, "ends", ends, [-inf, -inf]),
        (ops.arccosh, "one", exactly([1.0, 1.25]), [inf, 4.0 / 3.0]),
        (ops.arctanh, "ends", ends, [inf, inf]),
        (ops.arctan, "far", huge, [1e-6 / (1 + 1e-6)] * 2),
        (ops.expm1, "far", exactly([-1000.0]), [0.0]),
    ):
        yield Case(function.__name__, label, function, (point,), expected=(gradient,))
    # Where the closed form of the slope would cancel.
    points = np.array([0.0, 1e-300, 1e-9, -1e-4, 0.019, -0.021])
    slopes = -(math.pi**2) * points / 3 * (1 - (math.pi * points) ** 2 / 10)
    slopes += -(math.pi**6) * points**5 / 840
    slopes += (math.pi**8) * points**7 / 45360
    yield Case("sinc", "around-zero", ops.sinc, (exactly(points),), expected=(slopes,))
    for label, a, b, by_a, by_b in (
        ("hypot", [0.0, 3.0, 0.0], [0.0, 4.0, -2.0], [0.0, 0.6, 0.0], [0.0, 0.8, -1.0]),
        ("arctan2", [0.0, 0.0, 2.0], [2.0, -2.0, 0.0], [0.5, -0.5, 0.0], [0.0, 0.0, -0.5]),
        ("logaddexp", [-inf, -inf, inf, 1.0], [-inf, 2.0, inf, 1.0], [0.5, 0, 0.5, 0.5], None),
        ("logaddexp", [1000.0, 0.0], [0.0, 1000.0], [1.0, 0.0], None),
        ("arctan2", [1.0, inf, -inf, 0.0], [-inf, 2.0, inf, inf], [0.0] * 4, [0.0] * 4),
    ):
        function = getattr(ops, label)
        inputs = (exactly(a), exactly(b))
        other = [1.0 - s for s in by_a] if by_b is None else by_b
        name = "infinite" if inf in a else "special"
        yield Case(label, name, function, inputs, expected=(by_a, other))
