"""The user's code that a step runs, and the names in it: they say what of its state counts.

A real call notes the code that runs by any syntax: operators, constructors, descriptors, callbacks.
"""

from __future__ import annotations

import dis
import gc
import importlib.util
import sys
from collections.abc import Container, Iterable
from functools import cached_property, lru_cache
from threading import get_ident
from types import CodeType, FrameType
from typing import Any, NamedTuple

from tapegraph.errors import BETWEEN, LIBRARY, ORIGINS, USER
from tapegraph.recording.values import Undo
from tapegraph.typed import Fun

# A program that uses one of these may look an attribute up by a string.
_BY_STRINGS = frozenset(
    ("getattr", "hasattr", "vars", "attrgetter", "methodcaller")
    + ("__dict__", "__getattribute__", "__match_args__")
)
_GLOBALS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))
_ATTRIBUTES = frozenset(("LOAD_ATTR", "LOAD_SUPER_ATTR", "IMPORT_FROM"))
# Installed packages whose functions depend on their arguments, and have state of their own besides.
_NUMERIC = frozenset(
    ("autograd", "einops", "jax", "jaxlib", "keras", "matplotlib", "numba", "opt_einsum", "pandas")
    + ("scipy", "sklearn", "tensorflow", "torch", "xarray")
)
Globals = dict[str, Any]


class CodeNames(NamedTuple):
    """The names in some code."""

    globals: frozenset[str] = frozenset()  # and built-in functions
    reads: frozenset[str] = frozenset()  # attributes whose value is used
    calls: frozenset[str] = frozenset()  # attributes that are called at once, such as methods
    strings: frozenset[str] = frozenset()  # that may name an attribute
    modules: frozenset[tuple[int, str]] = frozenset()  # imports: the number of dots, and the name

    def __or__(self, other: CodeNames) -> CodeNames:
        fields: Any = map(frozenset.union, self, other)
        return CodeNames(*fields)


@lru_cache(maxsize=4096)
def names_of(code: CodeType) -> CodeNames:
    """Return the names in a function's code, and in that of the functions it defines.

    >>> def f(model, x):
    ...     return model.scale * x.sum() + offset
    >>> names = names_of(f.__code__)
    >>> sorted(names.globals), sorted(names.reads), sorted(names.calls)
    (['offset'], ['scale'], ['sum'])
    """
    found: dict[str, set[Any]] = {field: set() for field in CodeNames._fields}
    steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
    for i, step in enumerate(steps):
        if step.opname in _GLOBALS:
            found["globals"].add(step.argval)
        elif step.opname == "LOAD_METHOD":
            found["calls"].add(step.argval)
        elif step.opname in _ATTRIBUTES:  # the text marks immediate calls
            found["calls" if "NULL|self" in step.argrepr else "reads"].add(step.argval)
        elif step.opname == "IMPORT_NAME":
            found["modules"].add((steps[i - 2].argval, step.argval))
        elif step.opname == "MATCH_CLASS":
            found["reads"].add("__match_args__")
    names = CodeNames(*map(frozenset, found.values()))
    return names | _in_constants(code.co_consts)


def _in_constants(constants: Iterable[object]) -> CodeNames:
    names = CodeNames()
    for constant in constants:
        if isinstance(constant, CodeType):
            names |= names_of(constant)
        elif isinstance(constant, (tuple, frozenset)):
            names |= _in_constants(constant)
        elif isinstance(constant, str) and constant.isidentifier():
            names |= CodeNames(strings=frozenset((constant,)))
    return names


class Known:
    """The known code of a step: the names in the code that has run, or that a look has found.

    ``ran`` are the names by which the functions that have run are defined, ``roots`` the globals
    of their modules, with the names in the code that has run.
    """

    def __init__(
        self,
        names: CodeNames,
        ran: frozenset[str] = frozenset(),
        roots: tuple[tuple[Globals, CodeNames], ...] = (),
    ) -> None:
        self.names, self.ran, self.roots = names, ran, roots

    @cached_property
    def by_strings(self) -> bool:
        """Whether a string may name an attribute."""
        names = self.names
        return not _BY_STRINGS.isdisjoint(names.globals | names.reads | names.calls)

    @cached_property
    def reads(self) -> frozenset[str]:
        return self.names.reads | (self.names.strings if self.by_strings else frozenset())

    @cached_property
    def attributes(self) -> frozenset[str]:
        return self.reads | self.names.calls | self.ran

    def with_ran(
        self, noted: Iterable[tuple[CodeType, Globals]], package: str, reached: Container[str]
    ) -> Known:
        """Return the known code after a call ran some; itself if that was known.

        Installed packages count if a look has ``reached`` them: an import may run any others.
        """
        names, ran = self.names, self.ran
        roots = {id(space): (space, names) for space, names in self.roots}
        for code, space in noted:
            name = space.get("__name__")
            if not is_users(code.co_filename, name, package):
                continue
            if ORIGINS[code.co_filename] != USER and top(name) not in reached:
                continue
            here = names_of(code)
            names |= here
            ran |= {code.co_name}
            if getattr(sys.modules.get(name or ""), "__dict__", None) is space:
                roots[id(space)] = space, roots.get(id(space), (space, CodeNames()))[1] | here
        known = Known(names, ran, tuple(roots.values()))
        was = self.names, self.ran, [names for _, names in self.roots]
        return self if was == (names, ran, [names for _, names in known.roots]) else known


