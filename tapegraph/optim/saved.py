"""`Optimizer.state_dict` and `load_state_dict`: the state by name, checked when loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegraph.errors import kind_of, message
from tapegraph.optim.leaves import data_of
from tapegraph.optim.options import Rate, rate
from tapegraph.recording.changes import Change, make, new_numbers, together
from tapegraph.recording.node import numeric

if TYPE_CHECKING:
    from tapegraph.optim.optimizer import Optimizer

_KEYS = ("optimizer", "steps", "lr", "state")


def saved(optimizer: Optimizer) -> dict[str, Any]:
    """Return copies of what the next steps depend on."""
    state = {
        name: {k: np.array(data_of(v)) for k, v in slots.items()}
        for name, slots in optimizer.state.items()
    }
    rates = [value if isinstance(value, float) else None for value in _rates(optimizer)]
    return dict(zip(_KEYS, (type(optimizer).__name__, optimizer.steps, rates, state), strict=True))


def load_state(optimizer: Optimizer, state_dict: Mapping[str, Any]) -> None:
    """Put another run's state in, all of it or none."""
    op = f"{type(optimizer).__name__}.load_state_dict"
    make(together(changes_to(optimizer, state_dict, op)))


def changes_to(optimizer: Optimizer, state_dict: Mapping[str, Any], op: str) -> list[Change]:
    """Return what puts another run's state in, everything checked."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(message(op, kind_of(state_dict), "what state_dict() gave"))
    _check_names(op, "entries", state_dict, _KEYS)
    kind, steps, rates, state = (state_dict[key] for key in _KEYS)
    if kind != type(optimizer).__name__:
        raise ValueError(message(op, f"the state of {kind}", f"that of {type(optimizer).__name__}"))
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 0:
        raise ValueError(message(op, f"{steps!r} for 'steps'", "a count of steps"))
    held = _rates(optimizer)
    if len(rates) != len(held):
        received = f"learning rates of {len(rates) - 1} groups"
        raise ValueError(message(op, received, f"{len(held) - 1} groups"))
    checked = [None if new is None else rate(op, new) for new in rates]
    arrays = list(_arrays(op, optimizer, state))
    owners: list[Any] = [optimizer, *optimizer.groups]
    changes = new_numbers(optimizer._steps, np.array(int(steps)))
    for owner, now, new in zip(owners, held, checked, strict=True):
        if new is not None and not callable(now):
            changes.append(partial(setattr, owner, "_lr", new))
    for leaf, array in arrays:
        changes += new_numbers(leaf, array)
    return changes


def _rates(optimizer: Optimizer) -> list[Rate | None]:
    return [optimizer._lr, *(group.lr for group in optimizer.groups)]


def _arrays(op: str, optimizer: Optimizer, state: Any) -> Iterable[tuple[Any, Any]]:
    """Yield each slot with its new array."""
    _check_names(op, "parameters", state, optimizer.state)
    for name, slots in optimizer.state.items():
        _check_names(op, f"slots of {name!r}", state[name], slots)
        for key, leaf in slots.items():
            array = numeric(state[name][key], op, f"{name}.{key}")
            if array.shape != leaf.shape:
                received = f"shape {array.shape} for {key!r} of {name!r}"
                raise ValueError(message(op, received, f"shape {leaf.shape}"))
            if array.dtype != leaf.dtype:
                received = f"dtype {array.dtype} for {key!r} of {name!r}"
                raise TypeError(message(op, received, f"dtype {leaf.dtype}"))
            yield leaf, array


def _check_names(op: str, what: str, given: Any, wanted: Iterable[str]) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(message(op, f"{kind_of(given)} for the {what}", "a dict by name"))
    missing = ", ".join(repr(name) for name in wanted if name not in given)
    unknown = ", ".join(repr(name) for name in given if name not in set(wanted))
    parts = [f"no {missing}"] * bool(missing) + [f"{unknown}, not known here,"] * bool(unknown)
    if parts:
        raise ValueError(message(op, f"{' and '.join(parts)} among the {what}", f"{list(wanted)}"))
