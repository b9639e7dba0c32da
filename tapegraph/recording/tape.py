"""The tape of a thread or task: weak references to its live entries."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any
from weakref import ref

from tapegraph.errors import line_of, warn
from tapegraph.recording.linearize import linearize
from tapegraph.recording.node import Node, next_seq
from tapegraph.recording.op import CLEARED
from tapegraph.recording.program import Entry, Recording
from tapegraph.recording.scopes import RECORDER

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
