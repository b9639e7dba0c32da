"""Groups of parameters: what they are called, and the learning rate and weight decay of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from tapegraph.errors import explain, kind_of
from tapegraph.optim.leaves import Leaf, Leaves
from tapegraph.optim.options import (
    Rate,
    check_rate_is_not_read,
    check_rate_is_set_outside,
    number,
    rate,
)
from tapegraph.recording.node import Node
from tapegraph.tensors.value import Value

Params: TypeAlias = "Leaves | Iterable[Mapping[str, Any]]"
KEYS = ("params", "lr", "weight_decay")


class Group:
    """Some parameters of an optimizer.

    - params: The leaves.
    - names: What each is called in ``optimizer.state`` and ``state_dict()``.
    - lr: Its own learning rate, a number or a schedule; None where it follows the optimizer's. May
      be changed at any time.
    - weight_decay: Fixed at construction.
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
        """Its own learning rate, or None where it follows the optimizer's."""
        check_rate_is_not_read()
        return self._lr

    @lr.setter
    def lr(self, value: Rate | None) -> None:
        check_rate_is_set_outside()
        self._lr = None if value is None else rate(self._kind, value)

    @property
    def weight_decay(self) -> float:
        """The weight decay of its parameters."""
        return self._weight_decay


def grouped(kind: str, params: Params, weight_decay: float) -> list[Group]:
    """Return the groups that a user gave: one, of a list or dict, or those of a list of dicts."""
    if isinstance(params, (Node, Value, Mapping)) or not isinstance(params, Iterable):
        given: list[Any] = [{"params": params}]
    else:
        given = list(params)
        if not any(isinstance(group, Mapping) for group in given):
            given = [{"params": given}]
    for group in given:
        _check_group(kind, group)
    parts = [checked(kind, group["params"]) for group in given]
    _check_distinct(kind, [p for leaves in parts for p in leaves])
    names = iter(_names(kind, [group["params"] for group in given], parts))
    return [
        Group(kind, leaves, [next(names) for _ in leaves], group.get("lr"), decay)
        for group, leaves in zip(given, parts, strict=True)
        for decay in [group.get("weight_decay", weight_decay)]
    ]


def checked(op: str, params: Leaves) -> list[Leaf]:
    """Return parameters as a list, each of them a leaf and there once, or raise."""
    if isinstance(params, (Node, Value)) or not isinstance(params, Iterable):
        raise TypeError(explain(op, kind_of(params), "a list of parameters", "Write [w]."))
    found = list(params.values() if isinstance(params, Mapping) else params)
    for p in found:
        if not _is_leaf(p):
            is_constant = isinstance(p, Node) and not p._inputs
            fix = "It is a constant: call requires_grad_() on it, or leave it out."
            expected = "parameters made by tg.param or tg.Value"
            raise TypeError(explain(op, kind_of(p), expected, fix if is_constant else ""))
    _check_distinct(op, found)
    return found


def _check_distinct(op: str, params: list[Leaf]) -> None:
    if len(set(map(id, params))) < len(params):
        fix = "It would count twice."
        raise ValueError(explain(op, "a parameter more than once", "each once", fix))


def _is_leaf(p: Any) -> bool:
    if isinstance(p, Node):
        return p._requires_grad and not p._inputs
    return isinstance(p, Value) and not p.args


def _check_group(kind: str, group: Any) -> None:
    if not isinstance(group, Mapping):
        fix = 'Write {"params": [w]} for each group.'
        raise TypeError(explain(kind, f"{kind_of(group)} among groups", "groups alone", fix))
    unknown = [key for key in group if key not in KEYS]
    if unknown or "params" not in group:
        received = f"a group with {unknown}" if unknown else "a group without 'params'"
        raise TypeError(explain(kind, received, f"groups of {', '.join(KEYS)}"))


def _names(kind: str, given: list[Any], parts: list[list[Leaf]]) -> list[str]:
    """Name each parameter: its key in a dict, its own name if no other has it, or its place."""
    own = Counter(_own_name(p) for leaves in parts for p in leaves)
    names: list[str] = []
    for params, leaves in zip(given, parts, strict=True):
        if isinstance(params, Mapping):
            names.extend(params)
            continue
        for p in leaves:
            name = _own_name(p)
            names.append(name if name and own[name] == 1 else str(len(names)))
    for name, count in Counter(names).items():
        if not isinstance(name, str):
            raise TypeError(explain(kind, f"{kind_of(name)} as a name", "names that are strings"))
        if count > 1:
            fix = "Give a dict of names, or the tensors names of their own."
            raise ValueError(explain(kind, f"{count} parameters named {name!r}", "one", fix))
    return names


def _own_name(p: Leaf) -> str | None:
    return p.label if isinstance(p, Value) else p.name
