"""Cases: Element-wise operations."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.differentiation.products import DIV_STRONG, MUL_STRONG
from tapegraph.ops import elementwise
from tapegraph.recording.op import Op
from tapegraph.recording.record import apply as recorded
from tapegraph.recording.record import operand
from tapegraph.typed import Array
from tests.cases.case import (
    Case,
    Input,
    anywhere,
    exactly,
    inf,
    nonzero,
    operation,
    positive,
    small,
)
from tests.cases.pairs import PAIRS, pairs, swapped

# Element by element


def mul_strong(a: Any, b: Any) -> Any:
    """Multiply, so that a zero of the first factor absorbs infinity and NaN."""
    return _strong(MUL_STRONG, a, b)


def div_strong(a: Any, b: Any) -> Any:
    """Divide, so that a zero absorbs a divisor that is zero or NaN."""
    return _strong(DIV_STRONG, a, b)


def _strong(op: Op, a: Any, b: Any) -> Any:
    operands = operand(op.name, a, "a"), operand(op.name, b, "b")
    return recorded(op, operands, {"absorbs": (True, False)})


UNARY: tuple[tuple[Callable[..., Any], Callable[..., Any], Callable[..., Input]], ...] = (
    (elementwise.neg, lambda x: 0.0 - x, anywhere),
    (elementwise.sin, np.sin, anywhere),
    (elementwise.cos, np.cos, anywhere),
    (elementwise.tan, lambda x: np.sin(x) / np.cos(x), small),
    (elementwise.exp, np.exp, anywhere),
    (elementwise.log, np.log, positive),
    (elementwise.sqrt, lambda x: np.exp(0.5 * np.log(x)), positive),
    (elementwise.tanh, lambda x: np.expm1(2 * x) / (np.expm1(2 * x) + 2), anywhere),
    (elementwise.sigmoid, lambda x: 0.5 + 0.5 * np.tanh(x / 2), anywhere),
    (elementwise.relu, lambda x: x * (x > 0), nonzero),
    (elementwise.abs, lambda x: np.where(x < 0, -x, x), nonzero),
    (
        elementwise.gelu,
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
        anywhere,
    ),
    (elementwise.silu, lambda x: x / (1 + np.exp(-x)), anywhere),
)

BINARY: tuple[tuple[str, Callable[..., Any], Callable[..., Input], Callable[..., Input]], ...] = (
    ("add", operator.add, anywhere, anywhere),
    ("sub", operator.sub, anywhere, anywhere),
    ("mul", operator.mul, anywhere, anywhere),
    ("div", operator.truediv, nonzero, nonzero),
    ("pow", operator.pow, positive, anywhere),
)


def _arithmetic() -> Iterator[Case]:
    for function, reference, domain in UNARY:
        for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
            yield Case(function.__name__, label, function, (domain(*lengths),), reference=reference)
    for op, apply, left, right in BINARY:
        for label, a, b in PAIRS:
            yield Case(op, label, apply, (left(*a), right(*b)), reference=apply)
        for label, run in _operand_orders(apply):
            yield Case(op, label, run, (left(2, 3),), reference=run)
        for label, constant in (("array", np.array([0.5, 1.5, 2.0])), ("scalar", np.float64(1.5))):
            for side, order in (("right", apply), ("left", swapped(apply))):
                yield Case(
                    op, f"numpy-{label}-{side}", order, (left(2, 3),), (constant,), reference=order
                )
    yield from _powers()
    yield from _elementwise_kinks()
    yield from _rounded()


def _operand_orders(apply: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Give the calls of a binary operation that read one tensor only."""
    yield "twice", lambda x: apply(x, x)
    yield "float-right", lambda x: apply(x, 1.5)
    yield "float-left", lambda x: apply(1.5, x)
    yield "int-right", lambda x: apply(x, 3)
    yield "int-left", lambda x: apply(3, x)


