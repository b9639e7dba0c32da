"""`Dual` numbers, which carry a derivative along with a value.

An operation belongs to the highest tag among its inputs; others are constants to that level.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

import numpy as np

from tapegraph.differentiation.jvps import JVPS
from tapegraph.engines import registry
from tapegraph.errors import message, sentence
from tapegraph.kinds import Operand
from tapegraph.ops.elementwise import real
from tapegraph.recording import lost_gradients
from tapegraph.recording.node import as_leaf
from tapegraph.recording.numpy_functions import detached, under
from tapegraph.recording.op import DEFINED, OPS, Attrs, Op
from tapegraph.recording.record import ELEMENTWISE, apply, keep_parts, operand, tensor_like
from tapegraph.recording.scopes import recorder
from tapegraph.recording.watchers import WATCHING, unwatched
from tapegraph.tensors.array_methods import ArrayMethods, formatted
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.value import Value
from tapegraph.typed import Array, DType, Fun


class Dual(ArrayMethods):
    """A value and its directional derivative: ``primal + tangent * e`` with ``e * e = 0``.

    It computes as a `Tensor` does, and ``f(Dual(x, t))`` is ``Dual(f(x), f'(x) t)``. Comparisons
    and ``bool`` are by value. `jvp` and `grad` make duals, one level per call; those made by hand
    share one level.

    :param primal, tangent: The value, numbers, integers and lists as float64, and its derivative.
    :param tag: Its level.
    :raises TypeError: A part is not numeric, or is a `Value`.
    :raises ValueError: The parts' shapes differ, or one belongs to the same or a higher level.

    >>> x = tg.Dual(3.0, 1.0)
    >>> x**2 + 2.0 * x
    Dual(15., tangent=8.)
    """

    __slots__ = ("primal", "tag", "tangent")

    primal: Tensor | Dual
    tangent: Tensor | Dual
    tag: int

    def __init__(self, primal: Operand, tangent: Operand, tag: int = 0) -> None:
        self.primal = lifted("Dual", primal, "primal")
        self.tangent = direction("Dual", tangent, "tangent", self.primal)
        self.tag = tag
        for part in (self.primal, self.tangent):
            if type(part) is Dual and part.tag >= tag:
                received = f"a part of level {part.tag} in a dual of level {tag}"
                fix = "Nest derivatives with tg.jvp or tg.grad."
                raise ValueError(message("Dual", received, "parts of lower levels", fix))

    @staticmethod
    def __tapegraph_apply__(name: str, inputs: tuple[object, ...], attrs: Attrs) -> Any:
        operands = [_operand(name, x) for x in inputs]
        tag = max(x.tag for x in operands if type(x) is Dual)
        op, rule = _rule(name, tag)
        split = [parts(x, tag) for x in operands]
        primals = tuple(primal for primal, _ in split)
        call = ELEMENTWISE.get(name)  # it explains shape errors
        out = call(*primals) if call else apply(op, primals, dict(attrs))
        if not recorder().flows:  # a constant, as in reverse mode
            return out
        with np.errstate(all="ignore"):
            tangent = _tangent(op, rule, tuple(t for _, t in split), out, primals, attrs)
            if op.several and tangent is not None:
                return tuple(with_tangent(*pair, tag) for pair in zip(out, tangent, strict=True))
            return with_tangent(out, tangent, tag)

    # Value and kind

    @property
    def data(self) -> Array:
        """The value under all levels, read-only."""
        view: Array = _array_under(self).view()
        view.flags.writeable = False
        return view

    @property
    def shape(self) -> tuple[int, ...]:
        """Length along each axis."""
        return self.primal.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self.primal.dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.primal.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.primal.size

    @property
    def requires_grad(self) -> bool:
        """True: a derivative flows through every dual."""
        return True

    def item(self, *index: SupportsIndex | tuple[SupportsIndex, ...]) -> float:
        """Return an element of the value as a Python number; see `Tensor.item`."""
        lost_gradients.numbers_read("item()")
        return self.detach().item(*index)

    def numpy(self) -> Array:
        """Return the value as an ordinary array with its own memory."""
        lost_gradients.numbers_read("numpy()")
        return np.array(_array_under(self))

    def detach(self) -> Tensor:
        """Return the value as a constant, without derivative."""
        return under(self).detach()

    # Conversions

    def __bool__(self) -> bool:
        return bool(self.detach())

    def __len__(self) -> int:
        return len(self.primal)

    def __repr__(self) -> str:
        return f"Dual({_text(self.primal)}, tangent={_text(self.tangent)})"

    def __format__(self, spec: str) -> str:
        return formatted(self, self.data, spec)

    if not TYPE_CHECKING:  # type checkers are to refuse these too

        def __array__(self, dtype: object = None, copy: bool | None = None) -> NoReturn:
            raise lost_gradients.to_array("Dual")

        def __float__(self) -> NoReturn:
            raise lost_gradients.not_a_number("Dual", "float", "dual.item()")

        def __int__(self) -> NoReturn:
            raise lost_gradients.not_a_number("Dual", "int", "dual.item()")

        def __index__(self) -> NoReturn:
            raise TypeError(message("index", "a Dual", "an integer", lost_gradients.as_index()))

        def tolist(self) -> NoReturn:
            raise lost_gradients.not_a_number("Dual", "tolist", "dual.numpy().tolist()")

        def __setitem__(self, key: object, value: object) -> NoReturn:
            text = "elements of a Dual cannot be assigned. Use np.where or np.concatenate."
            raise TypeError(sentence("setitem", text))


def with_tangent(out: Any, tangent: Any, tag: int) -> Any:
    """Return a result with its tangent, in its shape and dtype; None is zero."""
    if tangent is None:
        return out
    if tangent.dtype.kind == "c" and out.dtype.kind != "c":
        tangent = real(tangent)
    if tangent.shape != out.shape or tangent.dtype != out.dtype:
        tangent = tangent + as_leaf(np.zeros(out.shape, out.dtype))
    return dual_of(out, tangent, tag)


def dual_of(primal: Any, tangent: Any, tag: int) -> Dual:
    out = object.__new__(Dual)
    out.primal = primal
    out.tangent = tangent
    out.tag = tag
    return out


def _tangent(
    op: Op,
    rule: Fun,
    tangents: tuple[object, ...],
    out: object,
    primals: tuple[object, ...],
    attrs: Attrs,
) -> Any:
    """Run a tangent rule without warnings: slopes may be infinite where a zero absorbs them."""
    watchers = WATCHING.value()
    if not watchers:
        return rule(tangents, out, *primals, **attrs)
    with unwatched():
        tangent = rule(tangents, out, *primals, **attrs)
    for watcher in watchers:
        watcher.result(f"tangent of {op.name}", primals, tangent)
    return tangent


def _rule(name: str, tag: int) -> tuple[Op, Fun]:
    op = OPS.get(name) or DEFINED[name]
    if op.differentiable == ():  # a comparison, of examples of `vmap` too
        return op, lambda *args, **attrs: None
    if op.rules is None:
        return op, JVPS.get(name) or registry.engine(registry.NATIVE).tangent_rule(op, tag)
    if op.rules.jvp is None and op.rules.recorded is not None:
        return op, registry.engine(registry.NATIVE).tangent_rule(op, tag)
    if op.rules.jvp is None:
        text = "the operation has no forward-mode rule. Pass jvp= to tg.defop, or use tg.backward."
        raise NotImplementedError(sentence(name, text))
    return op, op.rules.jvp


def _operand(op: str, x: object) -> Any:
    if isinstance(x, Value):
        fix = "For the gradient of a Value call its backward()."
        raise TypeError(message(op, "a Value next to a Dual", "numbers or arrays", fix))
    return operand(op, x, "operand")


def parts(x: object, tag: int) -> tuple[Any, Any]:
    """Return value and tangent of an operand at a level; the tangent of a constant is None."""
    return (x.primal, x.tangent) if type(x) is Dual and x.tag == tag else (x, None)


def lifted(op: str, x: Any, argument: str) -> Any:
    """Return a user's argument as a Tensor or Dual of floats."""
    if isinstance(x, Value):
        fix = "For the gradient of a Value call its backward()."
        raise TypeError(message(op, f"a Value for {argument!r}", "a number or an array", fix))
    x = tensor_like(op, x, argument)
    if hasattr(type(x), "__tapegraph_float__"):  # a float argument of a compiled function
        x = x * as_leaf(np.ones(()))
    return x if x.dtype.kind in "fc" else x * 1.0


def direction(op: str, x: object, argument: str, primal: Any) -> Any:
    """Return a tangent as `lifted` does, in its primal's dtype and shape."""
    t = lifted(op, x, argument)
    if t.shape != primal.shape:
        received = f"{argument} of shape {t.shape} for a primal of shape {primal.shape}"
        raise ValueError(message(op, received, "equal shapes"))
    keep_parts(op, argument, t.dtype, primal.dtype)
    if t.dtype != primal.dtype and type(t) is Tensor and not t._requires_grad:
        return as_leaf(t._array.astype(primal.dtype))
    return t


def _array_under(x: object) -> Array:
    return np.asarray(detached(under(x)))


def _text(part: object) -> str:
    if type(part) is Dual:
        return repr(part)
    array = _array_under(part)
    extras = "" if array.dtype == np.float64 else f", dtype={array.dtype}"
    return np.array2string(array, separator=", ", prefix="Dual(") + extras
