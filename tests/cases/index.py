"""Cases: Indexing, gathering, sorting."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import elementwise, index, reduce
from tapegraph.typed import Array
from tests.cases.case import (
    Case,
    Input,
    Shape,
    anywhere,
    distinct,
    exactly,
    operation,
)

# Taking parts

BASIC: tuple[tuple[str, Shape, Any], ...] = (
    ("int", (3, 4), 1),
    ("negative-int", (3, 4), -1),
    ("numpy-int", (3, 4), np.int64(2)),
    ("all-ints", (3, 4), np.s_[1, -2]),
    ("slice", (4, 2), np.s_[1:3]),
    ("columns", (2, 4), np.s_[:, 1:]),
    ("step", (5,), np.s_[::2]),
    ("reversed", (5,), np.s_[::-1]),
    ("negative-step", (3, 5), np.s_[::-1, 3:0:-2]),
    ("negative-bounds", (5,), np.s_[-4:-1]),
    ("clipped", (3,), np.s_[1:100]),
    ("nothing", (3, 2), np.s_[2:1]),
    ("ellipsis", (2, 3, 2), np.s_[..., 0]),
    ("ellipsis-between", (2, 3, 2), np.s_[1, ..., ::-1]),
    ("new-axes", (2, 3), np.s_[None, :, None]),
    ("mixed", (2, 3, 4), np.s_[1, None, ..., 3:0:-1]),
    ("whole", (2, 3), np.s_[...]),
    ("0d", (), ()),
    ("0d-new-axis", (), None),
    ("empty", (0, 3), np.s_[:, 1]),
)

ADVANCED: tuple[tuple[str, Shape, Any], ...] = (
    ("list", (3, 2), [2, 0]),
    ("repeated", (3, 2), [1, 1, 2, 1]),
    ("negative", (3, 2), [-1, 0, -3]),
    ("matrix", (4, 2), np.array([[0, 1], [1, 3]])),
    ("columns", (2, 3), np.s_[:, [2, 0, 2]]),
    ("pairs", (3, 3), ([0, 1, 1], [2, 0, 0])),
    ("grid", (3, 4), np.ix_([0, 2], [1, 1, 3])),
    ("int-and-list", (3, 4), (1, [0, 3, 3])),
    ("neighbours", (2, 3, 4, 2), np.s_[:, [0, 2], [1, 3]]),
    ("apart", (2, 3, 4), np.s_[[0, 1, 1], :, [1, 3, 3]]),
    ("int-apart", (2, 3, 4), np.s_[1, :, [1, 3]]),
    ("with-slice", (4, 5), np.s_[[0, 3], 1:4]),
    ("with-negative-step", (4, 5), np.s_[::-2, [4, 4, 0]]),
    ("with-new-axis", (3, 2), np.s_[[0, 2], None]),
    ("with-ellipsis", (2, 3, 4), np.s_[..., [0, -1]]),
    ("mask", (2, 3), np.array([[True, False, True], [False, True, False]])),
    ("row-mask", (3, 2), np.array([True, False, True])),
    ("list-mask", (3, 2), [False, True, True]),
    ("column-mask", (2, 3), np.s_[:, np.array([True, False, True])]),
    ("leading-mask", (2, 2, 3), np.array([[True, False], [True, True]])),
    ("mask-and-list", (3, 4), (np.array([True, False, True]), [0, 3])),
    ("mask-and-slice", (3, 4), np.s_[np.array([True, False, True]), 1:3]),
    ("empty-mask", (3, 2), np.zeros(3, dtype=bool)),
    ("empty-list", (3, 2), []),
    ("true", (2, 3), True),
    ("empty", (2, 0), [1, 0, 1]),
    ("empty-pairs", (0, 3), (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))),
    ("empty-neighbours", (2, 3, 4, 0), np.s_[:, [0, 2], [1, 3]]),
    ("empty-apart", (2, 0, 4), np.s_[[0, 1, 1], :, [1, 3, 3]]),
)


def _indexed() -> Iterator[Case]:
    for op, rows in (("getitem", BASIC), ("index", ADVANCED)):
        for label, lengths, key in rows:
            at_key = operator.itemgetter(key)
            yield Case(op, label, at_key, (anywhere(*lengths),), reference=at_key)
    for label, lengths, begin, size, key in (
        ("vector", (5,), (1,), (3,), np.s_[1:4]),
        ("matrix", (3, 4), (1, 0), (2, 3), np.s_[1:3, 0:3]),
        ("to-the-end", (3, 4), (1, 2), (-1, -1), np.s_[1:, 2:]),
        ("whole", (2, 3), (0, 0), (2, 3), np.s_[:]),
        ("nothing", (2, 3), (1, 1), (0, 2), np.s_[1:1, 1:3]),
        ("3d", (2, 3, 4), (0, 1, 1), (-1, 1, 2), np.s_[:, 1:2, 1:3]),
        ("0d", (), (), (), ()),
    ):
        yield Case(
            "tensor_slice",
            label,
            partial(index.tensor_slice, begin=begin, size=size),
            (anywhere(*lengths),),
            reference=operator.itemgetter(key),
        )
    yield from _gathers()
    yield from _choices()


def _gathers() -> Iterator[Case]:
    for label, lengths, axis, indices in (
        ("rows", (5, 3), 0, [1, 3, 2]),
        ("repeated", (3, 2), 0, [1, 1, 0, 1]),
        ("negative", (4, 2), 0, [-1, 0, -4, 3]),
        ("one", (3, 2), 0, 2),
        ("matrix", (4, 2), 0, [[0, 1, 1], [3, 3, 2]]),
        ("3d-indices", (3,), 0, [[[0], [2]], [[1], [0]]]),
        ("columns", (2, 3), 1, [2, 0, 2]),
        ("last", (2, 1, 3), -1, [[0, 1], [2, -1]]),
        ("middle", (2, 3, 2), 1, [1, 1]),
        ("nothing", (3, 2), 0, np.zeros((2, 0), dtype=np.int64)),
        ("empty", (3, 0), 0, [2, 2]),
        ("empty-last", (0, 1, 3), -1, [0, 2]),
    ):
        yield Case(
            "gather",
            label,
            partial(index.gather, axis=axis),
            (anywhere(*lengths),),
            (np.array(indices),),
            reference=partial(_rows_one_by_one, axis=axis),
        )


def _rows_one_by_one(x: Array, indices: Array, axis: int) -> Any:
    first = np.moveaxis(x, axis, 0)
    rows = np.zeros((*indices.shape, *first.shape[1:]), dtype=x.dtype)
    for place in np.ndindex(indices.shape):
        rows[place] = first[indices[place]]
    at = range(axis % x.ndim, axis % x.ndim + indices.ndim)
    return np.moveaxis(rows, range(indices.ndim), at)


def _choices() -> Iterator[Case]:
    mask = np.array([[True, False, True], [False, False, True]])
    for label, cond, branches in (
        ("mask", mask, ((2, 3), (2, 3))),
        ("integers", mask.astype(np.int64) * -2, ((2, 3), (2, 3))),
        ("floats", mask * 0.5, ((2, 3), (2, 3))),
        ("column", mask[:, :1], ((2, 3), (3,))),
        ("leading", mask, ((4, 1, 3), (3,))),
        ("stretched-branches", mask, ((3,), (2, 1))),
        ("0d-branch", mask, ((), (2, 3))),
        ("0d-condition", np.array(True), ((2, 3), (3,))),
        ("empty", np.zeros((0, 3), dtype=bool), ((0, 3), (3,))),
    ):
        inputs = tuple(anywhere(*lengths) for lengths in branches)
        yield Case("where", label, _where, inputs, (cond,), reference=_blended)
    for label, order in (
        ("scalar-right", lambda x: (x, -1.0)),
        ("scalar-left", lambda x: (2, x)),
        ("twice", lambda x: (x, x)),
    ):
        yield Case(
            "where",
            label,
            partial(_reordered, _where, order),
            (anywhere(2, 3),),
            (mask,),
            reference=partial(_reordered, _blended, order),
        )
    yield Case(
        "where",
        "condition-takes-no-gradient",
        elementwise.where,
        (exactly([1.0, 0.0, -1.0]), anywhere(3), anywhere(3)),
        reference=lambda cond, a, b: _blended(a, b, cond),
        expected=(None, [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]),
    )
    # The branch not taken has an infinite or undefined slope, and contributes exactly zero.
    for label, branch, point, gradient in (
        ("sqrt", elementwise.sqrt, [-1.0, 0.0, 4.0], [0.0, 0.0, 0.25]),
        ("log", elementwise.log, [-1.0, 0.0, 4.0], [0.0, 0.0, 0.25]),
        ("division", lambda x: 1.0 / x, [0.0, -0.0, 2.0], [0.0, 0.0, -0.25]),
        ("power", lambda x: x**0.5, [-1.0, 0.0, 4.0], [0.0, 0.0, 0.25]),
        ("power-of-tensors", lambda x: x**x, [-1.5, 0.0, 1.0], [0.0, 0.0, 1.0]),
        ("norm", _norm, [[0.0, 0.0], [0.0, 0.0], [3.0, 4.0]], [[0.0, 0.0], [0.0, 0.0], [0.6, 0.8]]),
    ):
        yield Case(
            "where",
            f"masked-{label}",
            lambda x, cond, branch=branch: elementwise.where(cond, branch(x), 0.0),
            (exactly(point),),
            (np.array([False, False, True]),),
            expected=(gradient,),
        )
    yield Case(
        "getitem",
        "past-a-singular-point",
        lambda x: elementwise.sqrt(x)[1:],
        (exactly([0.0, 4.0]),),
        expected=([0.0, 0.25],),
    )


def _where(a: Any, b: Any, cond: Array) -> Any:
    return elementwise.where(cond, a, b)


def _blended(a: Any, b: Any, cond: Array) -> Any:
    return (cond != 0) * a + (cond == 0) * b


def _reordered(choose: Callable[..., Any], order: Callable[..., Any], x: Any, cond: Array) -> Any:
    return choose(*order(x), cond)


def _norm(x: Any) -> Any:
    return elementwise.sqrt(reduce.sum(x * x, axis=-1))


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


def _selected() -> Iterator[Case]:
    """Yield the rows of this family."""
    for op, name, label, lengths, arguments in TAKEN:
        yield _like_numpy(op, f"{name}-{label}", name, anywhere(*lengths), arguments)
    for name, label, lengths, arguments in SORTED:
        yield _like_numpy("index", f"{name}-{label}", name, distinct(*lengths), arguments)
    for label, lengths, arguments in (
        ("vector", (5,), (2,)),
        ("matrix", (3, 4), ((2, 3),)),
        ("rows", (3, 2), (2, 0)),
        ("twice", (2, 5), ((2, 2), (1, -1))),
        ("whole", (3,), (3,)),
        ("none", (2,), (0,)),
    ):
        yield Case(
            "gather",
            f"sliding_window_view-{label}",
            _with(index.sliding_window_view, arguments),
            (anywhere(*lengths),),
            reference=_with(np.lib.stride_tricks.sliding_window_view, arguments),
        )
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
        lambda a, b, c, number: index.choose(number, [a, b, c]),
        (anywhere(2, 3), anywhere(3), anywhere()),
        (np.array([[1, 0, 1], [0, 0, 2]]),),
        reference=lambda a, b, c, number: np.choose(number, [a, b, c]),
    )
    yield Case(
        "where",
        "select",
        lambda a, b, one, two: index.select([one, two], [a, b], -1.0),
        (anywhere(2, 3), anywhere(3)),
        (np.array([[True, False, False]]), np.array([[True, True, False]] * 2)),
        reference=lambda a, b, one, two: np.select([one, two], [a, b], -1.0),
    )
    # The branch that is not taken is not finite.
    yield Case(
        "where",
        "select-singular",
        lambda x: index.select([x > 0.0], [x**0.5]),
        (exactly([4.0, 0.0, -1.0]),),
        expected=([0.25, 0.0, 0.0],),
    )


def _ties() -> Iterator[Case]:
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    # Equal elements keep their order, and each takes the gradient of its own place.
    yield Case(
        "index",
        "sort-ties",
        lambda x, w: index.sort(x) * w,
        (exactly([1.0, 0.0, 1.0, 0.0]),),
        (weights,),
        reference=lambda x, w: np.sort(x) * w,
        expected=([3.0, 1.0, 4.0, 2.0],),
    )


# Repeating, padding, moving and cutting: the operation recorded, NumPy's name, what is special, a
# shape, and the other arguments.

MOVED: tuple[tuple[str, str, str, Shape, tuple[Any, ...]], ...] = (
    ("broadcast_to", "repeat", "all", (2, 3), (2,)),
    ("broadcast_to", "repeat", "rows", (2, 3), (2, 0)),
    ("broadcast_to", "repeat", "columns", (2, 3), (3, -1)),
    ("broadcast_to", "repeat", "never", (2, 3), (0, 1)),
    ("broadcast_to", "repeat", "0d", (), (2,)),
    ("gather", "repeat", "each", (3,), ([1, 0, 2],)),
    ("gather", "repeat", "each-column", (2, 3), ([1, 0, 2], 1)),
    ("concat", "pad", "zeros", (2, 3), (1,)),
    ("concat", "pad", "before-after", (3,), ((1, 2),)),
    ("concat", "pad", "by-axis", (2, 3), (((0, 1), (2, 0)),)),
    ("concat", "pad", "empty", (0, 2), (1,)),
    ("gather", "pad", "edge", (2, 3), (((1, 0), (2, 2)), "edge")),
    ("gather", "pad", "reflect", (2, 3), (((1, 0), (2, 5)), "reflect")),
    ("gather", "pad", "symmetric", (2, 3), (2, "symmetric")),
    ("gather", "pad", "wrap", (2, 3), (4, "wrap")),
    ("roll", "roll", "all", (2, 3), (2,)),
    ("roll", "roll", "rows", (3, 2), (1, 0)),
    ("roll", "roll", "back", (2, 3), (-4, 1)),
    ("roll", "roll", "both", (2, 3), ((1, 2), (0, 1))),
    ("roll", "roll", "one-shift", (3, 3), (1, (0, 1))),
    ("roll", "roll", "one-axis", (4,), ((1, 2), 0)),
    ("roll", "roll", "same-axis", (2, 3), ((1, 4), (1, -1))),
    ("getitem", "flip", "all", (2, 3), ()),
    ("getitem", "flip", "columns", (2, 3), (1,)),
    ("getitem", "flip", "two", (2, 3, 2), ((0, 2),)),
    ("getitem", "flip", "0d", (), ()),
    ("getitem", "fliplr", "matrix", (2, 3), ()),
    ("getitem", "flipud", "vector", (3,), ()),
    ("transpose", "rot90", "once", (2, 3), ()),
    ("getitem", "rot90", "twice", (2, 3), (2,)),
    ("transpose", "rot90", "back", (2, 3, 2), (-1, (1, 2))),
    ("gather", "delete", "one", (4,), (1,)),
    ("gather", "delete", "columns", (2, 4), ([0, -1], 1)),
    ("gather", "delete", "slice", (5, 2), (slice(1, 4, 2), 0)),
    ("gather", "delete", "all-axes", (2, 3), (2,)),
)

CUT: tuple[tuple[str, str, Shape, tuple[Any, ...]], ...] = (
    ("split", "halves", (4, 2), (2,)),
    ("split", "columns", (2, 6), (3, 1)),
    ("split", "places", (5,), ([1, 3],)),
    ("split", "beyond", (3,), ([2, 9, 1],)),
    ("array_split", "uneven", (5, 2), (3,)),
    ("array_split", "more-than-there-are", (2,), (3,)),
    ("hsplit", "matrix", (2, 4), (2,)),
    ("hsplit", "vector", (4,), ([1],)),
    ("vsplit", "rows", (4, 2), (2,)),
    ("dsplit", "depth", (1, 2, 4), (2,)),
)

INSERTED: tuple[tuple[str, Shape, Shape, Any, tuple[Any, ...]], ...] = (
    ("one", (3,), (1,), 1, ()),
    ("row", (2, 3), (3,), 1, (0,)),
    ("column", (2, 3), (2,), -1, (1,)),
    ("several", (4,), (3,), [0, 2, 2], ()),
    ("columns", (2, 3), (2, 2), [0, 3], (1,)),
)


def _moved() -> Iterator[Case]:
    for op, name, label, lengths, arguments in MOVED:
        run, reference = (_with(f, arguments) for f in _both(name))
        yield Case(op, f"{name}-{label}", run, (anywhere(*lengths),), reference=reference)
    for name, label, lengths, arguments in CUT:
        run, reference = (_weighed(_with(f, arguments)) for f in _both(name))
        yield Case("getitem", f"{name}-{label}", run, (anywhere(*lengths),), reference=reference)
    for label, x, values, at, axis in INSERTED:
        run, reference = (_inserted(f, at, axis) for f in _both("insert"))
        inputs = (anywhere(*x), anywhere(*values))
        yield Case("gather", f"insert-{label}", run, inputs, reference=reference)
    yield Case(
        "concat",
        "pad-constants",
        lambda x: index.pad(x, ((1, 0), (2, 1)), constant_values=((1.0, 2.0), (3.0, 4.0))),
        (anywhere(2, 3),),
        reference=lambda x: np.pad(x, ((1, 0), (2, 1)), constant_values=((1.0, 2.0), (3.0, 4.0))),
    )


SCATTERED: tuple[tuple[str, Any, Shape], ...] = (
    ("in-order", [0, 1, 2], (3,)),
    ("turned", [2, 0, 1], (3,)),
    ("repeated", [[1, 4, 1], [4, 1, 0]], (2, 3)),
    ("wider", [[5], [0]], (2, 2, 2)),
    ("0d", 3, (4,)),
    ("nothing", np.zeros((0, 2), np.int64), (3, 2)),
    ("empty", np.zeros((2, 0), np.int64), (0,)),
)


def _scattered() -> Iterator[Case]:
    """Yield how what was taken goes back to its places."""
    for label, given, shape in SCATTERED:
        places = np.array(given, dtype=np.int64)
        yield Case(
            "scatter",
            label,
            lambda x, places=places, shape=shape: index.scatter(x, places, shape),
            (anywhere(*places.shape),),
            reference=lambda x, places=places, shape=shape: (
                np.ravel(x) @ (places.reshape(-1, 1) == np.arange(math.prod(shape)))
            ).reshape(shape),
        )


def _inserted(insert: Callable[..., Any], at: Any, axis: tuple[Any, ...]) -> Callable[..., Any]:
    return lambda x, values: insert(x, at, values, *axis)


def _with(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    return lambda x: function(x, *arguments)


def _weighed(cut: Callable[..., Any]) -> Callable[..., Any]:
    """Put the parts together again, each with a weight that tells it from the others."""
    return lambda x: sum((i + 1.0) * part.sum() for i, part in enumerate(cut(x)))


def _like_numpy(op: str, label: str, name: str, sample: Input, arguments: tuple[Any, ...]) -> Case:
    run, reference = (lambda x, f=f: f(x, *_arrays(arguments)) for f in _both(name))
    return Case(op, label, run, (sample,), reference=reference)


def _arrays(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(np.array(a, dtype=np.int64) if isinstance(a, list) else a for a in arguments)


def _both(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the library's function and NumPy's."""
    return operation(name), getattr(np, name)


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from _indexed()
    yield from _moved()
    yield from _scattered()
    yield from _selected()