def _powers() -> Iterator[Case]:
    for exponent in (2, 3, -1, -2.0, 1, 0):
        run = partial(_raised, exponent=exponent)
        yield Case("pow", f"negative-base-{exponent}", run, (nonzero(5),), reference=run)
    for exponent in (0.5, -0.5):
        run = partial(_raised, exponent=exponent)
        yield Case("pow", f"root-{exponent}", run, (positive(5),), reference=run)
    for exponents in (
        np.array([-3, -1, 0, 1, 3], np.int8),
        np.array([0, 1, 2, 3, 4], np.uint8),
        np.array([True, False, True, False, True]),
    ):
        yield Case(
            "pow",
            f"{exponents.dtype.name}-exponents",
            operator.pow,
            (positive(5),),
            (exponents,),
            reference=lambda x, b: x ** b.astype(np.float64),
        )


def _raised(x: Any, exponent: float) -> Any:
    return x**exponent


def _elementwise_kinks() -> Iterator[Case]:
    ln2 = math.log(2.0)
    around_zero, saturated = exactly([-1.0, -0.0, 0.0, 2.0]), exactly([-1000.0, 1000.0])
    far = exactly([-3e38, 3e38])  # the cube of which is infinite in float32
    for function, label, point, gradient in (
        (elementwise.relu, "kink", around_zero, [0.0, 0.0, 0.0, 1.0]),
        (elementwise.abs, "kink", around_zero, [-1.0, 0.0, 0.0, 1.0]),
        (elementwise.sqrt, "zero", exactly([0.0, 4.0]), [inf, 0.25]),
        (elementwise.log, "zero", exactly([0.0, 4.0]), [inf, 0.25]),
        (elementwise.tanh, "saturated", saturated, [0.0, 0.0]),
        (elementwise.sigmoid, "saturated", saturated, [0.0, 0.0]),
        (elementwise.silu, "saturated", saturated, [0.0, 1.0]),
        (elementwise.gelu, "saturated", saturated, [0.0, 1.0]),
        (elementwise.silu, "far", far, [0.0, 1.0]),
        (elementwise.gelu, "far", far, [0.0, 1.0]),
    ):
        yield Case(function.__name__, label, function, (point,), expected=(gradient,))
    for label, a, b, by_a, by_b in (
        # The exponent's derivative is 0 where the base is not positive.
        ("base-sign", [-2.0, -1.0, 0.0, 2.0], [2, 3, 2, 3], [-4, 3, 0, 12], [0, 0, 0, 8 * ln2]),
        ("0**0", [0.0, 2.0], [0, 0], [0.0, 0.0], [0.0, ln2]),
        ("0**1", [0.0], [1], [1.0], [0.0]),
    ):
        inputs = (exactly(a), exactly(b))
        yield Case("pow", f"tensors-{label}", operator.pow, inputs, expected=(by_a, by_b))
    for exponent, slope in ((0, 0.0), (1, 1.0), (2, 0.0), (0.5, inf)):
        run = partial(_raised, exponent=exponent)
        yield Case("pow", f"0**{exponent}", run, (exactly([0.0]),), expected=([slope],))
    for base in (0.0, -2.0):
        run = partial(operator.pow, base)
        yield Case("pow", f"base-{base}", run, (exactly([2.0, 3.0]),), expected=([0.0, 0.0],))
    yield Case(
        "div",
        "by-zero",
        operator.truediv,
        (exactly([1.0, 1.0]), exactly([0.0, 2.0])),
        expected=([inf, 0.5], [-inf, -0.25]),
    )


def _rounded() -> Iterator[Case]:
    """Give formulas that compute something else when their sums or products are reordered."""

    def to_integers(x: Any) -> Any:
        return elementwise.sin((x + _whole(x)) - _whole(x))

    def by_opposites(x: Any) -> Any:
        large = 16.0 * _whole(x)
        return elementwise.sin((x + large) + -large)

    def through_infinity(x: Any) -> Any:
        large = float(np.finfo(x.dtype).max) ** 0.6
        return elementwise.exp(-(x * large * large * (1.0 / large) * (1.0 / large)))

    cosines = np.cos([0.0, 2.0, 2.0]).tolist()
    yield Case("sin", "rounded", to_integers, (exactly([0.3, 1.7, 2.5]),), expected=(cosines,))
    yield Case("sin", "opposites", by_opposites, (exactly([0.3, 2.3]),), expected=([1.0, 1.0],))
    infinite = exactly([0.5, 2.0])
    yield Case("exp", "overflow", through_infinity, (infinite,), expected=([0.0, 0.0],))