NOTHING_KNOWN = Known(CodeNames())


def is_users(file: str, module: str | None, package: str) -> bool:
    """Return whether code is the user's own or an installed model's, and no numeric library's."""
    origin, name = ORIGINS[file], top(module)
    return origin == USER or (origin == LIBRARY and (name == package or name not in _NUMERIC))


def top(module: object) -> str:
    """Return the package of a module's name; a class may have any object in its place."""
    return module.partition(".")[0] if isinstance(module, str) else ""


def imported(level: int, name: str, space: Globals) -> list[str]:
    """Return the names of the modules that an import statement gives or binds."""
    if level:
        package = space.get("__package__") or space.get("__name__", "")
        try:
            name = importlib.util.resolve_name("." * level + name, package)
        except ImportError:
            return []
    return list(dict.fromkeys((name, top(name))))


class Witness:
    """Calls a function, and notes the code that runs in this thread, except this library's.

    It uses `sys.monitoring` from Python 3.12 on; before, and if all its places are taken, a trace
    function; beside a debugger or coverage tool a profile function that calls the one there.
    """

    def __init__(self, function: Fun, undo: Undo) -> None:
        self._function, self.undo = function, undo
        self._noted: dict[tuple[int, int], tuple[CodeType, Globals]] = {}
        self._profile: Any = None

    @property
    def noted(self) -> Iterable[tuple[CodeType, Globals]]:
        """The code that has run, without what the garbage collector calls whenever it runs."""
        beside = [getattr(callback, "__code__", None) for callback in gc.callbacks]
        return [(code, space) for code, space in self._noted.values() if code not in beside]

    def __call__(self, *args: object, **kwargs: object) -> Any:
        self.undo.appendleft(self._stop)  # an interrupt may come before the other
        self._start()
        try:
            return self._function(*args, **kwargs)
        finally:
            self._stop()

    def note(self, frame: FrameType, event: str = "call", arg: object = None) -> None:
        """Note the code of a frame that begins or goes on: a trace function without lines."""
        code = frame.f_code
        if ORIGINS[code.co_filename] != BETWEEN:
            space = frame.f_globals
            self._noted[id(code), id(space)] = code, space

    def _start(self) -> None:
        if _monitored():
            _witnesses[get_ident()] = self
            _settle()
        elif sys.gettrace() is None:
            sys.settrace(self.note)
        else:
            self._profile = sys.getprofile()
            if self._profile is None or callable(self._profile):
                sys.setprofile(self._profiled)

    def _stop(self) -> None:
        if _witnesses.pop(get_ident(), None) is not None:
            _settle()
        if sys.gettrace() == self.note:
            sys.settrace(None)
        if sys.getprofile() == self._profiled:
            sys.setprofile(self._profile)

    def _profiled(self, frame: FrameType, event: str, arg: object) -> None:
        if event == "call":
            self.note(frame)
        if self._profile is not None:
            self._profile(frame, event, arg)


_witnesses: dict[int, Witness] = {}
_MONITORING: Any = getattr(sys, "monitoring", None)
_TOOLS = (4, 3)  # those that no kind of tool has for its own
_tool: int | None = None


def _monitored() -> bool:
    """Return whether this library has a place among the monitoring tools."""
    global _tool
    if _tool is None and _MONITORING is not None:
        _tool = next((i for i in _TOOLS if _MONITORING.get_tool(i) is None), None)
        if _tool is not None:
            _MONITORING.use_tool_id(_tool, "tapegraph")
            for event in (_MONITORING.events.PY_START, _MONITORING.events.PY_RESUME):
                _MONITORING.register_callback(_tool, event, _started)
    return _tool is not None


def _settle() -> None:
    """Listen while a witness notes."""
    events = _MONITORING.events
    _MONITORING.set_events(_tool, (events.PY_START | events.PY_RESUME) if _witnesses else 0)


def _started(code: CodeType, offset: int) -> Any:
    if ORIGINS[code.co_filename] == BETWEEN:
        return _MONITORING.DISABLE
    witness = _witnesses.get(get_ident())
    if witness is not None:
        witness.note(sys._getframe(1))
    return None
