"""The protocol: contenders agree first, then take turns, and only ratios count.

Machines are noisy, so nothing is compared across runs. In every round each contender has one
turn, and what is quoted is the median over rounds of one's time over the other's, with quartiles.
"""

from __future__ import annotations

import contextvars
import gc
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# A pool of threads that has run dry spins before it sleeps (OpenBLAS: some 25 ms) and would take
# a processor from whoever is next.
PAUSE_SECONDS = 0.04
# A turn goes on for this long, so that a step of a millisecond is not timed once.
TURN_SECONDS = 0.02
# Where a step takes this long, cold caches are nothing beside it.
LONG_SECONDS = 0.1
# Of the largest number; float64 is held to more than the float32 accuracy that is promised.
TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-9}


class Problem(NamedTuple):
    """What every contender starts from: the parameters' first values, the data, the rate."""

    weights: list[Array]
    data: list[Array]
    rate: float


class Trainer(NamedTuple):
    """One library's training: ``step()`` returns the loss, ``parameters()`` the present values.

    A step is forward, backward, SGD update, and the loss read as a Python float.
    """

    step: Callable[[], float]
    parameters: Callable[[], Sequence[Array]]


class Turn(NamedTuple):
    """Seconds a step: by the clock on the wall, and of processor time in all threads."""

    wall: float
    cpu: float


class Contender:
    """A trainer with its name, in a context of its own: engine, tape and report stay apart."""

    def __init__(
        self, name: str, build: Callable[[], Trainer], *, settling_seconds: float = 0.0
    ) -> None:
        self.name = name
        self.settling_seconds = settling_seconds
        self.context = contextvars.copy_context()
        self.trainer: Trainer = self.context.run(build)
        self.last = Turn(0.0, 0.0)

    def step(self) -> float:
        """Take one step."""
        return self.context.run(self.trainer.step)

    def settle(self) -> None:
        """Take steps until who chooses between graphs or engines by measuring has had time to."""
        end = time.perf_counter() + self.settling_seconds
        while time.perf_counter() < end:
            self.step()

    def turn(self, seconds: float = TURN_SECONDS) -> Turn:
        """Return the seconds of a step, the mean of as many as fit into a turn."""
        time.sleep(PAUSE_SECONDS)
        gc.collect()  # each contender pays for its own garbage only
        if self.last.wall < LONG_SECONDS:
            self.step()  # so that it finds its caches warm, as in any training loop
        self.last = self.context.run(_time, self.trainer.step, seconds)
        return self.last


def _time(step: Callable[[], float], seconds: float) -> Turn:
    count = 0
    start, cpu_start = time.perf_counter(), time.process_time()
    while True:
        step()
        count += 1
        elapsed = time.perf_counter() - start
        if elapsed >= seconds:
            return Turn(elapsed / count, (time.process_time() - cpu_start) / count)


class Disagreement(Exception):
    """Two contenders do not compute the same."""


def check_agreement(contenders: Sequence[Contender], problem: Problem) -> None:
    """Let every contender take its first step; raise unless losses and gradients agree.

    The gradients are read off the update, ``(before - after) / rate``: so the step that is timed
    is the step that is checked. The rate is a power of two, which makes the division exact.
    """
    reference: tuple[str, list[Array]] | None = None
    for contender in contenders:
        numbers = [np.asarray(contender.step())]
        for before, after in zip(problem.weights, contender.trainer.parameters(), strict=True):
            if after.dtype != before.dtype or after.shape != before.shape:
                raise Disagreement(
                    f"{contender.name} turned parameters of {before.dtype} {before.shape} into "
                    f"{after.dtype} {after.shape}"
                )
            numbers.append((before - after) / before.dtype.type(problem.rate))
        if reference is None:
            reference = contender.name, numbers
        else:
            _check_equal(reference, (contender.name, numbers))


def _check_equal(ours: tuple[str, list[Array]], theirs: tuple[str, list[Array]]) -> None:
    tolerance = TOLERANCE[ours[1][-1].dtype]
    for i, (a, b) in enumerate(zip(ours[1], theirs[1], strict=True)):
        what = f"gradient {i - 1}" if i else "loss"
        error, scale = np.max(np.abs(a - b)), np.max(np.abs(a))
        if not error <= tolerance * scale:  # so that NaN is an error too
            raise Disagreement(
                f"{ours[0]} and {theirs[0]} differ in the {what} by {error:.3g}, where the largest "
                f"number is {scale:.3g}"
            )


def time_in_turns(
    contenders: Sequence[Contender],
    *,
    rounds: int,
    warmups: int,
    turn_seconds: float = TURN_SECONDS,
    budget_seconds: float = math.inf,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> dict[str, list[Turn]]:
    """Return every contender's turns, one a round, warm-ups left out.

    No round after the second is begun once the budget is spent.
    """
    end = time.perf_counter() + budget_seconds
    for contender in contenders:
        contender.settle()
    turns: dict[str, list[Turn]] = {contender.name: [] for contender in contenders}
    gc.collect()
    gc.freeze()  # what the libraries hold need not be searched for garbage in every round
    try:
        for i in progress(range(-warmups, rounds)):
            if i >= 2 and time.perf_counter() > end:
                break
            for contender in contenders:
                turn = contender.turn(turn_seconds)
                if i >= 0:
                    turns[contender.name].append(turn)
    finally:
        gc.unfreeze()
    return turns


class Spread(NamedTuple):
    """The median of some numbers, between their quartiles."""

    low: float
    median: float
    high: float


def spread(numbers: Sequence[float]) -> Spread:
    """Return quartiles and median of two numbers or more."""
    return Spread(*statistics.quantiles(numbers, n=4, method="inclusive"))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread over rounds of our time over theirs: below 1 is faster."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])
