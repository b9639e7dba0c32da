"""Cases of the operations of ``tapegraph/ops/select.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tapegraph.ops import select
from tapegraph.testing.cases.case import Case, Input, Shape, anywhere, distinct, exactly

# The operation recorded, NumPy's name, what is special, a shape, and the other arguments.
TAKEN: tuple[tuple[str, str, str, Shape, tuple[Any, ...]], ...] = (
    ("gather", "take", "flat", (2, 3), ([0, 5, -1, 0],)),
    ("gather", "take", "rows", (3, 2), ([[2, 0], [2, 2]], 0)),
    ("gather", "take", "column", (2, 3), (1, -1)),
    ("gather", "take", "0d", (), (0,)),
    ("gather", "take", "nothing", (2, 3), ([], 1)),
    ("index", "take_along_axis", "columns", (2, 3), ([[2, 0, 0, 1], [1, 1, -1, 0]], 1)),
    ("index", "take_along_axis", "rows", (3, 2), ([[2, 0]], 0)),
    ("index", "take_along_axis", "broadcast", (2, 3), ([[1, 1]], 1)),
    ("index", "take_along_axis", "flat", (2, 3), ([4, 4, 0], None)),
    ("index", "diag", "of-matrix", (3, 4), ()),
    ("index", "diag", "above", (3, 4), (2,)),
    ("index", "diag", "below", (4, 3), (-2,)),
    ("index", "diag", "outside", (2, 2), (5,)),
    ("where", "diag", "of-vector", (3,), ()),
    ("where", "diag", "to-above", (2,), (1,)),
    ("where", "diag", "to-below", (2,), (-2,)),
    ("where", "diag", "empty", (0,), (1,)),
    ("where", "diagflat", "matrix", (2, 2), (-1,)),
    ("where", "tril", "square", (3, 3), ()),
    ("where", "tril", "above", (2, 3, 4), (1,)),
    ("where", "tril", "vector", (3,), ()),
    ("where", "triu", "square", (3, 3), ()),
    ("where", "triu", "below", (3, 4), (-1,)),
    ("where", "triu", "empty", (0, 3), ()),
)

SORTED: tuple[tuple[str, str, Shape, tuple[Any, ...]], ...] = (
    ("sort", "vector", (5,), ()),
    ("sort", "rows", (3, 4), (0,)),
    ("sort", "last", (2, 3, 4), ()),
    ("sort", "flat", (2, 3), (None,)),
    ("sort", "empty", (0, 3), ()),
)


def cases() -> Iterator[Case]:
    """Yield the rows of this family."""
    for op, name, label, lengths, arguments in TAKEN:
        yield _like_numpy(op, f"{name}-{label}", name, anywhere(*lengths), arguments)
    for name, label, lengths, arguments in SORTED:
        yield _like_numpy("index", f"{name}-{label}", name, distinct(*lengths), arguments)
    for label, axis in (("last", -1), ("first", 0), ("flat", None)):
        # Only the place itself is specified.
        run, reference = (
            lambda x, f=f, axis=axis: np.take(f(x, 1, axis), 1, axis) for f in _both("partition")
        )
        yield Case("index", f"partition-{label}", run, (distinct(3, 4),), reference=reference)
    yield from _by_condition()
    yield from _ties()


def _by_condition() -> Iterator[Case]:
    mask = np.array([True, False, True])
    for name, arguments in (("compress", (1,)), ("compress", ()), ("extract", ())):
        run, reference = (
            lambda x, mask, f=f, rest=arguments: f(mask, x, *rest) for f in _both(name)
        )
        label = f"{name}-columns" if arguments else f"{name}-flat"
        yield Case("gather", label, run, (anywhere(2, 3),), (mask,), reference=reference)
    yield Case(
        "index",
        "choose",
        lambda a, b, c, number: select.choose(number, [a, b, c]),
        (anywhere(2, 3), anywhere(3), anywhere()),
        (np.array([[1, 0, 1], [0, 0, 2]]),),
        reference=lambda a, b, c, number: np.choose(number, [a, b, c]),
    )
    yield Case(
        "where",
        "select",
        lambda a, b, one, two: select.select([one, two], [a, b], -1.0),
        (anywhere(2, 3), anywhere(3)),
        (np.array([[True, False, False]]), np.array([[True, True, False]] * 2)),
        reference=lambda a, b, one, two: np.select([one, two], [a, b], -1.0),
    )
    # The branch that is not taken is not finite.
    yield Case(
        "where",
        "select-singular",
        lambda x: select.select([x > 0.0], [x**0.5]),
        (exactly([4.0, 0.0, -1.0]),),
        expected=([0.25, 0.0, 0.0],),
    )


def _ties() -> Iterator[Case]:
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    # Equal elements keep their order, and each takes the gradient of its own place.
    yield Case(
        "index",
        "sort-ties",
        lambda x, w: select.sort(x) * w,
        (exactly([1.0, 0.0, 1.0, 0.0]),),
        (weights,),
        reference=lambda x, w: np.sort(x) * w,
        expected=([3.0, 1.0, 4.0, 2.0],),
    )


def _like_numpy(op: str, label: str, name: str, sample: Input, arguments: tuple[Any, ...]) -> Case:
    run, reference = (lambda x, f=f: f(x, *_arrays(arguments)) for f in _both(name))
    return Case(op, label, run, (sample,), reference=reference)


def _arrays(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.array(a, dtype=np.int64) if isinstance(a, list) else a for a in arguments)


def _both(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the library's function and NumPy's."""
    return getattr(select, name), getattr(np, name)
