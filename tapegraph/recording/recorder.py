"""`Recorder`: records eagerly what operations, tensors and optimizers do in its scope."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any
from weakref import ref

import numpy as np
import numpy.typing as npt

from tapegraph.arrays import as_it_lies
from tapegraph.errors import ORIGINS, USER, message, sentence, user_frame, warn
from tapegraph.recording import node as nodes
from tapegraph.recording.linearize import History
from tapegraph.recording.node import Node, as_leaf, mark_changed, new, next_seq, numeric
from tapegraph.recording.op import ALL, CONSTANT, KEEPS_ALL, NO_ATTRS, PARAM, Attrs, Op
from tapegraph.recording.record import as_dtype
from tapegraph.recording.scopes import Unbegun
from tapegraph.recording.tape import (
    ZERO,
    Tape,
    current,
    fitting_gradient,
    held_gradient,
    read_gradient,
    write_gradients,
)
from tapegraph.recording.watchers import OTHERS, recorded
from tapegraph.row_sparse import RowSparse
from tapegraph.typed import Array

# Bound once: each lookup saved here is paid by every recorded operation.
_getframe = sys._getframe
_modules = sys.modules


class Recorder:
    """Records eagerly: an operation leaves an entry on the tape if a gradient flows through it.

    :ivar flows: Whether gradients flow here: not under `tg.no_grad`.
    :ivar keeps_all: Entries keep their arrays, whether or not gradients read them.
    :ivar graph: The class of the graph between results and targets.
    """

    __slots__ = ("flows", "keeps_all", "tape")

    capture: Any = None
    graph: type[History] = History
    body: Any = None  # of a loop or branch (`tapegraph.loops.body`): none
    stream: Any = None  # a position that draws begin at (`tapegraph.draws`): none
    levels: tuple[Any, ...] = ()  # of `vmap` (`tapegraph.tensors.batched`): none

    def __init__(self, tape: Tape | None = None, flows: bool = True) -> None:
        self.tape = Tape() if tape is None else tape
        self.flows = flows
        self.keeps_all = False

    def on(self, tape: Tape) -> Recorder:
        return Recorder(tape, self.flows)

    def where_gradients_flow(self, flows: bool) -> Recorder:
        return Recorder(self.tape, flows)

    def constant(self, op: Op, out: Array, inputs: tuple[object, ...], attrs: Attrs) -> Any:
        leaf = new(nodes.tensor_class)  # `as_leaf` in line
        # A view of a leaf would change with the leaf, and nothing would remember that it did.
        leaf._array = out if out.base is None else as_it_lies(out)
        leaf._entry = None
        leaf._op = CONSTANT
        leaf._inputs = ()
        leaf._attrs = NO_ATTRS
        leaf._seq = next_seq()
        leaf._changed = 0
        leaf._requires_grad = False
        return leaf

    # This is the hot path, and so in one piece.
    def result(
        self,
        op: Op,
        out: Array,
        inputs: tuple[Any, ...],
        attrs: Attrs = NO_ATTRS,
        saved: Any = None,
        keeps: bool | None = None,
    ) -> Any:
        """Return the tensor of a result, and put its entry on the tape, with the user's line.

        :param keeps: Whether the entry keeps the result (`Op.reads`); unless None, inputs are
            entries, which hold their numbers already.
        """
        if keeps is None and len(inputs) == 1:
            (x,) = inputs
            keeps, keeps_x, _ = KEEPS_ALL if self.keeps_all else op.keeps[0]
            if x._entry is not None:
                if keeps_x:
                    x._entry._array = x._array
                inputs = (x._entry,)
        elif keeps is None:
            by_input, reads, entries = op.reads, ALL if self.keeps_all else 0, list(inputs)
            for place, x in enumerate(inputs):
                if isinstance(x, Node) and x._requires_grad:
                    reads |= by_input[place] if place < len(by_input) else by_input[-1]
            for place, x in enumerate(inputs):
                if isinstance(x, Node) and x._entry is not None:
                    if reads >> place & 2:
                        x._entry._array = x._array
                    entries[place] = x._entry
            keeps, inputs = bool(reads & 1), tuple(entries)
        result = nodes.tensor_class()
        result._array = out
        result._requires_grad = True
        if keeps:
            result._entry = None
            entry = result
        else:
            result._entry = entry = Node()
            entry._array = None
            entry.shape = out.shape
            entry.dtype = out.dtype
        entry._op = op
        entry._inputs = inputs
        entry._attrs = attrs
        entry._seq = seq = next_seq()
        entry._retains = False
        entry._saved = saved
        frame = _getframe(2)
        code = frame.f_code
        tape = self.tape
        if code is not tape.code:  # whose operations come one after another
            while ORIGINS[code.co_filename] is not USER:
                if frame.f_back is None:
                    frame = user_frame(_getframe(2))
                    code = frame.f_code
                    break
                frame = frame.f_back
                code = frame.f_code
            else:
                tape.code = code
        entry._code = code
        entry._lasti = frame.f_lasti
        if "asyncio" in _modules:
            tape = current()
        tape.refs.append(ref(entry))
        if seq > tape.prune_at:
            tape.prune()
        if OTHERS:
            recorded()
        return result

    # Membership in a captured program: nothing here

    def records(self, *values: object) -> bool:
        """Return whether a value, or one in lists and tuples, belongs to a program."""
        return False

    def read(self, value: object, conversion: str, fix: str) -> None:
        """Let values become plain numbers; a program refuses."""

    def read_plain(self, op: str, what: str, fix: str) -> None:
        """Let a plain number be read; a program refuses if its runs read it anew."""

    def outside(self, op: str, fix: str) -> None:
        """Allow an effect that cannot be part of a program."""

    def fixed(self, op: str, value: object, argument: str, fix: str = "") -> None:
        """Raise for a per-run float where only a constant can be used."""

    def number(self, value: object, dtype: object) -> Any:
        """Return a per-run float as a tensor, and anything else unchanged."""
        return value

    def met(self, args: object, options: object) -> Any:
        """Return arguments with per-run floats as tensors of the dtype that a number would take."""
        return args, options

    # Leaves

    def numbers_of(self, data: object) -> Any:
        """Return the data of a new leaf: of a program's argument its numbers."""
        return data

    def leaf(self, array: Array, data: object) -> Any:
        return as_leaf(array)

    def parameter(self, leaf: Any, frame: FrameType) -> None:
        leaf._op = PARAM
        leaf._requires_grad = True
        leaf._code, leaf._lasti = frame.f_code, frame.f_lasti
        tape = current()
        tape.refs.append(ref(leaf))
        if next_seq() > tape.prune_at:
            tape.prune()
        tape.add_params([leaf])

    def set_requires_grad(self, leaf: Any, wanted: bool) -> None:
        mark_changed(leaf)
        if wanted:
            self.parameter(leaf, user_frame(sys._getframe(1)))
        else:
            leaf._requires_grad = False

    def detach(self, x: Node) -> Any:
        return as_leaf(np.array(x._array))

    def draw(
        self, op: str, draw: Callable[[], object], dtype: npt.DTypeLike, by: dict[str, float]
    ) -> Array:
        return np.asarray(draw(), dtype)

    def position(self, read: Callable[[], Array]) -> Any:
        return as_leaf(read())

    def move_to(self, position: Any, write: Callable[[Array], None]) -> None:
        write(position._array)

    # State

    def assign(self, leaf: Any, value: Any) -> None:
        leaf._check_assignable()
        given = as_dtype("assign", numeric(value, "assign", "value"), leaf.dtype)
        leaf._array = leaf._fitting(given)
        mark_changed(leaf)

    def in_place(self, x: Any, result: Any) -> Any:
        """Return the result of ``x += y``; under `tg.no_grad` a parameter changes."""
        if (x._entry or x)._op is not PARAM:
            return result
        if self.flows:
            label = f"{x.name!r}" if x.name else f"of shape {x.shape}"
            text = (
                f"param {label} does not change: outside tg.no_grad() w -= step makes a new tensor."
                " Write with tg.no_grad(): w -= step to change the parameter."
            )
            warn(sentence("an update in place", text), UserWarning)
            return result
        if result.shape != x.shape:
            received = f"a result of shape {result.shape} for a parameter of shape {x.shape}"
            raise ValueError(message("an update in place", received, "the parameter's own shape"))
        x.assign(result)
        return x

    def before_write(self, leaf: Node) -> None:
        """Prepare for a write into a leaf's array."""

    def written(self, leaf: Node) -> None:
        mark_changed(leaf)

    def step(self, optimizer: Any) -> None:
        optimizer.step_now()

    # Gradients

    def derivatives(
        self, history: History, arrays: Sequence[Any], seed: Sequence[object]
    ) -> list[Any]:
        return list(map(as_leaf, arrays))

    def add_gradients(self, history: History, grads: Sequence[object], seed: object) -> None:
        tape = current() if "asyncio" in _modules else self.tape
        entries = history.entries
        if entries and entries[-1]._seq == tape.swept[0]:
            tape.sweep_again(entries)
        elif entries:
            tape.swept = entries[-1]._seq, 0, next_seq(), len(entries), 0
        write_gradients(tape, history.wanted, grads)

    def gradient(self, x: Node) -> Any:
        x = x._entry or x
        grad = read_gradient(x)
        if grad is None and x._inputs and not x._retains:
            warn(
                f"grad: received a result of {x._op.name}, which keeps no gradient, so it is "
                "None; read the grad of the parameters it was computed from, or call "
                "retain_grad() on it before backward(). (x += 1 makes x such a result; inside "
                "tg.no_grad() it changes x itself.)",
                UserWarning,
            )
        return grad

    def gradient_for_step(self, x: Any, rows: bool) -> Any:
        """Return a gradient that an optimizer only reads, possibly as ``rows``."""
        held = held_gradient(x)
        if rows and isinstance(held, RowSparse):
            return held.added_up()
        grad = read_gradient(x)
        if grad is None:
            return None
        view = fitting_gradient("optim", x, grad).view()
        view.setflags(write=False)
        return view

    def set_gradient(self, x: Any, value: Any) -> None:
        if value is not None:
            value = as_dtype("grad", numeric(value, "grad", "value"), x.dtype)
            x._check_fits(value)
        (x._entry or x)._grad = value

    def replace_gradient(self, x: Node, grad: object) -> None:
        x._grad = grad if isinstance(grad, RowSparse) else np.asarray(grad)

    def zero_gradient(self, x: Node) -> None:
        x = x._entry or x
        if getattr(x, "_grad", None) is not None:
            x._grad = ZERO

    def retain_gradient(self, x: Node) -> None:
        if not x._requires_grad:
            received = "a tensor that needs no gradient"
            raise RuntimeError(message("retain_grad", received, "a recorded result"))
        (x._entry or x)._retains = True


Unbegun.recorder_class = Recorder
