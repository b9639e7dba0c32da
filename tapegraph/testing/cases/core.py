"""Cases of the operations that tapegraph names itself."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import elementwise, index, linalg, nn, reduce, shape
from tapegraph.testing.cases.case import (
    Case,
    Input,
    Shape,
    anywhere,
    distinct,
    exactly,
    inf,
    nonzero,
    positive,
    small,
)
from tapegraph.typed import Array

# Element by element

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

PAIRS: tuple[tuple[str, Shape, Shape], ...] = (
    ("same", (2, 3), (2, 3)),
    ("column-row", (3, 1), (4,)),
    ("row-column", (4,), (3, 1)),
    ("leading", (2, 3, 4), (4,)),
    ("leading-left", (3,), (2, 2, 3)),
    ("one", (1,), (2, 3)),
    ("0d-left", (), (2, 3)),
    ("0d-right", (2, 3), ()),
    ("0d", (), ()),
    ("empty", (0, 3), (3,)),
    ("stretched-to-empty", (1, 3), (0, 3)),
)


def _elementwise() -> Iterator[Case]:
    for function, reference, domain in UNARY:
        for label, lengths in (("0d", ()), ("3d", (2, 1, 3)), ("empty", (0, 3))):
            yield Case(function.__name__, label, function, (domain(*lengths),), reference=reference)
    for op, apply, left, right in BINARY:
        for label, a, b in PAIRS:
            yield Case(op, label, apply, (left(*a), right(*b)), reference=apply)
        for label, run in _operand_orders(apply):
            yield Case(op, label, run, (left(2, 3),), reference=run)
        for label, constant in (("array", np.array([0.5, 1.5, 2.0])), ("scalar", np.float64(1.5))):
            for side, order in (("right", apply), ("left", _swapped(apply))):
                yield Case(
                    op, f"numpy-{label}-{side}", order, (left(2, 3),), (constant,), reference=order
                )
    yield from _powers()
    yield from _elementwise_kinks()


def _operand_orders(apply: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Give the calls of a binary operation that read one tensor only."""
    yield "twice", lambda x: apply(x, x)
    yield "float-right", lambda x: apply(x, 1.5)
    yield "float-left", lambda x: apply(1.5, x)
    yield "int-right", lambda x: apply(x, 3)
    yield "int-left", lambda x: apply(3, x)


