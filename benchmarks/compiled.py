"""A step by `tg.compile` against the eager one and against peers, each in a process of its own.

python -m benchmarks.compiled [--only tiny] [--engine native] [--peer torch] [--settle 40]

They take turns: while one steps, the others wait for word from a pipe, so that no library's
threads, allocator or settings touch another's time. Quoted is the median over rounds of the
compiled step's time over the other's, with quartiles; below 1 the compiled step is faster.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import math
import multiprocessing
import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from benchmarks import environment

WORKLOADS = ("tiny", "mlp", "transformer", "cnn", "embedding")
ENGINES = ("native", "tensorflow")
OURS, COMPILED = "tapegraph", "tapegraph compiled"


class Task(NamedTuple):
    """What one process runs: a contender's name, or one of ours with an engine."""

    workload: str
    contender: str
    engine: str
    threads: int
    clock: str

    @property
    def name(self) -> str:
        """What tables call it."""
        return f"{self.contender} {self.engine}".strip()


# In the process of a contender


def compiled(problem: Any, loss: Any) -> Any:
    """The step of `trainers.tapegraph`, compiled."""
    import tapegraph as tg
    from benchmarks.protocol import Trainer

    weights = [tg.param(w) for w in problem.weights]
    optimizer = tg.SGD(weights, lr=problem.rate)

    @tg.compile
    def step(*data: Any) -> Any:
        optimizer.zero_grad()
        value = loss(*weights, *data)
        value.backward()
        optimizer.step()
        return value

    return Trainer(lambda: step(*problem.data).item(), lambda: [w.numpy() for w in weights])


def serve(task: Task, pipe: Any) -> None:
    """Take steps as they are asked for."""
    from benchmarks import peers, protocol, trainers

    warnings.simplefilter("ignore")
    logging.getLogger(OURS).setLevel(logging.ERROR)
    module = importlib.import_module(f"benchmarks.workloads.{task.workload}")
    build = module.CONTENDERS[OURS if task.engine else task.contender]
    if task.engine:
        import tapegraph as tg

        tg.set_backend(task.engine)
        if task.contender == COMPILED:
            trainers.tapegraph = compiled
    peers.prepare(task.threads, () if task.engine else (peers.peer_of(task.contender),))
    contender = protocol.Contender(task.name, lambda: build(module.problem()))
    answers = {
        "step": contender.step,
        "parameters": lambda: [protocol.np.array(a) for a in contender.trainer.parameters()],
        "turn": contender.turn,
    }
    while (asked := pipe.recv()) is not None:
        question, *given = asked
        pipe.send(answers[question](*given))


# In the process that asks


class Remote:
    """A contender in another process, to which `protocol` speaks as to one in its own."""

    def __init__(self, task: Task, settling: float) -> None:
        from benchmarks.protocol import Trainer

        context = multiprocessing.get_context("spawn")
        self.name = task.name
        self._settling = settling
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(task, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self.trainer = Trainer(self.step, lambda: self._asked("parameters"))

    def _asked(self, *question: Any) -> Any:
        self._pipe.send(question)
        try:
            return self._pipe.recv()
        except EOFError:
            raise SystemExit(f"{self.name}: its process has ended; see above") from None

    def step(self) -> float:
        """Take one step."""
        return self._asked("step")  # type: ignore[no-any-return]

    def settle(self) -> None:
        """Take the steps that record and compile, and those after which the fastest stays."""
        for _ in range(4):
            self.step()
        if self._settling:
            self.turn(self._settling)

    def turn(self, seconds: float) -> Any:
        """Return the seconds of a step."""
        return self._asked("turn", seconds)

    def end(self) -> None:
        """Let its process end."""
        self._pipe.send(None)
        self._process.join()


def contest(workload: str, options: argparse.Namespace) -> None:
    """Measure one workload and print its table."""
    from benchmarks import contest, peers, protocol, report

    module = contest.load(workload)
    peers_here = [
        name
        for name in module.CONTENDERS
        if name in options.peer and peers.why_not(peers.peer_of(name)) is None
    ]
    ours = [(OURS, "native"), *((COMPILED, engine) for engine in options.engine)]
    tasks = [
        Task(workload, name, engine, options.threads, options.clock)
        for name, engine in [*((peer, "") for peer in peers_here), *ours]
    ]
    remotes: Any = [Remote(task, options.settle) for task in tasks]
    try:
        protocol.check_agreement(remotes, module.problem())
        turns = protocol.time_in_turns(
            remotes,
            rounds=options.rounds,
            warmups=3,
            turn_seconds=options.turn,
            budget_seconds=math.inf,
        )
    finally:
        for remote in remotes:
            remote.end()
    seconds = {
        name: [getattr(turn, options.clock) for turn in taken] for name, taken in turns.items()
    }
    compared = [task.name for task in tasks if task.contender == COMPILED]
    rows = [[workload, "ms a step", *(f"{name} / it" for name in compared)]]
    for name, taken in seconds.items():
        ratios = [
            "" if name == one else report.quoted(protocol.ratio(seconds[one], taken))
            for one in compared
        ]
        rows.append([name, report.significant(1e3 * protocol.spread(taken).median), *ratios])
    print("\n".join(report.as_text(rows)), end="\n\n", flush=True)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python -m benchmarks.compiled",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("--only", action="append", choices=WORKLOADS, help="may be repeated")
    p.add_argument("--engine", action="append", choices=ENGINES, help="of tg.compile (native)")
    p.add_argument("--peer", action="append", metavar="NAME", help="may be repeated (torch)")
    p.add_argument("--rounds", type=int, default=15)
    p.add_argument("--turn", type=float, default=0.05, help="seconds of one contender's turn")
    p.add_argument(
        "--settle",
        type=float,
        default=0.0,
        help="seconds that each runs beforehand; a step tries XLA once that pays, tiny after 30",
    )
    p.add_argument("--threads", type=int, help="of every library (all processors)")
    p.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    options = parser().parse_args(argv)
    options.engine = options.engine or ["native"]
    options.peer = options.peer or ["torch"]
    options.threads = options.threads or environment.available_threads()
    environment.settle(options.threads, None)
    # Only from here on may NumPy be imported.
    for workload in options.only or WORKLOADS:
        contest(workload, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
