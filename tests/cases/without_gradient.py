"""Cases of the operations without a gradient, which captures hold."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tests.cases.case import Case, anywhere, distinct, exactly, inf

nan = float("nan")
SPECIAL = [nan, inf, -inf, 0.0, -0.0, 1.0, -1.5, 1.0]
COMPARED: tuple[Any, ...] = (
    np.equal,
    np.not_equal,
    np.less,
    np.less_equal,
    np.greater,
    np.greater_equal,
)
LOGICAL: tuple[Any, ...] = (np.logical_and, np.logical_or, np.logical_xor)
PREDICATES: tuple[Any, ...] = (np.isnan, np.isinf, np.isfinite, np.signbit, np.logical_not)


def cases() -> Iterator[Case]:
    """Yield the cases; each gives what NumPy's function gives, as an array."""
    for function in (*COMPARED, *LOGICAL):
        for label, a, b in (("row-column", (3,), (2, 1)), ("0d", (), (2,)), ("empty", (0,), (1,))):
            yield _of(function, label, anywhere(*a), anywhere(*b))
        yield _of(function, "special", exactly(SPECIAL), exactly(SPECIAL[::-1]))
        yield Case(
            function.__name__,
            "number",
            lambda x, function=function: function(x, 1),
            (exactly(SPECIAL),),
            reference=lambda x, function=function: function(x, 1),
        )
    for function in PREDICATES:
        yield _of(function, "special", exactly(SPECIAL))
        yield _of(function, "matrix", anywhere(2, 3))
    yield _of(np.copy, "detach", anywhere(2, 3), op="detach", run=lambda x: x.detach())
    for name in ("argmax", "argmin", "all", "any"):
        function = getattr(np, name)
        for axis in (None, 0, -1):
            run = partial(function, axis=axis)
            yield _of(run, f"axis-{axis}", distinct(3, 4), op=name)
            yield _of(run, f"special-{axis}", exactly([SPECIAL, SPECIAL[::-1]]), op=name)
        yield _of(partial(function, axis=1, keepdims=True), "kept", distinct(2, 3), op=name)
    for axis in (0, 1, None):
        order = partial(np.argsort, axis=axis, kind="stable")
        yield _of(order, f"axis-{axis}", distinct(3, 4), op="argsort")
    yield _of(partial(np.argsort, kind="stable"), "special", exactly(SPECIAL), op="argsort")
    yield _of(partial(np.argsort, kind="stable"), "ties", exactly([1.0, 0, 1, 0]), op="argsort")
    # Only the place itself is specified.
    yield _of(
        lambda x: np.take_along_axis(x, np.argpartition(x, 2, axis=1), axis=1)[:, 2],
        "third",
        distinct(3, 5),
        op="argpartition",
    )
    for side in ("left", "right"):
        yield Case(
            "searchsorted",
            side,
            lambda v, side=side: np.searchsorted(np.arange(-2.0, 3.0), v, side=side),
            (exactly([[0.5, -3.0], [1.0, 9.0]]),),
            reference=lambda v, side=side: np.searchsorted(np.arange(-2.0, 3.0), v, side=side),
        )
    yield Case(
        "within",
        "indices",
        lambda x, i: x[i.astype(np.int64)],
        (anywhere(4, 2), exactly([0.0, -1.0, 3.0])),
        reference=lambda x, i: x[i.astype(np.int64)],
    )


def _of(function: Any, label: str, *inputs: Any, op: str | None = None, run: Any = None) -> Case:
    name = function.__name__ if op is None else op
    return Case(name, label, run or function, inputs, reference=function)
