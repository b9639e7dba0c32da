"""`scipy.linalg`, differentiable."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.autograd.core import defjvp, defvjp
from tapegraph.autograd.scipy import formula_of, passed_on, primitive_of
from tapegraph.typed import Cotangent, DuckArray

_in_linalg = formula_of("linalg")

solve_sylvester = primitive_of("linalg", "solve_sylvester")


def _adjoint(a: DuckArray, b: DuckArray, g: Cotangent) -> DuckArray:
    """Return the cotangent of the right-hand side of ``a x + x b = q``."""
    return solve_sylvester(np.transpose(a), np.transpose(b), g)


defvjp(
    solve_sylvester,
    lambda ans, a, b, q: lambda g: -_adjoint(a, b, g) @ np.transpose(ans),
    lambda ans, a, b, q: lambda g: -np.transpose(ans) @ _adjoint(a, b, g),
    lambda ans, a, b, q: lambda g: _adjoint(a, b, g),
)
defjvp(
    solve_sylvester,
    lambda g, ans, a, b, q: solve_sylvester(a, b, -g @ ans),
    lambda g, ans, a, b, q: solve_sylvester(a, b, -ans @ g),
    lambda g, ans, a, b, q: solve_sylvester(a, b, g),
)

sqrtm = primitive_of("linalg", "sqrtm")
defvjp(sqrtm, lambda ans, a: lambda g: _adjoint(ans, ans, g))
defjvp(sqrtm, lambda g, ans, a: solve_sylvester(ans, ans, g))

expm = primitive_of("linalg", "expm")


def _along(a: DuckArray, g: Cotangent) -> DuckArray:
    """Return the derivative of ``expm`` at ``a`` along ``g``: a block of a larger exponential."""
    n = np.shape(a)[-1]
    upper = np.concatenate((a, g), axis=-1)
    lower = np.concatenate((np.zeros(np.shape(a)), a), axis=-1)
    return expm(np.concatenate((upper, lower), axis=-2))[..., :n, n:]


defvjp(expm, lambda ans, a: lambda g: _along(np.swapaxes(a, -1, -2), g))
defjvp(expm, lambda g, ans, a: _along(a, g))


@_in_linalg
def solve_triangular(
    a: DuckArray,
    b: DuckArray,
    trans: object = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    **_: object,
) -> DuckArray:
    """Solve ``a x = b`` for a triangular ``a``, whose other triangle is not read."""
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        a = np.where(np.eye(a.shape[-1], dtype=bool), 1.0, a)
    if trans in (1, 2, "T", "C"):
        a = np.transpose(np.conj(a) if trans in (2, "C") else a)
    return np.linalg.solve(a, b)


@_in_linalg
def solve_banded(l_and_u: tuple[int, int], ab: DuckArray, b: DuckArray, **_: object) -> DuckArray:
    """Solve ``a x = b`` for a banded ``a`` whose diagonals are the rows of ``ab``."""
    lower, upper = l_and_u
    n = np.shape(ab)[-1]
    i, j = np.indices((n, n))
    row = upper + i - j
    inside = (row >= 0) & (row <= lower + upper)
    return np.linalg.solve(np.where(inside, ab[np.where(inside, row, 0), j], 0.0), b)


def __getattr__(name: str) -> Any:
    return passed_on("linalg", name)
