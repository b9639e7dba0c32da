"""`Capture`: a scope in which every result that depends on an input or on state is an entry.

Outside, only operations that a gradient flows through are recorded. A program that runs again with
other numbers must hold no array computed from them, so comparisons and indices become entries too,
and a number that would leave (``bool``, ``float``, ``.numpy()``) is an error.
"""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextvars import ContextVar
from functools import partial
from types import FrameType
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
import numpy.typing as npt

from tapegraph.arrays import as_it_lies, own
from tapegraph.draws import RANDOM_DRAW, RandomDraw
from tapegraph.errors import ConcretizationError, line_of, message, sentence, user_frame
from tapegraph.interrupts import in_handler
from tapegraph.recording import node as nodes
from tapegraph.recording.linearize import History, linearize
from tapegraph.recording.lost_gradients import raise_cause
from tapegraph.recording.node import Node, as_leaf, is_leaf, kept, mark_changed, next_seq, numeric
from tapegraph.recording.numpy_functions import is_float, promote_runtime_floats, under
from tapegraph.recording.op import CLEARED, CONSTANT, GRADIENT, INPUT, OPS, PARAM, Attrs, Op
from tapegraph.recording.program import Recording, between
from tapegraph.recording.record import apply, as_dtype, tensor_like
from tapegraph.recording.recorder import Recorder
from tapegraph.recording.scopes import RECORDER, RECORDING, no_grad, recorder
from tapegraph.recording.tape import Tape, clear, current
from tapegraph.recording.values import (
    Undo,
    cleared,
    make,
    offload,
    old_numbers,
    restore,
    stale,
    together,
)
from tapegraph.row_sparse import dense_copy
from tapegraph.typed import Array

BY_VALUE = "Pass an int, a bool or a string: each new value is compiled separately."
_ANEW = "which differ from run to run"
# The user's operation whose function is running.
OPERATION: ContextVar[str | None] = ContextVar("tapegraph_operation", default=None)


class Version(NamedTuple):
    """A leaf after an in-place assignment; gradients treat it as a new leaf."""

    leaf: Node
    node: Any  # stands for the leaf, from then on
    value: Node  # the assigned value


class RunDependent(ABC):
    """A value that every run reads anew, and that depends on the number of runs."""

    def __call__(self) -> Any:
        return self.ahead(1)[0]

    @abstractmethod
    def ahead(self, runs: int) -> list[Any]:
        """Return the values for each of the program's next runs."""


# Zeroed gradients: one that existed, and one that may exist from before the scope.
ZEROED, MAYBE_ZEROED = object(), object()


class CapturedHistory(History):
    """The graph between targets, by default the parameters, and results of a captured program."""

    def __init__(
        self,
        ys: Sequence[Node],
        targets: Sequence[Node] | None = None,
        since: int = 0,
        ends: Collection[Node] = (),
    ) -> None:
        capture = recorder().capture
        apart = set(map(id, ends))

        def reads(node: Node) -> tuple[Any, ...]:
            if node._seq <= since or id(node) in apart:
                return ()  # a leaf here, however long its own history
            if node._op is CLEARED:
                raise cleared(node)
            return capture.history(node)

        recording = linearize(ys, reads=reads)
        program, nodes = recording.program, recording.nodes
        leaves = [slot for slot in program.leaves if program.needs[slot]]
        slot_of = {id(node): slot for slot, node in enumerate(nodes)}
        if targets is None:
            origins = {slot: capture.leaf_of(nodes[slot]) for slot in leaves}
            slots = [
                slot
                for slot, leaf in origins.items()  # parameters, and results from before the scope
                if leaf._op is PARAM or (leaf._inputs and capture.is_state(leaf))
            ]
        else:
            self.targets = targets = [capture.latest(x) for x in targets]
            slots = [slot_of[id(x)] for x in targets if id(x) in slot_of]
        program.needs[:] = between(program, program.outputs, slots)
        program.wanted[:] = [slot for slot in dict.fromkeys(slots) if program.needs[slot]]
        self.ys = list(ys)
        self.wanted = [nodes[slot] for slot in program.wanted]
        self.outside = [nodes[slot] for slot in leaves if slot not in slots]
        self.entries = [x for x, given in zip(nodes, program.inputs, strict=True) if given][::-1]
        self.length = len(program)
        self._recording = recording
        self.kept = True
        for slot, node in zip(program.wanted, self.wanted, strict=True):
            if targets is None and node._inputs and capture.is_state(node):
                text = (
                    f"{recording.describe(slot)} was computed outside the compiled step. Compute "
                    "it inside, or write tensor.detach() to go on without its gradient."
                )
                raise RuntimeError(sentence("backward", text))


