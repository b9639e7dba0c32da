"""Pytrees: dicts, lists, tuples, dataclasses and models of arrays: leaves and structure.

None has no leaves. Static fields of a dataclass are part of the structure.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from types import FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from tapegraph.errors import message

# How much of a structure a message shows.
_SHOWN = 300
# Objects whose attributes are none of a model's.
_CLOSED = (type, ModuleType, FunctionType, MethodType, np.ndarray)
_OWN = __name__.partition(".")[0]
# Classes whose values are leaves although they may be dataclasses: the drop-in's `VSpace.mappings`.
LEAVES: dict[type, Any] = {}


# In which order a dict is walked; a user may want it sorted.
Keys = Callable[[dict[Any, Any]], Iterable[Any]]


def leaves(value: object, path: str = "", keys: Keys = iter) -> Iterator[tuple[str, Any]]:
    """Yield a structure's leaves in order, each with its path, as `matched` shows it."""
    if isinstance(value, dict):
        for key in keys(value):
            yield from leaves(value[key], f"{path}[{key!r}]", keys)
    elif isinstance(value, (list, tuple)):
        for i, part in enumerate(value):
            yield from leaves(part, f"{path}[{i}]", keys)
    elif (names := fields_of(type(value))) is not None:
        for name in names:
            yield from leaves(getattr(value, name), f"{path}.{name}", keys)
    elif value is not None:
        yield path, value


def is_tree(value: object) -> bool:
    """Return whether a value has parts in a structure, and is no leaf."""
    return isinstance(value, (dict, list, tuple)) or fields_of(type(value)) is not None


def is_no_array(value: object, inside: bool = False) -> bool:
    """Return whether a value is a structure, and no list of numbers, rows or constants either."""
    if isinstance(value, (list, tuple)):
        return any(is_no_array(part, True) for part in value)
    return is_tree(value) or (inside and getattr(value, "requires_grad", False))


def _fields_of(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's parts; None for a class whose values are leaves."""
    if not dataclasses.is_dataclass(kind) or hasattr(kind, "__array__"):
        return None
    fields = [field for field in dataclasses.fields(kind) if not field.metadata.get("static")]
    if kind in LEAVES or _is_own(kind) or not all(field.init for field in fields):
        return None
    return tuple(field.name for field in fields)


fields_of: Callable[[type], tuple[str, ...] | None] = lru_cache(maxsize=512)(_fields_of)


def _statics_of(kind: type) -> tuple[str, ...]:
    fields = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return tuple(field.name for field in fields if field.metadata.get("static"))


statics_of: Callable[[type], tuple[str, ...]] = lru_cache(maxsize=512)(_statics_of)


def static_values(value: Any) -> list[Any]:
    return [getattr(value, name) for name in statics_of(type(value))]


def with_fields(kind: type, content: Iterable[object]) -> Any:
    """Make a dataclass of its parts and static fields: `__init__` may refuse tensors."""
    made: Any = object.__new__(kind)
    for name, part in zip((*(fields_of(kind) or ()), *statics_of(kind)), content, strict=True):
        object.__setattr__(made, name, part)  # it may be frozen
    return made


def named(op: str, model: object, held: tuple[type, ...]) -> list[tuple[str, Any]]:
    """Return a model's leaves of some classes, in order, each by its dotted path.

    A leaf in several places has a name for each; an array inside a shared object has one.
    """
    return [(name or "", leaf) for name, leaf in _named(op, model, held, {})]


def _named(
    op: str, value: object, held: tuple[type, ...], seen: dict[int, Any]
) -> list[tuple[str | None, Any]]:
    if isinstance(value, held):
        return [(None, value)]
    parts = parts_of(value)
    if parts is None:
        return []
    if id(value) in seen:  # empty while it is looked into
        return [(name, leaf) for name, leaf in seen[id(value)] if type(leaf) is not np.ndarray]
    seen[id(value)] = ()
    found: list[tuple[str | None, Any]] = []
    for key, part in parts:
        inside = _named(op, part, held, seen)
        if inside and isinstance(value, Mapping) and not isinstance(key, str):
            raise TypeError(message(op, f"{key!r} as a name", "names that are strings"))
        found += [(str(key) if name is None else f"{key}.{name}", leaf) for name, leaf in inside]
    seen[id(value)] = found
    return found


def parts_of(value: object) -> Iterable[tuple[Any, Any]] | None:
    """Return the parts of a dict, list, tuple or model by name, or None for anything else."""
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, (list, tuple)):
        return zip(getattr(value, "_fields", range(len(value))), value, strict=True)
    kind: Any = type(value)
    slots = _slots(kind)
    if slots is None:
        return None
    parts = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return list({**parts, **getattr(value, "__dict__", {})}.items()) or None


@lru_cache(maxsize=512)
def _slots(kind: type) -> tuple[str, ...] | None:
    """Return the slots of a class, None if it is not a model's."""
    if _is_own(kind) or issubclass(kind, _CLOSED):
        return None
    rows = [vars(base).get("__slots__", ()) for base in reversed(kind.__mro__)]
    names = [name for row in rows for name in ([row] if isinstance(row, str) else row)]
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _is_own(kind: type) -> bool:
    return any(base.__module__.partition(".")[0] == _OWN for base in kind.__mro__)


