"""Which engine a thread or task has chosen, and what its last backward did."""

from __future__ import annotations

import os
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from tapegraph import markup
from tapegraph.engines import registry
from tapegraph.recording import scopes
from tapegraph.typed import Backend

_VARIABLE = "TAPEGRAPH_BACKEND"


def _checked(name: Any, source: str) -> Backend:
    if name not in registry.choices():
        choices = ", ".join(map(repr, registry.choices()))
        raise ValueError(f"{source}: received {name!r}; expected one of {choices}")
    return cast(Backend, str(name))


def _from_environment() -> Backend:
    """Return the name that ``TAPEGRAPH_BACKEND`` gives.

    :raises ValueError: No engine has that name.
    """
    return _checked(os.environ.get(_VARIABLE) or registry.AUTO, _VARIABLE)


_default = _from_environment()
_chosen: ContextVar[Backend | None] = ContextVar("tapegraph_backend", default=None)


def set_backend(name: Backend) -> None:
    """Choose the engine for this thread or task.

    :param name: {"auto", "tensorflow", "native"}. ``auto`` runs a structure natively first, and in
        TensorFlow once that pays: where it is installed, every entry lowers, and the graph measured
        faster.
    :raises ValueError: For any other name.

    >>> tg.set_backend("native")
    >>> tg.get_backend()
    'native'
    """
    _chosen.set(_checked(name, "set_backend"))


def get_backend() -> Backend:
    """Return the name of the engine chosen for this thread or task.

    :returns: Str. One of the names that `set_backend` takes.

    >>> with tg.use_backend("native"):
    ...     tg.get_backend()
    'native'
    """
    return scopes.BACKEND.value() or _chosen.get() or _default


def chosen_by() -> str:
    """Return where the backend in force was chosen."""
    if scopes.BACKEND.value():
        return "by tg.use_backend"
    if _chosen.get():
        return "by tg.set_backend"
    return f"by {_VARIABLE}" if os.environ.get(_VARIABLE) else f"default; {_VARIABLE} is not set"


class use_backend(scopes.Scope[Any]):
    """Choose the engine inside a ``with`` block, or in a decorated function.

    It holds in its thread or asyncio task as `no_grad` does.

    :param name: {"auto", "tensorflow", "native"}. As for `set_backend`.
    :raises ValueError: For any other name.

    >>> with tg.use_backend("native"):
    ...     (tg.param(2.0) * 3.0).backward()
    >>> tg.last_backward().backend
    'native'
    """

    __slots__ = ()

    def __init__(self, name: Backend) -> None:
        super().__init__(scopes.BACKEND, _checked(name, "use_backend"))


@dataclass(frozen=True)
class Report:
    """What one backward did.

    :ivar backend: The engine that ran: ``"tensorflow"`` or ``"native"``.
    :ivar reason: Why the native engine ran, else None.
    :ivar entries: The length of the differentiated program.
    :ivar cached: Whether a compiled graph was found.
    :ivar compile_seconds, run_seconds: Seconds spent compiling and running.
    :ivar error: The traceback where the native engine ran because another one failed, else None.
    """

    backend: str
    reason: str | None
    entries: int
    cached: bool
    compile_seconds: float
    run_seconds: float
    error: str | None = None

    def _repr_html_(self) -> str:
        facts = {
            "engine": self.backend + (f": {self.reason}" if self.reason else ""),
            "entries": f"{self.entries:,}",
            "graph": "found" if self.cached else f"compiled in {self.compile_seconds:.3g} s",
            "ran in": f"{self.run_seconds * 1e3:.3g} ms",
            "error": (self.error or "").strip().rpartition("\n")[2],
        }
        rows = [(name, fact) for name, fact in facts.items() if fact]
        return markup.heading("backward") + markup.html_table(rows)


# The attributes of a report, in order: it is made for who asks.
Ran: TypeAlias = tuple[Any, ...]
LAST: ContextVar[Report | Ran | None] = ContextVar("tapegraph_report", default=None)


def last_backward() -> Report | None:
    """Return the report of this thread's last backward, or None before the first.

    :returns: Report or None. What ran, how long it took, and why.

    >>> with tg.use_backend("native"):
    ...     (tg.param(2.0) * 3.0).backward()
    >>> tg.last_backward().entries
    3
    """
    ran = LAST.get()
    if isinstance(ran, tuple):
        ran = Report(*ran)
        LAST.set(ran)
    return ran
