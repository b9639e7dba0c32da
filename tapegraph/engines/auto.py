"""What `auto` knows of each structure, which engine it therefore chooses, and that in words.

A structure runs natively at first. Importing what another engine needs may cost a tenth of all
native sweeps so far, compiling a tenth of the sweeps that a loop is taken to need. Then all have
been measured, and the fastest stays. A compiled step, whose user expects to wait a moment, imports
and compiles once its runs have taken as long as that will.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping, Sized
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from typing import Any, NamedTuple

from tapegraph.engines import registry, tuner
from tapegraph.engines.backend import chosen_by, get_backend
from tapegraph.engines.engine import Engine, EngineDeclined
from tapegraph.engines.fallback_policy import Failure, account
from tapegraph.engines.tuner import CLOCK, NEVER, Account, Candidate, Stage, Tuner
from tapegraph.interrupts import Lock
from tapegraph.recording.linearize import History
from tapegraph.recording.program import Key

# Native seconds for which a decision for all structures holds at least.
_SHORTEST = 1e-3
# Which engine this thread or task ran last, and when it was done.
_previous: ContextVar[tuple[str, float] | None] = ContextVar("tapegraph_previous", default=None)


class EngineStats:
    """What is known of one structure.

    :ivar tuner: The engines that may run it, and what they took.
    :ivar failure: Why the last engine that was dropped failed: it would at every step.
    """

    __slots__ = ("_decided", "candidates", "entries", "failure", "setbacks", "tuner")

    def __init__(self, program: Sized, rivals: list[Engine], *, compiled: bool = False) -> None:
        self.entries = entries = len(program)
        self.failure: Failure | None = None
        self.setbacks = 0
        self._decided: tuple[Any, Decision] | None = None
        self.candidates = {registry.NATIVE: Candidate(registry.NATIVE)}
        for engine in rivals:
            price = partial(self._price if compiled else KNOWN.price, engine, entries)
            self.candidates[engine.name] = Candidate(engine.name, price, engine.costs.call)
        policy = tuner.POLICY
        self.tuner = Tuner(
            list(self.candidates.values()),
            trials=policy.variant_trials if compiled else policy.trials,
            horizon=0 if compiled else policy.horizon,
            share=1.0 if compiled else policy.share,
            process=KNOWN.account,
            moves=compiled,
        )

    def _price(self, engine: Engine, entries: int) -> float:
        return KNOWN.price_of_step(engine, entries, self.tuner.account)

    def choose(self) -> Decision:
        """Return the engine to run, and why where that is the native one."""
        chosen = self.tuner.choose()
        if self._decided is None or self._decided[0] is not chosen:
            self._decided = chosen, self._decision(*chosen)
        return self._decided[1]

    def _decision(self, candidate: Candidate, stage: Stage) -> Decision:
        name = candidate.way
        if name != registry.NATIVE:
            return Decision(name, None, self)
        if self.failure is not None and not self.tuner.untried and len(self.tuner.measured) == 1:
            return Decision(name, self.failure, self)
        return Decision(name, Failure(self._why_native(stage)), self)

    def _why_native(self, stage: Stage) -> str:
        if stage is Stage.FIRST:
            return f"auto: a structure runs natively the first {self.tuner.trials} times"
        if stage is Stage.AGAIN:
            return "auto: the native engine is timed again: its first runs were cold"
        if stage is Stage.DEAR:
            return _too_dear("compiling", self.tuner.dear)
        if stage is Stage.SLOW:
            return "auto: the native engine was faster; to measure that again does not pay yet"
        (_, ours), *others = self.tuner.verdict
        theirs = [f"{milliseconds(s)} in {registry.engine(c.way).title}" for c, s in others]
        return f"auto: the native engine took {milliseconds(ours)}, against {', '.join(theirs)}"

    def ran(
        self,
        name: str,
        seconds: float,
        compile_seconds: float = 0.0,
        *,
        besides: float = 0.0,
        runs: int = 1,
        counts: bool = True,
    ) -> None:
        """Remember what a run took, or so many at once, and what compiling before it.

        :param besides: What else was spent on trying: an import, or compiling a variant.
        :param counts: It shows what the engine takes: it was no trial of a variant.
        """
        step = _since(name)
        if name == registry.NATIVE:
            KNOWN.swept(seconds)
        if compile_seconds:
            KNOWN.compiled(name, compile_seconds + seconds / runs, self.entries)
        # The run after compiling also prepares the graph, so it is no measurement.
        tried = compile_seconds + besides
        self.tuner.took(
            self.candidates[name],
            seconds,
            step=step / runs,
            counts=counts and not tried,
            besides=tried,
            runs=runs,
        )

    def failed(self, name: str, failure: Failure) -> None:
        """Remember that an engine did not run; what may pass is tried again a few times."""
        if failure.transient and self.setbacks < tuner.POLICY.trials:
            self.setbacks += 1
            return
        self.failure = failure
        self.tuner.drop(self.candidates[name])


class Decision(NamedTuple):
    """The engine to run, why where it is the native one, and where to remember what it took."""

    engine: str
    failure: Failure | None
    structure: EngineStats | None


class _Known:
    """What all structures together have shown."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.structures: OrderedDict[Key, EngineStats] = OrderedDict()
        self.account = Account()  # of all structures together
        self.native_seconds = self.longest = 0.0  # all native sweeps together, and the longest
        self.entry_seconds: dict[str, float] = {}  # to compile one entry, by engine
        self.load_seconds: dict[str, float] = {}  # to import what it needs, here
        # What was decided when it was too early for all, and until how many native seconds.
        self.early: tuple[Decision | None, float] = None, 0.0

    def swept(self, seconds: float) -> None:
        """Remember what a native sweep took."""
        self.native_seconds += seconds
        if seconds > self.longest:
            self.longest, self.early = seconds, (None, 0.0)

    def compiled(self, name: str, seconds: float, entries: int) -> None:
        """Remember what compiling took, the first run included."""
        costs = registry.engine(name).costs
        spent = max(0.0, seconds - costs.compile) / entries
        known = self.entry_seconds.get(name, costs.compile_entry)
        self.entry_seconds[name] = 0.5 * (known + spent)

    def price(self, engine: Engine, entries: int) -> float:
        """Return about how many seconds the first run of a program will take."""
        costs = engine.costs
        load = costs.load if self._is_not_worth_loading(engine) else 0.0
        each = self.entry_seconds.get(engine.name, costs.compile_entry)
        return load + costs.compile + entries * each

    def price_of_step(self, engine: Engine, entries: int, own: Account) -> float:
        """Return about how many seconds of its own account a compiled step must have left.

        It pays for compiling. For an import, what all others have left pays too; what they owe must
        be earned first.
        """
        costs, each = engine.costs, self.entry_seconds.get(engine.name)
        compiling = costs.compile + entries * (costs.compile_entry if each is None else each)
        load = 0.0 if engine.loaded() else costs.load
        if own.surplus < 0.125 * (compiling + load):  # no machine is so fast that it would pay
            return compiling + load
        if each is None:
            compiling *= pace()
        if load:
            if engine.name not in self.load_seconds:
                self.load_seconds[engine.name] = engine.load_seconds() * pace()
            load = self.load_seconds[engine.name]
        others = self.account.surplus - own.surplus
        return max(compiling, compiling + load - others)

    def _is_not_worth_loading(self, engine: Engine) -> bool:
        share = tuner.POLICY.share
        return share * self.native_seconds < engine.costs.load and not engine.loaded()

    def decides_early(self, decision: Decision, until: float = NEVER) -> Decision:
        """Decide for all structures, until so many native seconds, or an eighth more of them."""
        self.early = decision, min(until, 1.125 * self.native_seconds + _SHORTEST)
        return decision

    def too_early(self, rivals: list[Engine]) -> str | None:
        """Return why no engine can pay for any structure, or None: then they are told apart."""
        reason = None
        for engine in rivals:
            foreseen = max(tuner.POLICY.horizon * self.longest, self.native_seconds)
            if self._is_not_worth_loading(engine):
                why = _too_dear(f"importing {engine.title}", engine.costs.load)
            elif tuner.POLICY.share * foreseen < engine.costs.compile:
                why = _too_dear("compiling", engine.costs.compile)
            else:
                return None
            reason = reason or why
        return reason

    def pays_after(self, rivals: list[Engine]) -> float:
        """Return how many native seconds it takes at least until that may be otherwise."""
        costs = [seconds for r in rivals for seconds in (r.costs.load, r.costs.compile)]
        ahead = [seconds / tuner.POLICY.share for seconds in costs]
        return min((s for s in ahead if s > self.native_seconds), default=NEVER)

    def structure(self, history: History, rivals: list[Engine]) -> EngineStats:
        """Return what is known of a program's structure."""
        key = history.key
        with self.lock():
            known = self.structures.get(key)
            if known is None:
                known = self.structures[key] = EngineStats(history, rivals)
                while len(self.structures) > tuner.POLICY.structures:
                    self.structures.popitem(last=False)
            else:
                self.structures.move_to_end(key)
            return known


