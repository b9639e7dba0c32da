"""Gradients by the chosen engine, or by the native one where that one does not run."""

from __future__ import annotations

from tapegraph.arrays import own
from tapegraph.engines import auto, choice, registry
from tapegraph.engines.backend import LAST, account, get_backend
from tapegraph.engines.choice import ASKED, CLOCK, LOOKED_AT, NATIVELY, Decision, Way
from tapegraph.engines.engine import EngineDeclined
from tapegraph.engines.registry import AUTO, NATIVE
from tapegraph.recording.linearize import History
from tapegraph.recording.scopes import recorder
from tapegraph.recording.watchers import COMPILING, ENGINE, WATCHING, is_watched
from tapegraph.typed import Array


def differentiate(history: History, seeds: list[Array]) -> list[Array]:
    """Return the gradients with respect to a history's targets, and report which engine ran.

    Inside a capture the native engine runs, without a report: an engine is chosen for the program.

    :param seeds: A cotangent per result.
    """
    backend, captured = get_backend(), recorder().capture is not None
    if captured or backend == NATIVE:
        decision = ASKED
    elif backend == AUTO:
        known = auto.BACKWARDS
        decision = known.decision if choice.PROCESS.spent < known.until else auto.decide(history)
    else:
        decision = Decision(Way(backend))
    if decision.way.engine != NATIVE and is_watched():
        decision = LOOKED_AT
    way, failure, found = decision
    while True:
        native, preparing, start = way.engine == NATIVE, 0.0, CLOCK.now()
        try:
            engine = registry.engine(way.engine)
            if not native:
                if not engine.loaded():
                    refusal = engine.refusal(history)
                    if refusal is not None:
                        raise EngineDeclined(refusal)
                    engine.load()
                    preparing = CLOCK.now() - start
                # An engine may keep a seed; one that is borrowed is read-only.
                seeds = [s if s.flags.writeable else own(s) for s in seeds]
            grads, cached, compiling = engine.differentiate(history, seeds)
            break
        except Exception as error:
            if native:
                raise
            failure = account(way.engine, error)
            if found is not None:
                found.pay(CLOCK.now() - start)
                found.failed(way, failure)
            way = NATIVELY if found is None else found.first
    seconds = CLOCK.now() - start - preparing - compiling
    if found is not None:
        found.took(way, seconds, preparing + compiling)
    elif backend == AUTO:
        choice.PROCESS.spent += seconds
    if captured:
        return grads
    reason, trace = (None, None) if failure is None else failure[:2]
    LAST.set((way.engine, reason, history.length, cached, compiling, seconds, trace))
    if not native:
        for watcher in WATCHING.value():
            what, start = f"a graph in {engine.title}", start + preparing
            watcher.passed(COMPILING, f"compiling {what}", start=start, seconds=compiling)
            watcher.passed(ENGINE, what, start=start + compiling, seconds=seconds)
    return grads
