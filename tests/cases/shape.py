"""Cases: Shapes and joins."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import shape
from tests.cases.case import (
    Case,
    Shape,
    anywhere,
    operation,
)

# Rearrangements


def _reshaped() -> Iterator[Case]:
    for label, lengths, axes in (
        ("matrix", (2, 3), None),
        ("reversed", (2, 3, 4), None),
        ("swapped", (2, 3, 4), (1, 0, 2)),
        ("cycled", (2, 3, 4), (2, 0, 1)),
        ("negative", (2, 3, 4), (0, -1, -2)),
        ("unchanged", (2, 3), (0, 1)),
        ("vector", (3,), None),
        ("0d", (), None),
        ("empty", (0, 3), None),
    ):
        yield Case(
            "transpose",
            label,
            partial(shape.transpose, axes=axes),
            (anywhere(*lengths),),
            reference=partial(np.transpose, axes=axes),
        )
    for label, lengths, new in (
        ("matrix", (2, 6), (3, 4)),
        ("split", (2, 6), (2, 2, 3)),
        ("inferred", (2, 6), (3, -1)),
        ("inferred-middle", (2, 6), (2, -1, 3)),
        ("flat", (2, 3), -1),
        ("integer", (2, 3), 6),
        ("unchanged", (2, 3), (2, 3)),
        ("from-0d", (), (1, 1)),
        ("to-0d", (1, 1), ()),
        ("empty", (0, 3), (3, 0)),
        ("empty-flat", (2, 0), -1),
    ):
        yield Case(
            "reshape",
            label,
            partial(shape.reshape, shape=new),
            (anywhere(*lengths),),
            reference=lambda x, new=new: np.reshape(x, new),
        )
    yield from _concats()


def _concats() -> Iterator[Case]:
    for label, axis, parts in (
        ("one", 0, ((2, 3),)),
        ("rows", 0, ((2, 3), (1, 3))),
        ("columns", 1, ((2, 3), (2, 2))),
        ("last", -1, ((2, 1, 3), (2, 1, 1), (2, 1, 2))),
        ("middle", -2, ((2, 1, 2), (2, 3, 2))),
        ("vectors", 0, ((2,), (3,), (1,))),
        ("empty-part", 0, ((2, 3), (0, 3))),
        ("empty", 1, ((0, 3), (0, 2))),
    ):
        yield Case(
            "concat",
            label,
            partial(_joined, shape.concat, axis=axis),
            tuple(anywhere(*lengths) for lengths in parts),
            reference=partial(_joined, np.concatenate, axis=axis),
        )
    for label, order, constants in (
        ("repeated", lambda x, y: (x, y, x), ()),
        ("numpy-between", lambda x, y, c: (x, c, y), (np.array([[1.0, 2.0, 3.0]]),)),
    ):
        yield Case(
            "concat",
            label,
            partial(_arranged, shape.concat, order),
            (anywhere(2, 3), anywhere(1, 3)),
            constants,
            reference=partial(_arranged, np.concatenate, order),
        )


def _joined(join: Callable[..., Any], *parts: Any, axis: int) -> Any:
    return join(parts, axis=axis)


def _arranged(join: Callable[..., Any], order: Callable[..., Any], *parts: Any) -> Any:
    return join(order(*parts))


# The operation recorded, NumPy's name, what is special, a shape, and the other arguments.
Row = tuple[str, str, str, Shape, tuple[Any, ...]]

OF_ONE: tuple[Row, ...] = (
    ("reshape", "ravel", "matrix", (2, 3), ()),
    ("reshape", "ravel", "columns", (2, 3), ("F",)),
    ("reshape", "reshape", "columns", (2, 3, 2), ((-1, 4), "F")),
    ("reshape", "ravel", "0d", (), ()),
    ("reshape", "ravel", "empty", (0, 3), ()),
    ("reshape", "squeeze", "all", (1, 3, 1), ()),
    ("reshape", "squeeze", "one", (1, 3, 1), (-1,)),
    ("reshape", "squeeze", "two", (1, 3, 1), ((0, 2),)),
    ("reshape", "squeeze", "to-0d", (1, 1), ()),
    ("reshape", "expand_dims", "first", (2, 3), (0,)),
    ("reshape", "expand_dims", "last", (2, 3), (-1,)),
    ("reshape", "expand_dims", "two", (2, 3), ((0, -1),)),
    ("reshape", "expand_dims", "0d", (), (0,)),
    ("reshape", "atleast_1d", "0d", (), ()),
    ("reshape", "atleast_2d", "vector", (3,), ()),
    ("reshape", "atleast_3d", "0d", (), ()),
    ("reshape", "atleast_3d", "vector", (3,), ()),
    ("reshape", "atleast_3d", "matrix", (2, 3), ()),
    ("transpose", "swapaxes", "ends", (2, 3, 4), (0, -1)),
    ("transpose", "swapaxes", "same", (2, 3), (1, 1)),
    ("transpose", "moveaxis", "one", (2, 3, 4), (0, -1)),
    ("transpose", "moveaxis", "two", (2, 3, 4), ((0, 1), (-1, 0))),
    ("transpose", "rollaxis", "to-front", (2, 3, 4), (2,)),
    ("transpose", "rollaxis", "to-back", (2, 3, 4), (0, 3)),
    ("transpose", "permute_dims", "order", (2, 3, 4), ((2, 0, 1),)),
    ("transpose", "matrix_transpose", "stack", (2, 3, 4), ()),
    ("broadcast_to", "broadcast_to", "leading", (3,), ((2, 3),)),
    ("broadcast_to", "broadcast_to", "stretched", (2, 1, 3), ((2, 4, 3),)),
    ("broadcast_to", "broadcast_to", "both", (2, 1), ((3, 2, 2),)),
    ("broadcast_to", "broadcast_to", "same", (2, 3), ((2, 3),)),
    ("broadcast_to", "broadcast_to", "0d", (), ((2, 2),)),
    ("broadcast_to", "broadcast_to", "to-0d", (), ((),)),
    ("broadcast_to", "broadcast_to", "length", (1,), (3,)),
    ("broadcast_to", "broadcast_to", "to-empty", (1, 3), ((0, 3),)),
    ("broadcast_to", "tile", "vector", (3,), (2,)),
    ("broadcast_to", "tile", "both-axes", (2, 3), ((2, 3),)),
    ("broadcast_to", "tile", "more-axes", (2,), ((2, 1, 2),)),
    ("broadcast_to", "tile", "fewer", (2, 1, 3), ((2,),)),
    ("broadcast_to", "tile", "once", (2, 3), (1,)),
    ("broadcast_to", "tile", "0d", (), (3,)),
    ("broadcast_to", "tile", "never", (2, 3), ((0, 2),)),
)

OF_MANY: tuple[tuple[str, str, tuple[Shape, ...], tuple[Any, ...]], ...] = (
    ("concatenate", "flat", ((2, 2), (3,)), (None,)),
    ("concatenate", "columns", ((2, 2), (2, 1)), (1,)),
    ("stack", "first", ((2, 3), (2, 3)), ()),
    ("stack", "last", ((2, 3), (2, 3)), (-1,)),
    ("stack", "0d", ((), ()), ()),
    ("stack", "one", ((3,),), (1,)),
    ("stack", "empty", ((0, 2), (0, 2)), ()),
    ("vstack", "vectors", ((3,), (3,)), ()),
    ("vstack", "matrix", ((2, 3), (3,)), ()),
    ("hstack", "vectors", ((3,), (2,)), ()),
    ("hstack", "0d", ((), (2,)), ()),
    ("hstack", "matrices", ((2, 1), (2, 2)), ()),
    ("dstack", "vectors", ((3,), (3,)), ()),
    ("dstack", "matrices", ((2, 3), (2, 3)), ()),
    ("column_stack", "vectors", ((3,), (3,)), ()),
    ("column_stack", "mixed", ((3, 2), (3,)), ()),
)


def _rearranged() -> Iterator[Case]:
    """Yield the rows of this family."""
    for op, name, label, lengths, arguments in OF_ONE:
        run, reference = (_with(f, arguments) for f in _both(name))
        yield Case(op, f"{name}-{label}", run, (anywhere(*lengths),), reference=reference)
    for name, label, parts, arguments in OF_MANY:
        run, reference = (_of_sequence(f, arguments) for f in _both(name))
        inputs = tuple(anywhere(*lengths) for lengths in parts)
        yield Case("concat", f"{name}-{label}", run, inputs, reference=reference)
    yield from _with_two_inputs()


def _with_two_inputs() -> Iterator[Case]:
    for label, axis in (("flat", ()), ("rows", (0,))):
        run, reference = (_with(f, axis) for f in _both("append"))
        inputs = (anywhere(2, 3), anywhere(1, 3))
        yield Case("concat", f"append-{label}", run, inputs, reference=reference)
    own, numpys = _both("broadcast_arrays")
    yield Case(
        "broadcast_to",
        "broadcast_arrays",
        lambda a, b: sum(own(a, b)),
        (anywhere(3, 1), anywhere(2)),
        reference=lambda a, b: sum(numpys(a, b)),
    )
    yield Case(
        "concat",
        "block",
        lambda a, b: shape.block([[a, b], [b, a]]),
        (anywhere(2, 2), anywhere(2, 2)),
        reference=lambda a, b: np.block([[a, b], [b, a]]),
    )


def _both(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the library's function and NumPy's."""
    return operation(name), getattr(np, name)


def _with(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    return lambda *arrays: function(*arrays, *arguments)


def _of_sequence(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., Any]:
    return lambda *arrays: function(arrays, *arguments)


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from _reshaped()
    yield from _rearranged()
