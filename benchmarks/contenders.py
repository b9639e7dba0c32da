"""A contender: in the process that steps, and as the process that measures sees it."""

from __future__ import annotations

import gc
import importlib
import logging
import warnings
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

from benchmarks import peers
from benchmarks.processes import ROOT, Process
from benchmarks.protocol import Array, Contender, Turn, Unavailable

OURS, COMPILED = "tapegraph", "tapegraph compiled"
WITH_XLA = "tapegraph compiled xla"


class Task(NamedTuple):
    """What one process runs: a contender of a workload, one of ours with an engine."""

    workload: str
    contender: str
    engine: str
    threads: int
    settling_seconds: float

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.contender} {self.engine}".strip()


def load(workload: str) -> ModuleType:
    """Import a workload."""
    return importlib.import_module(f"benchmarks.workloads.{workload}")


# In the process that steps


class Serving(Contender):
    """A contender that answers from a process of its own."""

    def settle(self) -> None:
        """Settle, and let the garbage collector pass over what the libraries hold."""
        super().settle()
        gc.collect()
        gc.freeze()

    def ran_in(self) -> tuple[str, str | None]:
        """Return the engine of tapegraph's last backward, and why it was the native one."""
        import tapegraph as tg

        report = tg.last_backward()
        return report.backend, report.reason


def serving(*given: Any) -> Serving:
    """Build the contender of a `Task`; of a peer that is not there, raise `Unavailable`."""
    task = Task(*given)
    quiet()
    name, module = peers.peer_of(task.contender), load(task.workload)
    if name in peers.PEERS:
        reason = peers.why_not(name)
        if reason is not None:
            raise Unavailable(reason)
        peers.prepare(task.threads, (name,))
    elif task.engine:
        import tapegraph as tg

        if task.engine == "tensorflow":
            peers.why_not("tf.function")  # imports it without its messages
        tg.set_backend(task.engine)
    build = partial(module.CONTENDERS[task.contender], module.problem())
    return Serving(task.name, build, settling_seconds=task.settling_seconds)


def quiet() -> None:
    """Silence warnings: that an engine fell back is told in the result."""
    warnings.simplefilter("ignore")
    logging.getLogger(OURS).setLevel(logging.ERROR)


# In the process that measures


class Remote:
    """A contender in a process of its own."""

    def __init__(self, task: Task, checkout: Any = ROOT, name: str = "") -> None:
        self.name = name or task.name
        self.task = task
        self._process = Process(f"{__name__}:serving", *task, checkout=checkout)

    def made(self) -> None:
        """Wait until it is there."""
        self._process.made()

    def step(self) -> float:
        """Take one step."""
        return self._process.ask("step")  # type: ignore[no-any-return]

    def state(self) -> Sequence[Array]:
        """Return what a step changes by the gradient."""
        return self._process.ask("state")  # type: ignore[no-any-return]

    def settle(self) -> None:
        """Let it choose what it chooses by measuring."""
        self._process.ask("settle")

    def turn(self, seconds: float) -> Turn:
        """Return the seconds of a step."""
        return self._process.ask("turn", seconds)  # type: ignore[no-any-return]

    def ran_in(self) -> tuple[str, str | None]:
        """Return the engine of the last step, and why it was the native one."""
        return self._process.ask("ran_in")  # type: ignore[no-any-return]

    def end(self) -> None:
        """Let its process end."""
        self._process.end()
