"""Access to parameters and gradients, options of an optimizer's rule, and groups of parameters.

A parameter is a `Tensor` leaf or a `Value`; its number and gradient are arrays, inside a captured
program tensors. Options are checked at construction and then fixed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from operator import setitem
from typing import Any, Generic, TypeAlias, TypeVar, overload

import numpy as np

from tapegraph.arrays import is_shared, own, read_only
from tapegraph.errors import kind_of, message, sentence
from tapegraph.recording.node import Node, as_float, as_leaf
from tapegraph.recording.scopes import Setting, recorder
from tapegraph.recording.values import Change, new_numbers
from tapegraph.scalars.recorder import GRAD, recorder_of
from tapegraph.tensors.parameters import collected, direct, is_parameter, is_result, listed
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.value import Value
from tapegraph.typed import Array

Leaf: TypeAlias = "Tensor | Value"
# In a list, a dict or a model (`tapegraph.tensors.parameters`).
Leaves: TypeAlias = object
# What stands between gradients and those who use them: ``average(leaves)`` lets each have the
# average of its gradients over all processes, ``step(optimizer)`` takes a step with such ones.
AVERAGING: Setting[Any] = Setting("tapegraph_averaging", default=None)


def gradient_of(p: Leaf, *, rows: bool) -> Any:
    """Return a gradient, not to be changed, or None: an ndarray, `RowSparse` or captured tensor."""
    if isinstance(p, Value):
        return np.asarray(p.grad)
    if not p.requires_grad:  # momentum would move it, and weight decay
        return None
    return recorder().gradient_for_step(p, rows)


def gradients_of(params: list[Leaf], *, rows: bool) -> list[Any]:
    """Return each parameter's gradient as `gradient_of` does; those of Values as tensors."""
    values = [p for p in params if isinstance(p, Value)]
    capture = recorder().capture
    if not values or capture is None:
        return [gradient_of(p, rows=rows) for p in params]
    numbers = recorder_of(capture)
    found = iter(numbers.tensors([[numbers.index(p, GRAD)] for p in values], ()))
    return [next(found) if isinstance(p, Value) else gradient_of(p, rows=rows) for p in params]


def replace_gradient(p: Leaf, grad: Any) -> None:
    if isinstance(p, Value):
        p.grad = grad
    else:
        recorder().replace_gradient(p, grad)


def data_of(p: Leaf) -> Array:
    """Return a parameter's or a slot's numbers, which the caller must not change."""
    return read_only(np.asarray(p.data) if isinstance(p, Value) else p._array)


def rows_set(p: Any, rows: Array, values: Array) -> list[Change]:
    # Whoever else holds the array keeps the old numbers.
    table = own(p._array) if is_shared(p) else p._array
    return [partial(setitem, table, rows, values), *new_numbers(p, table)]


def fresh(array: Any, taken: set[int]) -> Array:
    """Return a rule's result as an array that nobody else holds: itself, if it is new."""
    if type(array) is np.ndarray and array.base is None and id(array) not in taken:
        taken.add(id(array))
        return array
    return own(array)


def slot(array: Any) -> Tensor:
    return as_leaf(own(array))


def real_and_imaginary(z: Any) -> Any:
    return np.stack([z.real, z.imag], axis=-1)


def of_parts(parts: Any) -> Any:
    return parts[..., 0] + 1j * parts[..., 1]


# Options and groups

T = TypeVar("T")
# A learning rate: a number, or one for each step, counted from 0.
Rate: TypeAlias = "float | Callable[[int], float]"


