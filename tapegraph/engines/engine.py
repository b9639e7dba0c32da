"""The contract of engines: the programs that an engine runs, and the gradients it computes."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from tapegraph.arrays import is_shared, own
from tapegraph.recording.linearize import History
from tapegraph.recording.node import Node
from tapegraph.recording.op import GRADIENT, Attrs, Op
from tapegraph.recording.program import Program, Recording, SubProgram
from tapegraph.recording.values import Change, new_numbers
from tapegraph.row_sparse import RowSparse
from tapegraph.typed import Array, Fun, Xla


class EngineDeclined(Exception):
    """Raised when an engine does not support a program; ``expected``: `auto` gives no warning."""

    runs_done: int | None = None  # in a loop, the number of valid runs before the one that fails

    def __init__(self, reason: str, *, expected: bool = True) -> None:
        super().__init__(reason)
        self.expected = expected


# The gradients of one run, whether the program was in the cache, and the seconds of compiling it.
Outcome: TypeAlias = tuple[list[Array], bool, float]


@dataclass(frozen=True)
class Costs:
    """Estimates in seconds, used until `auto` has measured an engine."""

    load: float = 0.0  # importing the engine
    compile: float = 0.0  # compiling any program, and in addition each of its entries
    compile_entry: float = 0.0
    call: float = 0.0  # the minimum time of a run


class Many(NamedTuple):
    """Describes many runs of a program in one call."""

    results: int  # so many outputs, the first ones, are wanted from every run, others from the last
    carried: Mapping[int, int | None]  # by an input's slot, the output read there next, if it moves
    ahead: int  # the number of runs still to come, including these


class WholeProgram(Protocol):
    """A captured program, ready to run again.

    It may also have ``run_many(values, runs, many)``: many runs in one call, with state carried
    from run to run. An input's value is then an array with a row for each run, or the first run's
    value of a carried input. It returns what `run` does, or raises `EngineDeclined`, whose
    ``runs_done`` says how many runs are valid. A program that keeps state takes ``changes`` too, as
    `run` does, and may have variants, named by the ``variant`` of both methods.
    """

    leaves: list[int]  # the slots whose values it takes, in order
    keeps_state: bool  # state is passed as tensors, not as arrays

    @property
    def variants(self) -> dict[str, float]:
        """The estimated compile time of each variant in seconds, by its name."""

    @property
    def compile_seconds(self) -> float:
        """The compile time of its runs so far, in seconds."""

    @property
    def note(self) -> str:
        """A note on its variants, appended to the engine's name."""

    def run(self, values: list[Any], changes: object = None) -> Any:
        """Return the outputs and the new values of changed state: two lists; or decline.

        Nobody overwrites these arrays later. A program that keeps state takes a function
        ``changes``, which it calls before any change with functions that return the outputs, and
        with the `RemoteArray` of each changed leaf. Once state has changed, it passes the result to
        `tapegraph.recording.values.make`, without a Python instruction in between at which a
        signal could be handled. It then returns only the functions.
        """


class SgdUpdate(NamedTuple):
    """An update ``p - scale * gradient``, by slots."""

    gradient: int
    scale: int
    product: int
    difference: int


class RowUpdate(NamedTuple):
    """The change of a parameter: ``scale`` times the rows of a gradient."""

    rows: RowSparse
    scale: Any

    def of(self, leaf: Node) -> list[Change]:
        """Return changes that write the rows in place; other holders keep the old numbers."""
        table = own(leaf._array) if is_shared(leaf) else leaf._array
        rows, moved = self.rows.moved(table, -self.scale)
        return [partial(operator.setitem, table, rows, moved), *new_numbers(leaf, table)]


def sgd_updates(program: Program) -> dict[int, SgdUpdate]:
    """Return the updates whose parts nothing else reads, by the parameter's slot: rows suffice."""
    readers, outputs = program.readers(), set(program.outputs)
    changes = [update.slot for update in program.updates]
    found = {}
    for leaf, difference in program.updates:
        if not _is(program, difference, operator.sub) or readers[difference]:
            continue
        minuend, product = program.inputs[difference]
        if minuend != leaf or not _is(program, product, operator.mul):
            continue
        inputs = program.inputs[product]
        gradients = [
            i for i in inputs if program.ops[i] is GRADIENT and program.inputs[i][1] == leaf
        ]
        scales = [i for i in inputs if program.shapes[i] == () and i not in gradients]
        if (
            len(gradients) == len(scales) == changes.count(difference) == 1
            and not {product, difference} & outputs
            and readers[product] == {difference}
            and readers[gradients[0]] == {product}
            and program.dtypes[product] == program.dtypes[leaf]
        ):
            found[leaf] = SgdUpdate(gradients[0], scales[0], product, difference)
    return found


def _is(program: Program, slot: int, forward: Fun) -> bool:
    return bool(program.inputs[slot]) and program.ops[slot].forward is forward


class LoopRows(NamedTuple):
    """The rows of an array that many iterations read or write."""

    array: Array
    first: int = 0  # the row of the first iteration
    by: int = 0  # from one iteration's row to the next; 0 for the whole array each time


