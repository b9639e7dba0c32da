"""The types of public functions: arrays in, `Tensor` out, and `Dual` out where one comes in.

The decorators here tell type checkers, and `help`, what a function takes and gives; at run time
they return the very function they were given. NumPy's own stubs know of arrays alone: to them
``np.exp(x)`` is an array, so a program that is type-checked calls ``tg.exp``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import EllipsisType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    SupportsIndex,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

import numpy.typing as npt

if TYPE_CHECKING:
    import typing_extensions
    from typing_extensions import NamedTuple

    from tapegraph.tensors.array_methods import ArrayMethods
    from tapegraph.tensors.dual import Dual as Dual
    from tapegraph.tensors.tensor import Tensor as Tensor
    from tapegraph.tensors.value import Number
    from tapegraph.tensors.value import Value as Value

    # What comes in, and so comes out: a dual or a `Value`. A tensor for all that is `ArrayLike`.
    Kind = typing_extensions.TypeVar("Kind", bound="ArrayMethods", default="Tensor")
    AnyKind = typing_extensions.TypeVar("AnyKind", bound="ArrayMethods | Value", default="Tensor")

P = ParamSpec("P")
# Numbers, arrays, tensors and duals, and dicts, lists and tuples of them.
Structure: TypeAlias = Any
# What computes as an array does and gives results of its own kind: a tensor or a dual.
A = TypeVar("A", bound="ArrayMethods")
F = TypeVar("F")
T_co = TypeVar("T_co", covariant=True)


# What NumPy computes with

Array: TypeAlias = npt.NDArray[Any]

# What goes in


class SupportsArray(Protocol):
    """What makes an array of itself."""

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
ArrayLike: TypeAlias = float | SupportsArray | Nested[float | SupportsArray]
Operand: TypeAlias = "ArrayLike | ArrayMethods"
Axes: TypeAlias = SupportsIndex | Sequence[SupportsIndex] | None
Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
Place: TypeAlias = (
    SupportsIndex
    | slice
    | EllipsisType
    | SupportsArray
    | Nested[SupportsIndex | SupportsArray]
    | None
)
Index: TypeAlias = Place | tuple[Place, ...]
Labels: TypeAlias = Sequence[int | EllipsisType]
Backend: TypeAlias = Literal["auto", "tensorflow", "native"]


# Functions: the array itself is positional, whatever its name.


class Function(Protocol):
    """What every function has."""

    __name__: str


class OfArray(Function, Protocol[P]):
    """A function of one array."""

    @overload
    def __call__(self, x: A, /, *args: P.args, **kwargs: P.kwargs) -> A: ...
    @overload
    def __call__(self, x: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> Tensor: ...


class OfTwo(Function, Protocol[P]):
    """A function of two arrays."""

    @overload
    def __call__(self, a: Dual, b: Operand, /, *args: P.args, **kwargs: P.kwargs) -> Dual: ...
    @overload
    def __call__(self, a: ArrayLike, b: Dual, /, *args: P.args, **kwargs: P.kwargs) -> Dual: ...
    @overload
    def __call__(
        self, a: ArrayLike, b: ArrayLike, /, *args: P.args, **kwargs: P.kwargs
    ) -> Tensor: ...


class OfThree(Function, Protocol[P]):
    """A function of three arrays."""

    @overload
    def __call__(
        self, a: Dual, b: Operand, c: Operand, /, *args: P.args, **kwargs: P.kwargs
    ) -> Dual: ...
    @overload
    def __call__(
        self, a: ArrayLike, b: Dual, c: Operand, /, *args: P.args, **kwargs: P.kwargs
    ) -> Dual: ...
    @overload
    def __call__(
        self, a: ArrayLike, b: ArrayLike, c: Dual, /, *args: P.args, **kwargs: P.kwargs
    ) -> Dual: ...
    @overload
    def __call__(
        self, a: ArrayLike, b: ArrayLike, c: ArrayLike, /, *args: P.args, **kwargs: P.kwargs
    ) -> Tensor: ...


class OfArrays(Function, Protocol[P]):
    """A function of a sequence of arrays."""

    @overload
    def __call__(self, arrays: Sequence[Dual], /, *args: P.args, **kwargs: P.kwargs) -> Dual: ...
    @overload
    def __call__(
        self, arrays: Sequence[ArrayLike] | SupportsArray, /, *args: P.args, **kwargs: P.kwargs
    ) -> Tensor: ...
    @overload
    def __call__(
        self, arrays: Sequence[Operand], /, *args: P.args, **kwargs: P.kwargs
    ) -> Tensor | Dual: ...


class OfEach(Function, Protocol):
    """A function of any number of arrays, which gives as many."""

    @overload
    def __call__(self, x: Dual, /) -> Dual: ...
    @overload
    def __call__(self, x: ArrayLike, /) -> Tensor: ...
    @overload
    def __call__(self, x: Dual, y: Dual, /, *arrays: Dual) -> tuple[Dual, ...]: ...
    @overload
    def __call__(self, x: ArrayLike, y: ArrayLike, /, *arrays: ArrayLike) -> tuple[Tensor, ...]: ...
    @overload
    def __call__(
        self, x: Operand, y: Operand, /, *arrays: Operand
    ) -> tuple[Tensor | Dual, ...]: ...


# Functions with types of their own: a dual may come in at several places


class BroadcastArrays(Function, Protocol):
    """The type of `broadcast_arrays`."""

    @overload
    def __call__(self, *arrays: Dual) -> tuple[Dual, ...]: ...
    @overload
    def __call__(self, *arrays: ArrayLike) -> tuple[Tensor, ...]: ...
    @overload
    def __call__(self, *arrays: Operand) -> tuple[Tensor | Dual, ...]: ...


class Block(Function, Protocol):
    """The type of `block`."""

    @overload
    def __call__(self, arrays: ArrayLike) -> Tensor: ...
    @overload
    def __call__(self, arrays: Dual | Nested[Dual]) -> Dual: ...
    @overload
    def __call__(self, arrays: Nested[Operand]) -> Tensor | Dual: ...


class Einsum(Function, Protocol):
    """The type of `einsum`."""

    @overload
    def __call__(
        self, subscripts: str, a: Dual, /, *operands: Operand, optimize: object = False
    ) -> Dual: ...
    @overload
    def __call__(
        self,
        subscripts: str,
        a: ArrayLike,
        b: Dual,
        /,
        *operands: Operand,
        optimize: object = False,
    ) -> Dual: ...
    @overload
    def __call__(
        self, subscripts: str, /, *operands: ArrayLike, optimize: object = False
    ) -> Tensor: ...
    @overload
    def __call__(
        self,
        a: Dual,
        labels: Labels,
        /,
        *operands: Operand | Labels,
        optimize: object = False,
    ) -> Dual: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        labels: Labels,
        b: Dual,
        /,
        *operands: Operand | Labels,
        optimize: object = False,
    ) -> Dual: ...
    @overload
    def __call__(
        self,
        a: ArrayLike,
        labels: Labels,
        /,
        *operands: ArrayLike | Labels,
        optimize: object = False,
    ) -> Tensor: ...


class Average(Function, Protocol):
    """The type of `average`."""

    @overload
    def __call__(
        self,
        x: Dual,
        axis: Axes = None,
        weights: Operand | None = None,
        returned: Literal[False] = False,
        keepdims: bool = False,
    ) -> Dual: ...
    @overload
    def __call__(
        self,
        x: ArrayLike,
        axis: Axes = None,
        weights: ArrayLike | None = None,
        returned: Literal[False] = False,
        keepdims: bool = False,
    ) -> Tensor: ...
    @overload
    def __call__(
        self,
        x: ArrayLike,
        axis: Axes = None,
        *,
        weights: Dual,
        returned: Literal[False] = False,
        keepdims: bool = False,
    ) -> Dual: ...
    @overload
    def __call__(
        self,
        x: Dual,
        axis: Axes = None,
        weights: Operand | None = None,
        *,
        returned: Literal[True],
        keepdims: bool = False,
    ) -> tuple[Dual, Tensor | Dual]: ...
    @overload
    def __call__(
        self,
        x: ArrayLike,
        axis: Axes = None,
        weights: ArrayLike | None = None,
        *,
        returned: Literal[True],
        keepdims: bool = False,
    ) -> tuple[Tensor, Tensor]: ...
    @overload
    def __call__(
        self,
        x: ArrayLike,
        axis: Axes = None,
        *,
        weights: Dual,
        returned: Literal[True],
        keepdims: bool = False,
    ) -> tuple[Dual, Dual]: ...


class LogSumExp(Function, Protocol):
    """The type of `logsumexp`."""

    @overload
    def __call__(
        self, x: Dual, axis: Axes = None, b: Operand | None = None, keepdims: bool = False
    ) -> Dual: ...
    @overload
    def __call__(
        self, x: ArrayLike, axis: Axes = None, b: ArrayLike | None = None, keepdims: bool = False
    ) -> Tensor: ...
    @overload
    def __call__(
        self, x: ArrayLike, axis: Axes = None, *, b: Dual, keepdims: bool = False
    ) -> Dual: ...


class Diff(Function, Protocol):
    """The type of `diff`."""

    @overload
    def __call__(
        self,
        x: Dual,
        n: int = 1,
        axis: int = -1,
        prepend: Operand | None = None,
        append: Operand | None = None,
    ) -> Dual: ...
    @overload
    def __call__(
        self,
        x: ArrayLike,
        n: int = 1,
        axis: int = -1,
        prepend: ArrayLike | None = None,
        append: ArrayLike | None = None,
    ) -> Tensor: ...
    @overload
    def __call__(
        self,
        x: ArrayLike,
        n: int = 1,
        axis: int = -1,
        *,
        prepend: Dual,
        append: Operand | None = None,
    ) -> Dual: ...
    @overload
    def __call__(
        self,
        x: ArrayLike,
        n: int = 1,
        axis: int = -1,
        *,
        append: Dual,
        prepend: ArrayLike | None = None,
    ) -> Dual: ...


class Trapezoid(Function, Protocol):
    """The type of `trapezoid`."""

    @overload
    def __call__(
        self, y: Dual, x: Operand | None = None, dx: Operand = 1.0, axis: int = -1
    ) -> Dual: ...
    @overload
    def __call__(
        self, y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1
    ) -> Tensor: ...
    @overload
    def __call__(self, y: ArrayLike, x: Dual, dx: Operand = 1.0, axis: int = -1) -> Dual: ...
    @overload
    def __call__(self, y: ArrayLike, x: None = None, *, dx: Dual, axis: int = -1) -> Dual: ...


class OfMany(Function, Protocol):
    """A user's function of any number of arrays."""

    def __call__(self, /, *arrays: Kind | ArrayLike, **attrs: Any) -> Kind: ...