KNOWN = _Known()


def decide(history: History) -> Decision:
    """Choose the engine that a program runs in now.

    Where no other engine can be used, or it is too early to compile anything, that is looked at
    again when native sweeps have taken an eighth longer.
    """
    early, until = KNOWN.early
    if early is not None and KNOWN.native_seconds < until:
        return early
    rivals: list[Engine] = []
    refused: dict[str, Failure] = {}
    absent: list[tuple[str, EngineDeclined]] = []
    for name in registry.rivals():
        try:
            engine = registry.engine(name)
            unavailable = engine.unavailable()
            if unavailable is not None:
                absent.append((name, unavailable))
                continue
            reason = engine.refusal(history)
        except Exception as error:
            refused[name] = account(name, error)
        else:
            if reason is None:
                rivals.append(engine)
            else:
                refused[name] = Failure(reason)
    if rivals:
        dear = KNOWN.too_early(rivals)
        if dear is not None:
            return KNOWN.decides_early(_natively(Failure(dear)), KNOWN.pays_after(rivals))
        structure = KNOWN.structure(history, rivals)
        gone = {name: Failure(str(declined)) for name, declined in absent}
        for name, failure in (refused | gone).items():
            if name in structure.candidates:  # it ran this before
                structure.failed(name, failure)
        return structure.choose()
    if refused or not absent:
        return _natively(next(iter(refused.values()), None))
    decision = _natively(account(*absent[0]))
    expected = all(declined.expected for _, declined in absent)
    return KNOWN.decides_early(decision) if expected else decision


