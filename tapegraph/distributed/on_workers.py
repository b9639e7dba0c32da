"""A step compiled under a strategy: what it does with gradients is done with those of all workers.

What workers are to share is found as a call is recorded: the call is taken back, the workers get
the same numbers, and it is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tapegraph.compiling.compiled import Compiled
from tapegraph.compiling.trace import Trace
from tapegraph.distributed.data_parallel import DataParallel, leaf_signature, send_out
from tapegraph.distributed.exchange import Communicator, check_alike, communicator
from tapegraph.errors import message
from tapegraph.optim.leaves import AVERAGING, Leaf
from tapegraph.optim.optimizer import Optimizer
from tapegraph.recording.capture_mode import capturing
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.op import ALL_REDUCE
from tapegraph.recording.scopes import Scope
from tapegraph.scalars.state import DATA, Item
from tapegraph.tensors.value import Value

_OP = "compile(strategy=)"


class _Met(BaseException):
    """Something that workers do not share yet; no error, which the function may catch."""

    def __init__(self, share: Callable[[], None]) -> None:
        self.share = share


class _Shared:
    """The optimizers that workers share, each with its exchange, and what else they share."""

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._parallels: list[DataParallel] = []
        self._others: list[Leaf] = []  # of no optimizer that has been met

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
            raise RuntimeError(message(_OP, received, "optimizers that all workers share", fix))
        raise _Met(partial(self._share, optimizer))

    def _share(self, optimizer: Optimizer) -> None:
        self._parallels.append(DataParallel(optimizer, self._comm))

    def average(self, params: Sequence[Leaf]) -> None:
        """Average the gradients of the optimizers that have one of these parameters."""
        wanted = set(map(id, params))
        for parallel in self._parallels:
            if not wanted.isdisjoint(map(id, parallel.optimizer.params)):
                parallel.all_reduce()

    def check(self, trace: Trace) -> None:
        """Refuse what changes a parameter of one worker alone; share what there is to share."""
        program = trace.recording.program
        params: list[Any] = [p for slot, p in trace.state.items() if program.needs[slot]]
        changed: list[Any] = [trace.state[u.leaf] for u in program.updates if program.needs[u.leaf]]
        if trace.numbers is not None:
            params += _values(trace.numbers.read_from)
            changed += _values(trace.numbers.written_to)
        optimized = {id(p) for parallel in self._parallels for p in parallel.optimizer.params}
        averaged = optimized if ALL_REDUCE in program.ops else ()
        for p in changed:
            if id(p) not in averaged:
                name = getattr(p, "name", None)
                which = f"the parameter {name!r}" if name else "a parameter"
                received = f"a step that changes {which} without an optimizer"
                fix = "Let an optimizer: its gradients are averaged over the workers."
                raise RuntimeError(message(_OP, received, "the same change on every worker", fix))
        known = optimized.union(map(id, self._others))
        if new := [p for p in params if id(p) not in known]:
            raise _Met(partial(self._share_others, new))

    def _share_others(self, params: list[Leaf]) -> None:
        lines = [leaf_signature(f"parameter {i} of the step", p) for i, p in enumerate(params)]
        check_alike(_OP, self._comm, lines)
        send_out(self._comm, params)
        self._others += params


def _values(items: list[Item]) -> list[Value]:
    return [x for x, slot in items if isinstance(x, Value) and slot == DATA]


class OnWorkers(Compiled):
    """A function compiled under a strategy."""

    def __init__(self, fn: Any, *options: Any) -> None:
        super().__init__(fn, *options[:-1])
        self._options = options
        self._workers = options[-1]
        self._shared = _Shared(self._workers)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, or the program that stands for it, with all workers."""
        inside = capturing() is not None or DIFFERENTIATING.value()
        if inside and AVERAGING.value() is not self._shared:
            received = f"a call of {self.__name__} inside another program"
            fix = "Give the outermost function the strategy."
            raise RuntimeError(message(_OP, received, "a call by itself", fix))
        while True:
            try:
                with Scope(AVERAGING, self._shared):
                    return super().__call__(*args, **kwargs)
            except _Met as met:  # everything has been taken back
                share = met.share
            share()

    def _traced(self, *arguments: Any) -> Trace:
        trace = super()._traced(*arguments)
        self._shared.check(trace)
        return trace


def under_strategy(step: Compiled, strategy: Any) -> Compiled:
    """Return a compiled function as one under a strategy."""
    comm = communicator(_OP, strategy)
    return step if comm.size == 1 else OnWorkers(step._fn, *step._options, comm)
