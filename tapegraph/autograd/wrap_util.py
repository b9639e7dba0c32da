"""`unary_to_nary`: extend operators on unary functions to functions of several arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, Protocol, TypeVar, cast, overload

import numpy as np

from tapegraph.errors import check_callable, message
from tapegraph.transforms.levels import positions
from tapegraph.typed import Array, Fun, P, Pytree

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Position = int | Sequence[int]


class Derivative(Protocol[P]):
    """A derivative with respect to the first argument, which decides the result's type."""

    @overload
    def __call__(self, x: float, /, *args: P.args, **kwargs: P.kwargs) -> np.float64: ...
    @overload
    def __call__(self, x: Array, /, *args: P.args, **kwargs: P.kwargs) -> Array: ...
    @overload
    def __call__(self, x: Pytree, /, *args: P.args, **kwargs: P.kwargs) -> Pytree: ...


class OfNumbers(Protocol):
    """The type of `grad` and `elementwise_grad`."""

    @overload
    def __call__(
        self, fun: Callable[Concatenate[Any, P], Any], argnum: Literal[0] = 0
    ) -> Derivative[P]: ...
    @overload
    def __call__(self, fun: Fun, argnum: Position) -> Fun: ...


class Nary(Protocol[R_co]):
    """The type of an operator on functions of several arguments, by its result at a point."""

    def __call__(
        self, fun: Fun, argnum: Position = 0, *op_args: object, **op_kwargs: object
    ) -> Callable[..., R_co]:
        """Return the function of several arguments."""


def of_numbers(operator: Fun) -> OfNumbers:
    return cast("OfNumbers", operator)


def unary_to_nary(unary_operator: Callable[..., R]) -> Nary[R]:
    """Extend an operator ``op(fun, x)`` on unary functions to functions of several arguments.

    :returns: ``op(fun, argnum=0)``, a function of ``fun``'s arguments; ``x`` is the one at a
        position, negative from the end, or the tuple of those in a list or tuple of positions.
    """

    def nary_operator(
        fun: Fun, argnum: object = 0, *op_args: object, **op_kwargs: object
    ) -> Pytree:
        name = get_name(unary_operator)
        check_callable(name, fun)
        several = isinstance(argnum, (tuple, list))
        wanted = [] if several and not argnum else positions(name, argnum)
        title = get_name(fun)

        @functools.wraps(fun)
        def nary(*args: Pytree, **kwargs: object) -> Pytree:
            for place in wanted:
                if not -len(args) <= place < len(args):
                    received = f"argnum {place} and {len(args)} positional arguments"
                    raise IndexError(message(name, received, "an argument at that position"))

            def unary(x: Pytree) -> Pytree:
                given = list(args)
                for place, value in zip(wanted, x if several else (x,), strict=True):
                    given[place] = value
                return fun(*given, **kwargs)

            unary.__name__ = title
            x = tuple(args[i] for i in wanted) if several else args[wanted[0]]
            return unary_operator(unary, x, *op_args, **op_kwargs)

        nary.__name__ = f"{name}_of_{title}_wrt_argnum_{argnum}"
        nary.__doc__ = (
            f"    {name} of function {title} with respect to argument number {argnum}. "
            f"Takes what {title} takes."
        )
        return nary

    # Not `functools.wraps`, by whose ``__wrapped__`` it would have the operator's signature.
    for attribute in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(nary_operator, attribute, getattr(unary_operator, attribute, None))
    return cast("Nary[R]", nary_operator)


def get_name(f: Fun) -> str:
    return str(getattr(f, "__name__", "[unknown name]"))


def get_doc(f: Fun) -> str:
    return str(getattr(f, "__doc__", ""))