def _swapped(apply: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, constant: apply(constant, x)


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


# Matrix products

PRODUCTS: tuple[tuple[str, str, Callable[..., Any], Shape, Shape], ...] = (
    ("matmul", "matrices", operator.matmul, (2, 3), (3, 4)),
    ("matmul", "row-column", operator.matmul, (1, 3), (3, 1)),
    ("matmul", "column-row", operator.matmul, (3, 1), (1, 2)),
    ("matmul", "vector-matrix", operator.matmul, (3,), (3, 2)),
    ("matmul", "matrix-vector", operator.matmul, (2, 3), (3,)),
    ("matmul", "vectors", operator.matmul, (3,), (3,)),
    ("matmul", "no-rows", operator.matmul, (0, 3), (3, 2)),
    ("matmul", "nothing-to-add-up", operator.matmul, (2, 0), (0, 3)),
    ("batch_matmul", "stacks", linalg.batch_matmul, (2, 2, 3), (2, 3, 2)),
    ("batch_matmul", "operator", operator.matmul, (2, 2, 3), (2, 3, 2)),
    ("batch_matmul", "stack-matrix", linalg.batch_matmul, (2, 2, 3), (3, 2)),
    ("batch_matmul", "matrix-stack", linalg.batch_matmul, (2, 3), (2, 3, 2)),
    ("batch_matmul", "vector-stack", operator.matmul, (3,), (2, 3, 2)),
    ("batch_matmul", "stack-vector", operator.matmul, (2, 2, 3), (3,)),
    ("batch_matmul", "stretched-left", linalg.batch_matmul, (1, 2, 3), (4, 3, 2)),
    ("batch_matmul", "stretched-both", linalg.batch_matmul, (2, 1, 2, 3), (3, 3, 2)),
    ("batch_matmul", "4d", linalg.batch_matmul, (2, 2, 1, 3), (2, 2, 3, 2)),
    ("batch_matmul", "empty-stack", linalg.batch_matmul, (0, 2, 3), (3, 2)),
    ("batch_matmul", "stretched-to-empty", linalg.batch_matmul, (1, 2, 3), (0, 3, 2)),
)


def _linalg() -> Iterator[Case]:
    for op, label, run, a, b in PRODUCTS:
        yield Case(op, label, run, (anywhere(*a), anywhere(*b)), reference=_einsum)
    for op, lengths in (("matmul", (3, 3)), ("batch_matmul", (2, 3, 3))):
        yield Case(
            op, "twice", lambda x: x @ x, (anywhere(*lengths),), reference=lambda x: _einsum(x, x)
        )
        # An array on the left leaves the product to the tensor's reflected operator.
        yield Case(
            op,
            "numpy-left",
            _swapped(operator.matmul),
            (anywhere(*lengths),),
            (np.array([[1.0, 2.0, 3.0]]),),
            reference=_swapped(_einsum),
        )
    yield Case(
        "matmul",
        "own-transpose",
        lambda x: x @ shape.transpose(x),
        (anywhere(2, 3),),
        reference=lambda x: _einsum(x, x.T),
    )


def _einsum(a: Array, b: Array) -> Any:
    rows, columns = "i" * (a.ndim > 1), "k" * (b.ndim > 1)
    dots = "..." * (max(a.ndim, b.ndim) > 2)
    left, right = dots * (a.ndim > 2), dots * (b.ndim > 2)
    return np.einsum(f"{left}{rows}j,{right}j{columns}->{dots}{rows}{columns}", a, b)


# Reductions

REDUCED: tuple[tuple[str, Shape, dict[str, Any]], ...] = (
    ("all", (2, 3), {}),
    ("all-kept", (2, 3), {"keepdims": True}),
    ("first", (2, 3), {"axis": 0}),
    ("last", (2, 3), {"axis": -1}),
    ("last-kept", (2, 3), {"axis": -1, "keepdims": True}),
    ("middle", (2, 3, 2), {"axis": 1}),
    ("outer-two", (2, 3, 2), {"axis": (0, 2)}),
    ("outer-two-kept", (2, 3, 2), {"axis": (-1, 0), "keepdims": True}),
    ("all-named", (2, 3), {"axis": (0, 1)}),
    ("no-axis", (2, 3), {"axis": ()}),
    ("0d", (), {}),
    ("0d-kept", (), {"keepdims": True}),
    ("empty", (2, 0), {"axis": 0}),
)


def _reduce() -> Iterator[Case]:
    for function, reference in ((reduce.sum, np.sum), (reduce.mean, _mean)):
        for label, lengths, options in REDUCED:
            yield Case(
                function.__name__,
                label,
                partial(function, **options),
                (anywhere(*lengths),),
                reference=partial(reference, **options),
            )
    yield Case("sum", "nothing", reduce.sum, (anywhere(0, 3),), reference=lambda x: np.zeros(()))
    for label, lengths, axis in (
        ("vector", (4,), 0),
        ("matrix", (2, 3), -1),
        ("first", (2, 3, 2), 0),
        ("middle", (2, 3, 2), 1),
        ("middle-negative", (2, 3, 2), -2),
        ("last", (2, 3, 2), 2),
        ("one-class", (3, 1), -1),
        ("no-rows", (0, 3), -1),
        ("no-classes", (2, 0), -1),
    ):
        yield Case(
            "softmax",
            label,
            partial(reduce.softmax, axis=axis),
            (anywhere(*lengths),),
            reference=partial(_softmax, axis=axis),
        )
    # Weighted, since the sum of a softmax is constant.
    for label, point in (("far-apart", [1000.0, 0.0, -1000.0]), ("masked", [0.0, -1e9, -1e9])):
        yield Case(
            "softmax",
            label,
            lambda x, weights: reduce.softmax(x) * weights,
            (exactly(point),),
            (np.array([1.0, 2.0, 3.0]),),
            expected=([0.0, 0.0, 0.0],),
        )


def _mean(x: Array, axis: Any = None, keepdims: bool = False) -> Any:
    total = np.sum(x, axis=axis, keepdims=keepdims)
    return total * total.size / x.size if x.size else total


def _softmax(x: Array, axis: int = -1) -> Any:
    return np.exp(x) / np.exp(x).sum(axis=axis, keepdims=True)


# Rearrangements


def _shape() -> Iterator[Case]:
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


def _index() -> Iterator[Case]:
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
        yield Case("where", label, _chosen, inputs, (cond,), reference=_blended)
    for label, order in (
        ("scalar-right", lambda x: (x, -1.0)),
        ("scalar-left", lambda x: (2, x)),
        ("twice", lambda x: (x, x)),
    ):
        yield Case(
            "where",
            label,
            partial(_reordered, _chosen, order),
            (anywhere(2, 3),),
            (mask,),
            reference=partial(_reordered, _blended, order),
        )
    yield Case(
        "where",
        "condition-takes-no-gradient",
        index.where,
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
            lambda x, cond, branch=branch: index.where(cond, branch(x), 0.0),
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


def _chosen(a: Any, b: Any, cond: Array) -> Any:
    return index.where(cond, a, b)


def _blended(a: Any, b: Any, cond: Array) -> Any:
    return (cond != 0) * a + (cond == 0) * b


def _reordered(choose: Callable[..., Any], order: Callable[..., Any], x: Any, cond: Array) -> Any:
    return choose(*order(x), cond)


def _norm(x: Any) -> Any:
    return elementwise.sqrt(reduce.sum(x * x, axis=-1))


# Layers

CONVOLVED: tuple[tuple[str, Shape, Shape, dict[str, Any]], ...] = (
    ("plain", (1, 1, 4, 4), (1, 1, 3, 3), {}),
    ("channels", (2, 2, 3, 4), (3, 2, 2, 3), {}),
    ("1x1", (1, 2, 2, 3), (2, 2, 1, 1), {}),
    ("whole-image", (2, 1, 3, 2), (1, 1, 3, 2), {}),
    ("stride", (1, 1, 5, 5), (1, 1, 3, 3), {"stride": 2}),
    ("stride-remainder", (1, 1, 6, 5), (1, 1, 3, 2), {"stride": (2, 3)}),
    ("stride-past-kernel", (1, 1, 5, 5), (1, 1, 2, 2), {"stride": 3}),
    ("pad", (1, 1, 3, 3), (1, 1, 3, 3), {"pad": 1}),
    ("pad-pair", (1, 1, 2, 3), (1, 1, 2, 3), {"pad": (2, 1)}),
    ("dilation", (1, 1, 5, 5), (1, 1, 2, 2), {"dilation": 2}),
    ("dilation-pair", (1, 1, 4, 5), (1, 1, 2, 2), {"dilation": (3, 2)}),
    ("everything", (2, 2, 5, 4), (2, 2, 2, 3), {"stride": (2, 1), "pad": (1, 2), "dilation": 2}),
    ("no-images", (0, 1, 3, 3), (1, 1, 2, 2), {}),
    ("no-kernels", (1, 1, 3, 3), (0, 1, 2, 2), {}),
    ("no-channels", (1, 0, 3, 3), (2, 0, 2, 2), {}),
)

POOLED: tuple[tuple[str, Shape, dict[str, Any]], ...] = (
    ("plain", (1, 1, 4, 4), {"ksize": 2}),
    ("channels", (2, 2, 2, 4), {"ksize": 2}),
    ("remainder", (1, 1, 5, 3), {"ksize": 2}),
    ("pair", (1, 1, 3, 4), {"ksize": (3, 2)}),
    ("overlapping", (1, 2, 4, 4), {"ksize": 3, "stride": 1}),
    ("gaps", (1, 1, 5, 5), {"ksize": 2, "stride": 3}),
    ("stride-pair", (1, 1, 4, 5), {"ksize": 2, "stride": (1, 3)}),
    ("pad", (1, 1, 4, 4), {"ksize": 3, "stride": 2, "pad": 1}),
    ("pad-pair", (1, 1, 3, 4), {"ksize": (2, 3), "stride": (2, 1), "pad": (0, 2)}),
    ("1x1", (1, 2, 2, 2), {"ksize": 1}),
    ("no-images", (0, 1, 4, 4), {"ksize": 2}),
)

NORMALISED: tuple[tuple[str, Shape, Shape, Shape, dict[str, Any]], ...] = (
    ("vector", (4,), (4,), (4,), {}),
    ("rows", (3, 4), (4,), (4,), {}),
    ("3d", (2, 2, 3), (3,), (3,), {}),
    ("eps", (2, 4), (4,), (4,), {"eps": 0.5}),
    ("0d-scale-and-shift", (2, 4), (), (), {}),
    ("own-scale-a-row", (2, 3), (2, 1), (2, 3), {}),
    ("one-feature", (3, 1), (1,), (1,), {}),
    ("no-rows", (0, 3), (3,), (3,), {}),
)

TIES: tuple[tuple[str, dict[str, Any], Any, Any], ...] = (
    ("all-equal", {"ksize": 2}, np.ones((2, 4)), [[1, 0, 1, 0], [0, 0, 0, 0]]),
    ("second-row", {"ksize": 2}, [[0, 1], [1, 1]], [[0, 1], [0, 0]]),
    ("overlapping", {"ksize": 2, "stride": 1}, [[1, 1, 1], [1, 1, 1]], [[1, 1, 0], [0, 0, 0]]),
    # Padding is smaller than any number, and so never takes the gradient.
    ("pad", {"ksize": 2, "pad": 1}, [[-5, -5], [-5, -5]], [[1, 1], [1, 1]]),
    (
        "pad-as-large",
        {"ksize": 3, "pad": 1, "stride": 2},
        np.full((3, 3), -inf),
        [[1, 1, 0], [1, 1, 0], [0, 0, 0]],
    ),
)


def _nn() -> Iterator[Case]:
    for label, lengths, kernel, options in CONVOLVED:
        yield Case(
            "conv2d",
            label,
            partial(nn.conv2d, **options),
            (anywhere(*lengths), anywhere(*kernel)),
            reference=partial(_convolved, **options),
        )
    yield Case(
        "conv2d",
        "twice",
        lambda x: nn.conv2d(x, x, pad=1),
        (anywhere(2, 2, 2, 2),),
        reference=lambda x: _convolved(x, x, pad=1),
    )
    for function, pick, domain in (
        (nn.max_pool2d, np.max, distinct),
        (nn.avg_pool2d, np.mean, anywhere),
    ):
        for label, lengths, options in POOLED:
            yield Case(
                function.__name__,
                label,
                partial(function, **options),
                (domain(*lengths),),
                reference=partial(_pooled, pick, **options),
            )
    yield from _pool_ties()
    yield from _layer_norms()
    yield from _crossentropies()
    yield from _mean_squares()


def _pool_ties() -> Iterator[Case]:
    for label, options, point, gradient in TIES:
        yield Case(
            "max_pool2d",
            f"ties-{label}",
            partial(nn.max_pool2d, **options),
            (exactly(np.asarray(point)[None, None]),),
            reference=partial(_pooled, np.max, **options),
            expected=(np.asarray(gradient)[None, None],),
        )


def _layer_norms() -> Iterator[Case]:
    for label, lengths, gamma, beta, options in NORMALISED:
        yield Case(
            "layer_norm",
            label,
            partial(nn.layer_norm, **options),
            (anywhere(*lengths), anywhere(*gamma), anywhere(*beta)),
            reference=partial(_normalised, **options),
        )
    for label, lengths, run in (
        ("scale-is-shift", (3,), lambda form, x, scale: form(x, scale, scale)),
        ("input-is-shift", (2, 3), lambda form, x, scale: form(x, scale, x)),
    ):
        yield Case(
            "layer_norm",
            label,
            partial(run, nn.layer_norm),
            (anywhere(2, 3), anywhere(*lengths)),
            reference=partial(run, _normalised),
        )
    yield Case(
        "layer_norm",
        "equal-features",
        nn.layer_norm,
        (exactly([[2.0, 2.0, 2.0]]), anywhere(3), anywhere(3)),
        reference=_normalised,
    )


def _crossentropies() -> Iterator[Case]:
    one_hot = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    soft = np.array([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]])
    for label, lengths, targets in (
        ("classes", (3, 4), np.array([2, 0, 3])),
        ("repeated-class", (3, 2), np.array([1, 1, 1])),
        ("one-row", (4,), np.array(2)),
        ("3d-classes", (2, 2, 3), np.array([[0, 2], [1, 1]])),
        ("small-integers", (2, 3), np.array([0, 2], dtype=np.uint8)),
        ("one-class", (2, 1), np.array([0, 0])),
        ("one-hot", (2, 3), one_hot),
        ("one-hot-integers", (2, 3), one_hot.astype(np.int64)),
        ("soft", (2, 3), soft),
        ("one-soft-row", (3,), soft[0]),
        ("3d-soft", (2, 2, 3), np.stack([soft, one_hot])),
        # Rows of targets need not add up to 1.
        ("unnormalised", (2, 3), 2.0 * soft + 0.1),
    ):
        yield Case(
            "softmax_crossentropy",
            label,
            nn.softmax_crossentropy,
            (anywhere(*lengths),),
            (targets,),
            reference=_crossentropy,
        )
    yield Case(
        "softmax_crossentropy",
        "targets-with-gradient",
        nn.softmax_crossentropy,
        (anywhere(2, 3), positive(2, 3)),
        reference=_crossentropy,
    )
    yield Case(
        "softmax_crossentropy",
        "entropy",
        lambda x: nn.softmax_crossentropy(x, reduce.softmax(x)),
        (anywhere(2, 3),),
        reference=lambda x: _crossentropy(x, _softmax(x)),
    )
    for label, targets in (
        ("classes", np.array([0, 0])),
        ("one-hot", np.array([[1.0, 0.0], [1.0, 0.0]])),
    ):
        yield Case(
            "softmax_crossentropy",
            f"far-apart-{label}",
            nn.softmax_crossentropy,
            (exactly([[1000.0, 0.0], [0.0, 1000.0]]),),
            (targets,),
            reference=lambda logits, targets: np.array(500.0),
            expected=([[0.0, 0.0], [-0.5, 0.5]],),
        )


def _mean_squares() -> Iterator[Case]:
    for label, both in (
        ("matrix", anywhere(2, 3)),
        ("0d", anywhere()),
        ("4d", anywhere(2, 1, 3, 2)),
    ):
        yield Case(
            "mse_loss",
            label,
            nn.mse_loss,
            (both, both),
            reference=_mean_square,
        )
    yield Case(
        "mse_loss",
        "transposed",
        lambda x, target: nn.mse_loss(shape.transpose(x), target),
        (anywhere(3, 2),),
        (np.arange(6.0).reshape(2, 3),),
        reference=lambda x, target: _mean_square(x.T, target),
    )
    yield Case(
        "mse_loss",
        "integer-target",
        nn.mse_loss,
        (anywhere(3),),
        (np.array([1, 0, 2], dtype=np.uint8),),
        reference=_mean_square,
    )
    yield Case(
        "mse_loss",
        "with-itself",
        lambda x: nn.mse_loss(x, x),
        (anywhere(3),),
        reference=lambda x: np.array(0.0),
        expected=([0.0, 0.0, 0.0],),
    )


def _mean_square(a: Array, b: Array) -> Any:
    return np.mean(np.square(a - b))


def _pair(value: Any) -> tuple[int, int]:
    return value if isinstance(value, tuple) else (value, value)


def _places(length: int, reach: int, stride: int, pad: int) -> range:
    """Return where windows of ``reach`` pixels start, counted from the first unpadded pixel."""
    return range(-pad, length + pad - reach + 1, stride)


def _convolved(x: Array, k: Array, stride: Any = 1, pad: Any = 0, dilation: Any = 1) -> Any:
    (dh, dw), (kh, kw), (h, w) = _pair(dilation), k.shape[2:], x.shape[2:]
    rows = _places(h, dh * (kh - 1) + 1, _pair(stride)[0], _pair(pad)[0])
    columns = _places(w, dw * (kw - 1) + 1, _pair(stride)[1], _pair(pad)[1])
    out = np.zeros((len(x), len(k), len(rows), len(columns)), dtype=x.dtype)
    for (i, top), (j, left), di, dj in _nested(enumerate(rows), enumerate(columns), kh, kw):
        row, column = top + di * dh, left + dj * dw
        if 0 <= row < h and 0 <= column < w:
            out[:, :, i, j] += np.einsum("nc,oc->no", x[:, :, row, column], k[:, :, di, dj])
    return out


def _nested(rows: Any, columns: Any, kh: int, kw: int) -> Iterator[tuple[Any, Any, int, int]]:
    across = list(columns)
    for row in rows:
        for column in across:
            for di, dj in np.ndindex(kh, kw):
                yield row, column, di, dj


def _pooled(
    pick: Callable[..., Any], x: Array, ksize: Any, stride: Any = None, pad: Any = 0
) -> Any:
    (kh, kw), step, border = _pair(ksize), _pair(ksize if stride is None else stride), _pair(pad)
    rows = _places(x.shape[2], kh, step[0], border[0])
    columns = _places(x.shape[3], kw, step[1], border[1])
    out = np.zeros((*x.shape[:2], len(rows), len(columns)), dtype=x.dtype)
    for i, top in enumerate(rows):
        for j, left in enumerate(columns):
            seen = x[:, :, max(top, 0) : top + kh, max(left, 0) : left + kw]
            out[:, :, i, j] = pick(seen, axis=(2, 3))
    return out


def _normalised(x: Array, gamma: Array, beta: Array, eps: float = 1e-5) -> Any:
    deviation = np.sqrt(np.var(x, axis=-1, keepdims=True) + eps)
    return gamma * (x - np.mean(x, axis=-1, keepdims=True)) / deviation + beta


def _crossentropy(logits: Array, targets: Array) -> Any:
    if targets.ndim < logits.ndim:
        targets = np.eye(logits.shape[-1])[targets]
    return -np.mean(np.sum(targets * np.log(_softmax(logits)), axis=-1))


def cases() -> Iterator[Case]:
    """Yield the cases of the operations that tapegraph names itself."""
    for family in (_elementwise, _reduce, _linalg, _shape, _index, _nn):
        yield from family()
