"""The rule that chooses how to run a structure, for engines and variants, eager and compiled.

This is the ski-rental rule. The first way runs until its runs have cost as much as trying another
way will. Three runs then measure the other way, and the faster one stays. Each time the total has
doubled, the slower way is measured again if that is cheap. So the total time is at most about twice
that of the best way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import NamedTuple

from tapegraph.engines import registry
from tapegraph.engines.backend import Failure
from tapegraph.interrupts import Lock

NEVER = float("inf")
# The clock of all measurements; tests replace it.
CLOCK = SimpleNamespace(now=time.perf_counter)
# The runs whose median is a way's time, and the failures in a row that end its trial.
TRIALS = 3
# A new way must take less than this part of the present way's time.
EDGE = 0.95
# Two runs are enough for a way that takes so many times as long.
FAR = 3.0
# Measuring a slower way again may cost this part of the total.
REVIEW = 0.02
# Seconds to run before anything is tried; the lowest price.
EARLIEST = 0.1
# Prices are read again after so much more time: another structure may have paid for an import.
_LOOK_AGAIN = 1 / 64


class Ledger:
    """Seconds spent on runs, trial runs counted at the usual time, and on trying."""

    def __init__(self) -> None:
        self.spent = self.paid = 0.0

    @property
    def surplus(self) -> float:
        return self.spent - self.paid


PROCESS = Ledger()  # of all structures together
# By what factors the latest trials took longer to prepare than the machine's pace foresees.
OVERRUNS: deque[float] = deque(maxlen=8)


def overrun() -> float:
    return median_of(OVERRUNS) if OVERRUNS else 1.0


@dataclass(eq=False)
class Way:
    """One way to run a structure."""

    engine: str
    variant: str = ""
    compiling: Callable[[], float] = float  # the estimated cost, which the structure itself pays
    loading: Callable[[], float] = float  # the cost of importing, which all structures share
    call: float = 0.0  # the minimum time of a run
    # Seconds of the latest runs that count as measurements.
    times: deque[float] = field(default_factory=lambda: deque(maxlen=TRIALS))
    arrival: float = 0.0  # seconds of the first run after another way's, which also moved the state
    tried: float | None = None  # the structure's total when it was last tried
    foreseen: float = 0.0  # the price when its first trial began, until that has been paid
    setbacks: int = 0  # failures since the last run

    @property
    def run(self) -> float:
        """The time of one run in seconds: the median, since the minimum would be luck."""
        return median_of(self.times) if self.times else NEVER

    @property
    def price(self) -> float:
        return self.loading() + self.compiling()

    @property
    def title(self) -> str:
        title = registry.engine(self.engine).title
        return f"{title} with {self.variant}" if self.variant else title


NATIVELY = Way(registry.NATIVE)


class Decision(NamedTuple):
    """The way to run, why it is the native engine, and the record of its time."""

    way: Way
    failure: Failure | None = None
    choice: Choice | None = None


ALONE = Failure("auto: no other engine is registered")
ASKED = Decision(NATIVELY, Failure("the backend was native"))
LOOKED_AT = Decision(
    NATIVELY, Failure("tg.anomaly looks at each result, which only the native engine shows")
)


class Choice:
    """Chooses among the ways to run one structure, the first one and others in order of trying."""

    def __init__(
        self, first: Way, others: Iterable[Way] = (), process: Ledger | None = None
    ) -> None:
        self.first = self.stands = first  # the way that runs unless another one is on trial
        self.others = list(others)  # besides the one that stands
        self.ledger = Ledger()
        # The total of all structures, without the import of an engine that the user chose.
        self._process = PROCESS if process is None else process
        self.failure: Failure | None = None  # why the latest way that did not run was dropped
        self._trial: Way | None = None
        self._until = EARLIEST if self.others else NEVER
        early = Failure("auto: a new structure runs natively at first")
        self._decision = Decision(first, early if first.engine == registry.NATIVE else None, self)
        self._last: Way | None = None
        self._lock = Lock()

    def choose(self) -> Decision:
        if self.ledger.spent < self._until:
            return self._decision
        with self._lock.held:
            self._until, spent = 0.0, self.ledger.spent
            trial = self._trial
            if trial is not None and self._is_judged(trial):
                if trial.run <= EDGE * self.stands.run:
                    place = self.others.index(trial)
                    self.others[place], self.stands = self.stands, trial
                self._trial = trial = None
            if trial is None and len(self.stands.times) == TRIALS:
                untried = [way for way in self.others if way.tried is None]
                lacks = [NEVER if way in untried[1:] else self._lack(way) for way in self.others]
                trial = next((w for w, s in zip(self.others, lacks, strict=True) if s <= 0.0), None)
                if trial is None:
                    soon = min([*lacks, spent * _LOOK_AGAIN]) if lacks else NEVER
                    self._until = (spent + soon) * (1 - 1e-9)  # sums are rounded
                else:
                    self._trial = trial
                    trial.foreseen = trial.price if trial.tried is None else 0.0
                    trial.times.clear()
                    trial.tried = self.stands.tried = spent
            way = trial or self.stands
            self._decision = Decision(way, self._why_native() if way is self.stands else None, self)
            return self._decision

    def took(self, way: Way, seconds: float, preparing: float = 0.0, runs: int = 1) -> None:
        """Record the time of a run, or of many at once, and of preparing it.

        Neither the first run after another way's nor a prepared one is a measurement.
        """
        if preparing and way.foreseen:
            OVERRUNS.append(overrun() * preparing / way.foreseen)
            way.foreseen = 0.0
        counts = way is self._last and not preparing
        if counts:
            way.times.append(seconds / runs)
        else:
            self._last, way.arrival = way, seconds
        as_usual = counts and way is self.stands
        usual = seconds if as_usual else min(seconds, runs * self.stands.run)
        way.setbacks = 0
        for ledger in (self.ledger, self._process):
            ledger.spent += usual
            ledger.paid += seconds - usual + preparing

    def is_early(self, way: Way, seconds: float) -> bool:
        """Return whether a way on trial, after an import of so long, has yet to earn compiling.

        If so, the process pays for the import, and the trial begins again later.
        """
        with self._lock.held:
            compiling = way.compiling()
            loading = way.foreseen - compiling
            if way is not self._trial or loading <= 0.0:
                return False
            longer = seconds / loading
            lack = compiling * longer + seconds - self._process.surplus
            if lack <= 1e-9 * self.ledger.spent:
                return False
            OVERRUNS.append(overrun() * longer)
            self._process.paid += seconds
            self._trial = way.tried = None
            self._until = self.ledger.spent + lack
            self._decision = Decision(self.stands, self._why_native(), self)
            return True

    def pay(self, seconds: float) -> None:
        self.ledger.paid += seconds
        self._process.paid += seconds

    def add(self, way: Way) -> None:
        with self._lock.held:
            self.others.append(way)
            self._until = min(self._until, EARLIEST)

    def failed(self, way: Way, failure: Failure) -> bool:
        """Record that a way did not run; return whether to give it up."""
        with self._lock.held:
            way.setbacks += 1
            if failure.transient and way.setbacks < TRIALS:
                return False
            self.failure = failure
            left = [x for x in (self.stands, *self.others) if x is not way] or [self.first]
            if way is self.stands:
                self.stands = min(left, key=lambda way: way.run)
            self.others = [x for x in left if x is not self.stands]
            self._trial = None
            self._until = 0.0
            return True

    def plain(self, way: Way) -> Way:
        ways = (self.stands, *self.others)
        return next(x for x in ways if x.engine == way.engine and not x.variant)

    def _is_judged(self, way: Way) -> bool:
        """Return whether a way on trial has been measured often enough."""
        if len(way.times) > 1 and min(way.times) > FAR * self.stands.run:
            return True
        return len(way.times) == TRIALS

    def _lack(self, way: Way) -> float:
        """Return the seconds still to spend before a way may be tried."""
        spent, run = self.ledger.spent, self.stands.run
        if way.tried is None:
            if way.call >= run:  # it can only be slower
                return NEVER
            compiling, loading = way.compiling(), way.loading()
            lack = compiling - self.ledger.surplus
            if loading:
                lack = max(lack, compiling + loading - self._process.surplus)
            return 0.0 if lack <= 1e-9 * spent else lack
        if spent < 2 * way.tried:
            return 2 * way.tried - spent
        cost = TRIALS * max(0.0, way.run - run) + way.arrival + self.stands.arrival
        if cost <= REVIEW * spent:
            return 0.0
        way.tried = spent  # as if it had been: it is looked at again when that has doubled
        return spent

    def _why_native(self) -> Failure | None:
        if self.stands.engine != registry.NATIVE:
            return None
        measured = [way for way in self.others if way.times]
        if measured:
            theirs = ", ".join(f"{milliseconds(way.run)} in {way.title}" for way in measured)
            ours = milliseconds(self.stands.run)
            return Failure(f"auto: the native engine took {ours}, against {theirs}")
        if self.others:
            return Failure(too_dear(self.others[0]))
        return self.failure


def too_dear(way: Way) -> str:
    return f"auto: trying {way.title} takes about {way.price:.2g} s, which does not pay yet"


def median_of(seconds: Iterable[float]) -> float:
    """Return the median; importing `statistics` would take a tenth of tapegraph's import."""
    ordered = sorted(seconds)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms"
