"""A step compiled under a strategy: what it does with gradients is done with those of all workers.

Optimizers are found as they step: the call is taken back, the workers get the same numbers, and it
is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegraph.compiling.compiled import Compiled
from tapegraph.compiling.trace import Trace
from tapegraph.distributed.data_parallel import DataParallel
from tapegraph.distributed.ranks import Communicator, communicator
from tapegraph.errors import explain
from tapegraph.optim.averaging import AVERAGING
from tapegraph.optim.leaves import Leaf
from tapegraph.optim.optimizer import Optimizer
from tapegraph.recording.capture_mode import capturing
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.op import ALL_REDUCE
from tapegraph.recording.scopes import Scope

_OP = "compile(strategy=)"


class _Met(BaseException):
    """An optimizer that the workers do not share yet; no error, which the function may catch."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer


class _Shared:
    """The optimizers that the workers share, each with its exchange."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._parallels: list[DataParallel] = []

    def share(self, optimizer: Optimizer) -> None:
        """Check that the workers' optimizers are alike, and give all the first one's numbers."""
        self._parallels.append(DataParallel(optimizer, self._comm))

    def step(self, optimizer: Any) -> None:
        """Average an optimizer's gradients, and take its step."""
        for parallel in self._parallels:
            if parallel.optimizer is optimizer:
                parallel._stepped(1.0, optimizer._step)
                return
        capture = capturing()
        if capture is None or not capture.is_state(optimizer._steps):
            place = "in a call that is not compiled" if capture is None else "it was made in"
            received = f"the first step of {type(optimizer).__name__} {place}"
            fix = "Make optimizers outside, and the first call of each with compiling on."
            raise RuntimeError(explain(_OP, received, "optimizers that all workers share", fix))
        raise _Met(optimizer)

    def average(self, params: Sequence[Leaf]) -> None:
        """Average the gradients of the optimizers that have one of these parameters."""
        wanted = set(map(id, params))
        for parallel in self._parallels:
            if not wanted.isdisjoint(map(id, parallel.optimizer.params)):
                parallel.all_reduce()


class OnWorkers(Compiled):
    """A function compiled under a strategy."""

    def __init__(self, fn: Any, *options: Any) -> None:
        *others, comm = options
        super().__init__(fn, *others)
        self._options = options
        self._shared = _Shared(comm)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or the program that stands for it, with all workers."""
        inside = capturing() is not None or DIFFERENTIATING.value()
        if inside and AVERAGING.value() is not self._shared:
            received = f"a call of {self.__name__} inside another program"
            fix = "Give the outermost function the strategy."
            raise RuntimeError(explain(_OP, received, "a call by itself", fix))
        while True:
            try:
                with Scope(AVERAGING, self._shared):
                    return super().__call__(*args, **kwargs)
            except _Met as met:
                optimizer = met.optimizer
            self._shared.share(optimizer)

    def _traced(self, *arguments: Any) -> Trace:
        trace = super()._traced(*arguments)
        program = trace.recording.program
        if ALL_REDUCE not in program.ops and any(program.needs[u.leaf] for u in program.updates):
            received = "a step that changes a parameter, and calls no optimizer's step()"
            fix = "Take the step by an optimizer: its gradients are averaged over the workers."
            raise RuntimeError(explain(_OP, received, "the same change on every worker", fix))
        return trace


def compiled(step: Compiled, strategy: Any) -> Compiled:
    """Return a compiled function as one under a strategy."""
    comm = communicator(_OP, strategy)
    return step if comm.size == 1 else OnWorkers(step._fn, *step._options, comm)
