"""Check derivatives by finite differences: `check_grads`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from tapegraph.autograd.core import make_jvp, make_vjp, vspace
from tapegraph.autograd.wrap_util import get_name, unary_to_nary
from tapegraph.typed import Fun, Pytree

TOL = RTOL = EPS = 1e-6


def scalar_close(a: float, b: float) -> bool:
    return bool(abs(a - b) < TOL or abs(a - b) / abs(a + b) < RTOL)


def make_numerical_jvp(f: Fun, x: Pytree) -> Fun:
    """Return the derivative along a direction by central differences."""
    inside, outside = vspace(x), vspace(f(x))

    def jvp(v: Pytree) -> Pytree:
        after = f(inside.add(x, inside.scalar_mul(v, EPS / 2)))
        before = f(inside.add(x, inside.scalar_mul(v, -EPS / 2)))
        difference = outside.add(after, outside.scalar_mul(before, -1.0))
        return outside.scalar_mul(difference, 1.0 / EPS)

    return jvp


def check_vjp(f: Fun, x: Pytree) -> None:
    """Check the pullback of a function at a point along random directions.

    :raises AssertionError: It differs from central differences, or in structure from ``x``.
    """
    vjp, value = make_vjp(f, x)
    direction, cotangent = vspace(x).randn(), vspace(value).randn()
    found = vspace(x).covector(vjp(vspace(value).covector(cotangent)))
    _check_space(found, x, get_name(f))
    exact = vspace(x).inner_prod(direction, found)
    numeric = vspace(value).inner_prod(cotangent, make_numerical_jvp(f, x)(direction))
    if not scalar_close(numeric, exact):
        raise AssertionError(
            f"Derivative (VJP) check of {get_name(f)} failed with arg {x}: received {exact}; "
            f"expected {numeric}, by differences"
        )


def check_jvp(f: Fun, x: Pytree) -> None:
    """Check the derivative of a function at a point along a random direction, as `check_vjp`."""
    direction = vspace(x).randn()
    check_equivalent(make_jvp(f, x)(direction)[1], make_numerical_jvp(f, x)(direction))


def check_equivalent(x: Pytree, y: Pytree) -> None:
    """Check that two values have one structure and, along a random direction, the same numbers."""
    _check_space(x, y, "check_equivalent")
    direction = vspace(x).randn()
    first, second = (vspace(x).inner_prod(part, direction) for part in (x, y))
    if not scalar_close(first, second):
        raise AssertionError(f"check_equivalent: received {x}; expected {y}")


def _check_space(x: Pytree, y: Pytree, name: str) -> None:
    if vspace(x) != vspace(y):
        raise AssertionError(f"{name}: received {vspace(x)}; expected {vspace(y)}")


@unary_to_nary
def check_grads(f: Fun, x: Pytree, modes: Sequence[str] = ("fwd", "rev"), order: int = 2) -> None:
    """Check the derivatives of a function against central differences, in both modes.

    :param modes, order: ``"fwd"`` and ``"rev"``, combined at higher orders; the highest order.
    :raises AssertionError: A derivative differs.
    :raises ValueError: A mode is neither.
    """
    if not set(modes) <= {"fwd", "rev"}:
        raise ValueError(f"check_grads: received modes {list(modes)}; expected 'fwd' or 'rev'")
    if "fwd" in modes:
        check_jvp(f, x)
        if order > 1:

            def slope(x: Pytree, v: Pytree) -> Pytree:
                return make_jvp(f, x)(v)[1]

            slope.__name__ = f"jvp_{get_name(f)}"
            check_grads(slope, (0, 1), modes, order=order - 1)(x, vspace(x).randn())
    if "rev" in modes:
        check_vjp(f, x)
        if order > 1:

            def pulled(x: Pytree, v: Pytree) -> Pytree:
                return make_vjp(f, x)[0](v)

            pulled.__name__ = f"vjp_{get_name(f)}"
            check_grads(pulled, (0, 1), modes, order=order - 1)(x, vspace(f(x)).randn())


def combo_check(fun: Fun, *args: Pytree, **kwargs: Any) -> Callable[..., None]:
    """Return `check_grads` for every combination of lists of arguments."""

    def check(*choices: Sequence[Pytree], **options: Sequence[Pytree]) -> None:
        for given in itertools.product(*choices):
            for values in itertools.product(*options.values()):
                named = dict(zip(options, values, strict=True))
                check_grads(fun, *args, **kwargs)(*given, **named)

    return check