class Capture(Recorder):
    """A scope in which every operation that depends on an input or on state is recorded.

    State is every tensor from before the scope, and its gradient. Operations inside also run
    eagerly; an exception that leaves the scope undoes their effects.

    >>> with Capture() as capture:
    ...     x = capture.input(np.array([1.0, -2.0]))
    ...     y = np.where(x > 0, x, 0.1 * x)
    >>> [entry.op for entry in capture.recording([y])]
    ['input', 'scalar', 'greater', 'scalar', 'mul', 'where']
    """

    def __init__(self, undo: Undo | None = None) -> None:
        self.tape = current()
        self.undo: Undo = deque() if undo is None else undo  # of changes inside, and of the scope
        self.start = next_seq()  # the time of the beginning, on the clock of entries
        self.frame: FrameType | None = None  # which entered, by which signal handlers are known
        # Leaves that every run reads anew, such as a learning rate.
        self.readings: list[tuple[Node, Callable[[], object]]] = []
        self.steps: Counter[int] = Counter()  # that each optimizer has taken inside, by id
        # By id the leaves whose gradient was changed, with it: a tensor, None, `ZEROED` or
        # `MAYBE_ZEROED`.
        self.gradients: dict[int, tuple[Node, Any]] = {}
        # Gradients from before the scope that something inside has read: the leaf, and whose.
        self.read_gradients: list[tuple[Node, Node]] = []
        self.asked: list[tuple[Node, bool]] = []  # state that was tested for a gradient: the answer
        self.conditions: list[Callable[[], bool]] = []  # further ones on a run of the program
        self._handed_out: dict[int, Node] = {}  # gradients that were read, by id: whose
        self._versions: dict[int, list[Version]] = {}  # of each leaf, by its id, in time order
        self._version_of: dict[int, Version] = {}  # by the id of the node
        self._ends: set[int] = set()  # the ids of the versions that gradients are by
        self.started: dict[int, Array] = {}  # leaves' arrays before their first new value, by id
        self._inputs: dict[int, Node] = {}  # by id, whatever they have become since
        self.copies: list[tuple[Node, Node]] = []  # of inputs: the new leaf, and whose numbers
        self.caller_arrays: set[int] = set()  # leaves that stand for arrays which others may hold
        self.caller_tensors: set[int] = set()  # leaves that stand for tensors of the caller's
        self.asks_a_schedule = False  # which every run asks again as it begins
        self.schedules_read_state = False
        self.stream: Any = None  # where the stream is, once the numbers decide how much is drawn
        self.numbers: Any = None  # records single numbers (`tapegraph.scalars.recorder`)

    def __enter__(self) -> Capture:
        # An interrupt may arrive in `__exit__`, of this scope or of one inside.
        for variable in (RECORDER, RECORDING.entered):
            self.undo.appendleft(partial(variable.set, variable.get()))
        self.frame = sys._getframe(1)
        self._outer = RECORDER.get()
        RECORDER.set(self)
        RECORDING.enter(self, RECORDING.value())  # for code that looks for a scope
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.frame = None
        RECORDING.leave(self)
        RECORDER.set(self._outer.where_gradients_flow(RECORDING.value()))
        if kind is not None:
            make(together(self.undo))
        if error is not None:
            raise_cause(error)

    def on(self, tape: Tape) -> Capture:
        self.tape = tape
        return self

    def where_gradients_flow(self, flows: bool) -> Capture:
        return self

    def constant(self, op: Op, out: Array, inputs: tuple[object, ...], attrs: Attrs) -> Any:
        """Return a result, as an entry if it depends on an input or on state."""
        if not self.records(*inputs):
            return super().constant(op, out, inputs, attrs)
        result = self.result(op, out if out.base is None else as_it_lies(out), inputs, attrs)
        result._requires_grad = False
        return result

    def records(self, *values: object) -> bool:
        return any(
            self.records(*x) if isinstance(x, (list, tuple)) else is_float(x) or self.depends(x)
            for x in values
        )

    graph = CapturedHistory
    keeps_all = True
    outer: Capture | None = None  # the program that captures this one as a part

    @property
    def flows(self) -> bool:  # type: ignore[override]
        return RECORDING.value()

    @property
    def capture(self) -> Capture:
        return self

    # Numbers that leave

    def read(self, value: Any, conversion: str, fix: str) -> None:
        """Raise if user code reads a number of the program, unless a signal handler does."""
        if isinstance(value, (list, tuple)):
            for part in value:
                self.read(part, conversion, fix)
        elif self.depends(value):
            value = under(value)
            if self.asks_a_schedule and self.is_state(value) and id(value) not in self.started:
                self.schedules_read_state = True  # every run calls a schedule again
            elif not in_handler(self.frame):
                raise ConcretizationError(message(conversion, _origin(value), "tensors", fix))

    def read_plain(self, op: str, what: str, fix: str) -> None:
        if not in_handler(self.frame):
            raise ConcretizationError(message(op, f"{what}, {_ANEW}", "tensors, or arguments", fix))

    def outside(self, op: str, fix: str) -> None:
        """Raise: later runs of the program would not repeat the effect."""
        text = f"a compiled step cannot do this, since later runs would not repeat it. {fix}"
        raise RuntimeError(sentence(op, text.strip()))

    def fixed(self, op: str, value: Any, argument: str, fix: str = BY_VALUE) -> None:
        """Raise if a value is a float argument of the step, unless it may be read."""
        if is_float(value) and not value.may_be_read:
            text = (
                f"{argument!r} is a float argument of the compiled step, which changes from call "
                f"to call; it must be a constant of the step. {fix}"
            )
            raise ConcretizationError(sentence(op, text.strip()))

    def number(self, value: Any, dtype: Any) -> Any:
        return value.__tapegraph_float__(dtype) if is_float(value) else value

    def met(self, args: Any, options: Any) -> Any:
        given = (*args, *options.values())
        found = {key: promote_runtime_floats(x, given) for key, x in options.items()}
        return tuple(promote_runtime_floats(x, given) for x in args), found

    # Leaves

    def numbers_of(self, data: Any) -> Any:
        """Return a copied array for an argument of the step, and anything else unchanged."""
        return data._array if self._is_argument(data) else data

    def leaf(self, array: Array, data: Any) -> Any:
        """Return a leaf of data: if data is an argument of the step, every run feeds it."""
        if not self._is_argument(data):
            return as_leaf(array)
        leaf = self.input(array)
        self.copies.append((leaf, data))
        return leaf

    def _is_argument(self, data: Any) -> bool:
        return self.is_input(data) and not data._requires_grad

    def detach(self, x: Any) -> Any:
        if not self.depends(x):
            return super().detach(x)
        restore(x)  # an engine may have kept its numbers
        return apply(OPS["detach"], (x,))

    def draw(
        self, op: str, draw: Callable[[], object], dtype: npt.DTypeLike, by: dict[str, float]
    ) -> Any:
        """Return a leaf that every run draws anew; the draw's parameters are part of the key."""
        name = OPERATION.get()
        if name is not None:  # runs draw before it runs
            text = (
                f"the operation {name} draws random numbers inside a compiled step. Draw before "
                f"it and pass the numbers: {name}(x, tg.{op}(...))."
            )
            raise ConcretizationError(sentence(op, text))
        if self.stream is not None:
            attrs = {"random": RandomDraw(op, draw, dtype, by, self.stream._array)}
            numbers, self.stream = apply(RANDOM_DRAW, (self.stream,), attrs)
            return numbers
        leaf = self.reading(draw, dtype)
        frame = user_frame()
        leaf._code, leaf._lasti = frame.f_code, frame.f_lasti
        leaf._attrs = {"draw": op, **by}
        return leaf

    def position(self, read: Callable[[], Array]) -> Any:
        """Return where the stream is; from here on draws are operations."""
        if self.stream is None:
            self.stream = self.draw("random.position", read, np.int64, {})
        return self.stream

    def move_to(self, position: object, write: Callable[[Array], None]) -> None:
        self.stream = position

    def input(self, value: object, name: str | None = None) -> Any:
        """Return a value as a leaf of the program, whose numbers may differ in each run."""
        leaf = as_leaf(np.array(numeric(value, "input", "value")))
        leaf._op = INPUT
        leaf._name = name
        self._inputs[id(leaf)] = leaf
        return leaf

    @property
    def inputs(self) -> list[Node]:
        return list(self._inputs.values())

    def is_input(self, x: object) -> bool:
        """Return whether a tensor holds numbers that each run receives."""
        return id(x) in self._inputs

    def reading(self, read: Callable[[], object], dtype: npt.DTypeLike, now: object = None) -> Any:
        """Return a leaf for a number that every run reads anew; ``now`` replaces its value here."""
        leaf = self.input(np.asarray(read() if now is None else now, dtype))
        self.readings.append((leaf, read))
        return leaf

    def depends(self, x: object) -> bool:
        """Return whether a tensor, or a dual's value, depends on an input or state at present."""
        if not isinstance(x, Node):
            return hasattr(x, "primal") and self.depends(x.primal)
        x = x._entry or x
        if x._op is not CONSTANT or x._seq < self.start or self.is_input(x):
            return True
        versions = self._versions.get(id(x))
        return versions is not None and self.depends(versions[-1].value)

    def is_state(self, x: Node) -> bool:
        """Return whether a tensor is older than the scope."""
        return (x._entry or x)._seq < self.start

    def may_change(self, x: Node) -> bool:
        if self.is_state(x):
            return True
        given = self.is_input(x) and not any(x is copy for copy, _ in self.copies)
        return not x._inputs and not given

    def _has_gradient(self, x: Node) -> bool:
        return self.is_state(x) or not x._inputs

    # State

    def assign(self, leaf: Any, value: Any) -> None:
        leaf._check_assignable()
        given = self.number(value, leaf.dtype)
        plain = isinstance(given, Node) and self.depends(given) and not given._requires_grad
        array = numeric(given._array if plain else given, "assign", "value")
        array = leaf._fitting(as_dtype("assign", array, leaf.dtype))
        if not self.may_change(leaf):
            text = (
                "a compiled step cannot assign to its arguments. Return the new value, or reach "
                "the tensor through the function's closure or self."
            )
            raise ConcretizationError(sentence("assign", text))
        self.started.setdefault(id(leaf), leaf._array)
        self.undo.appendleft(old_numbers(leaf))
        if isinstance(given, Node) and given._array.shape != array.shape:
            given = np.broadcast_to(given, array.shape)
        given = self._value(kept(given)) if isinstance(given, Node) else as_leaf(array.copy())
        if given._array.shape != array.shape or given._array.dtype != array.dtype:
            raise NotImplementedError("assign: a capture takes values of the state's type")
        leaf._array = array
        mark_changed(leaf)
        self._stands_for(leaf, given)

    def before_write(self, leaf: Node) -> None:
        self.read(leaf, "data", "Write tensor.assign(value).")
        self.started.setdefault(id(leaf), leaf._array.copy())

    def written(self, leaf: Node) -> None:
        super().written(leaf)
        self._stands_for(leaf, as_leaf(leaf._array.copy()))

    def _stands_for(self, leaf: Node, value: Node) -> None:
        attrs = {"shape": value._array.shape}
        node = self.result(OPS["reshape"], value._array, (value,), attrs)
        node._requires_grad = leaf._requires_grad
        version = Version(leaf, node, value)
        self._versions.setdefault(id(leaf), []).append(version)
        self._version_of[id(node)] = version

    def set_requires_grad(self, leaf: Node, wanted: bool) -> None:
        if id(leaf) in self.caller_tensors:
            text = (
                "the gradient would not reach the caller's tensor, an argument of the compiled "
                "step. Pass its array, tensor.numpy(), and return the gradient; or call "
                "requires_grad_() before the step, which then counts it as a parameter."
            )
            raise ConcretizationError(sentence("requires_grad_", text))
        for version in self._versions.get(id(leaf), ()):
            version.node._requires_grad = wanted
        super().set_requires_grad(leaf, wanted)

    # Gradients, which a program has of leaves alone

    def derivatives(
        self, history: History, arrays: Sequence[object], seed: Sequence[object]
    ) -> list[Any]:
        """Return gradients of the one result as entries of the program."""
        (y,), program = history.ys, history.recording.program
        # Engines end a backward at its target. Its y distinguishes it from others.
        apart = any(program.needs[i] for slot in program.wanted for i in program.inputs[slot])
        root = self._alias(y)
        return [
            self._derivative(array, (self._alias(y) if apart else root, x, *seed))
            for x, array in zip(history.wanted, arrays, strict=True)
        ]

    def _alias(self, y: Node) -> Any:
        array = y._array.copy("K") if is_leaf(y) else y._array.view()
        return self.result(OPS["reshape"], array, (y,), {"shape": array.shape})

    def _derivative(self, array: Any, inputs: tuple[object, ...]) -> Any:
        self._ends.add(id(inputs[1]))  # a version is an entry there, to differentiate by
        entry = self.result(GRADIENT, dense_copy(array), inputs)
        entry._requires_grad = False
        return entry

    def add_gradients(self, history: History, grads: Sequence[object], seed: Any) -> None:
        (y,) = history.ys
        given = () if seed is None else (seed if isinstance(seed, Node) else as_leaf(own(seed)),)
        for node, grad in zip(history.wanted, grads, strict=True):
            entry = self._derivative(grad, (y, node, *given))
            leaf = self.leaf_of(node)
            held = self.added_up(leaf)
            with no_grad():
                self.set_gradient(leaf, entry if held is None else held + entry)

    def gradient(self, leaf: Any) -> Any:
        if not self._has_gradient(leaf) or in_handler(self.frame):
            return super().gradient(leaf)
        leaf = kept(leaf)
        grad = self.added_up(leaf)
        if grad is None and self.gradients[id(leaf)][1] is not None:  # zeroed
            if self.gradients[id(leaf)][1] is ZEROED or self._had_gradient(leaf):
                grad = as_leaf(np.zeros_like(leaf._array))
            self.gradients[id(leaf)] = (leaf, grad)
        if grad is not None:
            self._handed_out[id(grad)] = leaf
        return grad

    def added_up(self, leaf: Node) -> Any:
        """Return the gradient to which another is added, or None if it replaces it."""
        if id(leaf) not in self.gradients:
            grad = None
            if self._had_gradient(leaf):
                held = leaf._grad
                if not isinstance(held, np.ndarray):
                    held = held.dense() if hasattr(held, "dense") else np.zeros_like(leaf._array)
                grad = self.input(held)
                self.read_gradients.append((grad, leaf))
            self.gradients[id(leaf)] = (leaf, grad)
        grad = self.gradients[id(leaf)][1]
        return grad if type(grad) is nodes.tensor_class else None

    def _had_gradient(self, leaf: Node) -> bool:
        had = getattr(leaf, "_grad", None) is not None
        if self.is_state(leaf):
            self.asked.append((leaf, had))
        return had

    def gradient_for_step(self, x: object, rows: bool) -> Any:
        return self.gradient(x)

    def set_gradient(self, leaf: Any, value: Any) -> None:
        if not self._has_gradient(leaf):
            super().set_gradient(leaf, value)
            return
        grad = self.number(value, leaf.dtype)
        if grad is not None:
            grad = tensor_like("grad", grad)
            leaf._check_fits(grad)
            grad = grad if grad.dtype == leaf.dtype else grad.astype(leaf.dtype)
        leaf = kept(leaf)
        self.gradients[id(leaf)] = (leaf, grad)

    def replace_gradient(self, x: object, grad: object) -> None:
        self.set_gradient(x, grad)

    def retain_gradient(self, x: Any) -> None:
        if x._requires_grad and not is_leaf(x):
            text = (
                "a compiled step keeps no gradients of results. Compute from a tg.param in place "
                "of the result, and read the parameter's grad."
            )
            raise ConcretizationError(sentence("retain_grad", text))
        super().retain_gradient(x)

    def zero_gradient(self, leaf: Node) -> None:
        if not self._has_gradient(leaf):
            super().zero_gradient(leaf)
            return
        leaf = kept(leaf)
        _, grad = self.gradients.get(id(leaf), (leaf, MAYBE_ZEROED))
        if grad is not None and grad is not MAYBE_ZEROED:
            grad = ZEROED
        self.gradients[id(leaf)] = (leaf, grad)

    def in_place(self, x: Any, result: Any) -> Any:
        if (x._entry or x)._op is PARAM:
            return super().in_place(x, result)
        if id(x) in self.caller_arrays:
            text = (
                "a compiled step cannot update its arguments in place. Write x = x + y for x += y."
            )
            raise ConcretizationError(sentence("compile", text))
        leaf = self._handed_out.get(id(x))
        if leaf is not None and self.gradients[id(leaf)][1] is x:
            if (result.shape, result.dtype) != (x._array.shape, x._array.dtype):
                received = f"a result of shape {result.shape} and dtype {result.dtype}"
                expected = f"shape {x._array.shape} and dtype {x._array.dtype}"
                raise ValueError(message("an update of .grad in place", received, expected))
            self.gradients[id(leaf)] = (leaf, result)
            self._handed_out[id(result)] = leaf
        return result

    def step(self, optimizer: Any) -> None:
        optimizer.record_step(self)

    # The program

    def history(self, node: Node) -> tuple[Any, ...]:
        """Return an entry's inputs that a gradient may flow to, in the version that it read."""
        if id(node) in self._version_of or self.is_state(node) or not node._requires_grad:
            return ()
        for x in node._inputs:
            leaf = self.leaf_of(x)
            if getattr(leaf, "_changed", 0) > node._seq:
                raise stale(leaf, node)
        return tuple(self._version(x, node._seq) for x in node._inputs)

    def leaf_of(self, node: object) -> Any:
        version = self._version_of.get(id(node))
        return node if version is None else version.leaf

    def latest(self, leaf: Node) -> Node:
        return self._version(leaf, next_seq())

    def _version(self, x: object, seq: int) -> Any:
        for version in reversed(self._versions.get(id(x), ())):
            if version.node._seq < seq:
                return version.node
        return x

    def _value(self, x: object, seq: int | None = None) -> Any:
        """Return the node that computes a tensor in the program, at a time or now."""
        node = self._version(x, next_seq() if seq is None else seq)
        version = None if id(node) in self._ends else self._version_of.get(id(node))
        return node if version is None else version.value

    def _reads(self, node: Node) -> tuple[Any, ...]:
        if self.is_state(node):
            return ()  # how it was made is no part of this program
        return tuple(self._value(x, node._seq) for x in node._inputs)

    def recording(self, outputs: Sequence[object]) -> Recording:
        """Return the program from inputs and state to results and the new values of state."""
        if self.numbers is not None:
            self.numbers.finish()
        last = [versions[-1] for versions in self._versions.values()]
        recording = linearize(
            [self._value(kept(x)) for x in outputs],
            reads=self._reads,
            updates=[(leaf, value) for leaf, _, value in last if self.is_state(leaf)],
        )
        for slot, node in enumerate(recording.nodes):
            if id(node) in self._version_of:  # no gradient flows on to the assigned value
                recording.program.needs[slot] = False
        for slot in recording.program.fed:  # a run begins with the old values
            node = recording.nodes[slot]
            recording.values[slot] = self.started.get(id(node), node._array)
            if self.is_input(node):  # also one that was made a parameter
                recording.program.ops[slot] = INPUT
        return recording