class Iteration(ABC):
    """An inner program, lent to one loop."""

    @abstractmethod
    def __call__(self, arrays: Sequence[object]) -> list[Any]:
        """Run one iteration on arrays, and return its outputs."""

    def many(self, count: int, reads: Sequence[LoopRows], writes: Sequence[LoopRows]) -> bool:
        """Run ``count`` iterations and return True, or return False: then none of them counts.

        An iteration may read rows that an earlier one, in C order, has written.
        """
        return False


class Reverse(NamedTuple):
    """A backward of an inner program, by slots."""

    wanted: tuple[int, ...]  # the inputs whose gradients it gives
    seeded: tuple[int, ...]  # who has a cotangent; an input that has one adds to it
    kept: tuple[int, ...] = ()  # results that it takes, and does not compute again


class Inner(ABC):
    """An inner program, prepared to run many times. Cotangents are those inside a sweep."""

    @abstractmethod
    def forward(self, inputs: Sequence[object]) -> AbstractContextManager[Iteration]:
        """Lend the function from input arrays, like the examples, to output arrays."""

    @abstractmethod
    def pullback(
        self, kind: Reverse, inputs: Sequence[object], seeds: Sequence[object]
    ) -> AbstractContextManager[Iteration]:
        """Lend the function from inputs, kept results and a cotangent per seed to gradients."""

    @abstractmethod
    def strong_pullback(self, kind: Reverse) -> Iteration:
        """Return the pullback with strong zeros."""

    @abstractmethod
    def failing(self, inputs: Sequence[object]) -> int | None:
        """Return the slot whose operation raises for some inputs, None if none does."""


class Engine(ABC):
    """One way from a recording to gradients; `registry.register` adds it to the choices."""

    name: str  # by which users choose it
    title: str  # in messages
    costs = Costs()

    @abstractmethod
    def run(self, recording: Recording, seeds: Sequence[Array]) -> Outcome:
        """Return the wanted gradients, given a cotangent per output; or raise EngineDeclined."""

    def differentiate(self, history: History, seeds: Sequence[Array]) -> Outcome:
        """Return gradients for a history's targets, given a cotangent per result, or decline."""
        return self.run(history.recording, seeds)

    def recorded(self, recording: Recording, seeds: Sequence[object]) -> list[Any]:
        """Return the wanted gradients as recorded Tensors, or raise EngineDeclined."""
        raise EngineDeclined(f"{self.title} records no gradients")

    def tangent_rule(self, op: Op, tag: int) -> Fun:
        """Return an operation's tangent rule at a level, from its gradient rule, or decline."""
        raise EngineDeclined(f"{self.title} records no tangents")

    def forward(self, op: Op, arrays: tuple[object, ...], attrs: Attrs) -> Array | None:
        """Return an operation's result by the engine's kernels, or None if NumPy is to compute."""
        return None

    def whole(
        self, recording: Recording, state: Mapping[int, Node], xla: Xla = "auto"
    ) -> WholeProgram:
        """Prepare a captured program, such as a training step, to run again, or decline."""
        self.check_whole(recording.program)
        raise NotImplementedError

    def inner(self, body: SubProgram) -> Inner:
        """Prepare the body of a loop, or a branch, to run by itself, or raise EngineDeclined."""
        raise EngineDeclined(f"{self.title} runs no inner programs by themselves")

    def unavailable(self) -> EngineDeclined | None:
        """Return why the engine cannot run here, without importing it, or None."""
        return None

    def check(self, program: Program) -> None:  # noqa: B027
        """Raise EngineDeclined, at little cost, for a program that the engine does not support."""

    def refusal(self, history: History) -> str | None:
        """Return why `check` rejects a history's program, or None; `auto` asks each time."""
        try:
            self.check(history.recording.program)
        except EngineDeclined as declined:
            return str(declined)
        return None

    def check_whole(self, program: Program) -> None:
        """Raise EngineDeclined, at little cost, for a program that `whole` does not support."""
        raise EngineDeclined(f"{self.title} runs no whole programs")

    def workers(self, op: str, strategy: object) -> Any:
        """Return the processes of the library's strategy as a communicator."""
        raise TypeError(f"{op}: {self.title} has no strategies")

    def load(self) -> None:  # noqa: B027
        """Import the engine before the first run is timed, or raise EngineDeclined."""

    def loaded(self) -> bool:
        return True

    def load_seconds(self) -> float:
        """Return the estimated time of the import with the packages installed here."""
        return self.costs.load

    def compile_seconds(self, entries: int, xla: Xla) -> float:
        return self.costs.compile + entries * self.costs.compile_entry

    def is_transient(self, error: Exception) -> bool:
        """Return whether the program may run next time, although it raised this error."""
        return isinstance(error, MemoryError)

    def version(self) -> str:
        """Return the library's version without importing it, or ``""``, or raise EngineDeclined."""
        return ""

    def details(self) -> dict[str, str]:
        """Return lines for ``python -m tapegraph info``, by topic."""
        return {}
