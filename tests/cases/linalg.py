"""Cases: Products, decompositions and norms."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import linalg, shape
from tapegraph.typed import Array
from tests.cases.case import (
    Case,
    Input,
    Shape,
    anywhere,
    exactly,
    inf,
    nonzero,
    operation,
)
from tests.cases.pairs import swapped

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


def _matrix_products() -> Iterator[Case]:
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
            swapped(operator.matmul),
            (anywhere(*lengths),),
            (np.array([[1.0, 2.0, 3.0]]),),
            reference=swapped(_einsum),
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


def _of_products() -> Iterator[Case]:
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
        lambda *xs: linalg.multi_dot(xs),
        (anywhere(3), anywhere(3, 4), anywhere(4, 2), anywhere(2, 5)),
        reference=lambda *xs: xs[0] @ xs[1] @ xs[2] @ xs[3],
    )


def _einsums() -> Iterator[Case]:
    for spec, shapes in EINSUMS:
        yield Case(
            "einsum",
            f"{spec}-{shapes[0]}",
            partial(linalg.einsum, spec),
            tuple(anywhere(*lengths) for lengths in shapes),
            reference=partial(np.einsum, spec),
        )
    for op, spec, lengths in REARRANGED:
        yield Case(
            op,
            f"einsum-{spec}",
            partial(linalg.einsum, spec),
            (anywhere(*lengths),),
            reference=partial(np.einsum, spec),
        )
    yield Case(
        "einsum",
        "twice",
        lambda x: linalg.einsum("ij,kj->ik", x, x),
        (anywhere(2, 3),),
        reference=lambda x: x @ x.T,
    )
    yield Case(
        "einsum",
        "lists-of-labels",
        lambda a, b: linalg.einsum(a, [0, 1], b, [1, 2], [2, 0]),
        (anywhere(2, 3), anywhere(3, 4)),
        reference=lambda a, b: (a @ b).T,
    )
    yield Case(
        "einsum",
        "array-between",
        lambda a, b, c: linalg.einsum("ij,jk,kl", a, c, b),
        (anywhere(2, 2), anywhere(3, 2)),
        (np.array([[1.0, 2.0, 3.0], [0.5, 0.0, -1.0]]),),
        reference=lambda a, b, c: a @ c @ b,
    )
    yield Case(
        "einsum",
        "infinite",
        partial(linalg.einsum, "i,i->i"),
        (exactly([0.0, 2.0]), exactly([1.0, inf])),
        expected=([1.0, inf], [0.0, 2.0]),
    )


def _both(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    function = operation(name)
    return function, getattr(np, name, None) or _EARLIER[name]


# NumPy has these from 2.2 on.
_EARLIER: dict[str, Callable[..., Any]] = {
    "matvec": lambda a, b: np.einsum("...ij,...j->...i", a, b),
    "vecmat": lambda a, b: np.einsum("...i,...ij->...j", a, b),
}


def _text(options: dict[str, Any]) -> str:
    return "-".join(f"{k}={v}" for k, v in options.items()) or "plain"


def invertible(*lengths: int) -> Input:
    """Sample square matrices far from singular ones."""
    return lambda rng: rng.uniform(-1.0, 1.0, lengths) + 3.0 * np.eye(lengths[-1])


def spread(*lengths: int) -> Input:
    """Sample matrices whose singular values are far apart, and positive."""
    scale = 2.0 * np.arange(1, lengths[-1] + 1)
    identity = np.eye(lengths[-2], lengths[-1])
    return lambda rng: (identity + rng.uniform(-0.2, 0.2, lengths)) * scale


def definite(*lengths: int) -> Input:
    """Sample symmetric positive-definite matrices with eigenvalues far apart."""

    def sample(rng: np.random.Generator) -> Array:
        x = rng.uniform(-0.5, 0.5, lengths)
        matrices: Array = x + x.swapaxes(-1, -2) + np.diag(2.0 * np.arange(1, lengths[-1] + 1))
        return matrices

    return sample


SQUARES: tuple[tuple[str, Shape], ...] = (
    ("matrix", (3, 3)),
    ("stack", (2, 3, 3)),
    ("number", (1, 1)),
    ("no-matrices", (0, 2, 2)),
)
RECTANGLES: tuple[tuple[str, Shape], ...] = (
    ("tall", (4, 2)),
    ("wide", (2, 3)),
    ("square", (3, 3)),
    ("stack", (2, 3, 2)),
    ("column", (3, 1)),
)

# Orders of matrix norms, and what computes them.
MATRIX_NORMS: tuple[tuple[str | float, str], ...] = (
    ("fro", "norm"),
    ("nuc", "svdvals"),
    (2, "svdvals"),
    (-2, "svdvals"),
    (1, "norm"),
    (-1, "norm"),
    (inf, "norm"),
    (-inf, "norm"),
)


def _of_decompositions() -> Iterator[Case]:
    """Yield the family's cases."""
    for label, lengths in SQUARES:
        yield from _of_a_square(label, lengths)
    for label, lengths in RECTANGLES:
        yield from _of_a_rectangle(label, lengths)
    yield from _systems()
    yield from _norms()
    yield from _singular()


