"""Choosing the fastest of several ways to run one structure, by measuring them.

One way runs anyway. Trying the others may cost a share of what passes anyway; each is measured a
few times, the first way again, as first runs are cold, and then the fastest stays. So are chosen
the engine under `auto`, and among the graphs of one structure its variant.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tapegraph.locks import Lock

NEVER = float("inf")


class Clock:
    """Seconds from any fixed moment on; tests put another ``now`` in place."""

    def __init__(self) -> None:
        self.now = time.perf_counter


CLOCK = Clock()  # what everything measured is read from


@dataclass(frozen=True)
class Policy:
    """How much may be tried, and when it is decided.

    - share: The part of the time spent anyway that may be spent on trying to save some.
    - horizon: A loop is taken to last at least so many steps.
    - trials: How often each engine runs before it is judged.
    - variant_trials: How often each variant of a graph does: they are nearer each other than
      engines are.
    - latest: A candidate is known by the median of so many of its latest runs: the best of a few is
      luck.
    - edge: What was tried must take less than this part of the time of what runs anyway.
    - structures: How many structures `auto` remembers; the least recently used are forgotten.
    """

    share: float = 0.1
    horizon: int = 200
    trials: int = 3
    variant_trials: int = 5
    latest: int = 9
    edge: float = 0.95
    structures: int = 512


POLICY = Policy()


class Candidate:
    """One way to run a structure, and its latest times in seconds.

    - way: What runs; the tuner hands it back.
    - price: What trying it costs, in seconds, asked for until it is tried.
    - call: The least that a run of it takes.
    - runs (int): The runs measured.
    - run (float): What it takes.
    - step: From the end of the run before to the end of this one, both its own. It shows what a way
      costs all else: its threads may keep the processors busy.
    """

    __slots__ = ("_latest", "_steps", "call", "price", "run", "runs", "step", "way")

    def __init__(
        self, way: Any, price: Callable[[], float] = lambda: 0.0, call: float = 0.0
    ) -> None:
        self.way = way
        self.price = price
        self.call = call
        self.forget()

    def forget(self) -> None:
        """Forget what was measured."""
        self.runs = 0
        self.run = self.step = NEVER
        self._latest: deque[float] = deque(maxlen=POLICY.latest)
        self._steps: deque[float] = deque(maxlen=POLICY.latest)

    def took(self, seconds: float, step: float) -> None:
        """Remember one run."""
        self.runs += 1
        self._latest.append(seconds)
        self.run = median(self._latest)
        if step < NEVER:
            self._steps.append(step)
            self.step = median(self._steps)


class Stage(Enum):
    """Why a candidate was chosen."""

    FIRST = 0  # it is what runs anyway, and is being measured
    TRIAL = 1  # it is being measured
    DEAR = 2  # it is the fastest so far; trying the next one does not pay yet
    AGAIN = 3  # it is what runs anyway, and is measured once more
    FASTEST = 4  # all have been measured


class Tuner:
    """Chooses among the candidates of one structure.

    - candidates: What runs anyway, then the others in the order in which they are tried.
    - trials: How often each runs before it is judged.
    - horizon: How many steps are foreseen.
    - measured (list of Candidate): Those tried so far.
    - untried (list of Candidate): Those still to try.
    - dear (float): Seconds that the next one would cost, where that did not pay.
    - verdict: What counted in the end, in seconds.
    """

    def __init__(self, candidates: Sequence[Candidate], *, trials: int, horizon: int) -> None:
        self.measured = [candidates[0]]
        self.untried = list(candidates[1:])
        self.dear = 0.0
        self.verdict: list[tuple[Candidate, float]] = []
        self._trials = trials
        self._horizon = horizon
        self._runs = 0
        self._paid = 0.0
        self._again = False
        self._settled: Candidate | None = None
        self._lock = Lock()

    @property
    def first(self) -> Candidate:
        """What runs anyway."""
        return self.measured[0]

    def choose(self) -> tuple[Candidate, Stage]:
        """Return which candidate is to run now, and why."""
        if self._settled is not None:
            return self._settled, Stage.FASTEST
        with self._lock():
            return self._choose()

    def took(
        self,
        candidate: Candidate,
        seconds: float,
        *,
        step: float = NEVER,
        counts: bool = True,
        runs: int = 1,
    ) -> None:
        """Remember a run, or many at once; one that also prepared the candidate does not count."""
        if self._settled is not None:
            return
        with self._lock():
            self._runs += runs
            if counts:
                candidate.took(seconds / runs, step)

    def drop(self, candidate: Candidate) -> None:
        """Never choose a candidate again: it does not run."""
        with self._lock():
            for known in (self.measured, self.untried):
                if candidate in known:
                    known.remove(candidate)
            if candidate is self._settled:
                self._settled = None

    def try_next(self) -> None:
        """Let the next untried candidate run now, whatever it costs."""
        with self._lock():
            if self.untried:
                self.measured.append(self.untried.pop(0))

    def measure_again(self, candidate: Candidate) -> None:
        """Measure a candidate that has changed, and what runs anyway, and decide anew."""
        with self._lock():
            self._settled, self._again = None, False
            candidate.forget()

    def _choose(self) -> tuple[Candidate, Stage]:
        first = self.first
        for candidate in reversed(self.measured):
            if candidate.runs < self._trials:
                if candidate is not first:
                    return candidate, Stage.TRIAL
                return candidate, Stage.AGAIN if self._again else Stage.FIRST
        if self.untried:
            best = min(self.measured, key=lambda c: c.run)
            candidate = self.untried[0]
            self.dear = candidate.price()
            saved = (best.run - candidate.call) * max(self._horizon, self._runs)
            if POLICY.share * saved < self._paid + self.dear:
                return best, Stage.DEAR
            self._paid += self.dear
            self.measured.append(self.untried.pop(0))
            return candidate, Stage.TRIAL
        if len(self.measured) > 1 and not self._again:
            self._again = True
            first.forget()
            return first, Stage.AGAIN
        steps = all(c.step < NEVER for c in self.measured)  # else others run in between
        self.verdict = [(c, c.step if steps else c.run) for c in self.measured]
        self._settled = _fastest(self.verdict)
        return self._settled, Stage.FASTEST


def _fastest(verdict: list[tuple[Candidate, float]]) -> Candidate:
    """Return the candidate to stay with: another one than the first must be worth it."""
    (first, limit), *others = verdict
    best, seconds = min(others, key=lambda pair: pair[1], default=(first, limit))
    return best if seconds <= POLICY.edge * limit else first


def median(seconds: Iterable[float]) -> float:
    """Return the median; `statistics`, which has it, would take a tenth of the import."""
    ordered = sorted(seconds)
    middle = len(ordered) // 2
    return (ordered[middle] + ordered[~middle]) / 2
