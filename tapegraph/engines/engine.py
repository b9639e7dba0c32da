"""The contract of engines: the programs that an engine runs, and the gradients it computes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from tapegraph.recording.linearize import History
from tapegraph.recording.node import Node
from tapegraph.recording.op import Attrs, Op
from tapegraph.recording.program import Program, Recording, SubProgram
from tapegraph.typed import Array, Fun, Xla


class EngineDeclined(Exception):
    """Raised when an engine does not support a program.

    :param reason: The message.
    :param expected: ``auto`` uses another engine without a warning.
    :ivar runs_done: In a loop, the number of valid runs before the one that fails.
    """

    runs_done: int | None = None

    def __init__(self, reason: str, *, expected: bool = True) -> None:
        super().__init__(reason)
        self.expected = expected


# The gradients of one run, whether the program was in the cache, and the seconds of compiling it.
Outcome: TypeAlias = tuple[list[Array], bool, float]


@dataclass(frozen=True)
class Costs:
    """Estimates in seconds, used until `auto` has measured an engine.

    :ivar load: Importing the engine.
    :ivar compile, compile_entry: Compiling any program, and in addition each of its entries.
    :ivar call: The minimum time of a run.
    """

    load: float = 0.0
    compile: float = 0.0
    compile_entry: float = 0.0
    call: float = 0.0


class Many(NamedTuple):
    """Describes many runs of a program in one call.

    :ivar results: The number of outputs wanted from every run, the first ones; the others are
        wanted from the last run.
    :ivar carried: By an input's slot, the output that the next run reads there; None if it stays.
    :ivar ahead: The number of runs still to come, including these: an upper bound for a call.
    """

    results: int
    carried: Mapping[int, int | None]
    ahead: int


class WholeProgram(Protocol):
    """A captured program, ready to run again.

    It may also have ``run_many(values, runs, many)``: many runs in one call, with state carried
    from run to run. An input's value is then an array with a row for each run, or the first run's
    value of a carried input. It returns what `run` does, or raises `EngineDeclined`, whose
    ``runs_done`` says how many runs are valid. A program that keeps state takes ``changes`` too, as
    `run` does, and may have variants, named by the ``variant`` of both methods.

    :ivar leaves: The slots whose values it takes, in order.
    :ivar keeps_state: State is passed as tensors, not as arrays.
    """

    leaves: list[int]
    keeps_state: bool

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
        """Return the outputs and the new values of changed state: two lists.

        Nobody overwrites these arrays later. A program that keeps state takes a function
        ``changes``, which it calls before any change with functions that return the outputs, and
        with the `RemoteArray` of each changed leaf. Once state has changed, it passes the result to
        `tapegraph.recording.values.make`, without a Python instruction in between at which a
        signal could be handled. It then returns only the functions.

        :raises EngineDeclined: The program does not run with these numbers. Nothing has changed.
        """


class LoopRows(NamedTuple):
    """The rows of an array that many iterations read or write.

    :ivar first: The row of the first iteration.
    :ivar by: The step from one iteration's row to the next; 0 for the whole array each time.
    """

    array: Array
    first: int = 0
    by: int = 0


class Iteration(ABC):
    """An inner program, lent to one loop."""

    @abstractmethod
    def __call__(self, arrays: Sequence[object]) -> list[Any]:
        """Run one iteration on arrays, and return its outputs."""

    def many(self, count: int, reads: Sequence[LoopRows], writes: Sequence[LoopRows]) -> bool:
        """Run ``count`` iterations and return True, or return False: then none of them counts.

        An iteration may read rows that an earlier iteration, in C order, has written, and write
        where it has read itself.
        """
        return False


class Reverse(NamedTuple):
    """A backward of an inner program.

    :ivar wanted: The slots of the inputs whose gradients it gives.
    :ivar seeded: The slots that have a cotangent; an input that has one adds to it.
    :ivar kept: The slots of results that it is given, and does not compute again.
    """

    wanted: tuple[int, ...]
    seeded: tuple[int, ...]
    kept: tuple[int, ...] = ()


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
    """One way from a recording to gradients; `registry.register` adds it to the choices.

    :ivar name: The name by which users choose it.
    :ivar title: The name in messages.
    :ivar costs: Estimates until it has been measured.
    """

    name: str
    title: str
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
