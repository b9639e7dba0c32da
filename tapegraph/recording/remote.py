"""Tensors whose numbers an engine keeps: the first read fetches them.

A remote tensor has its own class, and holds a `RemoteArray`. The first read of the array fetches
it, and the tensor becomes an ordinary one. Signal handlers and threads never wait: a read tests and
replaces the held object without a call in between, and a second reader uses the first one's result.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

from tapegraph.recording import node as nodes
from tapegraph.recording.changes import (
    Change,
    make,
    set_array,
    set_changed,
    set_class,
    together,
)
from tapegraph.recording.node import Node
from tapegraph.typed import Array

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
    """Return changes like those of `all_new_numbers`, with the numbers left with an engine."""
    changed = partial(make, map(set_changed, leaves, repeat(nodes.next_seq())))
    return [*offloaded(leaves, arrays), changed]


def offload(node: Node, fetch: Fetch, *, comes_back: bool = True) -> None:
    """Leave a leaf's numbers with a function that fetches them, or that raises."""
    make(together(offloaded([node], [RemoteArray(fetch, node if comes_back else None)])))


def is_remote(node: Node) -> bool:
    """Return whether an engine keeps a tensor's numbers."""
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
    """Give a tensor that may be remote an array."""
    node._held = array
    restore(node)


def _restore_all() -> None:
    """Fetch all remote numbers before a fork: the child cannot."""
    for node in list(_offloaded.values()):
        restore(node)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_restore_all)
