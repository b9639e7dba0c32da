"""Guards: what a captured function sees besides its arguments, and whether it is still the same.

A program holds what the function saw when it was captured: a flag, a number, a function, a list of
parameters. `look` walks over all of that, from the function's closure, defaults, and the globals
and attributes that its code names, through the user's own functions, objects and containers. What
it finds is a `View`: a key that tells one state of affairs from another, and a cheap check, by
identity, that nothing has changed since.

What a look does not see: containers below two others, attributes whose name is computed, and most
of the elements of large arrays and containers. Real calls find those.
"""

from __future__ import annotations

import dis
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from itertools import islice
from operator import attrgetter, is_, itemgetter
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from tapegraph.errors import LIBRARY, ORIGINS, USER
from tapegraph.recording.node import Node
from tapegraph.recording.program import identity
from tapegraph.tensors.value import Value

# Of a container with more entries so many are seen, evenly spread; of an array with more bytes, so
# many elements.
MOST_ENTRIES, MOST_BYTES = 256, 1 << 14
# Containers in containers: a list in a list is seen, and no further.
_DEPTH = 2
# How many containers, objects and functions one look covers.
_MOST_OWNERS = 4096
_ATOMS = frozenset((bool, int, float, complex, str, bytes, type(None)))
_CALLED_BY_SYNTAX = frozenset(
    ("__call__", "__enter__", "__exit__", "__getattr__", "__getitem__", "__iter__", "__len__")
)
_LIBRARIES = frozenset(("builtins", "numpy", "tapegraph"))
_FUNCTIONS = (FunctionType, MethodType, partial)
Get = Callable[[Any], tuple[Any, ...]]
# Of an owner and a key: what replaces the entry.
Put = Callable[[Any, Any], Callable[[Any], Any]]


class CodeNames(NamedTuple):
    """The names in some code.

    :ivar globals: Names of globals, and of built-in functions.
    :ivar reads: Names of attributes whose value is used, and strings that may be one (``getattr``).
    :ivar calls: Names of attributes that are called at once, such as methods.
    """

    globals: frozenset[str]
    reads: frozenset[str]
    calls: frozenset[str]


NO_NAMES = CodeNames(frozenset(), frozenset(), frozenset())