def _linalg(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(np.linalg, name)
    return function


def _of_a_square(label: str, lengths: Shape) -> Iterator[Case]:
    for name in ("inv", "det"):
        run = operation(name)
        yield Case(name, label, run, (invertible(*lengths),), reference=_linalg(name))
    yield Case(
        "slogdet",
        label,
        lambda x: linalg.slogdet(x).logabsdet,
        (invertible(*lengths),),
        reference=lambda x: np.linalg.slogdet(x)[1],
    )
    yield Case(
        "slogdet",
        f"sign-{label}",
        lambda x: linalg.slogdet(-x).sign,
        (invertible(*lengths),),
        reference=lambda x: np.linalg.slogdet(-x)[0],
    )
    for upper in (False, True):
        yield Case(
            "cholesky",
            f"{label}-{'upper' if upper else 'lower'}",
            partial(_of_symmetric, upper=upper),
            (definite(*lengths),),
            reference=partial(_cholesky, upper=upper),
        )
    for triangle in "LU":
        options = {"UPLO": triangle}
        yield Case(
            "eigvalsh",
            f"{label}-{triangle}",
            partial(linalg.eigvalsh, **options),
            (definite(*lengths),),
            reference=partial(np.linalg.eigvalsh, **options),
        )
        for part, run in (("values", _eigenvalues), ("vectors", _eigenvectors), ("root", _root)):
            yield Case(
                "eigh",
                f"{part}-{label}-{triangle}",
                partial(run, linalg.eigh, **options),
                (definite(*lengths),),
                reference=partial(run, np.linalg.eigh, **options),
            )
    for power, op in ((-2, "inv"), (2, "matmul"), (5, "matmul")):
        yield Case(
            op if len(lengths) == 2 or power < 0 else "batch_matmul",
            f"matrix_power-{power}-{label}",
            partial(linalg.matrix_power, n=power),
            (invertible(*lengths),),
            reference=partial(np.linalg.matrix_power, n=power),
        )


def _of_symmetric(x: Any, upper: bool) -> Any:
    """Factor the symmetric part: the derivative by one element moves its mirror image too."""
    return linalg.cholesky((x + x.swapaxes(-1, -2)) / 2, upper=upper)


def _cholesky(x: Array, upper: bool) -> Array:
    factor = np.linalg.cholesky((x + x.swapaxes(-1, -2)) / 2)
    return factor.swapaxes(-1, -2) if upper else factor


def _eigenvalues(eigh: Callable[..., Any], x: Any, **options: Any) -> Any:
    return eigh(x, **options)[0]


def _eigenvectors(eigh: Callable[..., Any], x: Any, **options: Any) -> Any:
    return eigh(x, **options)[1] ** 2


def _root(eigh: Callable[..., Any], x: Any, **options: Any) -> Any:
    """Compute the root of a matrix, in which the vectors' signs cancel."""
    values, vectors = eigh(x, **options)
    return (vectors * (values**0.5)[..., None, :]) @ vectors.transpose(
        (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)
    )


def _of_a_rectangle(label: str, lengths: Shape) -> Iterator[Case]:
    for name in ("svdvals", "pinv"):
        run = operation(name)
        yield Case(name, label, run, (spread(*lengths),), reference=_linalg(name))
    for part, of_svd in (
        ("U", lambda u, s, vh: u**2),
        ("S", lambda u, s, vh: s),
        ("Vh", lambda u, s, vh: vh**2),
        ("product", lambda u, s, vh: (u * (s**2)[..., None, :]) @ vh),
        ("sum", lambda u, s, vh: (u.sum(axis=-2) * vh.sum(axis=-1)) / s),
    ):
        yield Case(
            "svd",
            f"{part}-{label}",
            partial(_svd, linalg.svd, of_svd),
            (spread(*lengths),),
            reference=partial(_svd, np.linalg.svd, of_svd),
        )


def _svd(svd: Callable[..., Any], of_svd: Callable[..., Any], x: Any) -> Any:
    return of_svd(*svd(x, full_matrices=False))


def _systems() -> Iterator[Case]:
    for a, b in (
        ((3, 3), (3,)),
        ((3, 3), (3, 2)),
        ((2, 3, 3), (3,)),
        ((2, 3, 3), (3, 2)),
        ((3, 3), (2, 3, 2)),
        ((2, 1, 3, 3), (4, 3, 2)),
        ((2, 2), (2, 0)),
    ):
        inputs = (invertible(*a), anywhere(*b))
        yield Case("solve", f"{a}-{b}", linalg.solve, inputs, reference=np.linalg.solve)
    for label, run in (
        ("array-left", lambda x, c: linalg.solve(c, x)),
        ("array-right", lambda x, c: linalg.solve(x, c)),
    ):
        yield Case("solve", label, run, (invertible(2, 2),), (np.array([[2.0, 1.0], [0.5, 3.0]]),))
    for a, b in (((4, 2), (4,)), ((4, 2), (4, 3)), ((2, 3), (2,)), ((2, 2), (2, 1))):
        yield Case(
            "lstsq",
            f"lstsq-{a}-{b}",
            lambda a, b: linalg.lstsq(a, b)[0],
            (spread(*a), anywhere(*b)),
            reference=lambda a, b: np.linalg.lstsq(a, b)[0],
        )
    yield Case(
        "lstsq",
        "lstsq-residuals",
        lambda a, b: linalg.lstsq(a, b)[1],
        (spread(4, 2), anywhere(4, 2)),
        reference=lambda a, b: np.linalg.lstsq(a, b)[1],
    )


def _norms() -> Iterator[Case]:
    for power in (None, 2, 1, 3, 1.5, inf, -inf, -1):
        yield _normed("norm", f"{power}-vector", (4,), ord=power)
        yield _normed("norm", f"{power}-rows", (2, 3), ord=power, axis=1)
        yield _normed("norm", f"{power}-kept", (2, 3, 2), ord=power, axis=-2, keepdims=True)
    for ord, op in MATRIX_NORMS:
        yield _normed(op, f"{ord}-matrix", (2, 3), ord=ord)
        yield _normed(op, f"{ord}-stack", (2, 3, 2), ord=ord, axis=(2, 0))
        yield _normed(op, f"{ord}-matrices-kept", (2, 3, 2), ord=ord, axis=(0, 1), keepdims=True)
        yield _normed(op, f"matrix_norm-{ord}", (2, 3, 2), function="matrix_norm", ord=ord)
    yield _normed("norm", "all", (2, 3, 2))
    yield _normed("norm", "no-rows", (0, 3), axis=1)
    yield _normed("norm", "nothing", (2, 0), axis=1)
    for power in (2, 3, inf):
        label = f"vector_norm-{power}"
        yield _normed("norm", label, (2, 3, 2), function="vector_norm", axis=(0, 2), ord=power)


def _normed(op: str, label: str, lengths: Shape, function: str = "norm", **options: Any) -> Case:
    return Case(
        op,
        f"norm-{label}",
        partial(operation(function), **options),
        (nonzero(*lengths),),
        reference=partial(_linalg(function), **options),
    )


def _singular() -> Iterator[Case]:
    norm = linalg.norm
    zeros = [0.0, 0.0, 0.0]
    for label, ord, point, gradient in (
        ("zero", 2, zeros, zeros),
        ("zero-cubes", 3, zeros, zeros),
        ("zero-sizes", 1, zeros, zeros),
        ("zero-largest", inf, zeros, zeros),
        ("ties", inf, [2.0, -2.0, 1.0], [0.5, -0.5, 0.0]),
        ("ties-for-the-smallest", -inf, [1.0, -3.0, -1.0], [0.5, 0.0, -0.5]),
        ("zero-among-others", 1, [0.0, -3.0, 1.0], [0.0, -1.0, 1.0]),
    ):
        yield Case("norm", label, partial(norm, ord=ord), (exactly(point),), expected=(gradient,))
    # The gradient is the matrix of cofactors where there is no inverse, too.
    for label, a, cofactors in (
        ("rank-one", [[1.0, 2.0], [2.0, 4.0]], [[4.0, -2.0], [-2.0, 1.0]]),
        ("zero", [[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]),
        ("zero-row", [[0.0, 0.0], [3.0, 1.0]], [[1.0, -3.0], [0.0, 0.0]]),
    ):
        yield Case("det", label, linalg.det, (exactly(a),), expected=(cofactors,))
    # The sum of equal values has a gradient, and each of them alone has none.
    for name, run in (
        ("eigvalsh", linalg.eigvalsh),
        ("svdvals", linalg.svdvals),
        ("eigh", lambda x: linalg.eigh(x).eigenvalues),
        ("svd", lambda x: linalg.svd(x).S),
    ):
        yield Case(name, "equal", run, (exactly(np.eye(3)),), expected=(np.eye(3),))


def _convolutions() -> Iterator[Case]:
    for mode in ("full", "same", "valid"):
        for label, a, v in (("long", 5, 3), ("short", 2, 5), ("alike", 3, 3), ("one", 4, 1)):
            run = partial(linalg.convolve, mode=mode)
            reference = partial(_convolved, mode=mode)
            inputs = (anywhere(a), anywhere(v))
            yield Case("convolve", f"{mode}-{label}", run, inputs, reference=reference)


def _convolved(a: Array, v: Array, mode: str) -> Array:
    """Multiply by the matrix of a moved sequence, which NumPy's own function does not."""
    whole = np.zeros((len(a) + len(v) - 1, len(a)), np.result_type(a, v))
    for i in range(len(a)):
        whole[i : i + len(v), i] = v
    longer, shorter = max(len(a), len(v)), min(len(a), len(v))
    starts = {"full": 0, "same": (shorter - 1) // 2, "valid": shorter - 1}
    lengths = {"full": len(whole), "same": longer, "valid": longer - shorter + 1}
    product: Array = (whole @ a)[starts[mode] :][: lengths[mode]]
    return product


def cases() -> Iterator[Case]:
    """Yield the family's cases."""
    yield from _matrix_products()
    yield from _of_products()
    yield from _of_decompositions()
    yield from _convolutions()
