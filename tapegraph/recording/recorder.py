"""Recorders: what becomes of what happens here.

One records on the tape of its thread, one computes constants, and a third captures a program
(`tapegraph.capture.capture`). Operations, tensors and transforms call the one that the scope holds.
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import ref

from tapegraph.errors import ORIGINS, USER, user_frame
from tapegraph.recording import node as nodes
from tapegraph.recording.node import new, next_seq
from tapegraph.recording.op import CONSTANT, NO_ATTRS, Op
from tapegraph.recording.scopes import Unbegun
from tapegraph.recording.tape import Tape, current
from tapegraph.recording.watchers import OTHERS, recorded
from tapegraph.typed import Array

# Bound once: each lookup saved here is paid by every recorded operation.
_getframe = sys._getframe
_modules = sys.modules


class Recorder:
    """Records eagerly: an operation leaves an entry on the tape if a gradient flows through it.

    :ivar tape: Where it records.
    """

    __slots__ = ("tape",)

    def __init__(self, tape: Tape | None = None) -> None:
        self.tape = Tape() if tape is None else tape

    def on(self, tape: Tape) -> Recorder:
        """Return a recorder of the same kind on another tape."""
        return type(self)(tape)

    def where_gradients_flow(self, flows: bool) -> Recorder:
        """Return the recorder of a scope in which gradients flow, or do not."""
        return (Recorder if flows else NoGrad)(self.tape)

    # This is the hot path, and so in one piece.
    def result(
        self,
        op: Op,
        out: Array,
        inputs: tuple[Any, ...],
        attrs: dict[str, Any],
        needed: bool,
        saved: Any = None,
    ) -> Any:
        """Return an operation's result: an entry with the user's line, or a constant.

        :param needed: Whether a gradient can flow to one of the inputs.
        :param saved: What the operation keeps for its derivative.
        """
        node = new(nodes.tensor_class)
        node._seq = next_seq()
        if not needed:
            # A view of a leaf would change with the leaf, and nothing would remember that it did.
            node._array = out if out.base is None else out.copy("K")
            node._op = CONSTANT
            node._inputs = ()
            node._attrs = NO_ATTRS
            node._requires_grad = False
            return node
        node._array = out
        node._op = op
        node._inputs = inputs
        node._attrs = attrs
        node._requires_grad = True
        node._retains = False
        node._saved = saved
        frame = _getframe(2)
        while ORIGINS[frame.f_code.co_filename] is not USER:
            if frame.f_back is None:
                frame = user_frame(_getframe(2))
                break
            frame = frame.f_back
        node._code = frame.f_code
        node._lasti = frame.f_lasti
        tape = self.tape
        if "asyncio" in _modules:
            tape = current()
        tape.refs.append(ref(node))
        if len(tape.refs) > tape.limit:
            tape.prune()
        if OTHERS:
            recorded()
        return node

    # The same whatever the scope says: an entry where ``needed``.
    entry = result


Unbegun.recorder_class = Recorder


class NoGrad(Recorder):
    """Computes constants, as `tg.no_grad` asks for."""

    __slots__ = ()

    def result(
        self,
        op: Op,
        out: Array,
        inputs: tuple[Any, ...],
        attrs: dict[str, Any],
        needed: bool,
        saved: Any = None,
    ) -> Any:
        """Return an operation's result as a constant."""
        return Recorder.result(self, op, out, inputs, attrs, False)
