"""Guards: whether the values that a captured function read besides its arguments are unchanged.

`look` walks over those values: from the function's closure, defaults, globals and attributes that
its code names, through the user's functions, objects and containers. Its code is all that has run
in real calls, and before any, all that the walk reaches. The result is a `View`: a key, and a cheap
check by identity. A look does not see many entries of containers below two others, attributes with
a computed name, and most elements of large arrays and containers; real calls find changes there.
"""

from __future__ import annotations

import sys
from array import array
from collections import ChainMap, OrderedDict, UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import cached_property, partial, partialmethod, singledispatchmethod
from itertools import chain, islice, repeat
from operator import eq, getitem, is_, methodcaller
from types import (
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import numpy as np

from tapegraph.compiling.ran import (
    NOTHING_KNOWN,
    CodeNames,
    Globals,
    Known,
    imported,
    is_users,
    names_of,
    top,
)
from tapegraph.recording.node import Node
from tapegraph.recording.program import identity
from tapegraph.tensors.value import Value
from tapegraph.typed import Fun

# Of a container with more entries so many are seen, evenly spread; of an array with more bytes, so
# many elements.
MOST_ENTRIES, MOST_BYTES = 256, 1 << 14
# Containers in containers: all down to a list in a list, and deeper ones of so many entries in all.
_DEPTH, _MOST_DEEP = 2, 4096
# How many containers, objects and functions one look covers.
_MOST_OWNERS = 4096
_ATOMS = frozenset((bool, int, float, complex, str, bytes, type(None)))
_LIBRARIES = frozenset(("builtins", "numpy", "tapegraph"))
_NOT_USERS = _LIBRARIES | sys.stdlib_module_names
_FUNCTIONS = (FunctionType, MethodType, partial)
_DICTS = (dict, MappingProxyType)
_CONTAINERS = (*_DICTS, list, tuple, set, frozenset, deque)
_BUFFERS = (bytearray, array)
# Attributes of Python's own classes, whose code the walk skips.
_KEPT = {
    UserDict: "data",
    UserList: "data",
    ChainMap: "maps",
    cached_property: "func",
    partialmethod: "func",
    singledispatchmethod: "dispatcher",
}
# Returns an owner's entry for a key, or else a default: a call of C code.
Read = Callable[[Any, Any, Any], Any]
# Functions that return objects, and the objects expected.
Check = tuple[Callable[[], Iterable[Any]], list[Any]]


class Same:
    """A value compared by identity."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class FedPlace(NamedTuple):
    """A place where a function finds a fed float: every call reads it anew."""

    name: str  # the user's
    read: Callable[[], Any]
    put: Callable[[Any], Any]  # stores another object there


class View(NamedTuple):
    """The values that a function reads at one time; views with equal keys are equal."""

    key: tuple[tuple[str, Any], ...]  # each value's name (``self.training``) and value
    known: Known
    fed: list[FedPlace]  # the floats whose numbers do not count
    checks: list[Check]
    arrays: list[tuple[Any, Any]]  # with their contents
    floats: frozenset[int]  # the ids of those compared by value: a function may compare identities
    packages: frozenset[str]  # whose objects, functions or modules the walk has met

    def holds(self) -> bool:
        """Return whether the function reads the very same objects and unchanged arrays."""
        try:
            for now, before in self.checks:
                if not all(map(is_, now(), before)):
                    return False
            for held, before in self.arrays:
                if contents(held) != before:
                    return False
            return not self.fed or not self.fed_elsewhere()
        except (AttributeError, LookupError, RuntimeError, ValueError):  # something is gone
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
            if name == other_name and one == two:
                continue
            kinds = [mark[0] if type(mark) is tuple and mark else None for mark in (one, two)]
            if name != other_name or kinds != [float, float]:
                return set()
            names.add(name)
        return names

    def difference(self, later: View) -> str:
        found = first_difference(dict(self.key), dict(later.key), _text)
        return found or "the values that it reads are in another order"


def first_difference(before: dict[str, Any], now: dict[str, Any], text: Fun) -> str:
    """Return which value differs first: ``k was 1, and is 2``; ``""`` if none does."""
    for name in {**before, **now}:
        one, two = before.get(name, _NOTHING), now.get(name, _NOTHING)
        if one != two:
            was, is_now = ("not there" if x is _NOTHING else text(x) for x in (one, two))
            return f"{name} was {was}, and is {is_now if was != is_now else 'another one'}"
    return ""


def look(function: object, known: Known = NOTHING_KNOWN, fed: frozenset[str] = frozenset()) -> View:
    """Walk over the values that a function reads.

    The walk adds the code that it finds to the known code. The numbers of floats whose names are
    ``fed`` do not count, where they can be replaced.

    >>> sizes = [2, 3]
    >>> f = lambda x: x * sizes[0]
    >>> view = look(f)
    >>> sizes[0] = 5
    >>> view.holds(), view.difference(look(f))
    (False, 'sizes[0] was 2, and is 5')
    """
    while True:
        walk = _Walk(known, fed, top(getattr(function, "__module__", None)))
        walk.value(function, "")
        for space, names in known.roots:
            walk.globals(space, names)
        names = CodeNames(reads=frozenset(walk.strings), calls=frozenset(walk.aliases))
        for code in walk.codes:
            names |= names_of(code)
        if names | known.names == known.names:
            checks = walk.checks()
            floats = frozenset(id(x) for _, before in checks for x in before if type(x) is float)
            seen, packages = tuple(walk.seen), frozenset(walk.packages)
            view = View(seen, known, walk.fed, checks, walk.arrays, floats, packages)
            elsewhere = view.fed_elsewhere()
            if not elsewhere:
                return view
            fed -= elsewhere
        else:
            known = Known(names | known.names, known.ran, known.roots)  # which may lead further


class _Walk:
    """One walk, by the names in the known code."""

    def __init__(self, known: Known, fed: frozenset[str], package: str) -> None:
        self.seen: list[tuple[str, Any]] = []
        self.arrays: list[tuple[Any, Any]] = []
        self.fed: list[FedPlace] = []
        self.codes: dict[CodeType, None] = {}
        self._known, self._may_be_fed, self._package = known, fed, package
        self.strings: set[str] = set()  # that may be the name of an attribute
        self.aliases: set[str] = set()  # other names of methods that have run
        self._visited: dict[int, tuple[Any, int]] = {}  # objects, which keep their ids, and depths
        self._deep = 0  # entries of containers deeper than others
        self.packages = {package}
        self._named: dict[int, set[Any]] = {}  # the names of globals that have been looked up
        # Checks: entries by owner and key, what a call gives of an owner, and all that
        # containers hold, one after the other.
        self._reads: dict[Read, tuple[list[Any], list[Any], list[Any]]] = {}
        self._calls: dict[Callable[[Any], Any], tuple[list[Any], list[Any]]] = {}
        self._held: tuple[list[Iterable[Any]], list[Any]] = ([], [])

    def checks(self) -> list[Check]:
        """Return the checks of `View.holds`: one call of C code for each kind."""
        found: list[Check] = [
            (partial(map, read, owners, keys, repeat(_NOTHING)), values)
            for read, (owners, keys, values) in self._reads.items()
        ]
        for get, (owners, values) in self._calls.items():
            found.append((partial(map, get, owners), values))
        if self._held[0]:
            found.append((partial(chain.from_iterable, self._held[0]), self._held[1]))
        if self.fed:
            reads = [place.read for place in self.fed]
            found.append((lambda: map(type, map(_call, reads)), [float] * len(reads)))
        return found

    def value(self, value: Any, name: str, depth: int = 0) -> None:
        kind = type(value)
        if kind in _ATOMS:
            self._see(name, identity(value))
            if kind is str and self._known.by_strings and value.isidentifier():
                self.strings.add(value)
        elif issubclass(kind, (Node, Value)):
            self._see(name, Same(value))
        elif issubclass(kind, (np.ndarray, *_BUFFERS)):
            found = contents(value)
            self.arrays.append((value, found))
            large = issubclass(kind, np.ndarray) and value.nbytes > MOST_BYTES
            self._see(name, (Same(value), found) if large else found)
        elif issubclass(kind, np.generic):
            self._see(name, (kind, value.tobytes()))
        elif issubclass(kind, _FUNCTIONS):
            self._function(value, name)
        elif issubclass(kind, (staticmethod, classmethod)):
            self.value(value.__func__, name)
        elif issubclass(kind, property):
            for part in (value.fget, value.fset):
                if part is not None:
                    self.value(part, name)
        elif issubclass(kind, _CONTAINERS):
            if depth >= _DEPTH:
                self._deep += len(value)
            is_seen = depth < _DEPTH or self._deep <= _MOST_DEEP
            self._see(name, (kind, len(value)) if is_seen else Same(value))
            if is_seen and self._is_new(value, depth):
                self._container(value, name, depth + 1)
                self._attributes_of(value, name)
        else:
            self._see(name, Same(value))
            if issubclass(kind, type):
                self._class(value)
            elif self._is_new(value):
                self._object(value, name)

    def globals(self, space: Globals, names: CodeNames) -> None:
        """Look at the globals that some code names, and at the modules that it imports."""
        seen = self._named.setdefault(id(space), set())
        new = sorted(names.globals - seen)
        seen |= names.globals
        self._entries(dict.get, space, new, new, partial(partial, dict.__setitem__, space))
        for level, name in sorted(names.modules):
            for module in imported(level, name, space):
                if module not in seen and self._is_users_module(sys.modules.get(module)):
                    self._entries(dict.get, sys.modules, [module], [module])
                seen.add(module)

    def _see(self, name: str, what: object) -> None:
        self.seen.append((name or "the function", what))

    def _is_new(self, owner: object, depth: int = 0) -> bool:
        """Return whether an owner is new, or was reached only from further down."""
        if self._visited.get(id(owner), (None, sys.maxsize))[1] <= depth:
            return False
        if len(self._visited) >= _MOST_OWNERS:
            return False
        self._visited[id(owner)] = owner, depth
        return True

    # Checks

    def _entries(
        self,
        read: Read,
        owner: object,
        keys: Iterable[object],
        names: Iterable[str],
        put: Callable[[Any], Callable[[Any], Any]] | None = None,
    ) -> None:
        """Check an owner's entries from now on, and look at them; ``put`` makes floats feedable."""
        for key, name in zip(keys, names, strict=True):
            if put is not None and self._may_feed(name, read(owner, key, _NOTHING)):
                self._feed(name, partial(read, owner, key, _NOTHING), put(key))
            elif (value := self._check(read, owner, key)) is not _NOTHING:
                self.value(value, name)

    def _check(self, read: Read, owner: object, key: object) -> Any:
        columns = self._reads.setdefault(read, ([], [], []))
        value = read(owner, key, _NOTHING)
        for column, what in zip(columns, (owner, key, value), strict=True):
            column.append(what)
        return value

    def _check_call(self, get: Callable[[Any], Any], owner: object) -> Any:
        owners, values = self._calls.setdefault(get, ([], []))
        owners.append(owner)
        values.append(get(owner))
        return values[-1]

    def _check_all(self, entries: Any, fed: Sequence[int] = ()) -> None:
        """Check all entries of an owner, in order, except floats at some places."""
        if fed or len(entries) > MOST_ENTRIES:
            entries = _Some(entries, fed)
        owners, values = self._held
        owners += (entries, _END)  # where one holds less, the next may not make up for it
        values += (*entries, *_END)

    def _may_feed(self, name: str, value: object) -> bool:
        return name in self._may_be_fed and type(value) is float

    def _feed(self, name: str, read: Callable[[], Any], put: Callable[[Any], Any]) -> None:
        self.fed.append(FedPlace(name, read, put))
        self._see(name, FED)

    # Owners

    def _container(self, value: Any, name: str, depth: int) -> None:
        kind = type(value)
        if issubclass(kind, _DICTS):
            # By Python's class: a subclass may have its own code.
            base = next(k for k in (OrderedDict, *_DICTS) if issubclass(kind, k))
            keys, values = base.keys(value), base.values(value)
            some = _some(keys)
            self._see(f"the keys of {name}", tuple(map(_as_key, some)))
            self._members(some, f"a key of {name}", depth)
            self._check_all(keys)
            self._elements(value, values, some, name, depth)
        elif issubclass(kind, (set, frozenset)):
            self._see(f"the members of {name}", frozenset(map(_as_key, value)))
            self._members(_some(value), f"a member of {name}", depth)
            self._check_all(value)
        else:
            self._elements(value, value, _some(range(len(value))), name, depth)

    def _members(self, members: Iterable[object], name: str, depth: int) -> None:
        """Look at objects that are keys, or in a set; atoms count by being there."""
        for member in members:
            if type(member) not in _ATOMS:
                self.value(member, name, depth)

    def _elements(self, owner: Any, values: Any, keys: Any, name: str, depth: int) -> None:
        """Check a container's elements, and look at them."""
        kind, fed = type(owner), []
        for i, (key, value) in enumerate(zip(keys, _some(values), strict=True)):
            what = f"{name}[{key!r}]"
            if kind in (dict, list) and self._may_feed(what, value):
                fed.append(i)
                put = partial(kind.__setitem__, owner, key)
                self._feed(what, partial(getitem, owner, key), put)
            else:
                self.value(value, what, depth)
        if not issubclass(kind, tuple):  # which cannot change
            self._check_all(values, fed)

    def _object(self, value: object, name: str) -> None:
        kind = type(value)
        if issubclass(kind, ModuleType):
            if self._is_users_module(value):
                space = vars(value)
                maybe = self._known.names.strings if self._known.by_strings else frozenset()
                names = sorted((self._known.attributes & space.keys()) | maybe)
                self._entries(dict.get, space, names, [f"{name}.{n}" for n in names])
        elif kind is ContextVar:
            self.value(self._check_call(_CONTEXT, value), f"{name}.get()")
        else:
            wrapped = (_own(value) or {}).get("__wrapped__")  # a compiled function, an lru_cache
            if isinstance(wrapped, _FUNCTIONS):
                self.value(wrapped, name)
            if top(kind.__module__) not in _LIBRARIES:
                self._attributes_of(value, name)

    def _attributes_of(self, value: object, name: str) -> None:
        """Look at an object's class, and at its own or its class's attributes that count."""
        prefix = f"{name}." if name else ""
        kind, own, names = type(value), _own(value), self._known.attributes
        if top(kind.__module__) not in _LIBRARIES:
            self.packages.add(top(kind.__module__))
            self._check_call(type, value)
            self._class(kind)
        kept = {_KEPT[base] for base in kind.__mro__ if base in _KEPT}
        if own is not None:
            held = sorted(n for n in own if n in kept or self._counts(n, own[n]))
            put = partial(partial, dict.__setitem__, own)
            self._entries(dict.get, own, held, [prefix + n for n in held], put)
            self._check_all(own)  # a new one may hide a method
            if not isinstance(kind.__getattribute__, FunctionType):
                self._check(getattr, value, "__dict__")
        for base in kind.__mro__:
            if top(base.__module__) in _LIBRARIES:
                continue
            for n in sorted(names & vars(base).keys()):
                found = vars(base)[n]
                if type(found) is MemberDescriptorType:  # a slot
                    self._entries(getattr, value, [n], [prefix + n])
                elif n not in (own or ()) and not hasattr(found, "__get__"):
                    if self._counts(n, found):
                        self.value(found, prefix + n)

    def _counts(self, name: str, value: object) -> bool:
        """Return whether an attribute is data that counts: one that is only called is no number."""
        if name in self._known.reads:
            return True
        return name in self._known.attributes and type(value) not in _ATOMS

    def _class(self, kind: type) -> None:
        """Look at the methods and data of a class and its bases."""
        if not self._is_new(kind):
            return
        self._check(getattr, kind, "__mro__")
        for base in kind.__mro__:
            if top(base.__module__) not in _NOT_USERS and (base is kind or self._is_new(base)):
                space = vars(base)
                ran = {n for n, held in space.items() if _defined_as(held) in self._known.ran}
                self.aliases |= ran
                names = sorted(ran | (self._known.attributes & space.keys()))
                self._entries(_OF_CLASS, space, names, [f"{base.__name__}.{n}" for n in names])
                self._check_all(space)  # a new one may hide that of a class above
        if top(type(kind).__module__) not in _NOT_USERS:
            self._class(type(kind))

    # Functions

    def _function(self, function: Any, name: str) -> None:
        if isinstance(function, MethodType):
            self.value(function.__self__, f"the object of {name}" if name else "self")
            self.value(function.__func__, name)
        elif isinstance(function, partial):
            whose = name or "the partial"
            self.value(function.func, whose)
            self.value(function.args, f"arguments of {whose}")
            self.value(function.keywords, f"keywords of {whose}")
        elif is_users(function.__code__.co_filename, function.__module__, self._package):
            self.packages.add(top(function.__module__))
            self._see(name, (function.__code__, id(function.__globals__)))
            if self._is_new(function):
                self._users_function(function, name)
        else:
            self._see(name, Same(function))
            if self._is_new(function):  # it may wrap the user's
                held = vars(function)
                parts = (held.get("__wrapped__"), held.get("registry"))  # of a singledispatch
                for part in (*parts, *map(_content, function.__closure__ or ())):
                    if isinstance(part, (*_FUNCTIONS, MappingProxyType)):
                        self.value(part, name)

    def _users_function(self, function: FunctionType, name: str) -> None:
        code = function.__code__
        self.codes[code] = None
        self._check(getattr, function, "__code__")
        defaults = [f"{what} of {function.__name__}" for what in ("defaults", "keyword defaults")]
        self._entries(getattr, function, ("__defaults__", "__kwdefaults__"), defaults)
        self.globals(function.__globals__, names_of(code))
        for cell, n in zip(function.__closure__ or (), code.co_freevars, strict=True):
            if not self._is_new(cell):
                continue
            if _content(cell) is _NOTHING:
                self._check_call(_IS_EMPTY, cell)
            else:
                put = partial(partial, setattr, cell)
                self._entries(getattr, cell, ["cell_contents"], [n], put)
        if vars(function) or self._known.by_strings:
            self._attributes_of(function, name or function.__name__)

    def _is_users_module(self, module: object) -> bool:
        if not isinstance(module, ModuleType):
            return False
        self.packages.add(top(module.__name__))
        return is_users(getattr(module, "__file__", None) or "", module.__name__, self._package)


class _Some:
    """A container of many entries, or with fed floats, as a view checks it."""

    def __init__(self, entries: Any, fed: Sequence[int]) -> None:
        self._entries, self._count, self._fed = entries, len(entries), fed

    def __iter__(self) -> Iterator[Any]:
        if len(self._entries) != self._count:
            return iter(_END)  # which is none of the entries
        some = list(_some(self._entries))
        for i in self._fed:
            some[i] = FED
        return iter(some)


_NOTHING = Same("nothing")
# Stands for a fed float.
FED = Same("a float that is fed")
_END = (Same("the end"),)
_OF_CLASS: Any = MappingProxyType.get
_IS_EMPTY = partial(eq, CellType())
_CONTEXT = methodcaller("get", _NOTHING)
_call = methodcaller("__call__")


def contents(held: Any) -> Any:
    """Return a key of an array: all bytes of a small one, some of a large one."""
    if not isinstance(held, np.ndarray):  # another buffer, which can grow while nobody holds it
        return type(held), bytes(held)
    if held.nbytes <= MOST_BYTES:
        return held.shape, held.dtype, held.tobytes()
    return held.shape, held.dtype, held.flat[:: -(-held.size // MOST_ENTRIES)].tobytes()


def _some(values: Any) -> tuple[Any, ...]:
    """Return a container's entries: all of a small one's, some of a large one's."""
    if len(values) <= MOST_ENTRIES:
        return tuple(values)
    return tuple(islice(values, None, None, -(-len(values) // MOST_ENTRIES)))


def _content(cell: Any) -> Any:
    """Return a cell's content; `_NOTHING` if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return _NOTHING


def _own(value: object) -> dict[str, Any] | None:
    """Return an object's own attributes without running code of its class."""
    read = type(value).__getattribute__
    if isinstance(read, FunctionType):
        read = object.__getattribute__
    try:
        own = read(value, "__dict__")
    except AttributeError:
        return None
    return own if isinstance(own, dict) else None


def _defined_as(held: object) -> str | None:
    held = getattr(held, "fget", None) or getattr(held, "__func__", None) or held
    return held.__code__.co_name if isinstance(held, FunctionType) else None


def _as_key(value: object) -> Any:
    return identity(value) if type(value) in _ATOMS else Same(value)


def _text(mark: object) -> str:
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
