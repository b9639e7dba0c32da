"""`differentiate`: from a history to gradients, by the chosen engine."""

from __future__ import annotations

from functools import partial
from typing import Any

from tapegraph.arrays.buffers import own
from tapegraph.engines import auto, choice, registry
from tapegraph.engines.backend import LAST, get_backend
from tapegraph.engines.choice import CLOCK, Choice
from tapegraph.engines.engine import Engine, Outcome
from tapegraph.engines.fallback_policy import Failure, account
from tapegraph.recording.linearize import History
from tapegraph.recording.scopes import recorder
from tapegraph.recording.watchers import COMPILING, ENGINE, WATCHING
from tapegraph.typed import Array

_ASKED = Failure("the backend is native")
_ALONE = Failure("auto: no other engine is registered")
_ROWS = Failure("auto: it takes the rows of a Jacobian at once")


def differentiate(history: History, seeds: list[Array] | None) -> tuple[list[Array], Any]:
    """Run the chosen engine, or the native one if that fails; the report says why.

    Without seeds it returns the Jacobian of the one result, output axes first: `auto` leaves that
    to the native engine, which sweeps many rows at once.
    """
    if recorder().capture is not None:  # which differentiates its runs by another engine
        return _outcome(registry.engine(registry.NATIVE), history, seeds).grads, LAST.get()
    chosen: str = get_backend()
    tuned = chosen == registry.AUTO
    failure: Failure | None = _ASKED
    found: Choice | None = None
    if tuned and seeds is None:
        chosen, failure = registry.NATIVE, _ROWS
    elif tuned:
        way, failure, found = auto.decide(history)
        chosen = way.engine
    if chosen != registry.NATIVE:
        began = CLOCK.now()
        try:
            engine = registry.engine(chosen)
            if not engine.loaded():
                engine.prepare(history)
            start = CLOCK.now()
            # An engine may keep a seed; one that is borrowed is read-only.
            given = seeds and [s if s.flags.writeable else own(s) for s in seeds]
            outcome = _outcome(engine, history, given)
            seconds = CLOCK.now() - start - outcome.compile_seconds
        except Exception as error:
            failure = account(chosen, error)
            if found is not None:
                found.pay(CLOCK.now() - began)
                found.failed(way, failure)
        else:
            if found is not None:
                found.took(way, seconds, start - began + outcome.compile_seconds)
            for watcher in WATCHING.value():
                what, compiling = f"a graph in {engine.title}", outcome.compile_seconds
                watcher.passed(COMPILING, f"compiling {what}", start=start, seconds=compiling)
                watcher.passed(ENGINE, what, start=start + compiling, seconds=seconds)
                again = partial(_outcome, registry.engine(registry.NATIVE), history, seeds)
                watcher.gave(engine.title, outcome.grads, again)
            return outcome.grads, (chosen, None, len(history), *outcome[1:], seconds)
    start = CLOCK.now()
    native = registry.engine(registry.NATIVE)
    if seeds is None:
        grads = native.jacobian(history.recording).grads
    else:
        grads = native.differentiate(history, seeds).grads
    seconds = CLOCK.now() - start
    if found is not None:
        found.took(found.first, seconds)
    elif tuned:
        choice.PROCESS.spent += seconds
    reason, trace, _ = failure or _ALONE
    return grads, (registry.NATIVE, reason, history.length, False, 0.0, seconds, trace)


def _outcome(engine: Engine, history: History, seeds: list[Array] | None) -> Outcome:
    if seeds is None:
        return engine.jacobian(history.recording)
    return engine.differentiate(history, seeds)
