"""Schedules: learning rates as functions of the step, counted from 0.

A schedule is any callable of the step: ``tg.SGD(params, lr=lambda step: 0.1 / (1 + step))``.
`warmup` and `join` combine them. Each keeps its last value at its end.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeAlias

from tapegraph.errors import kind_of, message
from tapegraph.optim.options import Rate, number, rate, rate_at

__all__ = ["constant", "cosine", "exponential", "join", "linear", "step", "warmup"]

Schedule: TypeAlias = Callable[[int], float]


def constant(value: float) -> Schedule:
    """Return the same rate for every step.

    :param value: Finite and not negative.

    >>> tg.optim.schedules.constant(0.5)(100)
    0.5
    """
    value = number("schedules.constant", "value", value)
    return lambda step: value


def step(initial: float, factor: float, every: SupportsIndex) -> Schedule:
    """Multiply the rate by a factor every so many steps: ``initial * factor**(step // every)``.

    :param initial, factor: Finite and not negative.
    :param every: Steps of one rate.

    >>> rate = tg.optim.schedules.step(1.0, factor=0.5, every=10)
    >>> rate(9), rate(10), rate(25)
    (1.0, 0.5, 0.25)
    """
    op = "schedules.step"
    initial, factor = _numbers(op, initial=initial, factor=factor)
    count = _count(op, "every", every)
    return lambda step: initial * factor ** (step // count)


def exponential(initial: float, factor: float) -> Schedule:
    """Multiply the rate by a factor in every step: ``initial * factor**step``.

    :param initial, factor: Finite and not negative.

    >>> tg.optim.schedules.exponential(1.0, factor=0.5)(3)
    0.125
    """
    initial, factor = _numbers("schedules.exponential", initial=initial, factor=factor)
    return lambda step: initial * factor**step


def cosine(initial: float, steps: SupportsIndex, final: float = 0.0) -> Schedule:
    """Go down by half a wave: ``final + (initial - final) * (1 + cos(pi * step / steps)) / 2``.

    Loshchilov and Hutter, "SGDR", 2017, without restarts.

    :param initial, final: Finite and not negative.
    :param steps: The step of the final rate.

    >>> rate = tg.optim.schedules.cosine(1.0, steps=100)
    >>> rate(0), rate(50), rate(100), rate(200)
    (1.0, 0.5, 0.0, 0.0)
    """
    op = "schedules.cosine"
    initial, final = _numbers(op, initial=initial, final=final)
    count = _count(op, "steps", steps)

    def at(step: int) -> float:
        return final + (initial - final) * (1.0 + math.cos(math.pi * min(step / count, 1.0))) / 2.0

    return at


def linear(initial: float, final: float, steps: SupportsIndex) -> Schedule:
    """Go along a line: ``initial + (final - initial) * step / steps``.

    :param initial, final: Finite and not negative.
    :param steps: The step of the final rate.

    >>> rate = tg.optim.schedules.linear(1.0, 0.0, steps=4)
    >>> rate(0), rate(1), rate(4), rate(5)
    (1.0, 0.75, 0.0, 0.0)
    """
    op = "schedules.linear"
    initial, final = _numbers(op, initial=initial, final=final)
    count = _count(op, "steps", steps)

    def at(step: int) -> float:
        part = min(step / count, 1.0)
        return initial * (1.0 - part) + final * part

    return at


def warmup(steps: SupportsIndex, then: Rate, start: float = 0.0) -> Schedule:
    """Rise along a line to the start of another schedule, and continue with that one.

    :param steps: The length of the rise.
    :param then: The following rate or schedule, whose step counts from 0 again.
    :param start: The rate of the first step.

    >>> rate = tg.optim.schedules.warmup(4, tg.optim.schedules.cosine(1.0, steps=100))
    >>> rate(0), rate(2), rate(4), rate(54)
    (0.0, 0.5, 1.0, 0.5)
    """
    op = "schedules.warmup"
    (start,) = _numbers(op, start=start)
    after = _schedule(op, then)
    return join([linear(start, after(0), _count(op, "steps", steps)), after], [steps])


def join(parts: Sequence[Rate], boundaries: Sequence[SupportsIndex]) -> Schedule:
    """Follow several schedules one after the other, each counting its steps from 0.

    :param parts: Rates and schedules, at least one.
    :param boundaries: The first step of each part but the first, rising.

    >>> falling = tg.optim.schedules.exponential(0.5, factor=0.5)
    >>> rate = tg.optim.schedules.join([1.0, falling], [10])
    >>> rate(9), rate(10), rate(11)
    (1.0, 0.5, 0.25)
    """
    op = "schedules.join"
    chosen = [_schedule(op, part) for part in parts]
    starts = [0, *(_count(op, "boundaries", boundary) for boundary in boundaries)]
    if len(chosen) != len(starts):
        received = f"{len(chosen)} parts and {len(boundaries)} boundaries"
        raise ValueError(message(op, received, "one boundary between any two parts"))
    if any(a >= b for a, b in zip(starts, starts[1:], strict=False)):
        raise ValueError(message(op, f"boundaries {starts[1:]}", "boundaries that rise"))

    def at(step: int) -> float:
        part = bisect_right(starts, step) - 1
        return chosen[part](step - starts[part])

    return at


def _numbers(op: str, **values: float) -> list[float]:
    return [number(op, name, value) for name, value in values.items()]


def _count(op: str, name: str, value: Any) -> int:
    try:
        count: int = value.__index__()
    except (AttributeError, TypeError):
        raise TypeError(message(op, f"{kind_of(value)} for {name!r}", "a whole number")) from None
    if isinstance(value, bool) or count < 1:
        raise ValueError(message(op, f"{name}={value}", "at least 1"))
    return count


def _schedule(op: str, value: Rate) -> Schedule:
    checked = rate(op, value)
    return lambda step: rate_at(op, checked, step)


def __dir__() -> list[str]:
    return sorted(__all__)
