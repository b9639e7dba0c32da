"""Products with strong zeros: a zero times anything is zero, infinities and NaN too.

``absorbs`` says whether the first and the second factor's zeros are strong; an infinite divisor
is such a zero. They are array code for arrays, Tensors, Duals and graph symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from tapegraph.ops.elementwise import complex_of, from_parts
from tapegraph.ops.linalg import aligned, terms_of
from tapegraph.recording.op import ALL, Op, OpKind
from tapegraph.typed import Array, DuckArray, Fun

Absorbs: TypeAlias = "tuple[bool, bool]"
BOTH = (True, True)


def times(a: Array, b: Array, absorbs: Absorbs = BOTH) -> Array:
    """Multiply number by number; complex arrays by parts, each with its own zeros."""
    if (
        isinstance(a, np.ndarray)
        and isinstance(b, np.ndarray)
        and "c" in (a.dtype.kind, b.dtype.kind)
    ):
        return _by_parts(times, a, b, absorbs)
    first, second = factors(a, b, absorbs)
    return first * second


def factors(a: Array, b: Array, absorbs: Absorbs) -> tuple[Array, Array]:
    """Return the factors with 0 for a number that a zero absorbs."""
    return (
        _tamed(a, np.isfinite, b != 0, 0.0) if absorbs[1] else a,
        _tamed(b, np.isfinite, a != 0, 0.0) if absorbs[0] else b,
    )


def over(a: Array, b: Array, absorbs: Absorbs = BOTH) -> Array:
    first = _tamed(a, np.isfinite, np.logical_not(np.isinf(b)), 0.0) if absorbs[1] else a
    return first / divisor(a, b, absorbs)


def divisor(a: Array, b: Array, absorbs: Absorbs) -> Array:
    """Return the divisor, with inf where a zero absorbs its reciprocal."""
    # No NaN is above zero.
    return _tamed(b, lambda x: abs(x) > 0, a != 0, math.inf) if absorbs[0] else b


def _tamed(x: Array, is_tame: Callable[[Array], Array], counts: Array, instead: float) -> Array:
    keep = np.logical_or(counts, is_tame(x))
    return x if _everywhere(keep) else np.where(keep, x, instead)


def _everywhere(places: Array) -> bool:
    # In a capture they are a Tensor: another run may have others.
    return isinstance(places, (np.ndarray, np.generic)) and bool(places.all())


def strong_matmul(
    a: Array,
    b: Array,
    absorbs: Absorbs = BOTH,
    product: Fun = np.matmul,
) -> Array:
    """Multiply matrices; for factors that are not finite, count the inf, -inf and NaN products."""
    if "c" in (a.dtype.kind, b.dtype.kind):
        return _by_parts(partial(strong_matmul, product=product), a, b, absorbs)

    def count(of_a: Array, of_b: Array) -> Array:
        return product(np.where(of_a, 1.0, 0.0), np.where(of_b, 1.0, 0.0))

    nan = count(np.isnan(a), b != 0) + count(a != 0, np.isnan(b))
    if not absorbs[1]:
        nan = nan + count(~np.isfinite(a), b == 0)
    if not absorbs[0]:
        nan = nan + count(a == 0, ~np.isfinite(b))
    plus, minus = (
        count(a == inf, b > 0)
        + count(a == -inf, b < 0)
        + count(a > 0, b == inf)
        + count(a < 0, b == -inf)
        for inf in (math.inf, -math.inf)
    )
    total = product(np.where(np.isfinite(a), a, 0.0), np.where(np.isfinite(b), b, 0.0))
    total = np.where(plus > 0, math.inf, total)
    total = np.where(minus > 0, -math.inf, total)
    return np.where((nan > 0) | ((plus > 0) & (minus > 0)), math.nan, total)


def strong_contract(
    spec: str, operands: Sequence[Array], place: int, absorbs: Absorbs = BOTH
) -> Array:
    """Contract by an explicit spec, element by element."""
    terms, output = terms_of(spec)
    labels = output + "".join(sorted(set("".join(terms)) - set(output)))
    factors = [aligned(x, term, labels) for x, term in zip(operands, terms, strict=True)]
    total = factors.pop(place)
    for factor in factors:
        total = times(total, factor, absorbs)
    return total.sum(axis=tuple(range(len(output), len(labels))))


def _by_parts(product: Fun, a: Array, b: Array, absorbs: Absorbs) -> Array:
    (a, ai), (b, bi) = ((x.real, x.imag if x.dtype.kind == "c" else None) for x in (a, b))
    real, imag = product(a, b, absorbs), []
    if ai is not None:
        imag.append(product(ai, b, absorbs))
    if bi is not None:
        imag.append(product(a, bi, absorbs))
        if ai is not None:
            real = real - product(ai, bi, absorbs)
    join: Fun = complex_of if isinstance(real, np.ndarray) else from_parts
    return join(real, sum(imag[1:], imag[0]))


def _forward(plain: np.ufunc, strong: Fun) -> Fun:
    """Return a product with strong zeros that looks at the plain one first."""

    def run(a: DuckArray, b: DuckArray, *, absorbs: Absorbs) -> DuckArray:
        out = plain(a, b)
        if isinstance(out, (np.ndarray, np.generic)) and np.isfinite(out).all():
            return out
        # A number that overflows in the precision of the result is infinite.
        a, b = (x if hasattr(x, "dtype") else np.asarray(x, out.dtype) for x in (a, b))
        return strong(a, b, absorbs)

    return run


# Where no zero meets infinity or NaN, the plain products give the same.
MUL_STRONG, DIV_STRONG = (
    Op(
        f"{name}_strong",
        _forward(ufunc, strong),
        kind=OpKind.ELEMENTWISE,
        takes_complex=True,
        reads=(ALL, ALL),
        plain=ufunc,
    )
    for name, ufunc, strong in (("mul", np.multiply, times), ("div", np.divide, over))
)