class Derivative(Function, Protocol[P]):
    """What `grad` gives: the first argument is differentiated by, and decides what comes out."""

    @overload
    def __call__(self, x: Tensor, /, *args: P.args, **kwargs: P.kwargs) -> Tensor: ...
    @overload
    def __call__(self, x: Dual, /, *args: P.args, **kwargs: P.kwargs) -> Tensor | Dual: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, x: Number, /, *args: P.args, **kwargs: P.kwargs
    ) -> float: ...
    @overload
    def __call__(self, x: ArrayLike, /, *args: P.args, **kwargs: P.kwargs) -> npt.NDArray[Any]: ...


if TYPE_CHECKING:
    # Those of `tapegraph.ops.decompositions`, generic, as they cannot be before Python 3.11.

    class SlogdetResult(NamedTuple, Generic[A]):
        """What `slogdet` returns."""

        sign: A
        logabsdet: A

    class EighResult(NamedTuple, Generic[A]):
        """What `eigh` returns."""

        eigenvalues: A
        eigenvectors: A

    class SVDResult(NamedTuple, Generic[A]):
        """What `svd` returns."""

        U: A
        S: A
        Vh: A


class Slogdet(Function, Protocol):
    """The type of `slogdet`."""

    @overload
    def __call__(self, a: A) -> SlogdetResult[A]: ...
    @overload
    def __call__(self, a: ArrayLike) -> SlogdetResult[Tensor]: ...


