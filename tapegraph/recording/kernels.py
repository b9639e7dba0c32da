"""What computes forwards, and who looks on.

It is NumPy alone, unless an engine's kernels were chosen for large arrays or somebody looks on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.recording.op import NO_ATTRS, Attrs, Op
from tapegraph.recording.scopes import RECORDING, Scope
from tapegraph.recording.watchers import WATCHING, Watcher

# Of an operation, its arrays and attributes: the result, or None where NumPy is to compute it.
Kernels = Callable[[Op, tuple[Any, ...], Attrs], Any]
# Empty until others than NumPy's are first chosen, or somebody watches: this is asked at every
# operation.
OTHERS: list[Kernels] = []


def computed(op: Op, arrays: tuple[Any, ...], attrs: Attrs = NO_ATTRS) -> Any:
    """Return an operation's result by the kernels that are chosen here, in front of watchers."""
    watchers = WATCHING.value()
    if not watchers:
        return _result(op, arrays, attrs)
    for watcher in watchers:
        watcher.starts(op)
    try:
        out = _result(op, arrays, attrs)
    except RuntimeWarning:  # who called gives it at the user's line, and computes again
        with np.errstate(all="ignore"):
            _show(watchers, op, arrays, _result(op, arrays, attrs))
        raise
    except BaseException:
        for watcher in watchers:
            watcher.failed()
        raise
    _show(watchers, op, arrays, out)
    return out


def _show(watchers: tuple[Watcher, ...], op: Op, arrays: tuple[Any, ...], out: Any) -> None:
    result = out[0] if op.saves else out
    for watcher in watchers:
        watcher.computed(op, arrays, result)


def _result(op: Op, arrays: tuple[Any, ...], attrs: Attrs) -> Any:
    for compute in reversed(OTHERS):
        out = compute(op, arrays, attrs)
        if out is not None:
            return out
    return op.forward(*arrays, **attrs)


def recorded() -> None:
    """Notify watchers that what was computed last has been recorded."""
    for watcher in WATCHING.value():
        watcher.recorded()


def none_of_these(op: Op, arrays: tuple[Any, ...], attrs: Attrs) -> None:
    """Leave an operation to NumPy: with it among the kernels, forwards pass by `computed`."""


class Watched:
    """Lets a watcher look on inside a ``with`` block, in its thread or asyncio task.

    :param watcher: Is told of what goes on; several may be, the outermost first.
    """

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def __enter__(self) -> Any:
        OTHERS.append(none_of_these)
        RECORDING.enter(
            self, RECORDING.value()
        )  # what looks for scopes is to find one: `Value`s do
        WATCHING.enter(self, (*WATCHING.value(), self._watcher))

    def __exit__(self, *exception: object) -> None:
        WATCHING.leave(self)
        RECORDING.leave(self)
        OTHERS.remove(none_of_these)


def unwatched() -> Scope[tuple[Watcher, ...]]:
    """Return a scope in which nobody looks on."""
    return Scope(WATCHING, ())
