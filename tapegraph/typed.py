"""The types of arrays and of what converts to them, which name no class of the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import Any, Literal, ParamSpec, Protocol, SupportsIndex, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

P = ParamSpec("P")
# Numbers, arrays, tensors and duals, and dicts, lists and tuples of them.
Pytree: TypeAlias = Any
T_co = TypeVar("T_co", covariant=True)


# NumPy's operands

Array: TypeAlias = npt.NDArray[Any]
# The gradient of a loss with respect to a value. Rules and sweeps are array code, typed for arrays:
# the tensors, batches and tracers that they run on as well compute like one.
Cotangent: TypeAlias = Array
DType: TypeAlias = np.dtype[Any]

# Operands of array code

# An array or a number, or an object that computes as one: a tensor, a dual, a batch or a tracer.
DuckArray: TypeAlias = Any
# A function of such, a user's or a rule.
Fun: TypeAlias = Callable[..., Any]

# Inputs


class SupportsArray(Protocol):
    """An object that converts itself to an array."""

    def __array__(self) -> npt.NDArray[Any]: ...


class Nested(Protocol[T_co]):
    """Lists and tuples of any depth; not strings, whose items are strings again."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> T_co | Nested[T_co]: ...
    def __contains__(self, item: object, /) -> bool: ...
    def __iter__(self) -> Iterator[T_co | Nested[T_co]]: ...
    def __reversed__(self) -> Iterator[T_co | Nested[T_co]]: ...
    def count(self, value: Any, /) -> int: ...
    def index(self, value: Any, /) -> int: ...


# Real numbers in any form, and tensors; not a `Dual` or a `Value`, whose arithmetic is their own.
ArrayLike: TypeAlias = complex | SupportsArray | Nested[complex | SupportsArray]
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None
Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
AxisIndex: TypeAlias = (
    SupportsIndex
    | slice
    | EllipsisType
    | SupportsArray
    | Nested[SupportsIndex | SupportsArray]
    | None
)
Index: TypeAlias = AxisIndex | tuple[AxisIndex, ...]
EinsumLabels: TypeAlias = Sequence[int | EllipsisType]
Backend: TypeAlias = Literal["auto", "tensorflow", "native"]
Forward: TypeAlias = Literal["numpy", "tensorflow"]
Xla: TypeAlias = bool | Literal["auto"]
