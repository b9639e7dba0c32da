"""The engines by name, each loaded on first use; `register` adds one, which `auto` measures."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from tapegraph.engines.engine import Engine
from tapegraph.interrupts import Lock

AUTO = "auto"
NATIVE = "native"

_loaders: dict[str, Callable[[], Engine]] = {}
_loaded: dict[str, Engine] = {}
_lock = Lock()


def register(name: str, load: Callable[[], Engine]) -> None:
    """Add an engine under a new name, its own; ``load`` returns it on first use."""
    if name in choices():
        raise ValueError(f"register: the engine name {name!r} is taken; expected a new one")
    _loaders[name] = load


def choices() -> tuple[str, ...]:
    return (AUTO, *_loaders)


def rivals() -> list[str]:
    """Return the names of the engines that `auto` may run in place of the native one."""
    return [name for name in _loaders if name != NATIVE]


def engine(name: str) -> Engine:
    found = _loaded.get(name)
    if found is None:
        with _lock.held:
            if name not in _loaded:
                _loaded[name] = _loaders[name]()
            found = _loaded[name]
    return found


def _engine_of(package: str) -> Engine:
    # By a string: the core knows no engine, and `import tapegraph` loads none.
    return cast(Engine, importlib.import_module(package).ENGINE)


register("tensorflow", lambda: _engine_of("tapegraph.lowering"))
register(NATIVE, lambda: _engine_of("tapegraph.fallback"))
