"""The names that a function's code reads: of globals, and of attributes, read or only called."""

from __future__ import annotations

import dis
from collections.abc import Iterable
from functools import lru_cache
from types import CodeType
from typing import NamedTuple


class CodeNames(NamedTuple):
    """The names in some code.

    :ivar globals: Names of globals, and of built-in functions.
    :ivar reads: Names of attributes whose value is used, and strings that may be one (``getattr``).
    :ivar calls: Names of attributes that are called at once, such as methods.
    """

    globals: frozenset[str]
    reads: frozenset[str]
    calls: frozenset[str]


NONE = CodeNames(frozenset(), frozenset(), frozenset())


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
    return CodeNames(*(frozenset().union(*which) for which in zip(NONE, *parts, strict=True)))


def _is_call(step: dis.Instruction) -> bool:
    """Return whether an attribute is loaded to be called at once, as Python 3.12 marks it."""
    return "NULL|self" in step.argrepr
