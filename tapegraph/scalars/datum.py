"""`Datum`: a Python float that a capture computes, such as the ``data`` of a Value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from tapegraph.errors import ConcretizationError, message
from tapegraph.recording.node import Node
from tapegraph.recording.op import OPS
from tapegraph.recording.record import ELEMENTWISE, apply
from tapegraph.scalars.arithmetic import SCALAR_OPS
from tapegraph.scalars.recorder import NumberRecorder

# What Python's floats do: a division by zero raises, where a Value's is infinite.
_BINARY = {"add": "add", "sub": "sub", "mul": "mul", "truediv": "python_div", "pow": "python_pow"}
_UNARY = ("neg", "abs")


class Datum:
    """A number of the program: arithmetic with it is recorded, and anything else refused."""

    __slots__ = ("_recorder", "index")

    # NumPy's numbers on the left then leave the operation to the methods below.
    __array_ufunc__ = None
    __pandas_priority__ = 10_000

    requires_grad = False  # gradients flow through Values
    shape: tuple[int, ...] = ()

    def __init__(self, recorder: NumberRecorder, index: int) -> None:
        self._recorder = recorder
        self.index = index  # which number it is

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[Any, ...], attrs: Mapping[str, object]) -> Any:
        """Apply an operation: Python's arithmetic among numbers, and else one of tensors."""
        for x in inputs:
            handler = getattr(type(x), "__tapegraph_apply__", None)
            if handler is not None and type(x) is not Datum:
                return handler(name, inputs, attrs)  # a Value's, or an argument's
        (recorder,) = {x._recorder for x in inputs if type(x) is Datum}
        found = [_number(recorder, x) for x in inputs]
        args = tuple(i for i in found if i is not None)
        if name in _BINARY.values() and not attrs and len(args) == len(inputs):
            return _computed(recorder, name, args)
        tensors = [x.detach() if type(x) is Datum else x for x in inputs]
        call = ELEMENTWISE.get(name)
        return call(*tensors) if call else apply(OPS[name], tuple(tensors), dict(attrs))

    def detach(self) -> Any:
        """Return the number as a tensor."""
        return self._recorder.tensor([self.index])[0]

    def __pos__(self) -> Datum:
        return self

    def _frozen(self, conversion: str) -> NoReturn:
        received = self._recorder.origin(self.index)
        fix = "Return it and read it outside, or compute with Values."
        raise ConcretizationError(message(conversion, received, "arithmetic with it", fix))

    def __repr__(self) -> str:
        return f"Datum({self._recorder.number(self.index)!r})"


def _number(recorder: NumberRecorder, x: Any) -> int | None:
    """Return which number of the program an operand is, None for an array or something else."""
    if type(x) is Datum:
        return x.index
    if isinstance(x, Node):
        plain = x._array.shape == () and x._array.dtype == float and not x._requires_grad
        return recorder.element(x) if plain else None
    return recorder.constant(float(x)) if isinstance(x, (float, int)) else None


def _computed(recorder: NumberRecorder, kind: str, args: tuple[int, ...]) -> Datum:
    data = SCALAR_OPS[kind].number(*[recorder.number(i) for i in args])
    return Datum(recorder, recorder.computed(kind, args, data))


def _operator(name: str, kind: str, reflected: bool = False) -> Callable[..., Any]:
    def compute(self: Datum, *others: Any) -> Any:
        recorder = self._recorder
        args = [self.index]
        for x in others:
            number = getattr(x, "tensor", None)  # of a float argument
            i = _number(recorder, number() if number is not None else x)
            if i is None:
                return NotImplemented
            args.append(i)
        if reflected:
            args.reverse()
        return _computed(recorder, kind, tuple(args))

    compute.__name__ = f"__r{name}__" if reflected else f"__{name}__"
    return compute


def _refused(name: str) -> Callable[..., NoReturn]:
    def compute(self: Datum, *others: Any) -> NoReturn:
        self._frozen(name)

    compute.__name__ = f"__{name}__"
    return compute


for _name, _kind in _BINARY.items():
    setattr(Datum, f"__{_name}__", _operator(_name, _kind))
    setattr(Datum, f"__r{_name}__", _operator(_name, _kind, reflected=True))
for _name in _UNARY:
    setattr(Datum, f"__{_name}__", _operator(_name, _name))
_WITHOUT = ("eq", "ne", "lt", "le", "gt", "ge", "mod", "rmod", "floordiv", "rfloordiv")
_CONVERSIONS = ("float", "int", "index", "bool", "hash", "format")
for _name in (*_WITHOUT, *_CONVERSIONS, "divmod", "rdivmod", "round", "trunc", "floor", "ceil"):
    setattr(Datum, f"__{_name}__", _refused(_name))
