"""Cases of ``tapegraph/ops/comparison.py``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import comparison as ops
from tapegraph.testing.cases.case import Case, anywhere, exactly, inf, nonzero, positive
from tapegraph.testing.cases.pairs import pairs

nan = np.nan


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from pairs("maximum", ops.maximum, lambda a, b: np.where(a > b, a, b), anywhere, anywhere)
    yield from pairs("minimum", ops.minimum, lambda a, b: np.where(a < b, a, b), anywhere, anywhere)
    yield from pairs("mod", ops.mod, lambda a, b: a - np.floor(a / b) * b, nonzero, nonzero)
    yield from pairs("fmax", ops.fmax, lambda a, b: np.where(a > b, a, b), anywhere, anywhere)
    yield from pairs("fmin", ops.fmin, lambda a, b: np.where(a < b, a, b), anywhere, anywhere)
    yield from pairs("mod", ops.fmod, np.fmod, nonzero, nonzero, "fmod-")
    yield from _steps()
    yield from _chosen()
    yield from _clipped()
    yield from _signs()
    yield from _numbers()


def _steps() -> Iterator[Case]:
    """Give what is constant between its jumps."""
    on_steps = exactly([-1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.5])
    for function, reference in (
        (ops.sign, lambda x: 1.0 * (x > 0) - 1.0 * (x < 0)),
        (ops.floor, lambda x: -np.ceil(-x)),
        (ops.ceil, lambda x: -np.floor(-x)),
        (ops.rint, np.round),
        (ops.trunc, lambda x: np.sign(x) * np.floor(np.abs(x))),
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
        (ops.maximum, (more, less)),
        (ops.minimum, (less, more)),
        (ops.fmax, (more, less)),
        (ops.fmin, (less, more)),
    ):
        yield Case(function.__name__, "ties", function, (a, b), expected=slopes)
    for function in (ops.maximum, ops.fmax):
        name = function.__name__
        yield Case(name, "twice", partial(_twice, function), (a,), expected=([1.0] * 4,))
        yield Case(
            name,
            "tie-with-a-number",
            partial(function, b=0.0),
            (exactly([-1.0, 0.0, 1.0]),),
            expected=([0.0, 0.5, 1.0],),
        )
    a, b = exactly([nan, 1.0, 2.0, 5.0, nan, nan]), exactly([1.0, nan, 2.0, 4.0, nan, inf])
    for function, reference, by_a in (
        (ops.fmax, np.fmax, [0.0, 1.0, 0.5, 1.0, 0.5, 0.0]),
        (ops.fmin, np.fmin, [0.0, 1.0, 0.5, 0.0, 0.5, 0.0]),
    ):
        by_b = [1.0 - slope for slope in by_a]
        name = function.__name__
        yield Case(name, "nan", function, (a, b), reference=reference, expected=(by_a, by_b))
        yield Case(
            name,
            "nan-and-a-number",
            partial(function, b=2.0),
            (exactly([nan, 1.0, 2.0, 3.0]),),
            reference=lambda x, function=reference: function(x, 2.0),
            expected=([0.0, 0.0, 0.5, 1.0] if function is ops.fmax else [0.0, 1.0, 0.5, 0.0],),
        )
    multiples = exactly([4.0, -4.0, 0.0, 1.0])
    by = exactly([2.0, 2.0, 2.0, 0.1])
    yield Case(
        "mod",
        "multiples",
        ops.mod,
        (multiples, by),
        reference=np.mod,
        expected=([1.0] * 4, [-2.0, 2.0, -0.0, -9.0]),
    )
    yield Case(
        "mod",
        "fmod-multiples",
        ops.fmod,
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
                "where",
                f"clip-{bounds}-{label}",
                partial(_clip, **options),
                (anywhere(*lengths),),
                reference=partial(_limited, **options),
            )
    yield Case(
        "where",
        "clip-tensors",
        ops.clip,
        (anywhere(2, 3), exactly([[-0.5], [0.1]]), exactly([0.4, 0.9, 1.1])),
        reference=_limited,
    )
    yield Case(
        "where",
        "clip-at-bounds",
        partial(ops.clip, a_min=0.0, a_max=1.0),
        (exactly([-1.0, 0.0, 0.5, 1.0, 2.0]),),
        expected=([0.0, 1.0, 1.0, 1.0, 0.0],),
    )
    yield Case(
        "where",
        "clip-crossed-bounds",
        ops.clip,
        (exactly([0.0, 5.0]), exactly([3.0, 3.0]), exactly([1.0, 1.0])),
        reference=np.clip,
        expected=([0.0, 0.0], [0.0, 0.0], [1.0, 1.0]),
    )


def _clip(x: Any, **bounds: Any) -> Any:
    return ops.clip(x, **{k: _as(x, v) for k, v in bounds.items()})


def _as(x: Any, bound: Any) -> Any:
    return bound.astype(x.dtype) if isinstance(bound, np.ndarray) else bound


def _limited(x: Any, a_min: Any = -inf, a_max: Any = inf) -> Any:
    return np.minimum(np.maximum(x, a_min), a_max)


def _signs() -> Iterator[Case]:
    for label, a, b in (("same", (2, 3), (2, 3)), ("column-row", (3, 1), (4,)), ("0d", (), ())):
        yield Case(
            "mul",
            f"copysign-{label}",
            ops.copysign,
            (nonzero(*a), nonzero(*b)),
            reference=np.copysign,
        )
        yield Case(
            "where",
            f"heaviside-{label}",
            ops.heaviside,
            (nonzero(*a), anywhere(*b)),
            reference=np.heaviside,
        )
    yield Case(
        "mul",
        "copysign-zeros",
        ops.copysign,
        (exactly([0.0, 2.0, -2.0]), exactly([-1.0, -0.0, 0.0])),
        reference=np.copysign,
        expected=([0.0, -1.0, -1.0], [0.0, 0.0, 0.0]),
    )
    yield Case(
        "mul",
        "copysign-of-a-number",
        lambda x: ops.copysign(2.0, x),
        (nonzero(3),),
        reference=lambda x: np.copysign(2.0, x),
    )
    yield Case(
        "where",
        "heaviside-zero",
        ops.heaviside,
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
                partial(ops.nan_to_num, **options),
                (exactly([nan, 1.5, inf, -inf, -0.5]),),
                reference=partial(np.nan_to_num, **options),
                expected=([0.0, 1.0, 0.0, 0.0, 1.0],),
            )
        yield Case(
            "where",
            f"nan_to_num-finite-{label}",
            partial(ops.nan_to_num, **options),
            (positive(2, 3),),
            reference=partial(np.nan_to_num, **options),
        )
    yield Case(
        "mul",
        "positive-of-a-result",
        lambda x: ops.positive(x * 2.0),
        (anywhere(2, 3),),
        reference=lambda x: x * 2.0,
    )
