"""Real calls of a compiled step: watchers are told of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from tapegraph.recording.watchers import WATCHING

F = TypeVar("F", bound=Callable[..., Any])


def real_call(method: F) -> F:
    """Notify watchers of what a method of a step does, such as recording a call."""

    @functools.wraps(method)
    def told(step: Any, *args: Any) -> Any:
        watchers = WATCHING.value()
        for watcher in watchers:
            watcher.real_call_starts(step.__name__)
        try:
            return method(step, *args)
        finally:
            for watcher in watchers:
                watcher.real_call_ends()

    return cast("F", told)
