"""The tape of a thread or task: weak references to its live entries; and its gradients."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import setitem
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from tapegraph.errors import line_of, message, warn
from tapegraph.interrupts import Lock
from tapegraph.numpy_warnings import quietly
from tapegraph.recording.linearize import linearize
from tapegraph.recording.node import Node, next_seq
from tapegraph.recording.op import CLEARED
from tapegraph.recording.program import Entry, Recording
from tapegraph.recording.scopes import RECORDER
from tapegraph.recording.values import Change, make, set_gradient, together
from tapegraph.row_sparse import RowSparse
from tapegraph.typed import Array

_MIN_LIMIT = 4096
_MANY_AGAIN = 100


class Tape:
    """The live entries of one thread or task, in the order of recording, held weakly.

    ``len`` counts the entries, iteration gives them as `Entry` rows, and ``str`` prints a table.
    """

    __slots__ = ("_param_limit", "_params", "code", "prune_at", "refs", "swept", "task")

    def __init__(self) -> None:
        self.refs: list[ref[Node]] = []
        self.prune_at = 0
        self.code: Any = None
        self._params: dict[int, ref[Node]] = {}
        self._param_limit = _MIN_LIMIT
        # Of the last backward: its oldest entry, and what `sweep_again` asks; times, and numbers.
        self.swept = (0, 0, 0, 0, 0)
        self.task = running_task()

    def prune(self) -> None:
        """Drop dead entries, when their number may have doubled on the tapes of all threads."""
        self.refs = [r for r in self.refs if r() is not None]
        self.prune_at = next_seq() + max(_MIN_LIMIT, len(self.refs))

    def sweep_again(self, entries: list[Node]) -> None:
        """Warn of a loop in which each backward goes through the iterations before it again.

        It is one if all of many sweeps from the same oldest entry were longer than the one before,
        and met entries recorded since the last one and entries recorded between the last two.
        """
        oldest, before, last, length, count = self.swept
        newest = next(x for x in entries if x._seq < last)  # of those that were there before
        if len(entries) <= length or newest._seq < before or newest is entries[0]:
            return
        self.swept = oldest, last, next_seq(), len(entries), count + 1
        if count + 1 == _MANY_AGAIN:
            warn(
                f"backward: {_MANY_AGAIN} calls in a row went through the operations of all calls "
                f"before them again, now {len(entries)}, so that each takes longer. Write "
                f"x.detach() for the result of the {newest._op.name} at "
                f"{line_of(newest._code, newest._lasti)} where the next iteration reads it, unless "
                "gradients are to flow through all iterations.",
                RuntimeWarning,
            )

    def add_params(self, nodes: Iterable[Node]) -> None:
        """Remember parameters for `zero_grad` on this tape, until they die."""
        for node in nodes:
            known = self._params.get(id(node))
            if known is None or known() is not node:
                self._params[id(node)] = ref(node)
        if len(self._params) > self._param_limit:
            self._params = {key: r for key, r in self._params.items() if r() is not None}
            self._param_limit = max(_MIN_LIMIT, 2 * len(self._params))

    @property
    def params(self) -> list[Node]:
        return [node for r in list(self._params.values()) if (node := r()) is not None]

    def live(self) -> list[Node]:
        alive = (node for r in self.refs if (node := r()) is not None)
        return [node for node in alive if node._op is not CLEARED]

    def recording(self) -> Recording:
        return linearize(self.live())

    def reset(self) -> None:
        """Clear every live operation; parameters stay usable and keep their gradients."""
        for node in self.live():
            if node._inputs:
                clear(node)
        self.refs = []

    def __len__(self) -> int:
        return len(self.recording())

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.recording())

    def __str__(self) -> str:
        return str(self.recording())

    def _repr_html_(self) -> str:
        return self.recording()._repr_html_()

    def __repr__(self) -> str:
        return f"<tape of {len(self)} entries>"


def clear(node: Node) -> None:
    """Take a result off the tape: it can no longer be differentiated."""
    node._op = CLEARED
    node._inputs = ()
    node._saved = None


def current() -> Tape:
    """Return the tape of this thread or asyncio task, made at its first use."""
    recorder = RECORDER.get()
    if recorder.tape.task is not running_task():
        RECORDER.set(recorder.on(Tape()))
    return RECORDER.get().tape


def running_task() -> Any:
    asyncio: Any = sys.modules.get("asyncio")
    # Another thread may be importing it at this moment: then no loop is running here.
    running_loop = getattr(asyncio, "_get_running_loop", None)
    if running_loop is None or running_loop() is None:
        return None
    return asyncio.current_task()


def tape() -> Tape:
    """Return the tape of this thread or task.

    :returns: The `Tape`, whose ``str`` is a table of its entries.

    >>> tg.tape_reset()
    >>> x = tg.param([1.0, 2.0], name="x")
    >>> y = tg.sum(x * x)
    >>> [entry.op for entry in tg.tape()]
    ['param', 'mul', 'sum']
    """
    return current()


def tape_reset() -> None:
    """Clear this thread's tape; a later ``backward()`` through a cleared entry is a RuntimeError.

    Parameters stay usable. It never saves memory: dropped results leave by themselves.

    >>> y = tg.param(2.0) * 3.0
    >>> tg.tape_reset()
    >>> len(tg.tape())
    0
    """
    current().reset()


# Gradients: read, zero, and commit those of one backward at once


class DeferredGradient(NamedTuple):
    """A gradient that an engine holds until it is read."""

    dense: Callable[[], Array]


# A zeroed gradient that was not read: the next backward stores instead of adding.
ZERO = object()
_commit = Lock()


def read_gradient(node: Node) -> Array | None:
    """Return a node's gradient, also one that a handler or thread just stored; None if none."""
    while True:
        grad = getattr(node, "_grad", None)
        if grad is None or type(grad) is np.ndarray:
            return grad
        array = np.zeros(node.shape, node.dtype) if grad is ZERO else grad.dense()
        if node._grad is grad:
            node._grad = array