def _whole(x: Any) -> float:
    """Return the number that leaves an integer of what it is added to."""
    return 1.5 / float(np.finfo(x.dtype).eps)


def inside(*lengths: int) -> Input:
    """Sample from [-0.9, 0.9), inside the branch points of the inverse functions."""
    return lambda rng: rng.uniform(-0.9, 0.9, lengths)


def above_one(*lengths: int) -> Input:
    """Sample from [1.2, 3)."""
    return lambda rng: rng.uniform(1.2, 3.0, lengths)


def _inverse_hyperbolic_sine(x: Array) -> Any:
    return np.sign(x) * np.log(np.abs(x) + np.sqrt(x * x + 1))


# The operation, the same in NumPy by another way, where to sample.
FUNCTIONS: tuple[tuple[Callable[..., Any], Callable[..., Any], Callable[..., Input]], ...] = (
    (elementwise.cbrt, lambda x: np.sign(x) * np.abs(x) ** (1 / 3), nonzero),
    (elementwise.log1p, lambda x: np.log(1 + x), inside),
    (elementwise.expm1, lambda x: np.exp(x) - 1, anywhere),
    (elementwise.log2, lambda x: np.log(x) / math.log(2), positive),
    (elementwise.log10, lambda x: np.log(x) / math.log(10), positive),
    (elementwise.exp2, lambda x: 2.0**x, anywhere),
    (elementwise.sinh, lambda x: (np.exp(x) - np.exp(-x)) / 2, anywhere),
    (elementwise.cosh, lambda x: (np.exp(x) + np.exp(-x)) / 2, anywhere),
    (elementwise.arcsin, lambda x: np.arctan2(x, np.sqrt(1 - x * x)), inside),
    (elementwise.arccos, lambda x: np.arctan2(np.sqrt(1 - x * x), x), inside),
    (elementwise.arctan, lambda x: np.arctan2(x, 1.0), anywhere),
    (elementwise.arcsinh, _inverse_hyperbolic_sine, anywhere),
    (elementwise.arccosh, lambda x: np.log(x + np.sqrt(x * x - 1)), above_one),
    (elementwise.arctanh, lambda x: 0.5 * np.log((1 + x) / (1 - x)), inside),
    (elementwise.sinc, lambda x: np.sin(np.pi * x) / (np.pi * x), nonzero),
)
# What is made of other operations, and the one it records last.
COMPOSED: tuple[tuple[str, Callable[..., Any], Callable[..., Any], Callable[..., Input]], ...] = (
    ("mul", elementwise.square, np.square, anywhere),
    ("div", elementwise.reciprocal, np.reciprocal, nonzero),
    ("mul", elementwise.deg2rad, np.deg2rad, anywhere),
    ("mul", elementwise.rad2deg, np.rad2deg, anywhere),
)
FUNCTIONS_OF_TWO: tuple[tuple[str, Any, Callable[..., Any], Any, Any], ...] = (
    ("arctan2", elementwise.arctan2, lambda a, b: np.angle(b + 1j * a), nonzero, nonzero),
    ("hypot", elementwise.hypot, lambda a, b: np.abs(a + 1j * b), nonzero, nonzero),
    (
        "logaddexp",
        elementwise.logaddexp,
        lambda a, b: np.log(np.exp(a) + np.exp(b)),
        anywhere,
        anywhere,
    ),
    ("mul_strong", mul_strong, np.multiply, anywhere, anywhere),
    ("div_strong", div_strong, np.divide, anywhere, nonzero),
)