class Option(Generic[T]):
    """An attribute that is set once, to the result of ``check(class name, option name, value)``."""

    def __init__(self, check: Callable[[str, str, Any], T]) -> None:
        self._check = check

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Option[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> Option[T] | T:
        if instance is None:
            return self
        if self._name not in instance.__dict__:
            text = f"{self._name} is not set. Set options before super().__init__(params, lr)."
            raise AttributeError(sentence(owner.__name__, text))
        return instance.__dict__[self._name]

    def __set__(self, instance: object, value: object) -> None:
        kind = type(instance).__name__
        if self._name in instance.__dict__:
            text = (
                f"{self._name} is fixed at construction. Make a new {kind}, and load this one's "
                "state_dict()."
            )
            raise AttributeError(sentence(kind, text))
        instance.__dict__[self._name] = self._check(kind, self._name, value)


def number(kind: str, name: str, value: object, below: float = np.inf) -> float:
    """Return a number of at least 0 and less than ``below`` as a float, or raise."""
    found = as_float(value, kind, name)
    if not 0.0 <= found < below:
        bound = "finite and not negative" if below == np.inf else f"at least 0 and below {below:g}"
        raise ValueError(message(kind, f"{name}={value}", f"a number that is {bound}"))
    return found


fraction = partial(number, below=1.0)


def fractions(kind: str, name: str, value: object) -> tuple[float, float]:
    """Return two numbers of at least 0 and less than 1, such as Adam's betas, or raise."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise TypeError(message(kind, f"{kind_of(value)} for {name!r}", "a tuple of 2 numbers"))
    return fraction(kind, f"{name}[0]", value[0]), fraction(kind, f"{name}[1]", value[1])


def flag(kind: str, name: str, value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(message(kind, f"{kind_of(value)} for {name!r}", "True or False"))
    return bool(value)


def rate(kind: str, value: Rate) -> Rate:
    """Return a checked learning rate; a schedule is checked by its value at step 0."""
    if callable(value):
        rate_at(kind, value, 0)
        return value
    return number(kind, "lr", value)


def rate_at(kind: str, value: Rate, step: int) -> float:
    return number(kind, f"lr({step})", value(step)) if callable(value) else value


def check_rate_is_not_read() -> None:
    """Raise if a captured program reads a learning rate: it would be frozen."""
    recorder().read_plain(
        "lr", "a learning rate", "Read it outside, or pass it as a float argument."
    )


def check_rate_is_set_outside() -> None:
    """Raise if a captured program sets a learning rate: its runs would not."""
    recorder().outside("lr", "Every run reads the rate: set it between calls, or pass a schedule.")


# Leaves in a list, a dict or a model (`tapegraph.tensors.parameters`), or a list of groups of them.
Params: TypeAlias = object
_KEYS = ("params", "lr", "weight_decay")


class Group:
    """Some parameters of an optimizer, with their names in ``state`` and their own options.

    :ivar lr: A number or a schedule, which may change at any time; None for the optimizer's.
    """

    __slots__ = ("_kind", "_lr", "_weight_decay", "names", "params")

    def __init__(
        self, kind: str, params: list[Leaf], names: list[str], lr: Rate | None, weight_decay: float
    ) -> None:
        self._kind, self.params, self.names = kind, params, names
        self._lr = None if lr is None else rate(kind, lr)
        self._weight_decay = number(kind, "weight_decay", weight_decay)

    @property
    def lr(self) -> Rate | None:
        """Its own learning rate, or None if it follows the optimizer's."""
        check_rate_is_not_read()
        return self._lr

    @lr.setter
    def lr(self, value: Rate | None) -> None:
        check_rate_is_set_outside()
        self._lr = None if value is None else rate(self._kind, value)

    @property
    def weight_decay(self) -> float:
        return self._weight_decay


def grouped(kind: str, params: Params, weight_decay: float) -> list[Group]:
    """Return the user's groups: one, of a list or model, or those of a list of dicts."""
    if isinstance(params, float):
        fix = f"Write {kind}(params, lr={params})."
        raise TypeError(message(kind, kind_of(params), "the parameters first", fix))
    params = listed(params)
    given: list[Any] = [{"params": params}]
    # Any other list of dicts is that of a model's layers.
    if isinstance(params, (list, tuple)) and any(
        isinstance(part, Mapping) and not part.keys().isdisjoint(_KEYS) for part in params
    ):
        given = list(params)
    for group in given:
        if not isinstance(group, Mapping):
            fix = 'Write {"params": [w]} for each group.'
            raise TypeError(message(kind, f"{kind_of(group)} among groups", "only groups", fix))
        unknown = [key for key in group if key not in _KEYS]
        if unknown or "params" not in group:
            received = f"a group with {unknown}" if unknown else "a group without 'params'"
            raise TypeError(message(kind, received, f"groups of {', '.join(_KEYS)}"))
    parts = [named_params(kind, group["params"]) for group in given]
    _check_distinct(kind, [p for _, leaves in parts for p in leaves])
    names = iter(_names(kind, parts))
    return [
        Group(kind, leaves, [next(names) for _ in leaves], group.get("lr"), decay)
        for group, (_, leaves) in zip(given, parts, strict=True)
        for decay in [group.get("weight_decay", weight_decay)]
    ]


def named_params(op: str, params: object) -> tuple[list[str] | None, list[Leaf]]:
    """Return parameters, each a leaf and there once, and their names; None for those of a list."""
    expected = "a list of parameters, or a model that holds some"
    if isinstance(params, (Node, Value)):
        raise TypeError(message(op, kind_of(params), expected, "Write [w]."))
    params = listed(params)
    members = direct(params)
    for p in members or ():
        if not is_parameter(p):
            fix = ""
            if is_result(p):
                fix = f"It is a result of {p.op}: w -= step makes one outside tg.no_grad(), and so "
                fix += "does tg.param(a) * 0.1. Scale inside: tg.param(0.1 * a)."
            elif isinstance(p, Node):
                fix = "It is a constant: call requires_grad_() on it, or leave it out."
            wanted = "parameters made by tg.param or tg.Value"
            raise TypeError(message(op, kind_of(p), wanted, fix))
    if members is not None and type(params) in (list, tuple):
        _check_distinct(op, members)
        return None, members
    if members and isinstance(params, Mapping) and set(map(type, params)) == {str}:
        if len(set(map(id, members))) == len(members):  # as a rule: none of them is tied
            return list(params), members
    found = collected(op, params)
    if not found and members is None:
        raise TypeError(message(op, kind_of(params), expected))
    return list(found), list(found.values())


def _check_distinct(op: str, params: list[Leaf]) -> None:
    if len(set(map(id, params))) < len(params):
        raise ValueError(sentence(op, "a parameter is listed more than once. List it once."))


def _names(kind: str, parts: list[tuple[list[str] | None, list[Leaf]]]) -> list[str]:
    """Name each parameter: as the model does, by its own unique name, or by its place."""
    own = Counter(_own_name(p) for _, leaves in parts for p in leaves)
    names: list[str] = []
    for given, leaves in parts:
        if given is not None:
            names.extend(given)
            continue
        for p in leaves:
            name = _own_name(p)
            names.append(name if name and own[name] == 1 else str(len(names)))
    for name, count in Counter(names).items():
        if count > 1:
            fix = "Give a dict of names, or the tensors names of their own."
            raise ValueError(message(kind, f"{count} parameters named {name!r}", "one", fix))
    return names


def _own_name(p: Leaf) -> str | None:
    return p.label if isinstance(p, Value) else p.name