def mapped(
    function: Callable[[Any], Any],
    value: object,
    keys: Keys = iter,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    if is_leaf is not None and is_leaf(value):
        return function(value)
    if isinstance(value, dict):
        parts = {key: mapped(function, value[key], keys, is_leaf) for key in keys(value)}
        made = copy.copy(value)  # a user's class may need other arguments
        made.update(parts)
        return made
    if isinstance(value, (list, tuple)):
        found = [mapped(function, part, keys, is_leaf) for part in value]
        return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    if (names := fields_of(type(value))) is not None:
        held = [mapped(function, getattr(value, name), keys, is_leaf) for name in names]
        return with_fields(type(value), held + static_values(value))
    return None if value is None else function(value)


def replaced(value: object, content: Iterator[object], keys: Keys = iter) -> Any:
    """Return a structure of the same form with other content, in order."""
    return mapped(lambda _: next(content), value, keys)


class _Hole:
    def __repr__(self) -> str:
        return "*"


# Stands in a structure for a value that is kept elsewhere.
HOLE = _Hole()


def with_holes(value: object, is_kept: Callable[[Any], bool]) -> Any:
    return mapped(lambda x: HOLE if is_kept(x) else x, value)


def filled(form: object, content: Iterator[object]) -> Any:
    return mapped(lambda x: next(content) if x is HOLE else x, form)


def exchanged(
    values: Iterable[object], places: Iterable[int], others: Iterable[object]
) -> list[Any]:
    """Return a list of values with others at some places."""
    found = list(values)
    for place, other in zip(places, others, strict=True):
        found[place] = other
    return found


def matched(
    op: str, given: object, form: object, argument: str, of: str
) -> Iterator[tuple[str, Any]]:
    """Return a structure's leaves and their paths, in the order of a given form.

    >>> list(matched("f", {"b": 3.0, "w": [1.0]}, {"w": ["x"], "b": "y"}, "p", "q"))
    [("p['w'][0]", 1.0), ("p['b']", 3.0)]
    """
    place = _difference(given, form, argument)
    if place is not None:
        received = f"{argument} of structure {described(given)}"
        expected = f"the structure of {of}, {described(form)}"
        fix = f"They differ at {place}: dicts are paired by key, lists and tuples by position."
        if isinstance(given, (list, tuple)) and not is_tree(form):
            fix = "For one array return np.stack([...])."
        raise ValueError(message(op, received, expected, fix))
    return _along(given, form, argument)


def described(value: object) -> str:
    """Return a structure as text, with stars for leaves: ``{'w': (*, None)}``."""
    text = spelled(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def spelled(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {spelled(part)}" for key, part in value.items()) + "}"
    if not is_tree(value):
        return "None" if value is None else "*"
    parts = [spelled(part) for part, _, _ in pairs(value, value, "")]
    names = getattr(value, "_fields", fields_of(type(value)))
    if names is not None:
        parts += map(repr, static_values(value))
        named = zip(names + statics_of(type(value)), parts, strict=True)
        return f"{type(value).__name__}({', '.join(f'{name}={part}' for name, part in named)})"
    if isinstance(value, list):
        return f"[{', '.join(parts)}]"
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def _difference(given: object, form: object, path: str) -> str | None:
    if differ_here(given, form):
        return path
    return next(filter(None, (_difference(*part) for part in pairs(given, form, path))), None)


def differ_here(given: object, form: object) -> bool:
    """Return whether two structures differ at the top, whatever their parts are."""
    if isinstance(form, dict):
        return not (isinstance(given, dict) and given.keys() == form.keys())
    if isinstance(form, (list, tuple)):
        if not isinstance(given, (list, tuple)) or len(given) != len(form):
            return True
        # Two named tuples have the same names.
        return len({x._fields for x in (given, form) if hasattr(x, "_fields")}) == 2
    if fields_of(type(form)) is not None:
        return type(given) is not type(form) or static_values(given) != static_values(form)
    return given is not None if form is None else is_tree(given)


def _along(given: object, form: object, path: str) -> Iterator[tuple[str, Any]]:
    if is_tree(form):
        for part in pairs(given, form, path):
            yield from _along(*part)
    elif form is not None:
        yield path, given


def pairs(given: Any, form: Any, path: str) -> list[tuple[Any, Any, str]]:
    """Return the parts of two structures of one form side by side, each with its path."""
    if isinstance(form, dict):
        return [(given[key], form[key], f"{path}[{key!r}]") for key in form]
    if isinstance(form, (list, tuple)):
        pairs = enumerate(zip(given, form, strict=True))
        return [(a, b, f"{path}[{i}]") for i, (a, b) in pairs]
    names = fields_of(type(form)) or ()
    return [(getattr(given, name), getattr(form, name), f"{path}.{name}") for name in names]


def cut(vector: Any, shapes: Iterable[tuple[int, ...]]) -> Iterator[Any]:
    start = 0
    for shape in shapes:
        stop = start + math.prod(shape)
        yield np.reshape(vector[start:stop], shape)
        start = stop