class Same:
    """Something that counts by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Check(NamedTuple):
    """What ``get`` gave of an owner, and must give again."""

    get: Get
    owner: Any
    values: tuple[Any, ...]


class FedPlace(NamedTuple):
    """Where a function finds a float that is fed: read anew for every call.

    :ivar name: What the user calls it.
    :ivar read: Gives what is there now.
    :ivar put: Leaves another object there: a call of what is written in C.
    """

    name: str
    read: Callable[[], Any]
    put: Callable[[Any], Any]


class View(NamedTuple):
    """What a function saw at one time.

    :ivar key: What the user calls each thing (``self.training``, ``sizes[0]``), and what it was: a
        number or string with its type, `Same` for an object, the contents of an array. Two views
        with equal keys are of the same state of affairs.
    :ivar fed: The floats whose numbers do not count.
    :ivar floats: The ids of those that do: a function can see that one is the same object.
    """

    key: tuple[tuple[str, Any], ...]
    fed: list[FedPlace]
    checks: list[Check]
    arrays: list[tuple[Any, Any]]
    floats: frozenset[int] = frozenset()

    def holds(self) -> bool:
        """Return whether the function sees the very same objects, and arrays as they were.

        A number made anew, of the same value, is another object: then `look` decides.
        """
        try:
            for get, owner, values in self.checks:
                now = get(owner)
                if len(now) != len(values) or not all(map(is_, now, values)):
                    return False
            for array, before in self.arrays:
                if contents(array) != before:
                    return False
            return not self.fed or not self.fed_elsewhere()
        except (AttributeError, KeyError, RuntimeError, ValueError):  # something is gone
            return False

    def fed_elsewhere(self) -> frozenset[str]:
        """Return the names of fed floats that the function sees in another place too."""
        return frozenset(place.name for place in self.fed if id(place.read()) in self.floats)

    def floats_that_differ(self, later: View) -> set[str]:
        """Return the names of floats with other numbers in a later view; none if more differs."""
        names: set[str] = set()
        if len(self.key) != len(later.key):
            return names
        for (name, one), (other_name, two) in zip(self.key, later.key, strict=True):
            if name != other_name or (one != two and not _are_floats(one, two)):
                return set()
            if one != two:
                names.add(name)
        return names

    def difference(self, later: View) -> str:
        """Return what a later view sees otherwise: the first of the differences."""
        before, now = dict(self.key), dict(later.key)
        for name in {**before, **now}:
            one, two = before.get(name, _NOTHING), now.get(name, _NOTHING)
            if one != two:
                kinds = _text(one), _text(two)
                was, is_now = kinds if kinds[0] != kinds[1] else (kinds[0], "another one")
                return f"{name} was {was}, and is {is_now}"
        return "what it sees is in another order"


def look(
    function: Any, known: CodeNames = NO_NAMES, fed: frozenset[str] = frozenset()
) -> tuple[View, CodeNames]:
    """Walk over what a function sees.

    :param function: A function, a bound method, a partial, or an object with ``__call__``.
    :param known: What an earlier look has found its code, and that of what it calls, to name.
    :param fed: The names of floats whose numbers are not to count, where they can be replaced.
    :returns: What to give the next look, which saves it the search.

    >>> sizes = [2, 3]
    >>> f = lambda x: x * sizes[0]
    >>> view, _ = look(f)
    >>> sizes[0] = 5
    >>> view.holds(), view.difference(look(f)[0])
    (False, 'sizes[0] was 2, and is 5')
    """
    while True:
        walk = _Walk(known, fed, getattr(function, "__module__", None))
        walk.value(function, "")
        found = union([known, *map(names_of, walk.codes)])
        if found == known:
            floats = (x for check in walk.checks for x in check.values if type(x) is float)
            view = View(
                tuple(walk.seen), walk.fed, walk.checks, walk.arrays, frozenset(map(id, floats))
            )
            if not view.fed_elsewhere():
                return view, found
            fed -= view.fed_elsewhere()
        known = found  # other names may lead further


class _Walk:
    """One walk, with the names that attributes are looked up by."""

    def __init__(self, names: CodeNames, fed: frozenset[str], module: str | None) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.checks: list[Check] = []
        self.arrays: list[tuple[Any, Any]] = []
        self.codes: dict[CodeType, None] = {}
        self.fed: list[FedPlace] = []
        self._may_be_fed = fed
        self._reads, self._attributes = names.reads, sorted(names.reads | names.calls)
        self._package = _top(module)
        self._visited: dict[int, Any] = {}  # the objects themselves, so that ids stay theirs

    def value(self, value: Any, name: str, depth: int = 0) -> None:
        """Look at what is found under a name."""
        kind = type(value)
        if kind in _ATOMS:
            self._see(name, identity(value))
        elif isinstance(value, (Node, Value)):
            self._see(name, Same(value))
        elif isinstance(value, np.ndarray):
            found = contents(value)
            self.arrays.append((value, found))
            self._see(name, (Same(value), found) if value.nbytes > MOST_BYTES else found)
        elif isinstance(value, np.generic):
            self._see(name, (kind, value.tobytes()))
        elif isinstance(value, _FUNCTIONS):
            self._function(value, name)
        elif isinstance(value, (staticmethod, classmethod)):
            self.value(value.__func__, name)
        elif isinstance(value, property):
            self.value(value.fget, name)
        elif isinstance(value, (dict, list, tuple, set, frozenset, deque)):
            self._see(name, (kind, len(value)) if depth < _DEPTH else Same(value))
            if depth < _DEPTH and self._is_new(value):
                self._container(value, name, depth + 1)
                self._attributes_of(value, name)
        else:
            self._see(name, Same(value))
            if self._is_new(value):
                self._object(value, name)

    def _see(self, name: str, what: Any) -> None:
        self.seen.append((name or "the function", what))

    def _is_new(self, owner: Any) -> bool:
        if id(owner) in self._visited or len(self._visited) >= _MOST_OWNERS:
            return False
        self._visited[id(owner)] = owner
        return True

    def _watch(
        self,
        get: Get,
        owner: Any,
        names: Sequence[str],
        depth: int = 0,
        put: Put | None = None,
        keys: Sequence[Any] = (),
    ) -> None:
        """Check an owner from now on, and look at the last of what it gives, by their names.

        Where there is a ``put``, floats can be replaced, by their keys, and so be fed.
        """
        values = get(owner)
        first = len(values) - len(names)
        fed = []
        for i, (name, value) in enumerate(zip(names, values[first:], strict=True)):
            if put is not None and name in self._may_be_fed and type(value) is float:
                fed.append(first + i)
                read = partial(_at, first + i, get, owner)
                self.fed.append(FedPlace(name, read, put(owner, keys[i])))
                self._see(name, FED)
            else:
                self.value(value, name, depth)
        if fed:
            get = partial(_without, get, fed)
        self.checks.append(Check(get, owner, get(owner)))

    # Owners

    def _container(self, value: Any, name: str, depth: int) -> None:
        if isinstance(value, dict):
            keys = _some(value)
            self._see(f"the keys of {name}", tuple(map(_as_key, keys)))
            names = [f"{name}[{key!r}]" for key in keys]
            self._watch(_items, value, names, depth, _put_item(value, dict), keys)
        elif isinstance(value, (set, frozenset)):
            self._see(f"the members of {name}", frozenset(map(_as_key, value)))
            self._watch(_some, value, ())
        else:
            places = _some(range(len(value)))
            names = [f"{name}[{i}]" for i in places]
            self._watch(_some, value, names, depth, _put_item(value, list), places)

    def _object(self, value: Any, name: str) -> None:
        kind = type(value)
        if isinstance(value, ModuleType):
            if self._is_users(getattr(value, "__file__", None) or "", value.__name__):
                self._namespace(vars(value), name)
            return
        if isinstance(value, type):
            self._class(value, name)
            return
        wrapped = getattr(value, "__wrapped__", None)  # a compiled function, an lru_cache
        if isinstance(wrapped, _FUNCTIONS):
            self.value(wrapped, name)
        if _top(kind.__module__) not in _LIBRARIES:
            if self._is_new(kind):
                self._class(kind, kind.__name__)
            self._attributes_of(value, name)

    def _attributes_of(self, value: Any, name: str) -> None:
        held = [n for n in self._attributes if self._is_data(value, n)]
        if held:
            prefix = f"{name}." if name else ""
            get = _picked(attrgetter, ["__class__", *held])
            own = getattr(value, "__dict__", {})
            put = _put_attribute if all(n in own for n in held) else None
            self._watch(get, value, [prefix + n for n in held], 0, put, held)
        attributes = getattr(value, "__dict__", None)
        if attributes is not None:  # a new one may hide a method
            self.checks.append(Check(tuple, attributes, tuple(attributes)))

    def _is_data(self, value: Any, name: str) -> bool:
        """Return whether an attribute is there, and is data that counts; runs no code to see."""
        try:
            found = value.__dict__[name]
        except (AttributeError, KeyError):
            namespaces = (vars(kind) for kind in type(value).__mro__)
            found = next((names[name] for names in namespaces if name in names), _NOTHING)
            if type(found).__name__ == "member_descriptor":  # a slot
                found = getattr(value, name, _NOTHING)
            elif hasattr(found, "__get__"):
                return False
        if found is _NOTHING:
            return False
        return name in self._reads or type(found) not in _ATOMS

    def _class(self, kind: type, name: str) -> None:
        """Look at the methods, and the data, that an object's classes hold."""
        for base in kind.__mro__:
            if _top(base.__module__) not in _LIBRARIES and (base is kind or self._is_new(base)):
                self._namespace(vars(base), name, sorted(_CALLED_BY_SYNTAX & vars(base).keys()))

    def _namespace(self, namespace: Any, name: str, more: Iterable[str] = ()) -> None:
        held = [*(n for n in self._attributes if n in namespace), *more]
        if held:
            self._watch(_picked(itemgetter, held), namespace, [f"{name}.{n}" for n in held])

    # Functions

    def _function(self, function: Any, name: str) -> None:
        if isinstance(function, MethodType):
            self.value(function.__self__, f"the object of {name}" if name else "self")
            self.value(function.__func__, name)
        elif isinstance(function, partial):
            whose = name or "the partial"
            self._watch(_parts, function, [whose, f"arguments of {whose}", f"keywords of {whose}"])
        elif self._is_users(function.__code__.co_filename, function.__module__):
            self._see(name, (function.__code__, id(function.__globals__)))
            if self._is_new(function):
                self._users_function(function, name)
        else:
            self._see(name, Same(function))
            if self._is_new(function):  # it may wrap the user's
                wrapped = (getattr(function, "__wrapped__", None), *_contents(function.__closure__))
                for part in wrapped:
                    if isinstance(part, _FUNCTIONS):
                        self.value(part, name)

    def _users_function(self, function: FunctionType, name: str) -> None:
        code = function.__code__
        self.codes[code] = None
        defaults = [f"{what} of {function.__name__}" for what in ("defaults", "keyword defaults")]
        self._watch(_picked(attrgetter, _SIGNATURE), function, defaults)
        named = sorted(names_of(code).globals & function.__globals__.keys())
        if named:
            get = _picked(itemgetter, named)
            self._watch(
                get, function.__globals__, named, 0, partial(partial, dict.__setitem__), named
            )
        if function.__closure__:
            places = range(len(code.co_freevars))
            self._watch(_contents, function.__closure__, code.co_freevars, 0, _put_cell, places)
        if vars(function):
            self._attributes_of(function, name or function.__name__)

    def _is_users(self, file: str, module: str | None) -> bool:
        """Return whether code is the user's own: so is a program that is itself installed."""
        origin = ORIGINS[file]
        return origin == USER or (origin == LIBRARY and _top(module) == self._package)


