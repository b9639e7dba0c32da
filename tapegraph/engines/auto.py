"""Run each backward in the chosen engine, choose one under `auto`, and explain the choice.

All structures run natively until one can have paid for another engine, because a structure's key
takes longer to compute than a small sweep.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable
from functools import cache, lru_cache

from tapegraph.arrays import own
from tapegraph.engines import choice, registry
from tapegraph.engines.backend import LAST, Failure, account, chosen_by, get_backend
from tapegraph.engines.choice import (
    ALONE,
    ASKED,
    CLOCK,
    LOOKED_AT,
    NATIVELY,
    NEVER,
    Choice,
    Decision,
    Way,
    milliseconds,
    too_dear,
)
from tapegraph.engines.engine import Engine, EngineDeclined
from tapegraph.interrupts import Lock
from tapegraph.recording.linearize import History
from tapegraph.recording.program import Key
from tapegraph.recording.scopes import recorder
from tapegraph.recording.watchers import COMPILING, ENGINE, WATCHING, is_watched
from tapegraph.typed import Array, Xla

# How many structures are remembered; the least recently used are forgotten.
STRUCTURES = 512


class Backwards:
    """The choices of all structures of backwards."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.choices: OrderedDict[Key, Choice] = OrderedDict()
        # The choice for all structures until the process has spent so many seconds.
        self.decision, self.until = Decision(NATIVELY), 0.0
        self.earned = False  # whether it has spent enough to try another engine

    def decide_for_all(self, failure: Failure, until: float) -> Decision:
        """Run all structures natively until the process has spent some seconds."""
        self.decision, self.until = _natively(failure), until
        return self.decision

    def choice(self, history: History, rivals: list[Engine]) -> Choice:
        key = history.key
        with self.lock.held:
            found = self.choices.get(key)
            if found is None:
                ways = [way_of(engine, history.length) for engine in rivals]
                found = self.choices[key] = Choice(Way(registry.NATIVE), ways)
                while len(self.choices) > STRUCTURES:
                    self.choices.popitem(last=False)
            self.choices.move_to_end(key)
        return found


BACKWARDS = Backwards()


def decide(history: History) -> Decision:
    backwards = BACKWARDS
    if choice.PROCESS.spent < backwards.until:
        return backwards.decision
    rivals: list[Engine] = []
    refused: list[Failure] = []
    absent: list[tuple[str, EngineDeclined]] = []
    for name in registry.rivals():
        try:
            engine = registry.engine(name)
            why_not = engine.unavailable() or engine.refusal(history)
        except Exception as error:
            refused.append(account(name, error))
        else:
            if isinstance(why_not, EngineDeclined):
                absent.append((name, why_not))
            elif why_not is not None:
                refused.append(Failure(why_not))
            else:
                rivals.append(engine)
    if rivals:
        if not backwards.earned:
            ways, until = [way_of(engine, 0) for engine in rivals], choice.EARLIEST
            if choice.PROCESS.spent >= until:  # it may pay for its cheapest candidate
                until = choice.PROCESS.paid + min(way.price for way in ways)
            if choice.PROCESS.spent < until:
                return backwards.decide_for_all(Failure(too_dear(ways[0])), until)
            backwards.earned = True
        return backwards.choice(history, rivals).choose()
    if refused or not absent:
        return _natively(refused[0] if refused else ALONE)
    failure = account(*absent[0])
    if all(declined.expected for _, declined in absent):
        return backwards.decide_for_all(failure, NEVER)
    return _natively(failure)


@lru_cache
def _natively(failure: Failure) -> Decision:
    return Decision(NATIVELY, failure)


def way_of(engine: Engine, entries: int, xla: Xla = "auto") -> Way:
    return Way(
        engine.name,
        compiling=lambda: engine.compile_seconds(entries, xla) * pace(),
        loading=lambda: 0.0 if engine.loaded() else engine.load_seconds() * pace(),
        call=engine.costs.call,
    )


def differentiate(history: History, seeds: list[Array]) -> list[Array]:
    """Return the gradients, by a cotangent per result, and report which engine ran.

    Inside a capture the native engine runs, without a report: an engine is chosen for the program.
    """
    backend, captured = get_backend(), recorder().capture is not None
    if captured or backend == registry.NATIVE:
        decision = ASKED
    elif backend == registry.AUTO:
        known = BACKWARDS
        decision = known.decision if choice.PROCESS.spent < known.until else decide(history)
    else:
        decision = Decision(Way(backend))
    if decision.way.engine != registry.NATIVE and is_watched():
        decision = LOOKED_AT
    way, failure, found = decision
    while True:
        native, preparing, start = way.engine == registry.NATIVE, 0.0, CLOCK.now()
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
    elif backend == registry.AUTO:
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


_WORK = "def f(x, y=(1, 'a'), *z, **k):\n    return [x + y[0] for x in z if x is not k]\n" * 50
_REFERENCE = 2.5e-3  # seconds that it took where importing TensorFlow took 3.0


def pace() -> float:
    """Return how slow this machine is, as a factor for estimates, by all that was measured."""
    return _pace() * choice.overrun()


@cache
def _pace() -> float:
    fine = time.get_clock_info("process_time").resolution < 1e-4
    now = time.process_time if fine else time.perf_counter
    times = []
    for _ in range(7):
        start = now()
        compile(_WORK, __name__, "exec")
        times.append(now() - start)
    return choice.median_of(times) / _REFERENCE


COMPILED = "a compiled step runs forward, backward and update as one program: tg.compile(step)"


def backend_in_force() -> str:
    return f"The backend is {get_backend()!r} ({chosen_by()})."


def costs(
    found: Iterable[Choice], refused: dict[str, str], running: str, entries: int, xla: Xla = "auto"
) -> list[str]:
    """Return the time of each engine as choices measured it, the first ones first, or why not."""
    ways = (way for choice in found for way in (choice.stands, *choice.others) if way.times)
    measured: dict[str, Way] = {}
    for way in ways:
        measured.setdefault(way.title, way)
    lines = []
    for way in sorted(measured.values(), key=lambda way: way.engine != registry.NATIVE):
        runs = "1 run" if len(way.times) == 1 else f"{len(way.times)} runs"
        lines.append(f"{capital(way.title)} takes {milliseconds(way.run)}, by {runs}.")
    known = {running, *(way.engine for way in measured.values())}
    for name in registry.rivals():
        title = capital(registry.engine(name).title)
        if name in refused:
            lines.append(f"{title} does not run it: {refused[name].rstrip('.')}.")
        elif name not in known:
            price = way_of(registry.engine(name), entries, xla).price
            lines.append(f"{title} has not been measured: trying it costs about {price:.2g} s.")
    return lines


def advice(found: Choice | None, refused: dict[str, str]) -> str:
    """Say what to change so that another engine can run."""
    backend = get_backend()
    open_to = [name for name in registry.rivals() if name not in refused]
    if not open_to:
        return "Another engine can run once you mend that."
    if backend == registry.NATIVE:
        return 'To measure other engines, choose tg.set_backend("auto").'
    if backend != registry.AUTO:
        return 'To find the faster engine by measuring, choose tg.set_backend("auto").'
    if found is not None and all(way.times for way in [found.stands, *found.others]):
        return "Nothing to change: this is the faster engine by measurement."
    return f'To try it at once, choose tg.set_backend("{open_to[0]}").'


def capital(title: str) -> str:
    return f"{title[0].upper()}{title[1:]}"
