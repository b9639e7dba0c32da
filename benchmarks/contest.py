"""One workload from start to finish: who takes part, who agrees, who took how long."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks import peers
from benchmarks.contenders import COMPILED, OURS, WITH_XLA, Remote, Task, load
from benchmarks.processes import Failed, Process
from benchmarks.protocol import (
    TURN_SECONDS,
    Figure,
    Spread,
    Turn,
    check_agreement,
    ratio,
    spread,
    time_in_turns,
)

# What one thread gets of a processor while nobody else wants it.
ENOUGH = 0.9
# The engines that choose by measuring, which takes a while.
CHOOSING = ("tensorflow", "auto")


class Settings(NamedTuple):
    """How long and with whom to measure."""

    rounds: int = 15
    warmups: int = 3
    turn_seconds: float = TURN_SECONDS
    settling_seconds: float = 30.0
    budget_seconds: float | None = None
    clock: str = "wall"
    engines: Sequence[str] = ("native", "tensorflow")
    peers: Sequence[str] = tuple(peers.PEERS)
    threads: int = 1


@dataclass
class Result:
    """What one workload gave: seconds a step by contender and round, and who is missing."""

    name: str
    about: str
    seconds: dict[str, list[float]] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        return min(map(len, self.seconds.values()), default=0)

    @property
    def ours(self) -> list[str]:
        return [name for name in self.seconds if peers.peer_of(name) == OURS]

    @property
    def theirs(self) -> list[str]:
        return [name for name in self.seconds if peers.peer_of(name) != OURS]

    def spread(self, name: str) -> Spread:
        return spread(self.seconds[name])

    def ratio(self, ours: str, theirs: str) -> Spread:
        return ratio(self.seconds[ours], self.seconds[theirs])


def run(
    workload: str,
    settings: Settings,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Result:
    """Measure one workload."""
    module = load(workload)
    result = Result(workload, module.ABOUT)
    if hasattr(module, "measure"):
        process = Process(f"{__name__}:Measuring", workload)
        try:
            result.figures, result.skipped = process.ask("measure", settings.rounds)
        finally:
            process.end()
        return result
    contenders: list[Any] = []
    try:
        for task in tasks(workload, module.CONTENDERS, settings, result):
            contenders.append(Remote(task))
        here = [c for c in contenders if _is_there(c, result)]
        check_agreement(here, module.problem())
        here = [c for c in here if not _fell_back(c, result)]
        turns = time_in_turns(
            here,
            rounds=settings.rounds,
            warmups=settings.warmups,
            turn_seconds=settings.turn_seconds,
            budget_seconds=settings.budget_seconds or math.inf,
            progress=progress,
        )
        here = [c for c in here if not _fell_back(c, result)]  # since then
        result.seconds = {
            c.name: [getattr(turn, settings.clock) for turn in turns[c.name]] for c in here
        }
        if hasattr(module, "OPS"):
            result.notes.append(f"per op: {_per_op(result, module.OPS)}")
        result.notes += _if_busy(turns, settings.clock)
        for contender in here:
            if contender.task.engine == "auto":
                engine, reason = contender.ran_in()
                settled = engine + (f": {reason}" if reason else "")
                result.notes.append(f"{contender.name} settled on {settled}")
    finally:
        for contender in contenders:
            contender.end()
    return result


class Measuring:
    """A workload where nobody competes, in a process of its own."""

    def __init__(self, workload: str) -> None:
        self._module = load(workload)

    def measure(self, rounds: int) -> tuple[dict[str, Figure], dict[str, str]]:
        """Return its figures, and what was left out."""
        return self._module.measure(rounds)  # type: ignore[no-any-return]


def tasks(
    workload: str, contenders: Iterable[str], settings: Settings, result: Result
) -> Iterable[Task]:
    """Give a task a process; say of peers that are not installed why they take no part."""
    for name in contenders:
        peer = peers.peer_of(name)
        if peer != OURS:
            if peer in settings.peers:
                reason = peers.missing(peer)
                if reason is None:
                    yield Task(workload, name, "", settings.threads, 0.0)
                else:
                    result.skipped[name] = reason
        elif name in (OURS, COMPILED) and OURS in contenders:
            for engine in settings.engines:
                settling = settings.settling_seconds if engine in CHOOSING else 0.0
                yield Task(workload, name, engine, settings.threads, settling)
        elif name == WITH_XLA:  # which is one engine's, and chooses nothing
            if "tensorflow" in settings.engines:
                yield Task(workload, name, "tensorflow", settings.threads, 0.0)
        else:
            yield Task(workload, name, "", settings.threads, 0.0)


def _is_there(contender: Remote, result: Result) -> bool:
    """Leave out who cannot take part, with the reason."""
    try:
        contender.made()
    except Failed as failed:
        if failed.kind != "Unavailable":
            raise
        result.skipped[contender.name] = str(failed)
        return False
    return True


def _if_busy(turns: dict[str, list[Turn]], clock: str) -> list[str]:
    """Tell when others used the machine: a step of nothing but work had to wait."""
    share = statistics.median(turn.cpu / turn.wall for taken in turns.values() for turn in taken)
    if share > ENOUGH or clock == "cpu":
        return []
    return [
        f"the machine was busy: a contender got {share:.0%} of one processor, so these ratios are "
        "not to be trusted; --threads 1 --clock cpu is robust to that"
    ]


def _per_op(result: Result, ops: int) -> str:
    return ", ".join(
        f"{name} {1e6 * result.spread(name).median / ops:.2f} us" for name in result.seconds
    )


def _fell_back(contender: Remote, result: Result) -> bool:
    """Leave out the graph engine where it did not run: its time would be the native one's."""
    if contender.task.engine != "tensorflow":
        return False
    engine, reason = contender.ran_in()
    if engine != "tensorflow":
        result.skipped[contender.name] = f"ran in the native engine: {reason}"
        return True
    return False