_NOTHING = Same("nothing")
# What stands for a float that is fed.
FED = Same("a float that is fed")
_SIGNATURE = ["__code__", "__defaults__", "__kwdefaults__"]


def contents(array: Any) -> Any:
    """Return what tells an array from others: all of a small one's bytes, of a large one some."""
    if array.nbytes <= MOST_BYTES:
        return array.shape, array.dtype, array.tobytes()
    return array.shape, array.dtype, array.flat[:: -(-array.size // MOST_ENTRIES)].tobytes()


def _some(values: Any) -> tuple[Any, ...]:
    """Return the entries of a container: all of a small one's, of a large one some."""
    if len(values) <= MOST_ENTRIES:
        return tuple(values)
    return tuple(islice(values, None, None, -(-len(values) // MOST_ENTRIES)))


def _items(values: Any) -> tuple[Any, ...]:
    return (*_some(values), *_some(values.values()))


def _contents(cells: Any) -> tuple[Any, ...]:
    """Return what cells hold; `_NOTHING` for one that is empty."""
    try:
        return tuple(map(_CELL, cells or ()))
    except ValueError:
        return tuple(getattr(cell, "cell_contents", _NOTHING) for cell in cells)


def _at(position: int, get: Get, owner: Any) -> Any:
    return get(owner)[position]


def _without(get: Get, positions: Sequence[int], owner: Any) -> tuple[Any, ...]:
    """Return what ``get`` gives, with `FED` for the floats at some positions."""
    values = list(get(owner))
    for i in positions:
        if type(values[i]) is float:
            values[i] = FED
    return tuple(values)


def _put_item(value: Any, kind: Any) -> Put | None:
    """Return what replaces an entry of a container, if it is of the kind itself."""
    return partial(partial, kind.__setitem__) if type(value) is kind else None


def _put_attribute(owner: Any, name: str) -> Callable[[Any], Any]:
    return partial(dict.__setitem__, vars(owner), name)


def _put_cell(cells: Any, position: int) -> Callable[[Any], Any]:
    return partial(setattr, cells[position], "cell_contents")


def _are_floats(*marks: Any) -> bool:
    return all(type(mark) is tuple and mark[:1] == (float,) for mark in marks)


_CELL = attrgetter("cell_contents")
_parts = attrgetter("func", "args", "keywords")


def _picked(getter: Callable[..., Any], names: Sequence[str]) -> Get:
    """Return what gives a tuple of the named entries."""
    if len(names) > 1:
        return getter(*names)  # type: ignore[no-any-return]
    get = getter(*names)
    return lambda owner: (get(owner),)


def _as_key(value: Any) -> Any:
    return identity(value) if type(value) in _ATOMS else Same(value)


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _text(mark: Any) -> str:
    if mark is _NOTHING:
        return "not there"
    if mark is FED:
        return "a float"
    if isinstance(mark, Same):
        return f"a {type(mark.value).__name__}"
    if isinstance(mark, tuple) and isinstance(mark[0], type):
        kind, value = mark
        if kind is float:
            return repr(float.fromhex(value))
        if kind in _ATOMS:
            return str(value) if kind is complex else repr(value)
        return f"a {kind.__name__} of {value}" if type(value) is int else f"a {kind.__name__}"
    if isinstance(mark, tuple) and isinstance(mark[0], CodeType):
        return f"the function {mark[0].co_name}"
    if isinstance(mark, (tuple, frozenset)) and mark:
        return "an array" if isinstance(mark, tuple) and len(mark) == 3 else "others"
    return "none"


# The names in code


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> CodeNames:
    """Return the names in a function's code, and in that of the functions it defines.

    :param code: That of a function.

    >>> def f(model, x):
    ...     return model.scale * x.sum() + offset
    >>> names = names_of(f.__code__)
    >>> sorted(names.globals), sorted(names.reads), sorted(names.calls)
    (['offset'], ['scale'], ['sum'])
    """
    names: tuple[set[str], set[str], set[str]] = (set(), set(), set())
    for step in dis.get_instructions(code):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[0].add(step.argval)
        elif step.opname == "LOAD_METHOD":
            names[2].add(step.argval)
        elif step.opname in ("LOAD_ATTR", "LOAD_SUPER_ATTR"):
            names[2 if _is_call(step) else 1].add(step.argval)
    if names[0] & {"getattr", "hasattr"}:
        names[1].update(text for text in code.co_consts if isinstance(text, str))
    inner = (names_of(part) for part in code.co_consts if isinstance(part, CodeType))
    return union([CodeNames(*map(frozenset, names)), *inner])


def union(parts: Iterable[CodeNames]) -> CodeNames:
    """Return all the names of some parts."""
    return CodeNames(*(frozenset().union(*which) for which in zip(NO_NAMES, *parts, strict=True)))


def _is_call(step: dis.Instruction) -> bool:
    """Return whether an attribute is loaded to be called at once, as Python 3.12 marks it."""
    return "NULL|self" in step.argrepr
