"""One real call of a function, captured: its program, its state and its results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any
from weakref import ref

import numpy as np

from tapegraph import random
from tapegraph.capture import MAYBE_ZEROED, ZEROED, Capture, RunDependent, leaked
from tapegraph.compiling.arguments import (
    FLOAT,
    RESULT,
    VALUE,
    ArgSpec,
    LeafSpec,
    as_written,
    flattened,
    rebuilt,
)
from tapegraph.compiling.guards import FedPlace
from tapegraph.compiling.inputs import Converted, GradientBefore, Inputs, Reader, Reading
from tapegraph.errors import sentence
from tapegraph.interrupts import Lock
from tapegraph.recording.node import Node, as_leaf
from tapegraph.recording.numpy_functions import is_float
from tapegraph.recording.op import ALL_REDUCE, INPUT, SCALAR, OpKind
from tapegraph.recording.program import Program, Recording, identity
from tapegraph.recording.tape import ZERO, DeferredGradient
from tapegraph.recording.values import (
    Change,
    RemoteArray,
    Undo,
    array_or_remote,
    make,
    set_gradient,
    together,
)
from tapegraph.row_sparse import RowSparse
from tapegraph.scalars.numbers import Levels, Numbers
from tapegraph.scalars.recorder import NUMBERS, ScalarState, recorder_of
from tapegraph.tensors.run_float import RunFloat
from tapegraph.tensors.value import UNRECORDED, Value
from tapegraph.typed import Array, Fun

# Of a gradient: a run computes it.
COMPUTED = object()
# So many equal operations of one line are a loop.
_UNROLLED = 300
# Is held while floats are replaced, which two threads may see.
_PUTTING = Lock()


class Occupied(Exception):
    """A float that is to be fed is being recorded by another thread."""


class TraceMismatchError(RuntimeError):
    """Two captures of one step differ: a Python number, array or branch changes between calls."""


class Trace:
    """A recorded call.

    :ivar recording: The program, whose outputs are the results and then the gradients of state.
    :ivar results: The structure of the function's result.
    :ivar gradients: The state whose gradient changes, each with `COMPUTED`, or with the entry of
        `Capture.gradients` for none and for zero.
    :ivar numbers: The Values that the call reads and writes, if any.
    :ivar changed: Places of fed floats where another float came to stand during the call.
    :ivar read_floats: Names of fed floats that were read as plain numbers and cannot be fed.
    """

    earlier: Sequence[Any] = ()  # the programs before, if this is the last part of a step

    def __init__(
        self,
        fn: Fun,
        arguments: ArgSpec,
        given: list[Any],
        undo: Undo,
        fed: Sequence[FedPlace] = (),
    ) -> None:
        self._undo = undo
        capture = Capture(undo)
        inputs = Inputs(capture, given, len(fed))
        positions = range(len(given) - len(fed), len(given))
        with capture:
            args, kwargs = rebuilt(arguments, inputs.argument)
            with _in_place(fed, list(map(inputs.float, positions)), undo) as self.changed:
                out = fn(*args, **kwargs)
            results = self._take_results(capture, out)
            pairs = capture.gradients.values()
            touched = [(p, grad) for p, grad in pairs if capture.is_state(p)]
            self.gradients = [(p, COMPUTED if isinstance(g, Node) else g) for p, g in touched]
            # Leaves that were made inside may stay with the user, who sees their gradients.
            self._inside = [(p, grad) for p, grad in pairs if not capture.is_state(p)]
            kept: list[Any] = [grad for _, grad in touched if isinstance(grad, Node)]
            self.moves_stream = capture.stream is not None  # the numbers decide how much runs draw
            if self.moves_stream:
                kept.append(capture.stream)
            if self.numbers is not None and (written := capture.numbers.written()) is not None:
                kept.append(written)
            self.recording: Recording = capture.recording([*results, *kept])
            self.read_floats = {
                place.name for place, i in zip(fed, positions, strict=True) if inputs.was_read(i)
            }
        self.count = len(results)
        self._kept = [grad._array for grad in kept]
        self._guarded = capture.asked  # the recording depends on whether state had a gradient
        self._conditions = capture.conditions
        self._schedules_read_state = capture.schedules_read_state
        self._readings = [(leaf._attrs, read) for leaf, read in capture.readings]
        self.draws = any("draw" in attrs for attrs, _ in self._readings)
        self.averages = ALL_REDUCE in self.recording.program.ops
        self._find_leaves(capture, inputs)
        if capture.numbers is not None:
            capture.numbers.check_apart(list(self.state.values()))
        self._start = capture.start
        self._given = [ref(leaf) for leaf in capture.inputs]

    def _take_results(self, capture: Capture, out: object) -> list[Any]:
        tensors: list[Any] = []
        numbers: list[int] = []
        found: list[tuple[str, Any]] = []

        def marked(out: object) -> Any:
            """Return a part of the result, or a mark for a tensor or number of the program."""
            if type(out) is RunFloat:
                if out.source is capture.numbers:
                    numbers.append(out.place)
                    return FLOAT
                out = out.read("return") if out.may_be_read else out.tensor()
            if isinstance(out, Node):
                tensors.append(out)
                return RESULT
            if isinstance(out, Value):
                numbers.append(recorder_of(capture).index(out))
                return VALUE
            return out

        self.results = flattened(out, "the result", found, marked)
        self._names, self._plain = [name for name, _ in found], [value for _, value in found]
        self._gives_numbers = bool(numbers)
        self.numbers: ScalarState | None = None
        if capture.numbers is not None:
            self.numbers = capture.numbers.state
            if numbers:
                tensors.append(capture.numbers.tensor(numbers))
        return tensors

    def _find_leaves(self, capture: Capture, inputs: Inputs) -> None:
        """Find where each leaf of the program gets its value in a run."""
        program = self.recording.program
        found = {id(self.recording.nodes[slot]) for slot in program.fed}
        for copy, given_by in reversed(capture.copies):
            if id(copy) in found:
                found.add(id(given_by))
        self._floats = inputs.float_program(found, len(capture.readings))
        by_id = {id(leaf): source for source, leaf in inputs.sources}
        by_id.update({id(leaf): Reading(i) for i, (leaf, _) in enumerate(capture.readings)})
        by_id.update({id(grad): GradientBefore(leaf) for grad, leaf in capture.read_gradients})
        for copy, given_by in capture.copies:
            if id(copy) in found:
                by_id[id(copy)] = Converted(by_id[id(given_by)], copy._array.dtype)
        # By slot: how a run finds a changing leaf's value, and the argument that it stands for;
        # the arrays that are the same in every run; state.
        self.sources: dict[int, Reader] = {}
        self.arguments: dict[int, int] = {}
        self.constants: dict[int, Array] = {}
        self.state: dict[int, Node] = {}
        self._made_inside: dict[int, ref[Node]] = {}  # the leaves of the constants
        for slot in program.fed:
            node = self.recording.nodes[slot]
            if program.ops[slot] is INPUT:
                self.sources[slot] = by_id[id(node)]
                if (position := inputs.positions.get(id(node))) is not None:
                    self.arguments[slot] = position
            elif capture.is_state(node):
                self.state[slot] = node
            else:
                self.constants[slot] = self.recording.values[slot]
                self._made_inside[slot] = ref(node)
        columns = program.shapes, program.dtypes, program.needs
        self._types: list[tuple[Any, ...]] = [
            (node, *(column[slot] for column in columns)) for slot, node in self.state.items()
        ]

    def is_comparable_to(self, later: Trace) -> bool:
        """Return whether another call was captured under the same conditions, which hold now."""
        mine, theirs = ([(id(node), had) for node, had in t._guarded] for t in (self, later))
        return mine == theirs and self.holds()

    def holds(self) -> bool:
        """Return whether state is of the recorded types, and has gradients where it had."""
        for node, shape, dtype, needs in self._types:
            array = array_or_remote(node)
            if type(array) is not RemoteArray:  # there it keeps its type
                if array.shape != shape or array.dtype != dtype:
                    return False
            if node._requires_grad != needs:
                return False
        for node, had in self._guarded:
            if (getattr(node, "_grad", None) is not None) != had:
                return False
        for condition in self._conditions:
            if not condition():
                return False
        return True

    @property
    def repeats(self) -> bool:
        """Whether a run leaves behind what the program's next run expects."""
        if self._schedules_read_state or self.averages or self.moves_stream:
            return False  # each run asks after the one before
        left = {id(node): grad for node, grad in self.gradients}
        found = [(left.get(id(node), MAYBE_ZEROED), had) for node, had in self._guarded]
        agree = all(grad is MAYBE_ZEROED or (grad is not None) == had for grad, had in found)
        return agree and self.carried is not None

    @cached_property
    def carried(self) -> dict[int, int | None] | None:
        """By slot, the gradient that the next run reads: an output, or the one before."""
        left = {id(node): grad for node, grad in self.gradients}
        computed = [id(node) for node, grad in self.gradients if grad is COMPUTED]
        found: dict[int, int | None] = {}
        for slot, source in self.sources.items():
            if isinstance(source, GradientBefore):
                node = id(source.leaf)
                if left.get(node, COMPUTED) is not COMPUTED:
                    return None
                found[slot] = self.count + computed.index(node) if node in computed else None
        return found

    @cached_property
    def unrolled(self) -> str:
        """Say which of the user's lines has recorded one operation very often, as loops do."""
        program, nodes = self.recording.program, self.recording.nodes
        found: dict[Any, list[int]] = {}
        for slot, op in enumerate(program.ops):
            # Those of an optimizer, which has many parameters, need no gradient.
            counts = program.needs[slot] or not program.updates
            if counts and program.inputs[slot] and op.kind is not OpKind.SHAPE:
                code = getattr(nodes[slot], "_code", None)
                line = (code, code and nodes[slot]._lasti)
                found.setdefault((line, op, program.shapes[slot]), []).append(slot)
        slots = max(found.values(), key=len, default=[])
        if len(slots) <= _UNROLLED:
            return ""
        return (
            f"{self.recording.where(slots[0])} records {program.ops[slots[0]].name} {len(slots):,} "
            "times, and each is compiled. For a loop in Python write tg.scan or tg.fori_loop, "
            "which record one iteration."
        )

    @property
    def levels(self) -> list[Levels]:
        """The program of the Values' numbers."""
        program = self.recording.program
        entries = zip(program.ops, program.attrs, strict=True)
        return [attrs["numbers"].levels for op, attrs in entries if op is NUMBERS]

    def read(self, given: list[Any]) -> list[Any]:
        """Return what every run reads anew: learning rates, random numbers, computed floats."""
        read = [read() for _, read in self._readings]
        if self._floats is not None:
            read += self._floats(given)
        return read

    def read_ahead(self, runs: int, given: Callable[[int], list[Any]]) -> list[list[Any]]:
        """Return the next runs' readings, a list for each; ``given`` returns a run's arguments."""
        columns: list[list[Any]] = [[] for _ in self._readings]
        drawn = []
        for column, (_, read) in zip(columns, self._readings, strict=True):
            if isinstance(read, RunDependent):
                column.extend(read.ahead(runs))
            else:
                drawn.append((column, read))
        for _ in range(runs):  # in the order in which the runs draw
            for column, read in drawn:
                column.append(read())
        if self._floats is not None:
            computed = [self._floats(given(run)) for run in range(runs)]
            columns += map(list, zip(*computed, strict=True))
        return columns

    def gradients_stored(self, arrays: list[Any]) -> list[Change]:
        """Give state its gradients, or functions that return them, and Values their numbers."""
        given = iter(arrays)
        changes: list[Change] = []
        if self.numbers is not None and self.numbers.written_to:
            changes += self.numbers.changes(arrays[-1])
        for node, left in self.gradients:
            grad: Any
            if left is COMPUTED:
                grad = next(given)
                if callable(grad):
                    grad = DeferredGradient(grad)
                elif not isinstance(grad, RowSparse):
                    grad = np.asarray(grad)  # a sum of 0-d arrays is a number
            elif left is None:
                grad = None
            elif left is ZEROED or getattr(node, "_grad", None) is not None:
                grad = ZERO
            else:
                continue
            changes.append(partial(set_gradient, node, grad))
        if self.moves_stream:
            changes += random.moved_to(next(given))
        return changes

    def result(self, arrays: list[Array]) -> Any:
        if self.moves_stream:
            random.settle()
        left, plain = iter(arrays[: self.count]), iter(self._plain)
        numbers = iter(arrays[self.count - 1].tolist() if self._gives_numbers else ())

        def leaf(_: LeafSpec) -> Any:
            value = next(plain)
            if value is RESULT:
                return as_leaf(next(left))
            if value is VALUE:
                made = Value(next(numbers))
                made._mark = UNRECORDED
                return made
            if value is FLOAT:
                return next(numbers)
            return value.copy() if isinstance(value, np.ndarray) else value

        return rebuilt(self.results, leaf)

    def first(self) -> Any:
        """Keep the recorded call's effects, and return its result."""
        changes = self.gradients_stored([np.array(a) for a in self._kept])
        for leaf, grad in self._inside:
            own = np.array(grad._array) if isinstance(grad, Node) else None
            changes.append(partial(set_gradient, leaf, own))
        result = self.result([np.array(a) for a in self.recording.seeds()])
        make(together([*changes, self._undo.clear]))
        self._kept, self._inside = [], []
        self.recording.forget(self.constants)
        for slot, held in self._made_inside.items():
            if held() is not None:  # whoever holds it may write into its array
                own = self.constants[slot].copy()
                self.constants[slot] = self.recording.values[slot] = own
        return result

    def left(self) -> list[Any]:
        """Return all that the call returns and leaves behind, to be compared bit for bit."""
        values, updates = self.recording.values, self.recording.program.updates
        inside = [grad._array if isinstance(grad, Node) else grad for _, grad in self._inside]
        arrays = [*self.recording.seeds(), *self._kept, *inside, *(values[u.slot] for u in updates)]
        touched = [(id(node), left) for node, left in self.gradients]
        changed = [id(self.state[u.leaf]) for u in updates]
        return [self.results, touched, changed, *map(_bits, (*self._plain, *arrays))]

    def follows(self, other: Trace) -> None:
        """Take the effects of the recording made just before as this one's."""
        self._start = other._start
        self._given += other._given

    def leaked(self, before: list[ref[Node]]) -> list[ref[Node]]:
        """Return the tensors of this call, or one before, that are held and are not state."""
        state = set(map(id, self.state.values()))
        stale = [held for held in before if id(held()) not in state]
        return stale + leaked(self._start, self._given)

    def differs_from(self, other: Trace) -> str | None:
        """Return how another recording of the same call differs, or None."""
        mine, theirs = self.recording, other.recording
        a, b = mine.program, theirs.program
        if self.results != other.results:
            returned = as_written(self.results), as_written(other.results)
            return f"it returned {returned[0]}, and then {returned[1]}"
        for name, before, after in zip(self._names, self._plain, other._plain, strict=True):
            if _bits(before) != _bits(after):
                return f"it returned {before!r} as {name}, and then {after!r}"
        difference = self._differs_in_numbers(other)
        if difference is None and self._floats is not None and other._floats is not None:
            difference = self._floats.differs_from(other._floats)
        if difference is not None:
            return difference
        for slot in range(min(len(a), len(b))):
            if _entry_of(a, slot) != _entry_of(b, slot):
                return f"{_entry(mine, slot)}, and then {_entry(theirs, slot)}"
            before, after = mine.values[slot], theirs.values[slot]
            if a.ops[slot] is SCALAR:
                if identity(before) != identity(after):
                    reader = _reader(mine, slot)
                    return f"the number {before!r}, and then {after!r}, in {reader}"
            elif slot in self.constants and _bits(before) != _bits(after):
                reader = _reader(mine, slot)
                return f"an array of shape {before.shape} with other numbers, in {reader}"
            elif self.state.get(slot) is not other.state.get(slot):
                return f"another tensor from outside, in {_reader(mine, slot)}"
        read, later = ([attrs for attrs, _ in t._readings] for t in (self, other))
        if read != later:
            return f"the numbers read in each call were {read}, and then {later}"
        return None if a.key == b.key else f"{len(a)} entries, and then {len(b)}"

    def _differs_in_numbers(self, other: Trace) -> str | None:
        mine, theirs = self.recording.program, other.recording.program
        for slot in range(min(len(mine), len(theirs))):
            if mine.ops[slot] is theirs.ops[slot] is NUMBERS:
                numbers: Numbers = mine.attrs[slot]["numbers"]
                difference = numbers.differs_from(theirs.attrs[slot]["numbers"])
                if difference is not None:
                    return difference
        if self.numbers != other.numbers:
            return f"{self.numbers!r}, and then others, of other Values from outside"
        return None