class Eigh(Function, Protocol):
    """The type of `eigh`."""

    @overload
    def __call__(self, a: A, UPLO: Literal["L", "U"] = "L") -> EighResult[A]: ...
    @overload
    def __call__(self, a: ArrayLike, UPLO: Literal["L", "U"] = "L") -> EighResult[Tensor]: ...


class SVD(Function, Protocol):
    """The type of `svd`."""

    @overload
    def __call__(
        self, a: A, full_matrices: bool = True, compute_uv: Literal[True] = True
    ) -> SVDResult[A]: ...
    @overload
    def __call__(
        self, a: ArrayLike, full_matrices: bool = True, compute_uv: Literal[True] = True
    ) -> SVDResult[Tensor]: ...
    @overload
    def __call__(self, a: A, full_matrices: bool = True, *, compute_uv: Literal[False]) -> A: ...
    @overload
    def __call__(
        self, a: ArrayLike, full_matrices: bool = True, *, compute_uv: Literal[False]
    ) -> Tensor: ...


class Lstsq(Function, Protocol):
    """The type of `lstsq`."""

    @overload
    def __call__(
        self, a: Dual, b: Operand, rcond: float | None = None
    ) -> tuple[Dual, Tensor | Dual, int, Dual]: ...
    @overload
    def __call__(
        self, a: ArrayLike, b: Dual, rcond: float | None = None
    ) -> tuple[Dual, Tensor | Dual, int, Tensor]: ...
    @overload
    def __call__(
        self, a: ArrayLike, b: ArrayLike, rcond: float | None = None
    ) -> tuple[Tensor, Tensor, int, Tensor]: ...