@lru_cache
def _natively(failure: Failure | None) -> Decision:
    return Decision(registry.NATIVE, failure, None)


def ran_natively(structure: EngineStats | None, seconds: float) -> None:
    """Remember a native sweep, be its structure told apart or not."""
    if structure is not None:
        structure.ran(registry.NATIVE, seconds)
    else:
        _previous.set((registry.NATIVE, CLOCK.now()))
        known = KNOWN
        known.account.spent += seconds
        known.native_seconds += seconds
        if seconds > known.longest:
            known.longest, known.early = seconds, (None, 0.0)


def _since(name: str) -> float:
    """Return the seconds since this engine's last backward here; inf where another one ran."""
    now = CLOCK.now()
    previous = _previous.get()
    _previous.set((name, now))
    return now - previous[1] if previous is not None and previous[0] == name else NEVER


@cache
def _too_dear(what: str, seconds: float) -> str:
    return f"auto: {what} takes about {seconds:.2g} s; that does not pay yet"


# How fast this machine runs Python, against the one that the engines' costs were measured on. What
# importing a library will take can only be guessed before; but of the time of a fixed piece of work
# it is much the same multiple on a slow machine, a fast one, and one that others use.
_WORK = "".join(
    f"class C{i}:\n"
    f"    def f(self, x, y=({i}, 'a{i}'), *z, **k):\n"
    f"        return [x + y[0] for x in z if x is not k]\n"
    for i in range(40)
)
_REFERENCE = 2.5e-3  # seconds that it took where importing TensorFlow took 3.0
_TIMES = 7
# Processor time, where it is fine enough: what others use of the machine is not its pace.
_IS_FINE = time.get_clock_info("process_time").resolution < 1e-4
_now = time.process_time if _IS_FINE else time.perf_counter


@cache
def pace() -> float:
    """Return by what to multiply a guess; it is measured once, in some 20 ms."""
    times = []
    for _ in range(_TIMES):
        start = _now()
        compile(_WORK, __name__, "exec")
        times.append(_now() - start)
    return tuner.median_of(times) / _REFERENCE


COMPILED = "a compiled step runs forward, backward and update as one program: tg.compile(step)"


def choice() -> str:
    """Return which backend is chosen, and by whom."""
    return f"The backend is {get_backend()!r} ({chosen_by()})."


def costs(tuner: Tuner | None, refused: Mapping[str, str], running: str = "") -> list[str]:
    """Return what each engine takes, as measured, or else why it has not been.

    :param running: The name of the engine that runs it anyhow.
    :param tuner: What `auto` has measured, where it has.
    :param refused: Why engines do not run this, by name.
    """
    told = []
    measured = [] if tuner is None else [c for c in tuner.measured if c.runs]
    for candidate in measured:
        title = registry.engine(candidate.way).title
        runs = "1 run" if candidate.runs == 1 else f"{candidate.runs} runs"
        told.append(f"{capital(title)} takes {milliseconds(candidate.run)}, by {runs}.")
    known = {candidate.way for candidate in measured}
    for name in registry.rivals():
        title = capital(registry.engine(name).title)
        if name in refused:
            told.append(f"{title} does not run it: {refused[name].rstrip('.')}.")
        elif name not in known and name != running:
            told.append(f"{title} has not been measured: {_price(tuner, name)}.")
    return told


def _price(tuner: Tuner | None, name: str) -> str:
    waiting = [] if tuner is None else [c for c in tuner.untried if c.way == name]
    if waiting:
        return f"trying it costs about {waiting[0].price():.2g} s"
    costs = registry.engine(name).costs
    load = 0.0 if registry.engine(name).loaded() else costs.load
    return f"the first run costs at least {load + costs.compile:.2g} s"


def advice(refused: Mapping[str, str], tuner: Tuner | None) -> str:
    """Return what to change for another engine to run."""
    backend = get_backend()
    open_to = [name for name in registry.rivals() if name not in refused]
    if not open_to:
        return "To have another engine, see to that first."
    if backend == registry.NATIVE:
        return 'To have them measured, choose tg.set_backend("auto").'
    if backend != registry.AUTO:
        return 'To have the faster one found by measuring, choose tg.set_backend("auto").'
    if tuner is not None and len(tuner.measured) > 1 and not tuner.untried:
        return "There is nothing to change: the faster one has been found by measuring."
    return f'To have it tried at once, choose tg.set_backend("{open_to[0]}").'


def milliseconds(seconds: float) -> str:
    """Write a time."""
    return f"{seconds * 1e3:.3g} ms"


def capital(title: str) -> str:
    """Begin a sentence."""
    return f"{title[0].upper()}{title[1:]}"
