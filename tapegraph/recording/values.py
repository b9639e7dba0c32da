"""The numbers of entries: kept for derivatives, freed and computed again, or kept by an engine.

The first read of a remote tensor makes it an ordinary one, without a lock. Changes of state are
computed first, each as a call of C code, and one call of C code then makes them all: a signal
handler, which Python runs between its own instructions, finds them all or none.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, repeat
from operator import attrgetter, methodcaller
from typing import Any

import numpy as np

from tapegraph.errors import line_of, sentence
from tapegraph.numpy_warnings import quietly
from tapegraph.recording import node as nodes
from tapegraph.recording.node import Node, new, next_seq
from tapegraph.recording.op import CLEARED, Outputs
from tapegraph.typed import Array

RECORDED_AT = attrgetter("_seq")


def value_of(x: Any) -> Array:
    """Return the numbers of an entry; freed ones are computed again and kept, or raise if stale."""
    if x._array is None:
        found = {x: None}
        pending = [x]
        for entry in pending:  # grows while it is walked
            if entry._op is CLEARED:
                raise cleared(entry)
            for i in entry._inputs:
                if isinstance(i, Node) and i._array is None and i not in found:
                    found[i] = None
                    pending.append(i)
        quietly(_compute, sorted(found, key=RECORDED_AT))
    return x._array


def _compute(entries: list[Node]) -> None:
    for entry in entries:
        arrays = []
        for x in entry._inputs:
            if getattr(x, "_changed", 0) > entry._seq:
                raise stale(x, entry)
            arrays.append(x._array if isinstance(x, Node) else x)
        out = entry._op.forward(*arrays, **entry._attrs)
        if entry._op.several:
            entry._array = Outputs(map(np.asarray, out))
        else:
            entry._array = np.asarray(out[0] if entry._op.saves else out)


def handle_of(x: object) -> Any:
    """Return a tensor of an entry, which computes its numbers when read; others unchanged."""
    if type(x) is not Node:
        if type(x) is nodes.updated_class:  # a derivative reads it as it was
            x.__class__ = nodes.tensor_class
        return x
    handle = new(nodes.tensor_class if x._array is not None else nodes.remote_class)
    handle._held = RemoteArray(partial(value_of, x)) if x._array is None else x._array
    handle._entry = x
    handle._requires_grad = True
    return handle


def cleared(entry: Node) -> RuntimeError:
    return RuntimeError(
        sentence(
            "backward",
            f"a result of shape {entry.shape} recorded at {line_of(entry._code, entry._lasti)} was "
            "cleared by tape_reset(); call backward() before tape_reset(), or run the forward "
            "again.",
        )
    )


def stale(leaf: Node, reader: Node) -> RuntimeError:
    label = f"{leaf.name!r}" if leaf.name else f"of shape {leaf.shape}"
    return RuntimeError(
        sentence(
            "backward",
            f"{leaf._op.name} {label} was changed after the {reader._op.name} at "
            f"{line_of(reader._code, reader._lasti)} had recorded it, so the gradient would be "
            "wrong; call backward() before changing it, or run the forward again; or detach() the "
            "state that a loop carries on.",
        )
    )


# Changes of state

# A call of C code, such as `set_array`, `setattr` or `operator.setitem`.
Change = Callable[[], Any]
# The undo log, the last change first; a commit empties it.
Undo = deque[Change]

# Set a node's array, bypassing its class.
set_array: Any = Node.__dict__["_array"].__set__
set_changed: Any = Node.__dict__["_changed"].__set__
set_gradient: Any = Node.__dict__["_grad"].__set__
set_class: Any = object.__dict__["__class__"].__set__

# Make changes prepared by `together`, in one call.
make: Callable[[Iterable[Any]], None] = deque[Any](maxlen=0).extend
_call = methodcaller("__call__")


def together(changes: Iterable[Change]) -> Iterator[Any]:
    """Prepare changes for `make`: those listed by then, each made once."""
    return map(_call, chain.from_iterable((changes,)))


def take_back(undo: Undo) -> None:
    make(together(undo))
    undo.clear()


def new_numbers(leaf: Node, array: object) -> list[Change]:
    return [partial(set_array, leaf, array), partial(set_changed, leaf, next_seq())]


def all_new_numbers(leaves: list[Any], arrays: list[Any]) -> list[Change]:
    return [
        partial(make, map(set_array, leaves, arrays)),
        partial(make, map(set_changed, leaves, repeat(next_seq()))),
    ]


def old_numbers(leaf: Node) -> Change:
    """Log a leaf's present numbers, to undo later changes."""
    parts = [
        partial(set_array, leaf, leaf._array),
        partial(set_changed, leaf, getattr(leaf, "_changed", 0)),
    ]
    return partial(make, map(_call, parts))


# Numbers that an engine keeps

Fetch = Callable[[], Array]


class RemoteArray:
    """Stands for an array that an engine keeps; ``fetch`` returns a copy, or raises."""

    __slots__ = ("fetch",)

    def __init__(self, fetch: Fetch, node: Node | None = None) -> None:
        self.fetch = fetch
        if node is not None:
            _offloaded[id(node)] = node


# A tensor's array or `RemoteArray`, whatever its class.
array_or_remote: Any = Node.__dict__["_array"].__get__
_offloaded: weakref.WeakValueDictionary[int, Node] = weakref.WeakValueDictionary()


def offloaded(leaves: list[Node], arrays: list[RemoteArray]) -> list[Change]:
    """Return the changes that leave tensors' numbers with an engine."""
    return [
        partial(make, map(set_class, leaves, repeat(nodes.remote_class))),
        partial(make, map(set_array, leaves, arrays)),
    ]


def new_numbers_away(leaves: list[Node], arrays: list[RemoteArray]) -> list[Change]:
    changed = partial(make, map(set_changed, leaves, repeat(next_seq())))
    return [*offloaded(leaves, arrays), changed]


def offload(node: Node, fetch: Fetch, *, comes_back: bool = True) -> None:
    make(together(offloaded([node], [RemoteArray(fetch, node if comes_back else None)])))


def is_remote(node: Node) -> bool:
    return type(node) is nodes.remote_class and type(array_or_remote(node)) is RemoteArray


def restore(node: Node) -> Array:
    """Return a tensor's array, and fetch it if it is remote."""
    while True:
        now = node._held
        if now.__class__ is not RemoteArray:  # type(now) would be a call
            node.__class__ = nodes.tensor_class
            return now
        array = now.fetch()
        if node._held is now:
            node._held = array


def put_array(node: Node, array: Array) -> None:
    node._held = array
    restore(node)


def _restore_all() -> None:
    """Fetch all remote numbers before a fork: the child cannot."""
    for node in list(_offloaded.values()):
        restore(node)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_restore_all)
