"""Entries of the tape: a value's operation and inputs, and the numbers that derivatives read."""

from __future__ import annotations

import itertools
import math
from types import CodeType
from typing import Any

import numpy as np
import numpy.typing as npt

from tapegraph.arrays import own
from tapegraph.errors import STATIC, ConcretizationError, kind_of, message, sentence
from tapegraph.recording.op import CLEARED, CONSTANT, NO_ATTRS, Attrs, Op
from tapegraph.recording.scopes import recorder
from tapegraph.typed import Array, DType

next_seq = itertools.count(1).__next__
new = object.__new__


class Node:
    """An entry of the tape. The user holds a `Tensor`, a handle with numbers and an entry.

    It keeps its array only if a derivative reads it (`Op.reads`). A tensor whose numbers are kept
    anyway is its own entry: ``x._entry or x`` is the entry of either. ``_seq`` orders entries in
    time; ``_changed`` is when a leaf's numbers changed: a reader with a smaller ``_seq`` is stale.
    """

    __slots__ = (
        "__weakref__",
        "_array",
        "_attrs",
        "_changed",
        "_code",
        "_grad",
        "_inputs",
        "_lasti",
        "_name",
        "_op",
        "_retains",
        "_saved",
        "_seq",
        "dtype",
        "shape",
    )

    # The memory that it owns, if not all of its array.
    _entry: Any = None
    # An operation leaves a plain entry only where a gradient flows: a tensor says for itself.
    _requires_grad: bool = True
    # NumPy must refuse an entry whose numbers are gone.
    __array_ufunc__: Any = None

    shape: Any
    dtype: Any
    _array: Any
    _held: Any  # the same place, by a name that no class makes something else of
    _op: Op
    _inputs: tuple[Any, ...]
    _attrs: Attrs
    _changed: int
    _saved: Any
    _seq: int
    _code: CodeType
    _lasti: int
    _grad: Any
    _name: str | None
    _retains: bool

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"a rule of {self._op.name} or of its readers reads a value that the tape has freed"
        )

    @property
    def name(self) -> str | None:
        """The name given by the user, or None."""
        return getattr(self._entry or self, "_name", None)

    @name.setter
    def name(self, value: str | None) -> None:
        entry = self._entry or self
        entry._name = value

    def __init_subclass__(
        cls, *, recorded: bool = False, remote: bool = False, updated: bool = False
    ) -> None:
        """Register the class of results, of remote or of updated tensors; any other raises."""
        global tensor_class, remote_class, updated_class
        if remote:
            remote_class = cls
            return
        if updated:
            updated_class = cls
            return
        if not recorded:
            text = (
                f"the class {cls.__name__} cannot be a subclass of Tensor: operations return plain "
                "Tensors. Hold a tensor in a class of your own, and register operations with "
                "tg.defop."
            )
            raise TypeError(sentence("Tensor", text))
        tensor_class = cls


Node._held = Node.__dict__["_array"]

# The class of every recorded result, `Tensor`, which registers itself.
tensor_class: type[Any] = Node
# Its class while an engine keeps its numbers (`tapegraph.recording.values`).
remote_class: type[Any] = Node
# Its class where `x += y` has left it as it was, until something reads it (`tapegraph.tensors`).
updated_class: type[Any] = Node


def is_leaf(x: Any) -> bool:
    entry = x._entry or x
    return not entry._inputs and entry._op is not CLEARED


def tape_entry(x: Any) -> Any:
    return x._entry or x


def kept(x: Any) -> Any:
    """Return a tensor's entry, and keep its numbers from now on."""
    entry = x._entry
    if entry is None:
        return x
    entry._array = x._array
    return entry


def mark_changed(leaf: Node) -> None:
    leaf._changed = next_seq()


def as_leaf(data: Array) -> Any:
    """Wrap an array that nobody else holds as a constant leaf."""
    node = new(tensor_class)
    node._array = data
    node._entry = None
    node._op = CONSTANT
    node._inputs = ()
    node._attrs = NO_ATTRS
    node._seq = next_seq()
    node._changed = 0
    node._requires_grad = False
    return node


# The dtypes that carry gradients: float32, float64, complex64 and complex128.
_INEXACT = frozenset("fdFD")
# Half precision, which float32 represents exactly; ml_dtypes adds the second to NumPy.
HALF = frozenset(("float16", "bfloat16"))


def numeric(data: Any, op: str, argument: str, *, widens: bool = True) -> Array:
    """Return ``data`` as a native-endian array with its own memory; ``widens`` takes float16."""
    array = data
    if isinstance(data, Node):
        if data._requires_grad:
            received = f"{kind_of(data)} that needs a gradient for {argument!r}"
            fix = "Write tensor.detach() to go on without its gradient."
            raise TypeError(message(op, received, "plain numbers", fix))
        recorder().read(data, op, "Compute with the tensor itself.")
        array = data._array
    elif type(data) is not np.ndarray:
        if isinstance(data, np.ma.MaskedArray):
            text = (
                f"{argument!r} is a masked array, whose mask would be lost. Write "
                "np.where(mask, ...) on its data, or masked.filled(value)."
            )
            raise TypeError(sentence(op, text))
        if isinstance(data, np.matrix):
            text = f"{argument!r} is a matrix, of which * is the matrix product. "
            raise TypeError(sentence(op, text + "Write np.asarray(matrix), and @ for the product."))
        array = as_array(data, op, argument)
    kind = array.dtype.kind
    if kind in "biu" or array.dtype.char in _INEXACT:
        return own(array)
    if widens and array.dtype.name in HALF:
        return own(array, np.float32)
    received = f"dtype {array.dtype}" if kind in "fc" else kind_of(data)
    expected = "numbers (bool, integer, float32, float64, complex64 or complex128)"
    fix = "Convert it first, for instance with np.asarray(data, dtype=np.float64)."
    if (isinstance(data, str) or callable(data)) and ("." in argument or "[" in argument):
        fix = f"Close over it, or {STATIC}."
    raise TypeError(message(op, f"{received} for {argument!r}", expected, fix))


