"""Settings that hold inside a ``with`` block: whether ops record, and which engine runs.

They live in a context variable, so threads and asyncio tasks do not see each other's. Python
gives generators no context of their own: a scope entered in a generator holds only while that
generator runs, which is told by its frame having a caller.
"""

from __future__ import annotations

from contextvars import ContextVar
from inspect import CO_ASYNC_GENERATOR, CO_GENERATOR
from types import FrameType
from typing import Any


class Scope:
    """One entered setting: its kind, its value, and the generator frame it belongs to, if any.

    ``source`` is the context manager that entered it, where one may be entered many times.
    """

    __slots__ = ("generator", "kind", "source", "value")

    def __init__(self, kind: str, value: Any, generator: FrameType | None, source: Any) -> None:
        self.kind = kind
        self.value = value
        self.generator = generator
        self.source = source


ACTIVE: ContextVar[tuple[Scope, ...]] = ContextVar("tapegraph_scopes", default=())


def enter(kind: str, value: Any, frame: FrameType | None, source: Any = None) -> Scope:
    """Enter a setting from the ``with`` that ``frame`` runs; return the scope to leave it by."""
    scope = Scope(kind, value, _owning_generator(frame), source)
    ACTIVE.set((*ACTIVE.get(), scope))
    return scope


def leave(scope: Scope) -> None:
    """Leave a scope; not always the last one entered, since generators interleave."""
    ACTIVE.set(tuple(s for s in ACTIVE.get() if s is not scope))


def leave_last(source: Any, frame: FrameType | None) -> None:
    """Leave the last scope that ``source`` entered here, the generator's own one if it has one.

    One context manager may be in use in several threads, tasks and generators at once.
    """
    mine = [s for s in ACTIVE.get() if s.source is source]
    generator = _owning_generator(frame)
    own = [s for s in mine if s.generator is generator]
    if mine:
        leave((own or mine)[-1])


def setting(kind: str, default: Any) -> Any:
    """Return the innermost value of a setting that holds here, or ``default``."""
    for scope in reversed(ACTIVE.get()):
        if scope.kind == kind and (scope.generator is None or scope.generator.f_back is not None):
            return scope.value
    return default


def _owning_generator(frame: FrameType | None) -> FrameType | None:
    """Return the generator whose suspension suspends the scope; None for a plain function.

    ``@contextmanager`` runs its body as a generator on behalf of the caller's ``with``, and an
    ``ExitStack`` enters on behalf of its caller: the scope then belongs to that frame.
    """
    while frame is not None:
        if not _is_contextlib(frame):
            if not frame.f_code.co_flags & (CO_GENERATOR | CO_ASYNC_GENERATOR):
                return None
            if not _is_contextlib(frame.f_back):
                return frame
        frame = frame.f_back
    return None


def _is_contextlib(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_globals.get("__name__") == "contextlib"