def _of_transcendental() -> Iterator[Case]:
    """Yield the family's cases."""
    for function, reference, domain in FUNCTIONS:
        for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
            yield Case(function.__name__, label, function, (domain(*lengths),), reference=reference)
    for op, function, reference, domain in COMPOSED:
        for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
            label = f"{function.__name__}-{label}"
            yield Case(op, label, function, (domain(*lengths),), reference=reference)
    for op, function, reference, left, right in FUNCTIONS_OF_TWO:
        yield from pairs(op, function, reference, left, right)
    yield from _composed_of_two()
    yield from _singular()


def _composed_of_two() -> Iterator[Case]:
    for label, a, b in PAIRS:
        yield Case(
            "logaddexp",
            f"logaddexp2-{label}",
            elementwise.logaddexp2,
            (anywhere(*a), anywhere(*b)),
            reference=np.logaddexp2,
        )
    yield Case(
        "pow",
        "float_power",
        elementwise.float_power,
        (positive(2, 3), anywhere(3)),
        reference=np.float_power,
    )
    yield Case(
        "pow",
        "float_power-integer",
        lambda x: elementwise.float_power(x, -2),
        (nonzero(2, 3),),
        reference=lambda x: np.float_power(x, -2),
    )


def _singular() -> Iterator[Case]:
    ends = exactly([-1.0, 1.0])
    huge = exactly([-1000.0, 1000.0])
    for function, label, point, gradient in (
        (elementwise.cbrt, "zero", exactly([0.0, 8.0]), [inf, 1.0 / 12.0]),
        (elementwise.log1p, "minus-one", exactly([-1.0, 0.0]), [inf, 1.0]),
        (elementwise.log2, "zero", exactly([0.0, 2.0]), [inf, 0.5 / math.log(2.0)]),
        (elementwise.log10, "zero", exactly([0.0, 2.0]), [inf, 0.5 / math.log(10.0)]),
        (elementwise.arcsin, "ends", ends, [inf, inf]),
        (elementwise.arccos, "ends", ends, [-inf, -inf]),
        (elementwise.arccosh, "one", exactly([1.0, 1.25]), [inf, 4.0 / 3.0]),
        (elementwise.arctanh, "ends", ends, [inf, inf]),
        (elementwise.arctan, "far", huge, [1e-6 / (1 + 1e-6)] * 2),
        (elementwise.expm1, "far", exactly([-1000.0]), [0.0]),
    ):
        yield Case(function.__name__, label, function, (point,), expected=(gradient,))
    # Where the closed form of the slope would cancel.
    points = np.array([0.0, 1e-300, 1e-9, -1e-4, 0.019, -0.021])
    slopes = -(math.pi**2) * points / 3 * (1 - (math.pi * points) ** 2 / 10)
    slopes += -(math.pi**6) * points**5 / 840
    slopes += (math.pi**8) * points**7 / 45360
    yield Case("sinc", "around-zero", elementwise.sinc, (exactly(points),), expected=(slopes,))
    for label, a, b, by_a, by_b in (
        ("hypot", [0.0, 3.0, 0.0], [0.0, 4.0, -2.0], [0.0, 0.6, 0.0], [0.0, 0.8, -1.0]),
        ("arctan2", [0.0, 0.0, 2.0], [2.0, -2.0, 0.0], [0.5, -0.5, 0.0], [0.0, 0.0, -0.5]),
        ("logaddexp", [-inf, -inf, inf, 1.0], [-inf, 2.0, inf, 1.0], [0.5, 0, 0.5, 0.5], None),
        ("logaddexp", [1000.0, 0.0], [0.0, 1000.0], [1.0, 0.0], None),
        ("arctan2", [1.0, inf, -inf, 0.0], [-inf, 2.0, inf, inf], [0.0] * 4, [0.0] * 4),
        ("mul_strong", [0.0, 0.0, 2.0], [inf, nan, 3.0], [0.0, 0.0, 3.0], [0.0, 0.0, 2.0]),
        ("div_strong", [0.0, 0.0, 2.0], [0.0, nan, 4.0], [0.0, 0.0, 0.25], [0.0, 0.0, -0.125]),
    ):
        function = {"mul_strong": mul_strong, "div_strong": div_strong}.get(label) or operation(
            label
        )
        inputs = (exactly(a), exactly(b))
        other = [1.0 - s for s in by_a] if by_b is None else by_b
        name = "infinite" if inf in a else "special"
        yield Case(label, name, function, inputs, expected=(by_a, other))


