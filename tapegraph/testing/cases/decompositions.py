"""Cases of ``tapegraph/ops/decompositions.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from tapegraph.ops import decompositions
from tapegraph.testing.cases.case import Case, Input, Shape, anywhere, exactly, inf, nonzero
from tapegraph.typed import Array


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


def cases() -> Iterator[Case]:
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
        run = getattr(decompositions, name)
        yield Case(name, label, run, (invertible(*lengths),), reference=_linalg(name))
    yield Case(
        "slogdet",
        label,
        lambda x: decompositions.slogdet(x).logabsdet,
        (invertible(*lengths),),
        reference=lambda x: np.linalg.slogdet(x)[1],
    )
    yield Case(
        "slogdet",
        f"sign-{label}",
        lambda x: decompositions.slogdet(-x).sign,
        (invertible(*lengths),),
        reference=lambda x: np.linalg.slogdet(-x)[0],
    )
    for upper in (False, True):
        yield Case(
            "cholesky",
            f"{label}-{'upper' if upper else 'lower'}",
            partial(decompositions.cholesky, upper=upper),
            (definite(*lengths),),
            reference=partial(_cholesky, upper=upper),
        )
    for triangle in "LU":
        options = {"UPLO": triangle}
        yield Case(
            "eigvalsh",
            f"{label}-{triangle}",
            partial(decompositions.eigvalsh, **options),
            (definite(*lengths),),
            reference=partial(np.linalg.eigvalsh, **options),
        )
        for part, run in (("values", _eigenvalues), ("vectors", _eigenvectors), ("root", _root)):
            yield Case(
                "eigh",
                f"{part}-{label}-{triangle}",
                partial(run, decompositions.eigh, **options),
                (definite(*lengths),),
                reference=partial(run, np.linalg.eigh, **options),
            )
    for power, op in ((-2, "inv"), (2, "matmul"), (5, "matmul")):
        yield Case(
            op if len(lengths) == 2 or power < 0 else "batch_matmul",
            f"matrix_power-{power}-{label}",
            partial(decompositions.matrix_power, n=power),
            (invertible(*lengths),),
            reference=partial(np.linalg.matrix_power, n=power),
        )


def _cholesky(x: Array, upper: bool) -> Array:
    factor = np.linalg.cholesky(x)
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
        run = getattr(decompositions, name)
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
            partial(_svd, decompositions.svd, of_svd),
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
        yield Case("solve", f"{a}-{b}", decompositions.solve, inputs, reference=np.linalg.solve)
    for label, run in (
        ("array-left", lambda x, c: decompositions.solve(c, x)),
        ("array-right", lambda x, c: decompositions.solve(x, c)),
    ):
        yield Case("solve", label, run, (invertible(2, 2),), (np.array([[2.0, 1.0], [0.5, 3.0]]),))
    for a, b in (((4, 2), (4,)), ((4, 2), (4, 3)), ((2, 3), (2,)), ((2, 2), (2, 1))):
        yield Case(
            "pinv",
            f"lstsq-{a}-{b}",
            lambda a, b: decompositions.lstsq(a, b)[0],
            (spread(*a), anywhere(*b)),
            reference=lambda a, b: np.linalg.lstsq(a, b)[0],
        )
    yield Case(
        "pinv",
        "lstsq-residuals",
        lambda a, b: decompositions.lstsq(a, b)[1],
        (spread(4, 2), anywhere(4, 2)),
        reference=lambda a, b: np.linalg.lstsq(a, b)[1],
    )


def _norms() -> Iterator[Case]:
    for power in (None, 2, 1, 3, 1.5, inf, -inf, -1):
        yield _norm("norm", f"{power}-vector", (4,), ord=power)
        yield _norm("norm", f"{power}-rows", (2, 3), ord=power, axis=1)
        yield _norm("norm", f"{power}-kept", (2, 3, 2), ord=power, axis=-2, keepdims=True)
    for ord, op in MATRIX_NORMS:
        yield _norm(op, f"{ord}-matrix", (2, 3), ord=ord)
        yield _norm(op, f"{ord}-stack", (2, 3, 2), ord=ord, axis=(2, 0))
        yield _norm(op, f"{ord}-matrices-kept", (2, 3, 2), ord=ord, axis=(0, 1), keepdims=True)
        yield _norm(op, f"matrix_norm-{ord}", (2, 3, 2), function="matrix_norm", ord=ord)
    yield _norm("norm", "all", (2, 3, 2))
    yield _norm("norm", "no-rows", (0, 3), axis=1)
    yield _norm("norm", "nothing", (2, 0), axis=1)
    for power in (2, 3, inf):
        label = f"vector_norm-{power}"
        yield _norm("norm", label, (2, 3, 2), function="vector_norm", axis=(0, 2), ord=power)


def _norm(op: str, label: str, lengths: Shape, function: str = "norm", **options: Any) -> Case:
    return Case(
        op,
        f"norm-{label}",
        partial(getattr(decompositions, function), **options),
        (nonzero(*lengths),),
        reference=partial(_linalg(function), **options),
    )


def _singular() -> Iterator[Case]:
    norm = decompositions.norm
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
        yield Case("det", label, decompositions.det, (exactly(a),), expected=(cofactors,))
    # The sum of equal values has a gradient, and each of them alone has none.
    for name, run in (
        ("eigvalsh", decompositions.eigvalsh),
        ("svdvals", decompositions.svdvals),
        ("eigh", lambda x: decompositions.eigh(x).eigenvalues),
        ("svd", lambda x: decompositions.svd(x).S),
    ):
        yield Case(name, "equal", run, (exactly(np.eye(3)),), expected=(np.eye(3),))
