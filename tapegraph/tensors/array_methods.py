"""Operators and methods of ndarray, for every class that computes like an array."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    SupportsIndex,
    TypeVar,
    cast,
    overload,
)

import numpy as np
import numpy.typing as npt

from tapegraph.errors import message
from tapegraph.kinds import Dual, Kind, Operand, Tensor
from tapegraph.ops import elementwise, index, linalg, reduce, shape
from tapegraph.other_names import OtherArrays
from tapegraph.recording import numpy_functions
from tapegraph.recording.lost_gradients import refused, to_number
from tapegraph.recording.scopes import recorder
from tapegraph.typed import ArrayLike, Axes, Index, Shape, SupportsArray

if TYPE_CHECKING:
    from typing_extensions import Self

P = ParamSpec("P")
A = TypeVar("A", bound="ArrayMethods")

# For a plain array NumPy asks an index for its numbers.
AS_INDEX = (
    "As an index of an array write tg.tensor(array)[i] or tg.take(array, i, axis), and for a slice "
    "array[i:i+n] tg.take(array, i + np.arange(n), axis)."
)


class Method(Protocol[P]):
    """A method whose result has the class of its object."""

    @overload
    def __get__(self, x: None, owner: type, /) -> Method[P]: ...
    @overload
    def __get__(self, x: A, owner: type, /) -> Callable[P, A]: ...


class Operator(Protocol):
    """A method of another array."""

    @overload
    def __get__(self, x: None, owner: type, /) -> Operator: ...
    @overload
    def __get__(self, x: Dual, owner: type, /) -> Callable[[Operand], Dual]: ...
    @overload
    def __get__(self, x: Tensor, owner: type, /) -> Callable[[Kind | ArrayLike], Kind]: ...


class Reflected(Protocol):
    """An operator's method for operands in the other order."""

    def __get__(self, x: A, owner: type, /) -> Callable[[ArrayLike], A]: ...


_numpy: Any = np  # whose stubs know arrays alone


def _method(function: Callable[Concatenate[Any, P], Any]) -> Method[P]:
    return cast("Method[P]", function)


def _operator(function: Callable[[Any, Any], Any]) -> Operator:
    return cast("Operator", function)


def _reflected(function: Callable[[Any, Any], Any]) -> Reflected:
    def reflect(self: object, other: object) -> Any:
        return function(other, self)

    return cast("Reflected", reflect)


def _comparison(name: str, ufunc: np.ufunc) -> Callable[[Any, object], npt.NDArray[np.bool_]]:
    """Make a comparison by value: ndarray's, and in a captured step the ufunc's entry."""

    def compare(self: object, other: object) -> Any:
        if recorder().records(self, other):
            return numpy_functions.WITHOUT_GRADIENT[ufunc](self, other)
        return getattr(numpy_functions.detached(self), name)(numpy_functions.detached(other))

    return compare


def formatted(x: Any, array: Any, spec: str) -> str:
    """Format the only element of an array, or its text if the spec is for text."""
    if spec and array.size == 1:
        return format(array.item(), spec)
    try:
        return format(str(x), spec)
    except ValueError:
        received = f"{spec!r} for a {type(x).__name__} of shape {x.shape}"
        fix = "Write np.array2string(x, precision=2), or format an element: x[0]."
        raise TypeError(message("format", received, "one element", fix)) from None