nan = np.nan


def _of_comparison() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from pairs(
        "maximum", elementwise.maximum, lambda a, b: np.where(a > b, a, b), anywhere, anywhere
    )
    yield from pairs(
        "minimum", elementwise.minimum, lambda a, b: np.where(a < b, a, b), anywhere, anywhere
    )
    yield from pairs("mod", elementwise.mod, lambda a, b: a - np.floor(a / b) * b, nonzero, nonzero)
    yield from pairs(
        "floor_divide",
        elementwise.floor_divide,
        lambda a, b: np.floor((a - np.mod(a, b)) / b + 0.5),
        nonzero,
        nonzero,
    )
    yield from pairs(
        "fmax", elementwise.fmax, lambda a, b: np.where(a > b, a, b), anywhere, anywhere
    )
    yield from pairs(
        "fmin", elementwise.fmin, lambda a, b: np.where(a < b, a, b), anywhere, anywhere
    )
    yield from pairs("mod", elementwise.fmod, np.fmod, nonzero, nonzero, "fmod-")
    yield from _steps()
    yield from _chosen()
    yield from _clipped()
    yield from _signs()
    yield from _numbers()


def _steps() -> Iterator[Case]:
    """Give what is constant between its jumps."""
    on_steps = exactly([-1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.5])
    for function, reference in (
        (elementwise.sign, lambda x: 1.0 * (x > 0) - 1.0 * (x < 0)),
        (elementwise.floor, lambda x: -np.ceil(-x)),
        (elementwise.ceil, lambda x: -np.floor(-x)),
        (elementwise.rint, np.round),
        (elementwise.trunc, lambda x: np.sign(x) * np.floor(np.abs(x))),
    ):
        name = function.__name__
        yield Case(name, "0d", function, (nonzero(),), reference=reference)
        yield Case(name, "3d", function, (nonzero(2, 1, 3),), reference=reference)
        yield Case(name, "empty", function, (nonzero(0, 3),), reference=reference)
        yield Case(
            name, "on-steps", function, (on_steps,), reference=reference, expected=([0.0] * 8,)
        )


def _chosen() -> Iterator[Case]:
    a, b = exactly([1.0, 2.0, 3.0, inf]), exactly([2.0, 2.0, 2.0, inf])
    more, less = [0.0, 0.5, 1.0, 0.5], [1.0, 0.5, 0.0, 0.5]
    for function, slopes in (
        (elementwise.maximum, (more, less)),
        (elementwise.minimum, (less, more)),
        (elementwise.fmax, (more, less)),
        (elementwise.fmin, (less, more)),
    ):
        yield Case(function.__name__, "ties", function, (a, b), expected=slopes)
    for function in (elementwise.maximum, elementwise.fmax):
        name = function.__name__
        yield Case(name, "twice", partial(_twice, function), (a,), expected=([1.0] * 4,))
        yield Case(
            name,
            "tie-with-a-number",
            lambda x, function=function: function(x, 0.0),
            (exactly([-1.0, 0.0, 1.0]),),
            expected=([0.0, 0.5, 1.0],),
        )
    a, b = exactly([nan, 1.0, 2.0, 5.0, nan, nan]), exactly([1.0, nan, 2.0, 4.0, nan, inf])
    for function, reference, by_a in (
        (elementwise.fmax, np.fmax, [0.0, 1.0, 0.5, 1.0, 0.5, 0.0]),
        (elementwise.fmin, np.fmin, [0.0, 1.0, 0.5, 0.0, 0.5, 0.0]),
    ):
        by_b = [1.0 - slope for slope in by_a]
        name = function.__name__
        yield Case(name, "nan", function, (a, b), reference=reference, expected=(by_a, by_b))
        yield Case(
            name,
            "nan-and-a-number",
            lambda x, function=function: function(x, 2.0),
            (exactly([nan, 1.0, 2.0, 3.0]),),
            reference=lambda x, function=reference: function(x, 2.0),
            expected=(
                [0.0, 0.0, 0.5, 1.0] if function is elementwise.fmax else [0.0, 1.0, 0.5, 0.0],
            ),
        )
    multiples = exactly([4.0, -4.0, 0.0, 1.0])
    by = exactly([2.0, 2.0, 2.0, 0.1])
    yield Case(
        "mod",
        "multiples",
        elementwise.mod,
        (multiples, by),
        reference=np.mod,
        expected=([1.0] * 4, [-2.0, 2.0, -0.0, -9.0]),
    )
    yield Case(
        "floor_divide",
        "multiples",
        elementwise.floor_divide,
        (exactly([4.0, -4.0, 0.0, 1.0, -1.0, 7.0]), exactly([2.0, 2.0, 2.0, 0.1, inf, -2.0])),
        reference=lambda a, b: np.array([2.0, -2.0, 0.0, 9.0, -1.0, -4.0]),
        expected=([0.0] * 6, [0.0] * 6),
    )
    yield Case(
        "mod",
        "fmod-multiples",
        elementwise.fmod,
        (multiples, by),
        reference=np.fmod,
        expected=([1.0] * 4, [-2.0, 2.0, 0.0, -9.0]),
    )


