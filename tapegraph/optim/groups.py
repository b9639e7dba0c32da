"""Groups of parameters: what they are called, and the learning rate and weight decay of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from tapegraph.errors import explain, kind_of
from tapegraph.optim.leaves import Leaf, Leaves, check_distinct, checked
from tapegraph.optim.options import in_interval
from tapegraph.recording.concretization import check_not_read, check_outside
from tapegraph.recording.node import Node
from tapegraph.tensors.value import Value

# A learning rate: a number, or one for each step, counted from 0.
Rate: TypeAlias = "float | Callable[[int], float]"
Params: TypeAlias = "Leaves | Iterable[Mapping[str, Any]]"
KEYS = ("params", "lr", "weight_decay")


class Group:
    """Some parameters of an optimizer.

    Attributes
    ----------
    params : list of Tensor or Value
        The leaves.
    names : list of str
        What each is called in ``optimizer.state`` and ``state_dict()``.
    lr : float, callable or None
        Its own learning rate, a number or a schedule; None where it follows the optimizer's.
        May be changed at any time.
    weight_decay : float
        Fixed at construction.
    """

    __slots__ = ("_kind", "_lr", "_weight_decay", "names", "params")

    def __init__(
        self,
        kind: str,
        params: list[Leaf],
        names: list[str],
        lr: Rate | None,
        weight_decay: float,
    ) -> None:
        self._kind = kind
        self.params = params
        self.names = names
        self._lr = None if lr is None else rate(kind, lr)
        self._weight_decay = in_interval(kind, "weight_decay", weight_decay)

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


def check_rate_is_not_read() -> None:
    """Refuse to read a learning rate in a program that is recorded whole: it would be frozen."""
    check_not_read("lr", "a learning rate", "Read it outside, or pass it as a float argument.")


def check_rate_is_set_outside() -> None:
    """Refuse to set a learning rate in a program that is recorded whole: its runs would not."""
    check_outside("lr", "Its runs read the rate anew: set it between them, or give a schedule.")


def rate(kind: str, value: Rate) -> Rate:
    """Return a learning rate that has been checked, a schedule by what it gives for step 0.

    Raises
    ------
    TypeError
        It is neither a number nor a callable, or the schedule gives no number.
    ValueError
        It is negative, infinite or NaN.
    """
    if callable(value):
        rate_at(kind, value, 0)
        return value
    return in_interval(kind, "lr", value)


def rate_at(kind: str, value: Rate, step: int) -> float:
    """Return the learning rate of a step, counted from 0."""
    if not callable(value):
        return value
    return in_interval(kind, f"lr({step})", value(step))


def grouped(kind: str, params: Params, weight_decay: float) -> list[Group]:
    """Return the groups that a user gave: one, of a list or dict, or those of a list of dicts.

    Raises
    ------
    TypeError
        They are not parameters, or a group has an option that is none.
    ValueError
        A parameter, or a name in dicts, is there more than once.
    """
    if isinstance(params, (Node, Value, Mapping)) or not isinstance(params, Iterable):
        given: list[Any] = [{"params": params}]
    else:
        given = list(params)
        if not any(isinstance(group, Mapping) for group in given):
            given = [{"params": given}]
    for group in given:
        _check_group(kind, group)
    parts = [(group["params"], checked(kind, group["params"])) for group in given]
    check_distinct(kind, [p for _, leaves in parts for p in leaves])
    names = iter(_names(kind, parts))
    return [
        Group(
            kind,
            leaves,
            [next(names) for _ in leaves],
            group.get("lr"),
            group.get("weight_decay", weight_decay),
        )
        for group, (_, leaves) in zip(given, parts, strict=True)
    ]


def _check_group(kind: str, group: Any) -> None:
    if not isinstance(group, Mapping):
        fix = 'Write {"params": [w]} for each group.'
        raise TypeError(explain(kind, f"{kind_of(group)} among groups", "groups alone", fix))
    unknown = [key for key in group if key not in KEYS]
    if unknown or "params" not in group:
        received = f"a group with {unknown}" if unknown else "a group without 'params'"
        raise TypeError(explain(kind, received, f"groups of {', '.join(KEYS)}"))


def _names(kind: str, parts: list[tuple[Any, list[Leaf]]]) -> list[str]:
    """Name each parameter: its key in a dict, its own name if no other has it, or its place."""
    own = Counter(_own_name(p) for _, leaves in parts for p in leaves)
    names: list[str] = []
    for given, leaves in parts:
        if isinstance(given, Mapping):
            names.extend(given)
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