# Decorators


def of_array(f: Callable[Concatenate[Any, P], Any]) -> OfArray[P]:
    """Type a function of one array."""
    _tell(f)
    return cast("OfArray[P]", f)


def of_two(f: Callable[Concatenate[Any, Any, P], Any]) -> OfTwo[P]:
    """Type a function of two arrays."""
    _tell(f)
    return cast("OfTwo[P]", f)


def of_three(f: Callable[Concatenate[Any, Any, Any, P], Any]) -> OfThree[P]:
    """Type a function of three arrays."""
    _tell(f)
    return cast("OfThree[P]", f)


def of_arrays(f: Callable[Concatenate[Any, P], Any]) -> OfArrays[P]:
    """Type a function of a sequence of arrays."""
    _tell(f, array="Sequence[ArrayLike]")
    return cast("OfArrays[P]", f)


def of_each(f: Callable[..., Any]) -> OfEach:
    """Type a function of any number of arrays, which gives as many."""
    _tell(f, "Tensor | tuple[Tensor, ...]")
    return cast("OfEach", f)


def seen_as(kind: Callable[[], F], result: str = "Tensor") -> Callable[[Callable[..., Any]], F]:
    """Type a function by a class of this module."""

    def decorate(f: Callable[..., Any]) -> F:
        _tell(f, result)
        return cast("F", f)

    return decorate


def _tell(f: Any, result: str = "Tensor", array: str = "ArrayLike") -> None:
    """Tell `help` what type checkers are told."""
    for name, kind in f.__annotations__.items():
        if kind == "Any":
            f.__annotations__[name] = array
    f.__annotations__["return"] = result
