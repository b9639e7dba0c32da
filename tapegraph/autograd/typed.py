"""What type checkers are told of the differential operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, Protocol, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from tapegraph.typed import P

R_co = TypeVar("R_co", covariant=True)
Position = int | Sequence[int]


class Derivative(Protocol[P]):
    """A derivative by the first argument, which decides what comes out."""

    @overload
    def __call__(self, x: float, /, *args: P.args, **kwargs: P.kwargs) -> np.float64: ...
    @overload
    def __call__(
        self, x: npt.NDArray[Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> npt.NDArray[Any]: ...
    @overload
    def __call__(self, x: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any: ...


class OfNumbers(Protocol):
    """The type of `grad` and `elementwise_grad`."""

    @overload
    def __call__(
        self, fun: Callable[Concatenate[Any, P], Any], argnum: Literal[0] = 0
    ) -> Derivative[P]: ...
    @overload
    def __call__(self, fun: Callable[..., Any], argnum: Position) -> Callable[..., Any]: ...


class Nary(Protocol[R_co]):
    """The type of an operator on functions of several arguments, by what it gives at a point."""

    def __call__(
        self, fun: Callable[..., Any], argnum: Position = 0, *op_args: Any, **op_kwargs: Any
    ) -> Callable[..., R_co]: ...


def of_numbers(operator: Callable[..., Any]) -> OfNumbers:
    """Type an operator whose results are as its arguments are."""
    return cast("OfNumbers", operator)