def _origin(x: Any) -> str:
    x = x._entry or x
    code = getattr(x, "_code", None)
    place = f", recorded at {line_of(code, x._lasti)}" if code is not None else ""
    label = f" {x.name!r}" if x.name else ""
    return f"the numbers of {x._op.name}{label} of shape {x.shape}{place}, {_ANEW}"


# Tensors that a recorded call left behind in an attribute or a list, as no later run makes them
# anew: their numbers would stay those of the first calls. They can be read until a run takes the
# place of the function; from then on reading them is an error.


def leaked(since: int, inputs: Iterable[ref[Node]], tape: Tape | None = None) -> list[ref[Node]]:
    """Return the live results recorded since a time, and the live inputs."""
    tape = current() if tape is None else tape
    tape.prune()  # hardly any entry of the call is left
    results = [node for node in tape.live() if node._inputs and node._seq > since]
    return [*map(ref, results), *(held for held in inputs if held() is not None)]


def expire(tensors: list[ref[Node]], name: str) -> None:
    """Invalidate tensors leaked from the real calls of a function."""
    for held in tensors:
        node = held()
        if node is not None:
            what = f"a result of {node._op.name}" if node._inputs else "an input"
            code = getattr(node, "_code", None)
            place = "" if code is None else f", recorded at {line_of(code, node._lasti)}"
            received = f"{what} of an earlier call{place}"
            if node._inputs:
                clear(node)
            offload(node, partial(_refuse, name, received), comes_back=False)


def _refuse(name: str, received: str) -> Any:
    text = f"{received} is no longer available: later calls only make the results. Return it."
    raise RuntimeError(sentence(f"compile: {name}", text))