def as_array(data: object, op: str, argument: str) -> Any:
    try:
        return np.asarray(data)
    except (TypeError, ValueError, RuntimeError) as error:  # NotImplementedError is one
        if isinstance(data, (list, tuple)) and _holds_recorded(data):
            received = f"{argument!r}, a {type(data).__name__} of tensors that need a gradient"
            fix = "Join them first: np.stack(tensors)."
            raise TypeError(message(op, received, "one array or tensor", fix)) from None
        if "inhomogeneous" in str(error):
            received, fix = f"ragged data for {argument!r}", "Give every row the same length."
            raise ValueError(message(op, received, "a rectangular array", fix)) from error
        if not hasattr(type(data), "__array__"):
            raise
        own_words = str(error).partition("\n")[0]
        library = type(data).__module__.partition(".")[0]
        received = f"{kind_of(data)} of {library} for {argument!r}"
        fix = f"{library} says: {own_words}"
        if getattr(data, "requires_grad", False):
            received += ", which needs a gradient there"
            fix = "Write x.detach(): its library's gradients do not flow through this one."
        elif "symbolic" in own_words:
            received += ", which is symbolic"
            fix = "Call it with eager tensors, or make a TensorFlow function of yours: "
            fix += "tg.function(f)."
        elif "BFloat16" in own_words:
            fix = "Write x.float()."
        raise TypeError(message(op, received, "an array that NumPy can read", fix)) from error


def _holds_recorded(values: Any) -> bool:
    return any(
        _holds_recorded(v) if isinstance(v, (list, tuple)) else getattr(v, "requires_grad", False)
        for v in values
    )


# The dtype of tensors that are made of Python numbers, where the call names none.
_default_dtype: DType = np.dtype(np.float64)


def set_default_dtype(dtype: npt.DTypeLike) -> None:
    """Choose the dtype of tensors made of Python numbers, as `torch.set_default_dtype`.

    It holds in all threads, for what names no dtype: `param` of Python numbers, lists, integers
    and bools; `tensor` of floats and lists of them, and of complex ones; `eye` and `one_hot`; the
    draws and initial weights of ``tg.random``; and floats that a loop carries. Arrays and NumPy's
    scalars keep their dtype. A compiled step is traced anew.

    :param dtype: Float32, or float64, which it is at first.
    :raises TypeError: It is another.

    >>> before = tg.get_default_dtype()
    >>> tg.set_default_dtype("float32")
    >>> tg.param([1.0, 2.0]).dtype, tg.random.normal(size=3).dtype
    (dtype('float32'), dtype('float32'))
    >>> tg.set_default_dtype(before)
    """
    global _default_dtype
    try:
        wanted = np.dtype(dtype)
    except TypeError:
        wanted = None
    if dtype is None or wanted not in (np.float32, np.float64):
        raise TypeError(message("set_default_dtype", f"dtype {dtype!r}", "float32 or float64"))
    _default_dtype = wanted.newbyteorder("=")


def get_default_dtype() -> DType:
    """Return the dtype of tensors made of Python numbers.

    :returns: What `set_default_dtype` chose: float32 or float64.

    >>> tg.get_default_dtype()
    dtype('float64')
    """
    return _default_dtype


def in_default(array: Array, data: object) -> Array:
    """Return the array of some data in the default dtype, if it is made of Python's floats."""
    if _default_dtype.char == "d" or array.dtype.char not in "dD" or not _is_pythons(data):
        return array
    return array.astype(_default_dtype if array.dtype.char == "d" else np.complex64)


def is_weak(value: object) -> bool:
    """Return whether a value is a Python number, which takes the precision of other operands."""
    return isinstance(value, (int, float, complex)) and not isinstance(value, np.generic)


def _is_pythons(data: object) -> bool:
    return all(map(_is_pythons, data)) if isinstance(data, (list, tuple)) else is_weak(data)


def real_dtype(dtype: DType) -> DType:
    """Return the dtype of a complex number's parts, and a real one itself."""
    return np.empty(0, dtype).real.dtype


def as_float(value: Any, op: str, argument: str) -> float:
    recorder().fixed(op, value, argument)
    try:
        if not isinstance(value, str):
            return float(value)
    except ConcretizationError:
        raise
    except (TypeError, ValueError):
        pass
    raise TypeError(message(op, f"{kind_of(value)} for {argument!r}", "a number"))
