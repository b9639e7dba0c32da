"""Arguments and results of transformed functions, by level of differentiation.

Every call of a transform is a level. A level of forward mode has a tag, one of reverse mode its own
leaves.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tapegraph.arrays import own
from tapegraph.compiling.compiled import DERIVATIVES
from tapegraph.errors import STATIC, CodePlace, kind_of, message, sentence, user_place
from tapegraph.ops.shape import alias, argument
from tapegraph.pytree import is_tree, leaves, mapped, replaced
from tapegraph.recording.lost_gradients import DIFFERENTIATING, raise_cause, to_constant
from tapegraph.recording.node import as_leaf, next_seq
from tapegraph.recording.record import tensor_like
from tapegraph.recording.recorder import Recorder
from tapegraph.recording.scopes import RECORDING, recorder
from tapegraph.tensors.batched import Batched, of_each_example
from tapegraph.tensors.dual import Dual, dual_of, lifted
from tapegraph.tensors.tensor import Tensor, UpdatedTensor
from tapegraph.tensors.value import Value
from tapegraph.typed import Fun, Pytree

# Tag 0 is the level of all duals that users make.
next_tag = next_seq
NUMBER_TYPES = (bool, int, float, complex, np.number, np.bool_)


class TracedArgument:
    """An argument, called ``path`` in messages, as leaves of a new level of reverse mode.

    :ivar inside: The argument of the function: the same structure, of Tensors and Duals.
    :ivar given: The values in the structure.
    :ivar targets: The leaves to differentiate with respect to, one per value of ``given``.
    """

    def __init__(self, op: str, value: Any, path: str, at: CodePlace | None = None) -> None:
        self.value = value
        self.targets: list[Any] = []
        self._is_tree = False
        if type(value) is np.ndarray and value.dtype.char in "df" and type(recorder()) is Recorder:
            self.given = [value]
            self.inside = argument(own(value), at or user_place())
            self.targets.append(self.inside)
            return
        self._is_tree = is_tree(value)
        if not self._is_tree:
            self.given = [value]
            self.inside = self._point(lifted(op, value, path), value)
            return
        self.given = [leaf for _, leaf in leaves(value)]
        points = zip(points_of(op, value, path), self.given, strict=True)
        self.inside = replaced(value, (self._point(*pair) for pair in points))

    def regrouped(self, results: Iterator[object]) -> Any:
        if not self._is_tree:
            return like_input(next(results), self.value)
        return replaced(self.value, (like_input(next(results), x) for x in self.given))

    def _point(self, x: object, given: object, *, spread: bool = True) -> Any:
        body = recorder().body
        if body is not None and body.is_outer(x):  # a constant there
            x = body.inside("a derivative", x)
        x = of_each_example(x) if spread else x
        if type(x) is Batched:
            return Batched(self._point(x.inner, given, spread=False), x.tag)
        if type(x) is Dual:
            return dual_of(self._point(x.primal, given, spread=False), x.tangent, x.tag)
        self.targets.append(alias(x, own=isinstance(given, (np.ndarray, float))))
        return self.targets[-1]


def points_of(op: str, value: object, path: str) -> list[Any]:
    """Return the leaves of an argument as `lifted` does; raise for whole numbers in an object."""
    if not is_tree(value):
        return [lifted(op, value, path)]
    points = []
    for place, leaf in leaves(value, path):
        x = tensor_like(op, leaf, place)
        # The depth of a dataclass's network is whole; [1, 2] stands for numbers.
        if x.dtype.kind in "biu" and "." in place.rpartition("]")[2]:
            fix = f"Write 1.0 for 1, close over it, or {STATIC}."
            expected = "floats: whole numbers have no derivative"
            raise TypeError(message(op, f"{kind_of(leaf)} for {place!r}", expected, fix))
        points.append(lifted(op, x, place))
    return points


def positions(op: str, argnums: Any) -> list[int]:
    several = isinstance(argnums, (tuple, list))
    found = []
    for argnum in argnums if several else (argnums,):
        try:
            found.append(operator.index(argnum))
        except TypeError:
            received = f"{kind_of(argnum)} for 'argnums'"
            raise TypeError(message(op, received, "the position of an argument")) from None
    if not found:
        raise ValueError(message(op, "no argnums", "the position of an argument"))
    return found


def no_argument(op: str, position: int, args: Sequence[object]) -> ValueError:
    received = f"argnum {position} and {len(args)} positional arguments"
    return ValueError(message(op, received, "an argument at that position"))


def and_aux(op: str, out: Any) -> tuple[Any, Any]:
    """Return what a function with ``has_aux=True`` returned, as a pair."""
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        text = f"with has_aux=True, f must return (result, aux), not a {type(out).__name__}."
        raise TypeError(sentence(op, text))
    return out[0], out[1]


def leaves_of_result(op: str, out: object) -> list[Any]:
    """Return the leaves of a function's result; raise for None alone."""
    return [x for _, x in leaves(out)] if out is not None else [result(op, out, 0)]


