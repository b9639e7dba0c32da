"""`Tensor`: an ndarray with a history."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, cast

import numpy as np
import numpy.typing as npt

from tapegraph import display
from tapegraph.arrays import own
from tapegraph.differentiation.gradients import backward
from tapegraph.errors import line_of, message, sentence, user_frame, warn
from tapegraph.ops import elementwise, linalg
from tapegraph.other_names import unexpected
from tapegraph.recording import lost_gradients, numpy_functions
from tapegraph.recording.node import Node, get_default_dtype, in_default, is_leaf, numeric
from tapegraph.recording.op import DEFINED, OPS, PARAM, PART, Attrs
from tapegraph.recording.record import ELEMENTWISE, apply, as_dtype
from tapegraph.recording.scopes import recorder
from tapegraph.recording.tape import read_gradient
from tapegraph.recording.values import handle_of, put_array, restore
from tapegraph.tensors.array_methods import AS_INDEX, ArrayMethods, Operator, formatted
from tapegraph.typed import Array, ArrayLike, DType

_DATA = "Compute with the tensor itself; for w.data -= step write w.assign((w - step).detach())."
_OUTSIDE = "Return the tensor, and read its number outside."
_FILLED = f"{_OUTSIDE[:-1]}; {lost_gradients.FILLED}."
_CHOICE = "Write tg.where(condition, a, b) to choose by element, or np.any(x) or np.all(x)."
_NOT_MATH = "Call NumPy's or tapegraph's function in place of math's: tg.sin(x) for math.sin(x)."


def _updating(operation: Callable[[Any, Any], Any]) -> Operator:
    def update(self: Tensor, other: object) -> Any:
        result = operation(self, other)
        out = recorder().in_place(self, result)
        if out is result and type(self) is Tensor and result._requires_grad:
            _outdated(self, result)
        return out

    return cast("Operator", update)


def _outdated(x: Any, result: Any) -> None:
    """Let the next reader of a tensor, or of one that it is a view of, warn: NumPy changes both."""
    array, entry = x._array, result._entry or result
    while type(x) is Tensor and x._requires_grad and x.ndim and (x._entry or x)._op is not PARAM:
        base = getattr(x, "_base", None)
        x._base = array, entry
        x.__class__ = UpdatedTensor
        if type(base) is not Tensor or not np.may_share_memory(base._array, array):
            break
        x = base


class Tensor(ArrayMethods, Node, recorded=True):
    """An array that remembers how it was computed; `param`, `tensor` and every operation make them.

    Arithmetic operators take tensors, arrays, lists and numbers on either side; comparisons are by
    value and give plain arrays; hashing is by identity.

    >>> x = tg.param([1.0, 2.0])
    >>> y = (x**2).sum()
    >>> y.backward()
    >>> x.grad
    array([2., 4.])
    """

    # The tensor that it is a view of; after an update in place, what was written, and by whom.
    __slots__ = ("_base", "_entry", "_requires_grad")
    _base: Any

    # Value and kind

    @property
    def data(self) -> Array:
        """The value; the tape notices writes into a leaf's, and a result's is read-only."""
        recorder().read(self, "data", _DATA)
        view = self._array.view(GuardedArray)
        view.flags.writeable = False
        view._owner = self
        return view

    @data.setter
    def data(self, value: ArrayLike) -> None:
        if not is_whole(self, value):
            self.assign(value)

    @property
    def grad(self) -> Array | None:
        """The accumulated gradient, of the tensor's shape and dtype; None before the first.

        A result has one only after `retain_grad`; before, reading it or assigning to it warns.
        """
        return recorder().gradient(self)

    @grad.setter
    def grad(self, value: ArrayLike | None) -> None:
        entry = self._entry or self
        if value is not None and entry._inputs and not entry._retains:
            lost_gradients.to_result(self.op)
        else:
            recorder().set_gradient(self, value)

    def _check_fits(self, grad: Any) -> None:
        if grad.shape != self.shape:
            expected = f"the tensor's shape {self.shape}"
            raise ValueError(message("grad", f"shape {grad.shape}", expected))

    @property
    def shape(self) -> tuple[int, ...]:
        """Length along each axis."""
        return self._array.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._array.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._array.size

    @property
    def _computed(self) -> Any:
        """The entry of the operation that made it, also for several outputs."""
        entry = self._entry or self
        return entry._inputs[0] if entry._op is PART else entry

    @property
    def op(self) -> str:
        """The name of the operation that made it; ``"param"`` or ``"constant"`` for a leaf."""
        return self._computed._op.name

    @property
    def inputs(self) -> tuple[Tensor | float, ...]:
        """The tensors and Python numbers that it was computed from."""
        return tuple(map(handle_of, self._computed._inputs))

    @property
    def attrs(self) -> Attrs:
        """The operation's attributes."""
        return dict(self._computed._attrs)

    def item(self, *index: SupportsIndex | tuple[SupportsIndex, ...]) -> float:
        """Return the element at an index, as in `numpy.ndarray.item`, or the only one, as a number.

        :raises ValueError: There is not exactly one element, and no index.
        :raises IndexError: The index is out of range.
        """
        if not index and self._array.size != 1:
            raise self._not_one("item")
        number = self._array.item(*index)
        recorder().read(self, "item", _OUTSIDE)
        if self._requires_grad:
            lost_gradients.numbers_read("item()")
        return number

    def _not_one(self, op: str, fix: str = "") -> ValueError:
        received = f"a tensor of shape {self.shape}"
        return ValueError(message(op, received, "exactly one element", fix))

    def numpy(self) -> Array:
        """Return the value as an ordinary array with its own memory."""
        recorder().read(self, "numpy", "Compute with the tensor itself, by NumPy's functions.")
        if self._requires_grad:
            lost_gradients.numbers_read("numpy()")
        return np.array(self._array)

    def detach(self) -> Tensor:
        """Return the value as a constant without history."""
        return recorder().detach(self)

    def assign(self, value: ArrayLike) -> None:
        """Set a leaf's value, of its shape or broadcast to it; earlier recordings are then stale.

        :raises RuntimeError: The tensor is a result.
        :raises ValueError: The value does not broadcast to the tensor's shape.
        """
        recorder().assign(self, value)

    def _check_assignable(self) -> None:
        fix = "Make a new leaf with tg.param(value)."
        self._check_is_leaf("assign", "a parameter or constant", fix)

    def _check_is_leaf(self, op: str, expected: str, fix: str) -> None:
        if not is_leaf(self):
            raise RuntimeError(message(op, f"a result of {self.op}", expected, fix))

    def _fitting(self, array: Array) -> Array:
        try:
            return own(np.broadcast_to(array, self.shape), self.dtype)
        except ValueError:
            received = f"a value of shape {array.shape}"
            expected = f"the tensor's shape {self.shape}"
            raise ValueError(message("assign", received, expected)) from None

    # Differentiation

    @property
    def requires_grad(self) -> bool:
        """Whether a gradient flows to or through it; `requires_grad_` sets it on a leaf."""
        return self._requires_grad

    if not TYPE_CHECKING:  # for type checkers it is read-only

        @requires_grad.setter
        def requires_grad(self, value):
            text = f"the attribute is read-only. Write tensor.requires_grad_({value!r})."
            raise AttributeError(sentence("requires_grad", text))

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Make a constant a parameter, or freeze or unfreeze one; return the tensor itself.

        A frozen parameter has no gradient, and optimizers leave it as it is; it stays among the
        `parameters` of its model. Earlier recordings of it can no longer be differentiated.

        :raises RuntimeError: The tensor is a result.
        :raises TypeError: Its elements are not floating-point numbers.
        :raises ConcretizationError: It is an argument of a compiled function, passed as a tensor.

        >>> tg.tensor([1.0, 2.0]).requires_grad_()
        Tensor([1., 2.], op='param')
        """
        fix = "A result needs a gradient if an input does; tensor.detach() has none."
        self._check_is_leaf("requires_grad_", "a leaf, made by tg.tensor or tg.param", fix)
        wanted = bool(requires_grad)
        if wanted and self.dtype.kind not in "fc":
            received = f"a tensor of dtype {self.dtype}"
            fix = 'Convert it first: tensor.astype("float64").'
            raise TypeError(message("requires_grad_", received, "floats", fix))
        if wanted != self._requires_grad:
            recorder().set_requires_grad(self, wanted)
        return self

    backward = backward

    def zero_grad(self, set_to_none: bool = False) -> None:
        """Set the gradient to zero if there is one, or to None."""
        if set_to_none:
            self.grad = None
        else:
            recorder().zero_gradient(self)

    def retain_grad(self) -> None:
        """Keep the gradient of this result too at the next backward.

        :raises RuntimeError: The tensor needs no gradient.
        """
        recorder().retain_gradient(self)

    # Conversions

    def __dlpack__(self, **options: Any) -> Any:
        """Export a copy of a constant; a tensor that needs a gradient raises."""
        given = {name: x for name, x in options.items() if x is not None}  # NumPy 2.0 knows fewer
        array: Any = np.asarray(self)
        return array.__dlpack__(**given)

    def __dlpack_device__(self) -> tuple[Any, Any]:
        return np.empty(0).__dlpack_device__()

    # Of any element type, as NumPy's stubs would take `array * tensor` with numbers for their own.
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.generic]:
        if self._requires_grad and not lost_gradients.is_compared():
            raise lost_gradients.to_array("Tensor")
        further = f". {AS_INDEX}" if self.dtype.kind in "iu" else f"; {lost_gradients.FILLED}."
        fix = f"Call NumPy's functions on the tensor itself{further}"
        recorder().read(self, "numpy.asarray", fix)
        return np.array(self._array, dtype=dtype)

    def __bool__(self) -> bool:
        if self._array.size != 1:
            raise self._not_one("bool", _CHOICE)
        recorder().read(self, "bool", "Write np.where(condition, a, b) for the choice.")
        return bool(self._array.item())

    def _number(self, kind: str) -> Any:
        if self._array.size != 1:
            raise self._not_one(kind, _NOT_MATH)
        recorder().read(self, kind, f"{_OUTSIDE} {AS_INDEX}" if kind == "index" else _FILLED)
        value = self._array.item()
        if kind == "float" and type(value) is complex:
            fix = "Write tensor.real, abs(tensor) or complex(tensor)."
            raise TypeError(message("float", "a complex tensor", "a real one", fix))
        if self._requires_grad and kind != "index":
            lost_gradients.to_number("Tensor", kind)
        return value

    def __float__(self) -> float:
        return float(self._number("float"))

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def __index__(self) -> int:
        value = self._number("index")
        if not isinstance(value, int):
            fix = lost_gradients.as_index()
            raise TypeError(message("index", f"a tensor of dtype {self.dtype}", "an integer", fix))
        return value

    def __len__(self) -> int:
        if not self._array.ndim:
            raise TypeError(message("len", "a 0-d tensor", "at least one axis"))
        return len(self._array)

    def __repr__(self) -> str:
        text = np.array2string(self._array, separator=", ", prefix="Tensor(")
        extras = "" if self.dtype == np.float64 else f", dtype={self.dtype}"
        if self.name:
            extras += f", name={self.name!r}"
        if self._requires_grad:
            extras += f", op={self.op!r}"
        return f"Tensor({text}{extras})"

    def _repr_html_(self) -> str:
        kind = self.op if self._requires_grad else "constant"
        facts = [self.name or "", f"{self.dtype} {self.shape}", kind]
        parts = [display.heading("Tensor", *facts), display.array(self._array, 12)]
        grad = read_gradient(self._entry or self)
        if grad is not None:
            parts += [display.heading("grad"), display.array(grad, 8)]
        return "".join(parts)

    def __format__(self, spec: str) -> str:
        text = formatted(self, self._array, spec)
        recorder().read(self, "format", "Return the tensor, and write its numbers outside.")
        return text

    def __reduce__(self) -> Any:
        if not is_leaf(self):
            text = f"a result of {self.op} cannot be pickled, only a leaf. Pickle tensor.detach()."
            raise TypeError(sentence("pickle", text))
        recorder().read(self, "a copy", "Write tensor.detach() for its numbers.")
        return _leaf, (self._array, self._op is PARAM, self.name, self._requires_grad)

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: object) -> Tensor:
        make, arguments = self.__reduce__()
        return make(*arguments)

    # Under `no_grad` a parameter is updated in place; otherwise x += y is x = x + y.
    __iadd__ = _updating(elementwise.add)
    __isub__ = _updating(elementwise.sub)
    __imul__ = _updating(elementwise.mul)
    __itruediv__ = _updating(elementwise.div)
    __ipow__ = _updating(elementwise.pow)
    __imatmul__ = _updating(linalg.matmul)

    if not TYPE_CHECKING:  # type checkers are to refuse it too

        def __setitem__(self, key: object, value: object) -> NoReturn:
            text = (
                "elements of a tensor cannot be assigned. Use tg.where or tg.concat, or "
                f"tensor.data[...] = value on a leaf. {numpy_functions.ADD_AT}"
            )
            raise TypeError(sentence("setitem", text))


class RemoteTensor(Tensor, remote=True):
    """A tensor whose numbers an engine keeps until they are read."""

    __slots__ = ()
    _array = property(restore, put_array)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._array.shape if self._entry is None else self._entry.shape

    @property
    def dtype(self) -> DType:
        return self._array.dtype if self._entry is None else self._entry.dtype

    ndim, size = Node.ndim, Node.size


class UpdatedTensor(Tensor, updated=True):
    """A tensor that ``x += y`` has left as it was; the operation that reads it next warns."""

    __slots__ = ()

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[Any, ...], attrs: Attrs) -> Any:
        updated: list[Any] = [x for x in inputs if type(x) is UpdatedTensor]
        for x in updated:
            x.__class__ = Tensor
        call = ELEMENTWISE.get(name)
        op = OPS.get(name) or DEFINED[name]
        out = call(*inputs) if call else apply(op, inputs, dict(attrs))
        for x in updated:
            array, _ = x._base
            view = getattr(out, "_array", array)
            shares = np.may_share_memory
            if shares(view, x._array) and not shares(view, array):  # the next row, for one
                x.__class__ = UpdatedTensor
                continue
            UpdatedTensor._read(x, name)
        return out

    def _read(self, name: str) -> Tensor:
        """Warn of the operation or transform that reads it, and return it as any other."""
        x: Any = self
        x.__class__ = Tensor
        _, entry = x._base
        place = line_of(entry._code, entry._lasti)
        text = (
            f"the operation reads a tensor of shape {x.shape} as it was before the update in "
            f"place at {place}, which in NumPy changes that tensor too. If you want the "
            "old numbers, write v = v * 2 there for v *= 2; if not, compute with the result."
        )
        warn(sentence(name, text), UserWarning)
        return x


RemoteTensor.__name__ = UpdatedTensor.__name__ = "Tensor"  # as their user sees them


def param(
    data: ArrayLike,
    dtype: npt.DTypeLike | None = None,
    name: str | None = None,
    **others: NoReturn,
) -> Tensor:
    """Make a differentiable leaf from a copy of ``data``.

    :param data: Numbers of any shape. Lists, Python numbers, integers and bools become float64,
        with complex numbers complex128, unless `set_default_dtype` says otherwise; an array of
        floats or complex numbers keeps its dtype.
    :param dtype: Float32, float64, complex64 or complex128, to convert to.
    :param name: Shown in messages, in the tape's table and by ``repr``.
    :returns: Tensor with ``requires_grad`` true.
    :raises TypeError: The data are not numbers, the dtype is not supported, or it would drop an
        imaginary part.
    :raises ValueError: The data are ragged.

    >>> tg.param([1, 2], name="w")
    Tensor([1., 2.], name='w', op='param')
    """
    if others:
        raise unexpected("param", others)
    here = recorder()
    data = here.number(data, get_default_dtype() if dtype is None else np.float64)
    array = numeric(here.numbers_of(data), "param", "data", widens=False)
    if dtype is not None:
        wanted: DType = np.dtype(dtype)
        if wanted.char not in "fdFD":
            expected = "float32, float64, complex64 or complex128"
            fix = "Other types have no gradient."
            raise TypeError(message("param", f"dtype {wanted}", expected, fix))
        array = own(as_dtype("param", array, wanted))
    elif array.dtype.kind in "fc":
        array = in_default(array, data)
    else:
        array = own(array, get_default_dtype())
    leaf = here.leaf(array, data)
    leaf.name = name
    here.parameter(leaf, user_frame(sys._getframe(1)))
    return leaf


def tensor(data: ArrayLike, dtype: npt.DTypeLike | None = None, **others: NoReturn) -> Tensor:
    """Make a constant from a copy of ``data``.

    :param data: Numbers of any shape: bool, integer, float32, float64, complex64 or complex128.
    :param dtype: The element type to convert to.
    :returns: Tensor with ``requires_grad`` false.
    :raises TypeError: The data are not numbers of a supported dtype.
    :raises ValueError: The data are ragged.

    >>> tg.tensor([1.0, 2.0])
    Tensor([1., 2.])
    """
    if others:
        raise unexpected("tensor", others)
    here = recorder()
    data = here.number(data, get_default_dtype() if dtype is None else np.float64)
    array = numeric(here.numbers_of(data), "tensor", "data")
    if dtype is None:
        array = in_default(array, data)
    else:
        cast = as_dtype("tensor", array, np.dtype(dtype))
        array = numeric(cast, "tensor", "data", widens=False)
    return here.leaf(array, data)


def _leaf(data: Array, is_param: bool, name: str | None, requires_grad: bool) -> Tensor:
    leaf = param(data).requires_grad_(requires_grad) if is_param else tensor(data)
    leaf.name = name
    return leaf


# The array ``tensor.data``. A write to a leaf marks it as changed, so that a graph recorded before
# raises instead of using the new numbers; a write to a result is an error.


class GuardedArray(np.ndarray[Any, Any]):
    """A read-only view of a tensor's array; operations on it return ordinary ndarrays."""

    _owner: Node | None

    def __array_finalize__(self, source: object) -> None:
        # Views of the view refer to the tensor; copies own their memory and are not guarded.
        view = self.base is not None and not self.flags.writeable
        self._owner = getattr(source, "_owner", None) if view else None

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        at = method == "at"
        written = inputs[:1] if at else kwargs.get("out", ())
        computed = [np.array(x) if isinstance(x, GuardedArray) else x for x in written]
        if at:
            inputs = (computed[0], *inputs[1:])
        elif written:
            kwargs["out"] = tuple(computed)
        plain = [x.view(np.ndarray) if isinstance(x, GuardedArray) else x for x in inputs]
        result = getattr(ufunc, method)(*plain, **kwargs)
        for target, numbers in zip(written, computed, strict=True):
            if isinstance(target, GuardedArray):
                target[...] = numbers
        return written[0] if len(written) == 1 and not at else result

    def __setitem__(self, key: Any, value: Any) -> None:
        owner = self._owner
        if owner is None:
            super().__setitem__(key, value)
            return
        label = f"{owner.name!r}" if owner.name else f"of shape {owner._array.shape}"
        if not is_leaf(owner):
            text = (
                f"the result {label} of {(owner._entry or owner)._op.name} is read-only; only "
                "parameters and constants can be written. Change a copy: tensor.data.copy()."
            )
            raise ValueError(sentence("data", text))
        if _base(self) is not owner._array:
            text = (
                f"the array is no longer that of {owner._op.name} {label}. Read tensor.data again "
                "after assign() or an optimizer's step."
            )
            raise ValueError(sentence("data", text))
        here = recorder()
        here.before_write(owner)
        self.flags.writeable = True
        try:
            super().__setitem__(key, value)
        finally:
            self.flags.writeable = False
            here.written(owner)

    def fill(self, value: object) -> None:
        self[...] = value

    def sort(self, *args: Any, **kwargs: Any) -> None:
        ordered = np.array(self)
        ordered.sort(*args, **kwargs)
        self[...] = ordered

    def copy(self, order: Any = "C") -> Any:
        return np.array(self, order=order)

    def __dlpack__(self, **options: object) -> Any:
        """Export a copy: the consumer could write to the memory itself unnoticed."""
        return self.copy().__dlpack__(**options)

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Any:
        return self.copy()

    def __reduce__(self) -> Any:
        return self.copy().__reduce__()

    def __repr__(self) -> str:
        return repr(self.view(np.ndarray))

    def __str__(self) -> str:
        return str(self.view(np.ndarray))


def is_whole(node: Node, value: object) -> bool:
    """Return whether an array is ``node.data`` itself, as ``node.data += 1`` stores it back."""
    array = node._array
    return (
        isinstance(value, GuardedArray)
        and value._owner is node
        and _base(value) is array
        and value.shape == array.shape
        and value.strides == array.strides
        and value.dtype == array.dtype
        and value.ctypes.data == array.ctypes.data
    )


def _base(view: Array) -> Any:
    base = view
    while isinstance(base, GuardedArray) and base.base is not None:
        base = base.base
    return base
