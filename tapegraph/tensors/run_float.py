"""`RunFloat`: a Python float that may differ in each run of a compiled step."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from tapegraph.capture import BY_VALUE
from tapegraph.errors import ConcretizationError, message
from tapegraph.interrupts import in_handler
from tapegraph.recording import numpy_functions
from tapegraph.recording.op import OPS, Attrs
from tapegraph.recording.record import ELEMENTWISE, apply
from tapegraph.recording.scopes import recorder
from tapegraph.recording.watchers import AskReal
from tapegraph.tensors.array_methods import ArrayMethods
from tapegraph.typed import Fun

_ARRAYS = (
    "Write tg.tensor(k) for an array of it, k * np.ones(shape) for np.full(shape, k), "
    "np.stack([k, x]) for np.array([k, x]); in place of a list of numbers pass an array."
)
_FUNCTIONS = f"Write np.sqrt(k) for math.sqrt(k), and so on, or read it outside. {BY_VALUE}"


class RunFloat(ArrayMethods):
    """A float that may differ in each run; with arrays it computes like a Python number.

    :param source, place: The `Inputs` of a call, or the `NumberRecorder` of its Values; the place.
    """

    __slots__ = ("place", "source")

    requires_grad = False
    shape: tuple[int, ...] = ()
    ndim, size, imag = 0, 1, 0.0  # type: ignore[assignment]
    dtype = np.dtype(np.float64)  # until it meets an array

    def __init__(self, source: Any, place: int) -> None:
        self.source = source
        self.place = place

    @property
    def number(self) -> float:
        return self.source.number(self.place)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """``float``: ``isinstance`` tests decide as in eager calls."""
        return float

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[object, ...], attrs: Attrs) -> Any:
        given = tuple(map(_as_met, inputs))
        operands = tuple(numpy_functions.promote_runtime_floats(x, given) for x in given)
        call = ELEMENTWISE.get(name)
        return call(*operands) if call else apply(OPS[name], operands, dict(attrs))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: object) -> Any:
        if self.is_outside:
            return getattr(ufunc, method)(*map(_as_met, inputs), **options)
        if not numpy_functions.is_known(ufunc):
            plain = (x.read(ufunc.__name__) if type(x) is RunFloat else x for x in inputs)
            return getattr(ufunc, method)(*plain, **options)
        return numpy_functions.array_ufunc(self, ufunc, method, *inputs, **options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        if self.is_outside:
            return function(*_as_met(args), **{key: _as_met(x) for key, x in options.items()})
        if not numpy_functions.is_known(function):
            raise self._frozen(f"{function.__module__}.{function.__name__}", _ARRAYS)
        return numpy_functions.array_function(self, function, types, args, options)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.read("numpy.asarray"), dtype)

    @property
    def is_outside(self) -> bool:
        """Whether the code runs outside its capture, where it is a plain number."""
        capture = recorder().capture
        while capture is not None and capture is not self.source.capture:
            capture = capture.outer
        return capture is None

    @property
    def may_be_read(self) -> bool:
        return self.source.may_be_read(self.place) or self.is_outside

    def read(self, conversion: str, fix: str = _ARRAYS) -> float:
        """Return the plain number, and record the read if the function made it."""
        if self.is_outside or in_handler(self.source.capture.frame):
            return self.number
        if not self.may_be_read:
            raise self._frozen(conversion, fix)
        self.source.read(self.place)
        return self.number

    def _frozen(self, conversion: str, fix: str) -> ConcretizationError:
        received = self.source.origin(self.place)
        return ConcretizationError(message(conversion, received, "arithmetic with it", fix))

    def tensor(self, dtype: Any = np.float64) -> Any:
        return self.number if self.is_outside else self.source.leaf(self.place, np.dtype(dtype))

    __tapegraph_float__ = detach = tensor

    def __reduce__(self) -> Any:
        return float, (self.read("pickle"),)

    def conjugate(self) -> Any:
        return _as_met(self)

    __pos__ = __copy__ = conjugate
    real = property(conjugate)

    def __deepcopy__(self, memo: object) -> Any:
        return _as_met(self)

    def __round__(self, digits: int | None = None) -> Any:
        if digits is None:  # which gives an int
            return round(self.read("round", "Write np.round(k)."))
        if self.is_outside:
            return round(self.number, digits)
        return _computed("round", (self, operator.index(digits)))

    def __index__(self) -> Any:
        raise self._frozen("index", BY_VALUE)

    def __repr__(self) -> str:
        return repr(self.read("repr")) if self.may_be_read else f"RunFloat({self.number!r})"


def _as_met(value: Any) -> Any:
    """Return a number outside its capture as a plain one, in lists and tuples too."""
    if type(value) in (list, tuple):
        return type(value)(map(_as_met, value))
    return value.number if type(value) is RunFloat and value.is_outside else value


def _computed(name: str, operands: tuple[object, ...]) -> Any:
    for x in operands:
        if type(x) is RunFloat:
            try:
                place = x.source.python(name, operands)
            except AskReal:
                return _complex(operands)
            if place is not None:
                return RunFloat(x.source, place)
    return None


def _complex(operands: tuple[Any, ...]) -> complex:
    base, exponent = (x.number if type(x) is RunFloat else x for x in operands)
    floats = [x for x in operands if type(x) is RunFloat]
    if not all(x.may_be_read for x in floats):
        received = f"a float argument, in {base!r} ** {exponent!r}, which is complex"
        fix = "Write (k + 0j) ** p for a number that is complex in every call."
        raise ConcretizationError(message("**", received, "a power that is a float", fix))
    for x in floats:
        x.read("**")
    return base**exponent


def _python(name: str, reflected: bool = False) -> Fun:
    method = f"__r{name}__" if reflected else f"__{name}__"
    operation = getattr(ArrayMethods, method)

    def compute(self: RunFloat, *others: object) -> Any:
        operands = tuple(map(_as_met, (self, *others)[:: -1 if reflected else 1]))
        if self.is_outside:
            return getattr(operator, name)(*operands)
        found = _computed(name, operands)
        if found is not None:
            return found
        if any(type(x).__array_ufunc__ is None for x in others if hasattr(x, "__array_ufunc__")):
            return NotImplemented  # a Value's own method computes it
        return operation(self, *others)

    compute.__name__ = method
    return compute


def _comparison(name: str) -> Fun:
    operation = getattr(ArrayMethods, name)

    def compare(self: RunFloat, other: Any) -> Any:
        other = _as_met(other)
        if self.is_outside:
            return getattr(operator, name)(self.number, other)
        plain = other.number if type(other) is RunFloat and other.may_be_read else other
        if not self.may_be_read or type(plain) not in (float, int, bool):
            return operation(self, other)
        if plain is not other:
            other.read(name)
        return getattr(self.read(name), name)(plain)

    compare.__name__ = name
    return compare


def _conversion(name: str, conversion: str, fix: str) -> Fun:
    def convert(self: RunFloat, *args: object) -> Any:
        return getattr(self.read(conversion, fix), name)(*args)

    convert.__name__ = name
    return convert


for _name in ("neg", "abs"):
    setattr(RunFloat, f"__{_name}__", _python(_name))
for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
    setattr(RunFloat, f"__{_name}__", _python(_name))
    setattr(RunFloat, f"__r{_name}__", _python(_name, reflected=True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(RunFloat, f"__{_name}__", _comparison(f"__{_name}__"))
for _name in ("float", "int", "trunc", "floor", "ceil"):
    setattr(RunFloat, f"__{_name}__", _conversion(f"__{_name}__", _name, _FUNCTIONS))
for _name in ("bool", "hash", "str", "format"):
    setattr(RunFloat, f"__{_name}__", _conversion(f"__{_name}__", _name, BY_VALUE))
for _name in ("is_integer", "as_integer_ratio", "hex"):
    setattr(RunFloat, _name, _conversion(_name, _name, BY_VALUE))
