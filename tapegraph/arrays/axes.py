"""Axes and sizes as users write them, checked and made non-negative; axes taken as one."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tapegraph.errors import kind_of, message
from tapegraph.typed import Array


def one_axis(op: str, axis: Any, ndim: int) -> int:
    try:
        number = operator.index(axis)
    except TypeError:
        raise TypeError(message(op, f"axis {kind_of(axis)}", "an integer axis")) from None
    if not -ndim <= number < ndim:
        expected = f"an axis in [{-ndim}, {ndim}) for a {ndim}-D array"
        raise np.exceptions.AxisError(message(op, f"axis {number}", expected))
    return number % ndim


def some_axes(op: str, axis: object, ndim: int) -> tuple[int, ...]:
    """Return the axes that None (all), an integer or a sequence names, in ascending order."""
    if axis is None:
        return tuple(range(ndim))
    if type(axis) is bool:  # most likely meant for another argument
        raise TypeError(message(op, f"axis={axis}", "an integer axis"))
    if not isinstance(axis, (tuple, list)):
        return (one_axis(op, axis, ndim),)
    axes = tuple(sorted(one_axis(op, a, ndim) for a in axis))
    if len(set(axes)) != len(axes):
        raise ValueError(message(op, f"axis {tuple(axis)}", "each axis at most once"))
    return axes


def ordered_axes(op: str, argument: str, axes: object, ndim: int) -> tuple[int, ...]:
    """Return the axes that an integer or a sequence names, in the order given."""
    return tuple(one_axis(op, axis, ndim) for axis in int_tuple(op, argument, axes))


def int_tuple(op: str, argument: str, value: Any) -> tuple[int, ...]:
    try:
        if hasattr(value, "__index__") and getattr(value, "ndim", 0) == 0:
            return (operator.index(value),)
        return tuple(operator.index(v) for v in value)
    except TypeError:
        received = f"{kind_of(value)} for {argument!r}"
        raise TypeError(message(op, received, "an integer or a tuple of integers")) from None


def one_integer(
    op: str, argument: str, value: Any, fix: str = "", expected: str = "an integer"
) -> int:
    try:
        return operator.index(value)
    except TypeError:
        received = f"{kind_of(value)} for {argument!r}"
        raise TypeError(message(op, received, expected, fix)) from None


def spreads(shape: tuple[int, ...], over: tuple[int, ...]) -> bool:
    if shape == over[len(over) - len(shape) :]:  # as most do, in a tenth of the time
        return True
    try:
        return np.broadcast_shapes(shape, over) == over
    except ValueError:
        return False


def check_spreads(op: str, argument: str, shape: tuple[int, ...], over: tuple[int, ...]) -> None:
    if not spreads(shape, over):
        expected = f"a shape that broadcasts to {over}"
        raise ValueError(message(op, f"{argument!r} of shape {shape}", expected))


def check_broadcast(op: str, *shapes: tuple[int, ...]) -> None:
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        received = f"shapes {' and '.join(map(str, shapes))}"
        expected = "shapes that broadcast together (equal, or 1, axis by axis from the last)"
        raise ValueError(message(op, received, expected, "Reshape one of them.")) from None


def pair(op: str, argument: str, value: object, least: int) -> tuple[int, int]:
    """Return ``(height, width)`` from an integer or a pair, each at least ``least``."""
    numbers = int_tuple(op, argument, value)
    if len(numbers) == 1:
        numbers *= 2
    if len(numbers) != 2 or min(numbers) < least:
        expected = f"an integer or a pair (height, width), each at least {least}"
        raise ValueError(message(op, f"{argument}={value!r}", expected))
    return numbers[0], numbers[1]


def stacked_rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def is_one_product(a: Array, b: Array) -> bool:
    """Return whether a stack times one matrix is a single product of the stack's rows."""
    return a.ndim > 2 and b.ndim == 2 and a.size > 0
