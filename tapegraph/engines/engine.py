"""The interface of engines: which programs they run, and their gradients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from tapegraph.arrays.row_sparse import dense_copy
from tapegraph.recording.linearize import History
from tapegraph.recording.node import Node
from tapegraph.recording.op import Attrs, Op
from tapegraph.recording.program import Program, Recording
from tapegraph.recording.subprogram import SubProgram
from tapegraph.typed import Array, Xla


class EngineDeclined(Exception):
    """An engine does not run this program, for a reason that is no fault of either.

    :param reason: The message.
    :param expected: ``auto``, which looks for the engine that fits, takes it without a warning.
    :ivar runs_done: How many of many runs stand, but were not made: those before one that does not.
    """

    runs_done: int | None = None

    def __init__(self, reason: str, *, expected: bool = True) -> None:
        super().__init__(reason)
        self.expected = expected


class Outcome(NamedTuple):
    """Gradients of one run, whether its program was cached, and the seconds of compiling it."""

    grads: list[Array]
    cached: bool = False
    compile_seconds: float = 0.0


@dataclass(frozen=True)
class Costs:
    """First guesses, in seconds, of what an engine takes; `auto` measures what it can.

    :ivar load: Importing what it needs.
    :ivar compile, compile_entry: Compiling any program and, besides, each of its entries.
    :ivar call: The least that a run takes.
    """

    load: float = 0.0
    compile: float = 0.0
    compile_entry: float = 0.0
    call: float = 0.0


# By the slot of an input, which output of a run the next one reads there; None for what stays.
Carried = Mapping[int, int | None]


class Many(NamedTuple):
    """A request to run a program many times at once.

    :ivar results: How many outputs are wanted of every run: the first ones. Of others the last
        run's.
    :ivar carried: What runs leave in the place of inputs for the next one.
    :ivar ahead: How many runs are still to come, these included; no more than may be made at once.
    """

    results: int
    carried: Carried
    ahead: int


class WholeProgram(Protocol):
    """A captured program, ready to run again.

    One that keeps state may also have ``run_many(values, runs, many, changes)``, which runs it so
    many times at once, with state carried on. In the place of an input's value is an array with a
    row for each run, or what the first run reads of what is carried. It changes and returns what
    `run` does, or raises `EngineDeclined`; ``runs_done`` of them stand, if it has a loop. One that
    keeps state may have variants: both calls take the name of one as ``variant``.

    :ivar leaves: The slots whose values it takes, in order.
    :ivar keeps_state: Of state it takes the tensors themselves, not their arrays.
    """

    leaves: list[int]
    keeps_state: bool

    @property
    def variants(self) -> dict[str, float]:
        """The estimated seconds of compiling each variant, by name."""

    @property
    def compile_seconds(self) -> float:
        """The seconds that its runs have spent compiling so far."""

    @property
    def note(self) -> str:
        """A note on its variants, for messages."""

    def run(self, values: list[Any], changes: Any = None) -> Any:
        """Return the outputs, and the new values of the state that changes: two lists.

        Each is an array that nobody will overwrite. A program that keeps state is given a function
        besides, which it calls before it changes any: of functions that will give the outputs, and
        of the `RemoteArray` of each leaf that changes. What that returns it hands to
        `tapegraph.recording.changes.make` as soon as it has changed state, with nothing in
        between at which Python would handle a signal. It returns the functions alone.

        :raises EngineDeclined: Not with these numbers. Nothing has been changed.
        """


# From the arrays of a round to what comes out of it.
Round = Callable[[Sequence[Any]], list[Any]]


class Reverse(NamedTuple):
    """A backward of an inner program.

    :ivar wanted: The slots of the inputs whose gradients it gives.
    :ivar seeded: The slots that have a cotangent; an input that has one adds to it.
    """

    wanted: tuple[int, ...]
    seeded: tuple[int, ...]


class Inner(ABC):
    """An inner program, prepared to run round after round. Cotangents are those inside a sweep."""

    @abstractmethod
    def forward(self, inputs: Sequence[Any]) -> AbstractContextManager[Round]:
        """Lend a function from arrays, in the order of the inputs, to those of the outputs.

        :param inputs: An example of each.
        """

    @abstractmethod
    def pullback(
        self, kind: Reverse, inputs: Sequence[Any], seeds: Sequence[Any]
    ) -> AbstractContextManager[Round]:
        """Lend a function from such arrays, then a cotangent per seeded slot, to gradients."""

    @abstractmethod
    def strong_pullback(self, kind: Reverse) -> Round:
        """Return the same with strong zeros."""


class Engine(ABC):
    """One way from a recording to gradients. `registry.register` makes it one to choose.

    :ivar name: What users choose it by.
    :ivar title: What messages call it.
    :ivar costs: What to expect of it before it was measured.
    """

    name: str
    title: str
    costs = Costs()

    @abstractmethod
    def run(self, recording: Recording, seeds: Sequence[Array]) -> Outcome:
        """Return the gradients of the wanted slots, given a cotangent per output.

        :raises EngineDeclined: It does not run this program.
        """

    def differentiate(self, history: History, seeds: Sequence[Array]) -> Outcome:
        """Return the gradients by what is wanted of a history, given a cotangent per result.

        :raises EngineDeclined: It does not run this program.
        """
        return self.run(history.recording, seeds)

    def recorded(self, recording: Recording, seeds: Sequence[Any]) -> list[Any]:
        """Return the gradients of the wanted slots as Tensors, given a Tensor per output.

        What computes them is recorded, and can be differentiated again.

        :raises EngineDeclined: It records nothing.
        """
        raise EngineDeclined(f"{self.title} records no gradients")

    def tangent_rule(self, op: Op) -> Callable[..., Any]:
        """Return the tangent rule of an operation, made of its gradient rule.

        :raises EngineDeclined: It records nothing.
        """
        raise EngineDeclined(f"{self.title} records no tangents")

    def jacobian(self, recording: Recording) -> Outcome:
        """Return the Jacobian of the one output by each wanted slot, its elements first.

        :raises EngineDeclined: It does not run this program.
        """
        program = recording.program
        (output,) = program.outputs
        lengths, dtype = program.shapes[output], program.dtypes[output]
        size = math.prod(lengths)
        found = [np.empty((size, *program.shapes[i]), program.dtypes[i]) for i in program.wanted]
        compiling = 0.0
        for place in range(size):
            row = self.run(recording, [np.eye(1, size, place, dtype).reshape(lengths)])
            compiling += row.compile_seconds
            for jacobian, grad in zip(found, row.grads, strict=True):
                jacobian[place] = dense_copy(grad)
        return Outcome(found, compile_seconds=compiling)

    def forward(self, op: Op, arrays: tuple[Any, ...], attrs: Attrs) -> Array | None:
        """Return an operation's result by the engine's own kernels; None to leave it to NumPy."""
        return None

    def whole(
        self, recording: Recording, state: Mapping[int, Node], xla: Xla = "auto"
    ) -> WholeProgram:
        """Prepare a program that was captured, such as a training step, to run again.

        :param recording: What was recorded.
        :param state: The leaves that are tensors from outside, by slot.
        :param xla: Whether to compile it with XLA, where the engine has that: as for `compile`.
        :raises EngineDeclined: It runs no whole programs, or not this one.
        """
        self.check_whole(recording.program)
        raise NotImplementedError

    def inner(self, body: SubProgram) -> Inner:
        """Prepare the body of a loop, or a branch, to run by itself.

        :raises EngineDeclined: It runs none.
        """
        raise EngineDeclined(f"{self.title} runs no inner programs by themselves")

    def unavailable(self) -> EngineDeclined | None:
        """Return why it runs nothing here, known without an import; None where it may run."""
        return None

    def check(self, program: Program) -> None:  # noqa: B027
        """Refuse what is known not to run, at little cost.

        :raises EngineDeclined: It does not run this program.
        """

    def refusal(self, history: History) -> str | None:
        """Return why `check` refuses a history's program, None where it does not.

        `auto` asks at every backward: an engine that can answer without the program does.
        """
        try:
            self.check(history.recording.program)
        except EngineDeclined as declined:
            return str(declined)
        return None

    def prepare(self, history: History) -> None:
        """Import what it needs, unless it is known not to run a history.

        :raises EngineDeclined: It does not run it, or cannot be used here.
        """
        refusal = self.refusal(history)
        if refusal is not None:
            raise EngineDeclined(refusal)
        unavailable = self.unavailable()
        if unavailable is not None:
            raise unavailable
        self.load()

    def check_whole(self, program: Program) -> None:
        """Refuse what `whole` is known not to run, at little cost.

        :raises EngineDeclined: It runs no whole programs, or not this one.
        """
        raise EngineDeclined(f"{self.title} runs no whole programs")

    def workers(self, op: str, strategy: Any) -> Any:
        """Return the processes of a strategy of the engine's library as a communicator."""
        raise TypeError(f"{op}: {self.title} has no strategies")

    def load(self) -> None:  # noqa: B027
        """Import what it needs: done before the first run, whose time is then its own.

        :raises EngineDeclined: It cannot be used here.
        """

    def loaded(self) -> bool:
        """Return whether what it needs has been imported."""
        return True

    def load_seconds(self) -> float:
        """Return what importing it is taken to cost, by what is installed here."""
        return self.costs.load

    def node_times(self) -> Callable[[], list[tuple[str, float, float, str]]] | None:
        """Start to measure what runs inside its graphs; return what ends that and gives it.

        Each is a type of node, its start and duration in seconds, and its thread. None: nobody can
        look inside.
        """
        return None

    def is_transient(self, error: Exception) -> bool:
        """Return whether the same program may run the next time, though it raised this."""
        return isinstance(error, MemoryError)

    def version(self) -> str:
        """Return the version of what it needs, without importing it; ``""`` where only that tells.

        :raises EngineDeclined: It cannot be used here.
        """
        return ""

    def details(self) -> dict[str, str]:
        """Return what ``python -m tapegraph info`` is to say of it, by topic."""
        return {}
