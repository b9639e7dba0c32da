"""One workload from start to finish: who takes part, who agrees, who took how long."""

from __future__ import annotations

import importlib
import math
import statistics
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import tapegraph as tg
from benchmarks import peers
from benchmarks.protocol import (
    TURN_SECONDS,
    Contender,
    Problem,
    Spread,
    Trainer,
    Turn,
    check_agreement,
    ratio,
    spread,
    time_in_turns,
)

OURS = "tapegraph"
# What one thread gets of a processor while nobody else wants it.
ENOUGH = 0.9


class Settings(NamedTuple):
    """How long and with whom to measure."""

    rounds: int = 15
    warmups: int = 3
    turn_seconds: float = TURN_SECONDS
    settling_seconds: float = 16.0
    budget_seconds: float | None = None
    clock: str = "wall"
    engines: Sequence[str] = ("native", "tensorflow", "auto")
    peers: Sequence[str] = tuple(peers.PEERS)


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


class Figure(NamedTuple):
    """A measured number that is no contest."""

    unit: str
    spread: Spread


def load(workload: str) -> ModuleType:
    """Import a workload."""
    return importlib.import_module(f"benchmarks.workloads.{workload}")


def run(
    workload: str,
    settings: Settings,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Result:
    """Measure one workload."""
    module = load(workload)
    result = Result(workload, module.ABOUT)
    with warnings.catch_warnings():
        # That an engine fell back is told in the result; peers warn of their own affairs.
        warnings.simplefilter("ignore")
        if hasattr(module, "measure"):
            module.measure(result, settings.rounds, progress)
            return result
        problem = module.problem()
        contenders = gather(module.CONTENDERS, problem, settings, result)
        check_agreement(contenders, problem)
        contenders = [c for c in contenders if not _fell_back(c, result)]
        turns = time_in_turns(
            contenders,
            rounds=settings.rounds,
            warmups=settings.warmups,
            turn_seconds=settings.turn_seconds,
            budget_seconds=settings.budget_seconds or math.inf,
            progress=progress,
        )
        result.seconds = {
            name: [getattr(turn, settings.clock) for turn in taken] for name, taken in turns.items()
        }
        if hasattr(module, "OPS"):
            result.notes.append(f"per op: {_per_op(result, module.OPS)}")
        result.notes += _if_busy(turns, settings.clock)
        for contender in contenders:
            if contender.name == f"{OURS} auto":
                result.notes.append(f"{OURS} auto settled on {_engine_of(contender)}")
    return result


def gather(
    factories: dict[str, Callable[[Problem], Trainer]],
    problem: Problem,
    settings: Settings,
    result: Result,
) -> list[Contender]:
    """Build every contender that can take part; say of the others why they cannot."""
    contenders = []
    for name, factory in factories.items():
        peer = peers.peer_of(name)
        build = partial(factory, problem)
        if name == OURS:
            contenders += [_with_engine(engine, build, settings) for engine in settings.engines]
        elif peer == OURS:
            contenders.append(Contender(name, build))
        elif peer in settings.peers:
            reason = peers.why_not(peer)
            if reason is None:
                contenders.append(Contender(name, build))
            else:
                result.skipped[name] = reason
    return contenders


def _with_engine(engine: str, build: Callable[[], Trainer], settings: Settings) -> Contender:
    def build_with_engine() -> Trainer:
        tg.set_backend(engine)
        return build()

    settling = 0.0 if engine == "native" else settings.settling_seconds
    return Contender(f"{OURS} {engine}", build_with_engine, settling_seconds=settling)


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


def _report(contender: Contender) -> Any:
    return contender.context.run(tg.last_backward)


def _fell_back(contender: Contender, result: Result) -> bool:
    """Leave out the graph engine where it did not run: its time would be the native one's."""
    if contender.name != f"{OURS} tensorflow":
        return False
    report = _report(contender)
    if report.backend != "tensorflow":
        result.skipped[contender.name] = f"ran in the native engine: {report.reason}"
        return True
    return False


def _engine_of(contender: Contender) -> str:
    report = _report(contender)
    return report.backend + (f": {report.reason}" if report.reason else "")
