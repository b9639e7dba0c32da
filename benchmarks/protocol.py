"""The protocol: contenders agree first, then take turns, and only ratios count.

Machines are noisy, so nothing is compared across runs. In every round each contender has one
turn, and what is quoted is the median over rounds of one's time over the other's, with quartiles.
"""

from __future__ import annotations

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

# How many steps are taken to see that contenders agree, and Adam's default for first moments.
CHECKED = 4
ADAM_DECAY = 0.9


class Problem(NamedTuple):
    """What every contender starts from: the parameters' first values, the data, the optimizer."""

    weights: list[Array]
    data: list[Array]
    rate: float
    optimizer: str = "SGD"


class Unavailable(Exception):
    """A contender cannot take part here; the message says why."""


class Trainer(NamedTuple):
    """One library's training: ``step()`` returns the loss, ``state()`` what gradients change.

    A step is forward, backward, the optimizer's update, and the loss read as a Python float. The
    state is the parameters under SGD, and their first moments under Adam.
    """

    step: Callable[[], float]
    state: Callable[[], Sequence[Array]]


class Turn(NamedTuple):
    """Seconds a step: by the clock on the wall, and of processor time in all threads."""

    wall: float
    cpu: float


class Contender:
    """A trainer with its name."""

    def __init__(
        self, name: str, build: Callable[[], Trainer], *, settling_seconds: float = 0.0
    ) -> None:
        self.name = name
        self.settling_seconds = settling_seconds
        self.trainer: Trainer = build()
        self.last = Turn(0.0, 0.0)

    def step(self) -> float:
        """Take one step."""
        return self.trainer.step()

    def state(self) -> list[Array]:
        """Return the present parameters, or first moments."""
        return [np.array(a) for a in self.trainer.state()]

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
        self.last = _time(self.trainer.step, seconds)
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
    """Let every contender take its first steps; raise unless losses and gradients agree.

    The gradients are read off the update, ``(before - after) / rate``, or off Adam's first moments:
    so the step that is timed is the step that is checked, the first one and the last, as a
    compiled step replays from its third call on. The rate is a power of two, which makes the
    division exact.
    """
    reference: tuple[str, dict[str, Array]] | None = None
    for contender in contenders:
        numbers = _first_steps(contender, problem)
        if reference is None:
            reference = contender.name, numbers
        else:
            _check_equal(reference, (contender.name, numbers))


def _first_steps(contender: Contender, problem: Problem) -> dict[str, Array]:
    """Return losses and gradients by name."""
    numbers: dict[str, Array] = {}
    adam = problem.optimizer == "Adam"
    state: list[Array] = [np.zeros_like(w) for w in problem.weights] if adam else problem.weights
    for step in range(1, CHECKED + 1):
        numbers[f"loss of step {step}"] = np.asarray(contender.step())
        if step not in (1, CHECKED - 1, CHECKED):
            continue
        before, state = state, contender.state()
        for i, (old, new) in enumerate(zip(before, state, strict=True)):
            if new.dtype != old.dtype or new.shape != old.shape:
                raise Disagreement(
                    f"{contender.name} turned parameters of {old.dtype} {old.shape} into "
                    f"{new.dtype} {new.shape}"
                )
            if step != CHECKED - 1:
                gradient = new - ADAM_DECAY * old if adam else old - new
                over = 1 - ADAM_DECAY if adam else problem.rate
                numbers[f"gradient {i} of step {step}"] = gradient / old.dtype.type(over)
    return numbers


def _check_equal(ours: tuple[str, dict[str, Array]], theirs: tuple[str, dict[str, Array]]) -> None:
    tolerance = TOLERANCE[next(reversed(ours[1].values())).dtype]
    for what, a in ours[1].items():
        error, scale = np.max(np.abs(a - theirs[1][what])), np.max(np.abs(a))
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
    for contender in contenders:
        contender.settle()
    end = time.perf_counter() + budget_seconds
    turns: dict[str, list[Turn]] = {contender.name: [] for contender in contenders}
    for i in progress(range(-warmups, rounds)):
        if i >= 2 and time.perf_counter() > end:
            break
        for contender in contenders:
            turn = contender.turn(turn_seconds)
            if i >= 0:
                turns[contender.name].append(turn)
    return turns


class Spread(NamedTuple):
    """The median of some numbers, between their quartiles."""

    low: float
    median: float
    high: float


class Figure(NamedTuple):
    """A measured number that is no contest."""

    unit: str
    spread: Spread


def spread(numbers: Sequence[float]) -> Spread:
    """Return quartiles and median of two numbers or more."""
    return Spread(*statistics.quantiles(numbers, n=4, method="inclusive"))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Return the spread over rounds of our time over theirs: below 1 is faster."""
    return spread([a / b for a, b in zip(ours, theirs, strict=True)])