def result(op: str, out: object, level: int) -> Any:
    """Return a function's result as a Tensor or Dual; raise for others, and for an ended level."""
    if type(out) is Tensor:
        return out
    if isinstance(out, (Value, tuple, list)):
        text = f"f must return a number or a tensor, not a {type(out).__name__}."
        raise TypeError(sentence(op, text))
    if isinstance(out, (np.ndarray, *NUMBER_TYPES)):
        to_constant(op, level)
    out = tensor_like(op, out, "the function's result")
    if type(out) is UpdatedTensor:
        return out._read(op)
    if type(out) is Dual and out.tag > level:
        text = f"f returned a Dual of level {out.tag}, whose derivative has ended."
        raise ValueError(sentence(op, text))
    return out


def stays(x: Any) -> bool:
    """Return whether a plain number would lose an outer level or a gradient."""
    return bool(x.requires_grad) or recorder().records(x)


def flowing(x: Any) -> Any:
    """Return a result, as a constant to every outer level if nothing is recorded."""
    return x if recorder().flows or not x.requires_grad else x.detach()


def like_input(x: Any, given: Any) -> Any:
    """Return a result in the kind of an input: a float, a copied array, or a Tensor or Dual."""
    if type(x) is np.ndarray:
        if type(given) is np.ndarray:
            return x
        if isinstance(given, (Tensor, Dual)):
            return as_leaf(x)
        return plain_number(x) if x.shape == () and isinstance(given, NUMBER_TYPES) else x
    x = flowing(x)
    if isinstance(given, (Tensor, Dual)) or stays(x):
        return x
    if isinstance(given, NUMBER_TYPES) and x.shape == ():
        return plain_number(x._array)
    return np.array(x._array)


def plain_number(x: Any) -> float | complex:
    return complex(x) if x.dtype.kind == "c" else float(x)


def stop_gradient(x: Pytree) -> Pytree:
    """Return the same numbers as constants, through which no derivative of any order or mode flows.

    :param x: A tensor, array or number, or dicts, lists and tuples of them.
    :returns: The same structure, with arrays and numbers unchanged.

    >>> tg.grad(lambda x: x * tg.stop_gradient(x))(3.0)
    3.0
    """
    return mapped(_stopped, x)


def _stopped(x: object) -> Any:
    if isinstance(x, Batched):
        return Batched(_stopped(x.inner), x.tag)
    if isinstance(x, Dual):
        return _stopped(x.primal)
    return x.detach() if isinstance(x, Tensor) else x


class recording:
    """Record inside, also under ``no_grad``; losing a gradient is an error."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = DIFFERENTIATING.entered.get()
        try:
            if not recorder().flows:
                RECORDING.enter(self, True)
            DIFFERENTIATING.entered.set(((self, True),))
        except BaseException:  # a signal's, which came between the two
            self.__exit__(None, None, None)
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            DIFFERENTIATING.entered.set(self._before)
        finally:
            if RECORDING.entered.get():
                RECORDING.leave(self)
        if error is not None:
            raise_cause(error)


def derivative_of(f: Fun, derivative: Fun, doc: str, by: str = "") -> Fun:
    """Name a derivative after its function, with its own docstring."""
    named: Fun = functools.wraps(f)(derivative)
    named.__doc__ = doc.format(name=getattr(f, "__name__", repr(f)), by=by)
    DERIVATIVES.add(named)
    return named
