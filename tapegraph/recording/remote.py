"""Tensors whose numbers an engine keeps: the first read fetches them.

While it is remote a tensor is of a class of its own, and a `RemoteArray` stands in the place of its
array. The first read of the array fetches it, and makes the tensor an ordinary one again.

A signal handler or another thread may look meanwhile, and nobody waits for the other: what is in
the place of the array decides, it is looked at and replaced without a call in between, and
whoever comes second takes what the first one left. A tensor of the class may hold an array, but no
other one a `RemoteArray`.
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
    """What stands for an array that an engine keeps.

    ``fetch`` gives an array that nobody else holds, or raises; ``node`` is the tensor whose numbers
    are fetched before a fork.
    """

    __slots__ = ("fetch",)

    def __init__(self, fetch: Fetch, node: Node | None = None) -> None:
        self.fetch = fetch
        if node is not None:
            _offloaded[id(node)] = node


# What is in the place of a tensor's array, whatever its class.
array_or_remote: Any = Node.__dict__["_array"].__get__
_offloaded: weakref.WeakValueDictionary[int, Node] = weakref.WeakValueDictionary()


def offloaded(leaves: list[Any], arrays: list[RemoteArray]) -> list[Change]:
    """Return the changes that leave tensors' numbers with an engine."""
    return [
        partial(make, map(set_class, leaves, repeat(nodes.remote_class))),
        partial(make, map(set_array, leaves, arrays)),
    ]


def new_numbers_away(leaves: list[Any], arrays: list[RemoteArray]) -> list[Change]:
    """Leave the new numbers of tensors with an engine, as `all_new_numbers` gives them arrays."""
    changed = partial(make, map(set_changed, leaves, repeat(nodes.next_seq())))
    return [*offloaded(leaves, arrays), changed]


def offload(node: Node, fetch: Fetch, *, comes_back: bool = True) -> None:
    """Leave a leaf's numbers with what fetches them, or where none come back, raises."""
    make(together(offloaded([node], [RemoteArray(fetch, node if comes_back else None)])))


def is_remote(node: Node) -> bool:
    """Return whether an engine keeps a tensor's numbers."""
    return type(node) is nodes.remote_class and type(array_or_remote(node)) is RemoteArray


def restore(node: Node) -> Array:
    """Return a tensor's array, fetching it where it is away."""
    while True:
        now = node._held
        if now.__class__ is not RemoteArray:  # type(now) would be a call
            node.__class__ = nodes.tensor_class
            return now  # type: ignore[no-any-return]
        array = now.fetch()
        if node._held is now:
            node._held = array


def put_array(node: Node, array: Array) -> None:
    """Give a tensor that may be away an array of its own."""
    node._held = array
    restore(node)


def _restore_all() -> None:
    """Fetch everything: a child of this process cannot ask the engine."""
    for node in list(_offloaded.values()):
        restore(node)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_restore_all)
