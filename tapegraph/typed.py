"""The types of public functions: ``x: Kind | ArrayLike`` in, and ``Kind`` out.

`Kind` is a `Tensor`, or a `Dual` for a `Dual`; `AnyKind` a `Value` too. To NumPy's own stubs
``np.exp(x)`` is an array, so a type-checked program calls ``tg.exp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    overload,
)

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import typing_extensions
    from typing_extensions import NamedTuple

    from tapegraph.tensors.array_methods import ArrayMethods
    from tapegraph.tensors.dual import Dual as Dual
    from tapegraph.tensors.tensor import Tensor as Tensor
    from tapegraph.tensors.value import Number
    from tapegraph.tensors.value import Value as Value

    # Inferred from an argument that is of the kind itself; of what is `ArrayLike` the default.
    Kind = typing_extensions.TypeVar("Kind", bound="ArrayMethods", default="Tensor")
    AnyKind = typing_extensions.TypeVar("AnyKind", bound="ArrayMethods | Value", default="Tensor")
else:  # of types that nothing is checked by when the program runs
    Kind = AnyKind = Tensor = Dual = Value = Any

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
Operand: TypeAlias = "ArrayLike | ArrayMethods"
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


class OfMany(Protocol):
    """A user's function of any number of arrays."""

    __name__: str

    def __call__(self, /, *arrays: Kind | ArrayLike, **attrs: object) -> Kind: ...


class Derivative(Protocol[P]):
    """The result of `grad`: differentiates with respect to the first argument, of its kind."""

    __name__: str

    @overload
    def __call__(self, x: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor: ...
    @overload
    def __call__(self, x: Dual, /, *args: P.args, **kwargs: P.kwargs) -> Tensor | Dual: ...
    @overload
    def __call__(self, x: Number, /, *args: P.args, **kwargs: P.kwargs) -> float: ...
    @overload
    def __call__(self, x: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> npt.NDArray[Any]: ...


if TYPE_CHECKING:
    # Those of `tapegraph.ops.linalg`, generic, as they cannot be before Python 3.11.

    class SlogdetResult(NamedTuple, Generic[Kind]):
        """The result of `slogdet`."""

        sign: Kind
        logabsdet: Kind

    class EighResult(NamedTuple, Generic[Kind]):
        """The result of `eigh`."""

        eigenvalues: Kind
        eigenvectors: Kind

    class EigResult(NamedTuple, Generic[Kind]):
        """The result of `eig`."""

        eigenvalues: Kind
        eigenvectors: Kind

    class QRResult(NamedTuple, Generic[Kind]):
        """The result of `qr`."""

        Q: Kind
        R: Kind

    class SVDResult(NamedTuple, Generic[Kind]):
        """The result of `svd`."""

        U: Kind
        S: Kind
        Vh: Kind
