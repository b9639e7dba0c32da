"""Fall back to the native engine, and warn once per cause.

A program that an engine *declined*, or has a *bug* with, never goes to that engine again; a
*transient* failure may not recur.
"""

from __future__ import annotations

import traceback
from typing import NamedTuple

from tapegraph.engines import registry
from tapegraph.engines.backend import get_backend
from tapegraph.engines.engine import EngineDeclined
from tapegraph.environment import STRICT
from tapegraph.errors import escaped_lines, warn
from tapegraph.interrupts import Lock, raise_interrupt
from tapegraph.progress import logger
from tapegraph.recording.lost_gradients import strict

_warned: set[str] = set()
_lock = Lock()


class Failure(NamedTuple):
    """Why an engine did not run; the traceback is text, which keeps no array alive."""

    reason: str
    traceback: str | None = None
    transient: bool = False


def account(name: str, error: Exception) -> Failure:
    """Return why an engine did not run; warn once per cause, or raise under strict mode."""
    if isinstance(error, EngineDeclined):
        failure, cause = Failure(str(error)), str(error)
        if error.expected and get_backend() == registry.AUTO:
            return failure
    else:
        raise_interrupt(error)
        trace = "".join(traceback.format_exception(error))
        try:
            engine = registry.engine(name)
        except Exception:  # it does not even load
            title, transient = f"the engine {name}", False
        else:
            title, transient = engine.title, engine.is_transient(error)
        kind = type(error).__name__
        failure = Failure(f"{title} failed: {kind}: {error}", trace, transient)
        tail = traceback.walk_tb(error.__traceback__)
        places = [f"{frame.f_code.co_filename}:{line}" for frame, line in tail]
        cause = f"{kind} at {''.join(places[-1:])}"  # the same place again is the same cause
    if strict():
        raise RuntimeError(f"backward: {failure.reason} ({STRICT} is set)") from error
    with _lock.held:
        first = cause not in _warned
        _warned.add(cause)
    if first:
        message = escaped_lines(f"backward ran in the native engine: {failure.reason}")
        logger().warning(message)
        warn(message, RuntimeWarning)
    return failure