def held_gradient(node: Node) -> Any:
    """Return a node's gradient as it is stored: an array, a `RowSparse`, ``ZERO`` or None."""
    grad = getattr(node, "_grad", None)
    return read_gradient(node) if type(grad) is DeferredGradient else grad


def write_gradients(tape: Tape, nodes: Sequence[Node], grads: Sequence[object]) -> None:
    """Add one backward's gradients, all checked; raise for a ``.grad`` that the user reshaped."""
    handed_out: set[int] = set()
    changes: list[Change] = []
    sums, parts = [], []  # in place
    with _commit.held:
        for node, given in zip(nodes, grads, strict=True):
            array = node if node._array is None else node._array
            grad: Any = given if type(given) in (np.ndarray, RowSparse) else np.asarray(given)
            if grad.shape != array.shape:
                leaf = f"a leaf of {array.shape}"
                raise RuntimeError(f"backward: gradient of shape {grad.shape} for {leaf}")
            # Both operands of a + b receive the same array; each leaf must own its own. What is
            # sparse was made for this leaf alone, unless it holds a seed, which is only borrowed.
            if type(grad) is RowSparse:
                if not grad.values.flags.writeable:
                    grad = RowSparse(grad.rows, grad.values.copy(), grad.shape)
            else:
                if grad.base is not None or grad.dtype != array.dtype or id(grad) in handed_out:
                    grad = np.array(grad, dtype=array.dtype)
                handed_out.add(id(grad))
            before = getattr(node, "_grad", None)
            if before is None or before is ZERO:
                changes.append(partial(set_gradient, node, grad))
                continue
            if type(before) is DeferredGradient:
                before = read_gradient(node)
            if type(before) is np.ndarray:
                if before.shape != array.shape or before.dtype != array.dtype:
                    raise _unfitting("backward", node, before)
                if before.flags.writeable:
                    if type(grad) is RowSparse:
                        changes.append(partial(setitem, before, *grad.moved(before)))
                    else:
                        sums.append(before)
                        parts.append(grad)
                    continue
            changes.append(partial(set_gradient, node, before + grad))
        tape.add_params(nodes)
        if sums:  # an overflow must not stop half-way
            changes.append(partial(make, map(np.add, sums, parts, sums)))
            quietly(make, together(changes))
        else:
            make(together(changes))


def fitting_gradient(op: str, node: Node, grad: Any) -> Any:
    """Return a node's gradient; raise if the user changed its shape or dtype in place."""
    array = node if node._array is None else node._array
    if grad.shape == array.shape and grad.dtype == array.dtype:
        return grad
    raise _unfitting(op, node, grad)


def _unfitting(op: str, node: Node, grad: Any) -> RuntimeError:
    array = node if node._array is None else node._array
    label = f"{node.name!r}" if node.name else f"of shape {array.shape}"
    received = f"a .grad of shape {grad.shape} and dtype {grad.dtype} on {node._op.name} {label}"
    fix = "Reshape a copy, tensor.grad.copy(), or set tensor.grad = None."
    return RuntimeError(message(op, received, f"shape {array.shape} and dtype {array.dtype}", fix))
