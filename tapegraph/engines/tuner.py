"""Choosing the fastest of several ways to run one structure, by measuring them.

One way runs anyway. Trying the others may cost a share of what passes anyway; each is measured a
few times, the first way again, as first runs are cold, and then the fastest stays.

In a compiled step the share is the whole, and nothing is foreseen: another way is tried as soon as
the runs so far have cost what trying it will, as skis are bought when renting them has cost as
much. So all time that passes is at most twice what the best way would have taken.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any

from tapegraph.interrupts import Lock

NEVER = float("inf")


# What everything measured is read from; tests put another ``now`` in place.
CLOCK = SimpleNamespace(now=time.perf_counter)


@dataclass(frozen=True)
class Policy:
    """How much may be tried, and when it is decided."""

    # The part of the time spent anyway that may be spent on trying to save some.
    share: float = 0.1
    # A loop is taken to last at least so many steps.
    horizon: int = 200
    # How often each engine runs before it is judged.
    trials: int = 3
    # How often each variant of a graph does, and each engine in a compiled step: they are nearer
    # each other than the sweeps of engines are.
    variant_trials: int = 5
    # A candidate is known by the median of so many of its latest runs: the best of a few is luck.
    latest: int = 9
    # What was tried must take less than this part of the time of what runs anyway.
    edge: float = 0.95
    # What takes so many times as long in a compiled step is judged by two runs.
    far: float = 3.0
    # What was slower in a compiled step is measured again when the time that passed has doubled,
    # where that takes no more than this part of it: other programs may have run then.
    review: float = 0.02
    # How many structures `auto` remembers; the least recently used are forgotten.
    structures: int = 512


POLICY = Policy()


@dataclass
class Account:
    """What trying may cost, in seconds.

    :ivar spent: What runs took, those on trial as long as the usual way would have.
    :ivar paid: What trying took: preparing, and the rest of the runs on trial.
    """

    spent: float = 0.0
    paid: float = 0.0

    @property
    def surplus(self) -> float:
        """What may be paid."""
        return self.spent - self.paid


class Candidate:
    """One way to run a structure, and its latest times in seconds.

    :param price: What trying it costs, asked for until it is tried.
    :param call: The least that a run of it takes.
    :ivar runs: How many were measured.
    :ivar run: What one takes.
    :ivar move: What the latest change to this way took: its first run, less a usual one.
    :ivar step: From the end of the run before to the end of this one, both its own. It shows what a
        way costs all else: its threads may keep the processors busy.
    """

    __slots__ = ("_arrival", "_latest", "_steps", "call", "price", "run", "runs", "step", "way")

    def __init__(
        self, way: Any, price: Callable[[], float] = lambda: 0.0, call: float = 0.0
    ) -> None:
        self.way = way
        self.price = price
        self.call = call
        self._arrival = (0.0, 0)  # seconds and runs of the call that came first after a change
        self.forget()

    def forget(self) -> None:
        """Forget what was measured."""
        self.runs = 0
        self.run = self.step = NEVER
        self._latest: deque[float] = deque(maxlen=POLICY.latest)
        self._steps: deque[float] = deque(maxlen=POLICY.latest)

    @property
    def move(self) -> float:
        """What the latest change to this way took, beyond a run; 0 where that is not known."""
        seconds, runs = self._arrival
        return max(0.0, seconds - runs * self.run) if self.run < NEVER else 0.0

    def arrived(self, seconds: float, runs: int) -> None:
        """Remember the call that came first after a change: it also moved the state."""
        self._arrival = seconds, runs

    def took(self, seconds: float, step: float) -> None:
        """Remember one run."""
        self.runs += 1
        self._latest.append(seconds)
        self.run = median_of(self._latest)
        if step < NEVER:
            self._steps.append(step)
            self.step = median_of(self._steps)


class Stage(Enum):
    """Why a candidate was chosen."""

    FIRST = 0  # it is what runs anyway, and is being measured
    TRIAL = 1  # it is being measured
    DEAR = 2  # it is the fastest so far; trying the next one does not pay yet
    SLOW = 3  # it is the fastest so far; another run of one that is slower does not pay yet
    AGAIN = 4  # it is what runs anyway, and is measured once more
    FASTEST = 5  # all have been measured


class Tuner:
    """Chooses among the candidates of one structure.

    :param candidates: What runs anyway, then the others in the order in which they are tried.
    :param trials: How often each runs before it is judged.
    :param horizon: How many steps are foreseen; with 0, all is paid by what has passed.
    :param share: The part of what passes that may be spent on trying.
    :param process: The account of all tuners together, kept besides its own.
    :param moves: State moves where another candidate runs than the one before: that run counts as
        a cost of the change and not as a measurement.
    :ivar measured, untried: The candidates tried so far, and those still to try.
    :ivar dear: Seconds that the next one would cost, where that did not pay.
    :ivar verdict: What counted in the end, in seconds.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        *,
        trials: int,
        horizon: int,
        share: float = 1.0,
        process: Account | None = None,
        moves: bool = False,
    ) -> None:
        self.account = Account()
        self.measured = [candidates[0]]
        self.untried = list(candidates[1:])
        self.dear = 0.0
        self.verdict: list[tuple[Candidate, float]] = []
        self._process = process or Account()
        self._moves = moves
        self._last = candidates[0]  # what ran last
        self.trials = trials
        self._horizon = horizon
        self._share = share
        self._runs = 0
        self._charged = 0.0  # for trying a candidate, until what that took is known
        self._again = False
        self._usual = NEVER  # what the first way took before it was to be measured again
        self._settled: Candidate | None = None
        # What is chosen until so much was spent.
        self._standing, self._until = (candidates[0], Stage.FIRST), 0.0
        self._lock = Lock()

    @property
    def first(self) -> Candidate:
        """What runs anyway."""
        return self.measured[0]

    def choose(self) -> tuple[Candidate, Stage]:
        """Return which candidate is to run now, and why."""
        if self.account.spent < self._until:
            return self._standing
        with self._lock():
            return self._choose()

    def took(
        self,
        candidate: Candidate,
        seconds: float,
        *,
        step: float = NEVER,
        counts: bool = True,
        besides: float = 0.0,
        runs: int = 1,
    ) -> None:
        """Remember a run, or many at once; one that also prepared the candidate does not count.

        ``besides`` is what preparing took that is not in ``seconds``.
        """
        until = self._until
        stays = candidate is self._last or not self._moves
        if stays and not besides and (self._settled or self.account.spent + seconds < until):
            # What stands is measured again at the end of its time.
            self._runs += runs
            self.account.spent += seconds
            self._process.spent += seconds
            return
        with self._lock():
            self._last = candidate
            self._runs += runs
            others = min((c.run for c in self.measured if c is not candidate), default=NEVER)
            if not stays:
                usual = min(seconds, runs * min(candidate.run, others))
            else:
                usual = seconds if candidate.run <= others else min(seconds, runs * others)
            self._spend(usual)
            self._pay(seconds - usual + besides)
            if not counts:
                self._pay(-self._charged)
                self._charged = 0.0
            elif not stays:
                candidate.arrived(seconds, runs)
            elif self._settled is None:
                candidate.took(seconds / runs, step)

    def drop(self, candidate: Candidate) -> None:
        """Never choose a candidate again: it does not run."""
        with self._lock():
            for known in (self.measured, self.untried):
                if candidate in known:
                    known.remove(candidate)
            if candidate is self._settled:
                self._settled = None
            self._until = 0.0

    def try_next(self) -> None:
        """Let the next untried candidate run now, whatever it costs."""
        with self._lock():
            if self.untried:
                self.measured.append(self.untried.pop(0))
            self._until = 0.0

    def measure_again(self, candidate: Candidate) -> None:
        """Measure a candidate that has changed, and what runs anyway, and decide anew."""
        with self._lock():
            self._settled, self._again, self._until = None, False, 0.0
            candidate.forget()

    def _choose(self) -> tuple[Candidate, Stage]:
        self._until = 0.0
        if self._settled is not None and not self._reconsiders():
            return self._stands(self._settled, Stage.FASTEST, 2 * self.account.spent)
        first = self.first
        for candidate in reversed(self.measured):
            if not self._is_judged(candidate):
                if candidate is first:
                    return self._first_run()
                if self._affords(candidate, candidate.run):
                    return candidate, Stage.TRIAL
        best = min(self.measured, key=lambda c: c.run)
        if not all(map(self._is_judged, self.measured)):
            return best, Stage.SLOW
        if self.untried:
            candidate = self.untried[0]
            self.dear = candidate.price()
            if not self._pays(self.dear, best.run, candidate.call):
                enough = (self.account.paid + self.dear) / self._share
                # It may have become cheaper before: the import, say, was made for another one.
                return self._stands(
                    best, Stage.DEAR, min(enough, self.account.spent * (1 + 1 / 64))
                )
            self._pay(self.dear)
            self._charged = self.dear
            self.measured.append(self.untried.pop(0))
            return candidate, Stage.TRIAL
        if len(self.measured) > 1 and not self._again:
            self._again = True
            self._usual = first.run
            first.forget()
            return self._first_run()
        steps = all(c.step < NEVER for c in self.measured)  # else others run in between
        self.verdict = [(c, c.step if steps else c.run) for c in self.measured]
        self._settled = _fastest(self.verdict)
        return self._stands(self._settled, Stage.FASTEST, 2 * self.account.spent)

    def _stands(self, candidate: Candidate, stage: Stage, spent: float) -> tuple[Candidate, Stage]:
        """Stay with a choice until so much was spent; where steps are foreseen, for good."""
        self._standing = candidate, stage
        if not self._horizon:
            self._until = spent * (1 - 1e-9)
        elif stage is Stage.FASTEST:
            self._until = NEVER
        return self._standing

    def _is_judged(self, candidate: Candidate) -> bool:
        """Return whether it was measured often enough: what is far slower need not be as often."""
        if candidate.runs >= self.trials:
            return True
        if self._horizon or candidate.runs < 2:
            return False
        return candidate.run > POLICY.far * min(c.run for c in self.measured)

    def _first_run(self) -> tuple[Candidate, Stage]:
        """Measure what runs anyway; where another way is much faster, once that pays."""
        if not self._again:
            return self.first, Stage.FIRST
        if self._affords(self.first, min(self._usual, self.first.run)):
            return self.first, Stage.AGAIN
        return min(self.measured, key=lambda c: c.run), Stage.SLOW

    def _pays(self, price: float, run: float, call: float) -> bool:
        """Return whether what passes pays for trying what takes at least ``call``."""
        account = self.account
        if self._horizon:
            saved = (run - call) * max(self._horizon, self._runs)
        else:
            saved = account.spent - call * self._runs
        return self._share * saved >= (account.paid + price) * (1 - 1e-9)  # sums are rounded

    def _affords(self, candidate: Candidate, run: float) -> bool:
        """Return whether what has passed pays for one more run of a way that took so long."""
        if self._horizon or run == NEVER:
            return True
        best = min(self.measured, key=lambda c: c.run)
        beyond, there_and_back = run - best.run, candidate.move + best.move
        if candidate is not self._last:
            beyond += there_and_back
        elif beyond <= there_and_back:  # to leave it and come back takes longer
            return True
        return beyond <= 0.0 or beyond <= self._share * self.account.spent - self.account.paid

    def _spend(self, seconds: float) -> None:
        self.account.spent += seconds
        self._process.spent += seconds

    def _pay(self, seconds: float) -> None:
        self.account.paid += seconds
        self._process.paid += seconds

    def _reconsiders(self) -> bool:
        """Let those be measured again that are not too slow for it; tell whether there are any."""
        best, first = self._settled, self.first
        if best is None or self._horizon:
            return False
        limit = POLICY.review * self.account.spent
        again = []
        for candidate in self.measured:
            cost = self.trials * max(0.0, candidate.run - best.run) + candidate.move + best.move
            if candidate is not best and cost < limit:
                again.append(candidate)
                limit -= cost
        if again:
            self._settled = None
            self._again = first is not best and first not in again
            for candidate in [best, *again]:
                if candidate is not first:
                    candidate.forget()
        return bool(again)


def _fastest(verdict: list[tuple[Candidate, float]]) -> Candidate:
    """Return the candidate to stay with: another one than the first must be worth it."""
    (first, limit), *others = verdict
    best, seconds = min(others, key=lambda pair: pair[1], default=(first, limit))
    return best if seconds <= POLICY.edge * limit else first


def median_of(seconds: Iterable[float]) -> float:
    """Return the median; `statistics`, which has it, would take a tenth of the import."""
    ordered = sorted(seconds)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2