def _twice(function: Any, x: Any) -> Any:
    return function(x, x)


def _clipped() -> Iterator[Case]:
    for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
        for bounds, options in (
            ("both", {"a_min": -0.7, "a_max": 0.9}),
            ("below", {"a_min": -0.7}),
            ("above", {"a_max": 0.9}),
            ("arrays", {"a_min": np.array([-1.1, 0.1, -0.3]), "a_max": np.array([1.5])}),
        ):
            if bounds == "arrays" and not lengths:
                continue
            yield Case(
                "clip",
                f"{bounds}-{label}",
                partial(_clip, **options),
                (anywhere(*lengths),),
                reference=partial(_limited, **options),
            )
    yield Case(
        "clip",
        "tensors",
        elementwise.clip,
        (anywhere(2, 3), exactly([[-0.5], [0.1]]), exactly([0.4, 0.9, 1.1])),
        reference=_limited,
    )
    yield Case(
        "clip",
        "at-bounds",
        partial(elementwise.clip, a_min=0.0, a_max=1.0),
        (exactly([-1.0, 0.0, 0.5, 1.0, 2.0]),),
        expected=([0.0, 1.0, 1.0, 1.0, 0.0],),
    )
    yield Case(
        "clip",
        "crossed-bounds",
        elementwise.clip,
        (exactly([0.0, 5.0]), exactly([3.0, 3.0]), exactly([1.0, 1.0])),
        reference=np.clip,
        expected=([0.0, 0.0], [0.0, 0.0], [1.0, 1.0]),
    )


def _clip(x: Any, **bounds: Any) -> Any:
    return elementwise.clip(x, **{k: _as(x, v) for k, v in bounds.items()})


def _as(x: Any, bound: Any) -> Any:
    return bound.astype(x.dtype) if isinstance(bound, np.ndarray) else bound


def _limited(x: Any, a_min: Any = -inf, a_max: Any = inf) -> Any:
    return np.minimum(np.maximum(x, a_min), a_max)