class ArrayMethods(OtherArrays):
    """The operators and methods of `Tensor` and `Dual`; comparisons return plain arrays."""

    __slots__ = ()
    __hash__ = object.__hash__
    __pandas_priority__ = 10_000  # above its own: series * x is then left to x

    __array_ufunc__: Any = numpy_functions.array_ufunc
    __array_function__: Any = numpy_functions.array_function

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        """Return the array API standard's namespace of tensors, `tapegraph.array_api`.

        :raises ValueError: NumPy's namespace does not follow that version of the standard.
        """
        if api_version != np.__array_api_version__:  # which NumPy 2.5's arrays do not know yet
            plain: Any = np.empty(0)
            plain.__array_namespace__(api_version=api_version)
        return importlib.import_module("tapegraph.array_api")

    # Operators

    __add__ = _operator(elementwise.add)
    __sub__ = _operator(elementwise.sub)
    __mul__ = _operator(elementwise.mul)
    __truediv__ = _operator(elementwise.div)
    __pow__ = _operator(elementwise.pow)
    __mod__ = _operator(elementwise.mod)
    __floordiv__ = _operator(elementwise.floor_divide)
    __matmul__ = _operator(linalg.matmul)
    __neg__ = _method(elementwise.neg)
    __abs__ = _method(elementwise.abs)

    __radd__ = _reflected(elementwise.add)
    __rsub__ = _reflected(elementwise.sub)
    __rmul__ = _reflected(elementwise.mul)
    __rtruediv__ = _reflected(elementwise.div)
    __rpow__ = _reflected(elementwise.pow)
    __rmod__ = _reflected(elementwise.mod)
    __rfloordiv__ = _reflected(elementwise.floor_divide)
    __rmatmul__ = _reflected(linalg.matmul)

    def __pos__(self) -> Self:
        return self

    def __divmod__(self: Any, other: Operand) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self: Any, other: Operand) -> tuple[Any, Any]:
        return other // self, other % self

    def __round__(self, decimals: int = 0) -> Tensor:
        return elementwise.round(self, decimals)

    if TYPE_CHECKING:  # mypy tells a wrong key from a wrong argument

        def __getitem__(self, key: Index) -> Self: ...

    else:
        __getitem__ = index.getitem

    def __iter__(self) -> Iterator[Self]:
        if not self.ndim:  # type: ignore[attr-defined]
            raise TypeError(message("iter", f"a 0-d {type(self).__name__}", "at least one axis"))
        return (self[i] for i in range(len(self)))  # type: ignore[arg-type]

    __eq__ = _comparison("__eq__", np.equal)  # type: ignore[assignment]
    __ne__ = _comparison("__ne__", np.not_equal)  # type: ignore[assignment]
    __lt__ = _comparison("__lt__", np.less)
    __le__ = _comparison("__le__", np.less_equal)
    __gt__ = _comparison("__gt__", np.greater)
    __ge__ = _comparison("__ge__", np.greater_equal)

    # Of masks, which are tensors in a captured step

    def __and__(self, other: object) -> npt.NDArray[np.bool_]:
        return _numpy.bitwise_and(self, other)

    def __or__(self, other: object) -> npt.NDArray[np.bool_]:
        return _numpy.bitwise_or(self, other)

    def __xor__(self, other: object) -> npt.NDArray[np.bool_]:
        return _numpy.bitwise_xor(self, other)

    def __invert__(self) -> npt.NDArray[np.bool_]:
        return _numpy.invert(self)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    # Of integers

    def __lshift__(self, other: object) -> npt.NDArray[np.integer]:
        return _numpy.left_shift(self, other)

    def __rshift__(self, other: object) -> npt.NDArray[np.integer]:
        return _numpy.right_shift(self, other)

    # In-place methods raise, and type checkers reject them

    if not TYPE_CHECKING:
        fill = refused("fill", "Write x = np.full_like(x, value).")
        partition = refused("partition", "Write x = np.partition(x, kth).")
        put = refused("put", "Write x = np.where(mask, value, x).")
        resize = refused("resize", "Write x = np.reshape(x, shape).")
        sort = refused("sort", "Write x = np.sort(x).")

    # Shape

    @property
    def T(self) -> Self:
        """The array with its axes reversed."""
        return shape.transpose(self)

    @property
    def mT(self) -> Self:
        """The array with its last two axes exchanged."""
        return shape.matrix_transpose(self)

    @property
    def real(self) -> Self:
        """The array itself: it is real."""
        return elementwise.real(self)

    @property
    def imag(self) -> Tensor:
        """Zeros of the array's shape."""
        return elementwise.imag(self)

    @property
    def flat(self) -> Self:
        """The elements as a vector; see `tapegraph.ravel`."""
        return shape.ravel(self)

    @property
    def _value(self) -> Any:
        """The value, as autograd's boxes name it; a number if it is 0-d."""
        return self.numpy()[()]  # type: ignore[attr-defined]

    @property
    def device(self) -> str:
        """The device of NumPy's arrays, ``"cpu"``."""
        return "cpu"

    def to_device(self, device: str, /, *, stream: None = None) -> Self:
        """Return the tensor itself, for the device ``"cpu"``.

        :raises ValueError: ``device`` is another one, or ``stream`` is not None.
        """
        if device != "cpu" or stream is not None:
            received = f"device {device!r}, stream {stream!r}"
            raise ValueError(message("to_device", received, "the device 'cpu', without a stream"))
        return self

    @property
    def itemsize(self) -> int:
        """The bytes of an element."""
        return self.dtype.itemsize  # type: ignore[attr-defined]

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.itemsize  # type: ignore[attr-defined]

    @overload
    def transpose(self, axes: Sequence[SupportsIndex] | None, /) -> Self: ...
    @overload
    def transpose(self, *axes: SupportsIndex) -> Self: ...
    def transpose(self, *axes: Any) -> Self:
        """Permute the axes, given as a sequence or one by one; see `tapegraph.transpose`."""
        if not axes or axes == (None,):
            return shape.transpose(self)
        return shape.transpose(self, axes[0] if len(axes) == 1 else axes)

    @overload
    def reshape(
        self, shape: Sequence[SupportsIndex], /, *, order: Literal["C", "F"] = "C"
    ) -> Self: ...
    @overload
    def reshape(self, *lengths: SupportsIndex, order: Literal["C", "F"] = "C") -> Self: ...
    def reshape(self, *lengths: Any, order: Literal["C", "F"] = "C") -> Self:
        """Return another shape, as a tuple or one length per argument; see `tapegraph.reshape`."""
        return shape.reshape(self, lengths[0] if len(lengths) == 1 else lengths, order)

    ravel = _method(shape.ravel)
    flatten = ravel
    squeeze = _method(shape.squeeze)
    swapaxes = _method(shape.swapaxes)
    repeat = _method(index.repeat)
    astype = _method(elementwise.astype)
    copy = _method(elementwise.copy)

    # Elements

    take = _method(index.take)

    def choose(self, choices: Sequence[Kind | ArrayLike] | SupportsArray) -> Kind:
        """Choose from arrays by number; see `tapegraph.choose`."""
        return index.choose(self, choices)

    def compress(self, condition: ArrayLike, axis: SupportsIndex | None = None) -> Self:
        """Take the elements where the condition holds; see `tapegraph.compress`."""
        return index.compress(condition, self, axis)

    diagonal = _method(linalg.diagonal)
    trace = _method(linalg.trace)
    dot = _operator(linalg.dot)

    # Reductions

    sum = _method(reduce.sum)
    mean = _method(reduce.mean)

    max = _method(reduce.max)
    min = _method(reduce.min)
    prod = _method(reduce.prod)
    var = _method(reduce.var)
    std = _method(reduce.std)
    ptp = _method(reduce.ptp)
    cumsum = _method(reduce.cumsum)
    cumprod = _method(reduce.cumprod)

    # Element by element

    softmax = _method(reduce.softmax)

    @overload
    def clip(self, min: ArrayLike | None = None, max: ArrayLike | None = None) -> Self: ...
    @overload
    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Self | Dual: ...
    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Any:
        """Limit every element to a range; see `tapegraph.clip`."""
        return elementwise.clip(cast(Any, self), min, max)

    def round(self, decimals: int = 0) -> Tensor:
        """Round to a number of decimals; see `tapegraph.round`."""
        return elementwise.round(self, decimals)

    conj = _method(elementwise.conj)
    conjugate = conj
    sin = _method(elementwise.sin)
    cos = _method(elementwise.cos)
    tan = _method(elementwise.tan)
    exp = _method(elementwise.exp)
    log = _method(elementwise.log)
    sqrt = _method(elementwise.sqrt)
    tanh = _method(elementwise.tanh)
    sigmoid = _method(elementwise.sigmoid)
    relu = _method(elementwise.relu)
    gelu = _method(elementwise.gelu)
    silu = _method(elementwise.silu)
    abs = _method(elementwise.abs)

    # Plain arrays, without a gradient

    @overload
    def argmax(self, axis: None = None) -> np.intp: ...
    @overload
    def argmax(self, axis: SupportsIndex) -> npt.NDArray[np.intp]: ...
    def argmax(self, axis: SupportsIndex | None = None) -> Any:
        """Return the indices of the largest elements, as a plain array."""
        return _numpy.argmax(self, axis)

    @overload
    def argmin(self, axis: None = None) -> np.intp: ...
    @overload
    def argmin(self, axis: SupportsIndex) -> npt.NDArray[np.intp]: ...
    def argmin(self, axis: SupportsIndex | None = None) -> Any:
        """Return the indices of the smallest elements, as a plain array."""
        return _numpy.argmin(self, axis)

    def argsort(self, axis: SupportsIndex | None = -1) -> npt.NDArray[np.intp]:
        """Return the order that would sort the array, as a plain array."""
        return _numpy.argsort(self, axis)

    def nonzero(self) -> tuple[npt.NDArray[np.intp], ...]:
        """Return the indices of non-zero elements, as plain arrays."""
        return numpy_functions.detached(self).nonzero()

    @overload
    def searchsorted(
        self, v: float, side: Literal["left", "right"] = "left", sorter: ArrayLike | None = None
    ) -> np.intp: ...
    @overload
    def searchsorted(
        self, v: Operand, side: Literal["left", "right"] = "left", sorter: ArrayLike | None = None
    ) -> npt.NDArray[np.intp]: ...
    def searchsorted(self, v: Any, side: Any = "left", sorter: Any = None) -> Any:
        """Return the indices at which to insert elements, as a plain array."""
        return _numpy.searchsorted(self, v, side, sorter)

    @overload
    def all(self, axis: None = None) -> np.bool_: ...
    @overload
    def all(self, axis: Shape) -> npt.NDArray[np.bool_]: ...
    def all(self, axis: Axes = None) -> Any:
        """Return whether all elements are non-zero, as a plain bool or array."""
        return _numpy.all(self, axis)

    @overload
    def any(self, axis: None = None) -> np.bool_: ...
    @overload
    def any(self, axis: Shape) -> npt.NDArray[np.bool_]: ...
    def any(self, axis: Axes = None) -> Any:
        """Return whether any element is non-zero, as a plain bool or array."""
        return _numpy.any(self, axis)

    def tolist(self) -> Any:
        """Return the elements as nested lists of Python numbers, which carry no gradient."""
        array = numpy_functions.detached(self)
        if self.requires_grad:  # type: ignore[attr-defined]
            to_number("Tensor", "tolist", "tensor.numpy().tolist()")
        return array.tolist()