def _entry_of(program: Program, slot: int) -> tuple[Any, ...]:
    """Return the parts of an entry that it shares with its counterpart in another recording."""
    attrs = [(name, identity(value)) for name, value in program.attrs[slot].items()]
    columns = (program.ops, program.inputs, program.shapes, program.dtypes, program.needs)
    return (*(column[slot] for column in columns), attrs)


@contextmanager
def _in_place(
    places: Sequence[FedPlace], floats: Sequence[RunFloat], undo: Undo
) -> Iterator[list[tuple[FedPlace, Any, Any]]]:
    """Put numbers of the program in place of fed floats; list places that got another object."""
    changed: list[tuple[FedPlace, Any, Any]] = []
    with _PUTTING.held:
        before = [place.read() for place in places]
        if any(map(is_float, before)):
            raise Occupied
        plain = [partial(p.put, x) for p, x in zip(places, before, strict=True)]
        undo.extendleft(plain)
        make(together([partial(p.put, x) for p, x in zip(places, floats, strict=True)]))
    try:
        yield changed
    finally:
        for i, (place, number) in enumerate(zip(places, floats, strict=True)):
            now = place.read()
            if now is not number:  # the function has set it, or another thread
                now = now.read("set") if type(now) is RunFloat else now
                plain[i] = partial(place.put, now)
                changed.append((place, before[i], now))
        make(together(plain))


def _bits(value: object) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    return identity(value)


def _entry(recording: Recording, slot: int) -> str:
    entry = recording.entry(slot)
    attrs = ", ".join(f"{k}={v}" for k, v in entry.attrs.items())
    return recording.describe(slot) + (f" with {attrs}" if attrs else "")


def _reader(recording: Recording, slot: int) -> str:
    readers = (i for i, inputs in enumerate(recording.program.inputs) if slot in inputs)
    first = next(readers, None)
    return "the result" if first is None else recording.describe(first)


def mismatch(name: str, difference: str, unchecked: int) -> TraceMismatchError:
    """Return the error of a step that is not the same each time."""
    since = "" if not unchecked else f" (unchecked calls since the last real one: {unchecked})"
    return TraceMismatchError(
        sentence(
            f"compile: {name}",
            f"calls differ: {difference}{since}. Every call must make the same operations on the "
            "same constants. Pass a value that changes as an argument (floats and arrays), keep it "
            "in a tensor made outside, or draw it with tg.random.",
        )
    )
