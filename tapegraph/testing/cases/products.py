"""Cases of ``tapegraph/ops/products.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import products
from tapegraph.testing.cases.case import Case, Shape, anywhere, exactly, inf

EINSUMS: tuple[tuple[str, tuple[Shape, ...]], ...] = (
    ("ij,jk", ((2, 3), (3, 4))),
    ("ij,jk->ki", ((2, 3), (3, 4))),
    ("i,i->", ((3,), (3,))),
    ("i,j->ij", ((2,), (3,))),
    ("ij,ij->i", ((2, 3), (2, 3))),
    ("bij,bjk->bik", ((2, 2, 3), (2, 3, 2))),
    ("...ij,...jk", ((2, 2, 3), (1, 3, 2))),
    ("i...,i...->...", ((3, 2), (3, 1))),
    ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 2))),
    ("i,ij,j->", ((2,), (2, 3), (3,))),
    ("iij,jj->i", ((2, 2, 3), (3, 3))),
    (",i->i", ((), (3,))),
    ("ij,k->k", ((2, 3), (4,))),
    ("ij,ij->ij", ((1, 3), (2, 3))),
    ("ij,jk->ik", ((0, 3), (3, 2))),
    ("ij,jk->ik", ((2, 0), (0, 3))),
)
# Subscripts of one operand: rearrangements and sums.
REARRANGED: tuple[tuple[str, str, Shape], ...] = (
    ("transpose", "ij->ji", (2, 3)),
    ("transpose", "ba", (2, 3)),
    ("sum", "ij->", (2, 3)),
    ("sum", "ij->j", (2, 3)),
    ("sum", "ii", (3, 3)),
    ("index", "ii->i", (3, 3)),
    ("index", "iji->ij", (2, 3, 2)),
)

PAIRS: tuple[tuple[str, str, tuple[tuple[Shape, Shape], ...]], ...] = (
    (
        "dot",
        "matmul",
        (
            ((3,), (3,)),
            ((2, 3), (3,)),
            ((3,), (3, 2)),
            ((2, 3), (3, 4)),
            ((2, 2, 3), (4, 3, 2)),
            ((3,), (2, 3, 2)),
            ((0, 3), (3, 2)),
        ),
    ),
    ("dot", "batch_matmul", (((2, 2, 3), (3,)),)),
    ("dot", "mul", (((), (3,)),)),
    ("inner", "matmul", (((3,), (3,)), ((2, 3), (4, 3)), ((2, 2, 3), (3,)))),
    ("inner", "mul", (((), (2,)),)),
    ("vdot", "matmul", (((3,), (3,)), ((2, 3), (3, 2)))),
    ("outer", "mul", (((2,), (3,)), ((2, 2), (3,)), ((0,), (3,)))),
    ("kron", "mul", (((2,), (3,)), ((2, 3), (3, 2)), ((2,), (2, 2)), ((2, 1, 2), (3,)))),
    ("cross", "mul", (((3,), (3,)), ((2, 3), (3,)), ((2, 1, 3), (4, 3)))),
    ("tensordot", "matmul", (((2, 3, 4), (3, 4, 2)), ((3, 4), (3, 4)))),
    ("vecdot", "mul", (((2, 3), (3,)),)),
    ("matvec", "matmul", (((2, 3), (3,)),)),
    ("matvec", "batch_matmul", (((2, 2, 3), (2, 3)), ((2, 3), (4, 3)))),
    ("vecmat", "batch_matmul", (((4, 2), (2, 3)), ((2, 2), (2, 2, 3)))),
)

# Other ways to call them, on two operands.
CALLS: tuple[tuple[str, str, dict[str, Any], Shape, Shape], ...] = (
    ("tensordot", "matmul", {"axes": 0}, (2,), (3, 2)),
    ("tensordot", "matmul", {"axes": 1}, (2, 3), (3, 2)),
    ("tensordot", "matmul", {"axes": ([0, 1], [1, 0])}, (2, 3), (3, 2)),
    ("tensordot", "matmul", {"axes": (-2, 1)}, (2, 3), (4, 2)),
    ("cross", "mul", {"axis": 0}, (3, 2), (3, 2)),
    ("cross", "mul", {"axisa": 0, "axisb": 1, "axisc": 0}, (3, 2), (2, 3)),
)

DIAGONALS: tuple[tuple[Shape, dict[str, int]], ...] = (
    ((3, 3), {}),
    ((2, 3), {"offset": 1}),
    ((2, 3), {"offset": -1}),
    ((2, 3), {"offset": 3}),
    ((2, 3, 2), {"axis1": 2, "axis2": 0}),
    ((0, 3), {}),
)


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from _einsums()
    for name, op, shapes in PAIRS:
        function, reference = _both(name)
        for a, b in shapes:
            inputs = (anywhere(*a), anywhere(*b))
            yield Case(op, f"{name}-{a}-{b}", function, inputs, reference=reference)
    for name, op, options, a, b in CALLS:
        function, reference = (partial(f, **options) for f in _both(name))
        inputs = (anywhere(*a), anywhere(*b))
        yield Case(op, f"{name}-{_text(options)}", function, inputs, reference=reference)
    for name, op in (("diagonal", "index"), ("trace", "sum")):
        for lengths, options in DIAGONALS:
            function, reference = (partial(f, **options) for f in _both(name))
            label = f"{name}-{lengths}-{_text(options)}"
            yield Case(op, label, function, (anywhere(*lengths),), reference=reference)
    yield Case(
        "matmul",
        "multi_dot",
        lambda *xs: products.multi_dot(xs),
        (anywhere(3), anywhere(3, 4), anywhere(4, 2), anywhere(2, 5)),
        reference=lambda *xs: xs[0] @ xs[1] @ xs[2] @ xs[3],
    )


def _einsums() -> Iterator[Case]:
    for spec, shapes in EINSUMS:
        yield Case(
            "einsum",
            f"{spec}-{shapes[0]}",
            partial(products.einsum, spec),
            tuple(anywhere(*lengths) for lengths in shapes),
            reference=partial(np.einsum, spec),
        )
    for op, spec, lengths in REARRANGED:
        yield Case(
            op,
            f"einsum-{spec}",
            partial(products.einsum, spec),
            (anywhere(*lengths),),
            reference=partial(np.einsum, spec),
        )
    yield Case(
        "einsum",
        "twice",
        lambda x: products.einsum("ij,kj->ik", x, x),
        (anywhere(2, 3),),
        reference=lambda x: x @ x.T,
    )
    yield Case(
        "einsum",
        "lists-of-labels",
        lambda a, b: products.einsum(a, [0, 1], b, [1, 2], [2, 0]),
        (anywhere(2, 3), anywhere(3, 4)),
        reference=lambda a, b: (a @ b).T,
    )
    yield Case(
        "einsum",
        "array-between",
        lambda a, b, c: products.einsum("ij,jk,kl", a, c, b),
        (anywhere(2, 2), anywhere(3, 2)),
        (np.array([[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]]),),
        reference=lambda a, b, c: a @ c @ b,
    )
    yield Case(
        "einsum",
        "infinite",
        partial(products.einsum, "i,i->i"),
        (exactly([0.0, 2.0]), exactly([1.0, inf])),
        expected=([1.0, inf], [0.0, 2.0]),
    )


def _both(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    function = getattr(products, name)
    return function, getattr(np, name, None) or _EARLIER[name]


# NumPy has these from 2.2 on.
_EARLIER: dict[str, Callable[..., Any]] = {
    "matvec": lambda a, b: np.einsum("...ij,...j->...i", a, b),
    "vecmat": lambda a, b: np.einsum("...i,...ij->...j", a, b),
}


def _text(options: dict[str, Any]) -> str:
    return "-".join(f"{k}={v}" for k, v in options.items()) or "plain"