def _signs() -> Iterator[Case]:
    for label, a, b in (("same", (2, 3), (2, 3)), ("column-row", (3, 1), (4,)), ("0d", (), ())):
        yield Case(
            "mul",
            f"copysign-{label}",
            elementwise.copysign,
            (nonzero(*a), nonzero(*b)),
            reference=np.copysign,
        )
        yield Case(
            "where",
            f"heaviside-{label}",
            elementwise.heaviside,
            (nonzero(*a), anywhere(*b)),
            reference=np.heaviside,
        )
    yield Case(
        "mul",
        "copysign-zeros",
        elementwise.copysign,
        (exactly([0.0, 2.0, -2.0]), exactly([-1.0, -0.0, 0.0])),
        reference=np.copysign,
        expected=([0.0, -1.0, -1.0], [0.0, 0.0, 0.0]),
    )
    yield Case(
        "mul",
        "copysign-of-a-number",
        lambda x: elementwise.copysign(2.0, x),
        (nonzero(3),),
        reference=lambda x: np.copysign(2.0, x),
    )
    yield Case(
        "where",
        "heaviside-zero",
        elementwise.heaviside,
        (exactly([-1.0, 0.0, 2.0]), exactly([0.5, 0.5, 0.5])),
        reference=np.heaviside,
        expected=([0.0, 0.0, 0.0], [0.0, 1.0, 0.0]),
    )


def _numbers() -> Iterator[Case]:
    for label, options in (("named", {"nan": 3.0, "posinf": 4.0, "neginf": -5.0}), ("plain", {})):
        if options:
            yield Case(
                "where",
                f"nan_to_num-{label}",
                partial(elementwise.nan_to_num, **options),
                (exactly([nan, 1.5, inf, -inf, -0.5]),),
                reference=partial(np.nan_to_num, **options),
                expected=([0.0, 1.0, 0.0, 0.0, 1.0],),
            )
        yield Case(
            "where",
            f"nan_to_num-finite-{label}",
            partial(elementwise.nan_to_num, **options),
            (positive(2, 3),),
            reference=partial(np.nan_to_num, **options),
        )
    yield Case(
        "mul",
        "positive-of-a-result",
        lambda x: elementwise.positive(x * 2.0),
        (anywhere(2, 3),),
        reference=lambda x: x * 2.0,
    )


def _of_creation() -> Iterator[Case]:
    """Yield the family's cases."""
    yield Case(
        "round_to",
        "float16",
        lambda x: elementwise.astype(elementwise.astype(x, "float16"), x.dtype),
        (exactly([0.1, -2.0, 1e-8, 1 + 2**-11 + 2**-30]),),  # the last is above a tie
        reference=lambda x: x.astype(np.float16).astype(x.dtype),
        expected=([1.0, 1.0, 1.0, 1.0],),
    )
    for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
        x = (anywhere(*lengths),)
        yield Case("astype", f"copy-{label}", elementwise.copy, x, reference=np.copy)
        yield Case("astype", f"astype-{label}", _there_and_back, x, reference=np.copy)
        for name in ("zeros_like", "ones_like"):
            yield Case(
                "add",
                f"{name}-{label}",
                lambda x, name=name: x + operation(name)(x),
                x,
                reference=lambda x, name=name: x + getattr(np, name)(x),
            )
        yield Case(
            "mul",
            f"full_like-{label}",
            lambda fill, x: elementwise.full_like(x, fill),
            (anywhere(),),
            (np.zeros(lengths),),
            reference=lambda fill, x: np.full_like(x, fill),
        )
        for decimals in (0, 1):
            yield Case(
                "round",
                f"round-{label}-{decimals}",
                partial(elementwise.round, decimals=decimals),
                x,
                reference=partial(np.round, decimals=decimals),
            )
    yield Case(
        "add",
        "real-imag",
        lambda x: elementwise.real(x) + elementwise.imag(x),
        (anywhere(2),),
        reference=np.copy,
    )
    yield Case(
        "round",
        "round-halves",
        elementwise.round,
        (exactly([-1.5, -0.5, 0.5, 1.5, 2.5]),),
        reference=np.round,
        expected=([0.0] * 5,),
    )
    yield Case(
        "round",
        "round-tens",
        partial(elementwise.round, decimals=-1),
        (exactly([14.0, 15.0, 25.0, -126.0]),),
        reference=partial(np.round, decimals=-1),
        expected=([0.0] * 4,),
    )


def _there_and_back(x: Any) -> Any:
    return elementwise.astype(elementwise.astype(x, np.float64), x.dtype)


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from _arithmetic()
    yield from _of_transcendental()
    yield from _of_comparison()
    yield from _of_creation()
