"""Tensors whose numbers an engine keeps: they come home when somebody reads them.

While it is away a tensor is of a class of its own, and the place of its array holds what fetches
it. The first look at the array fetches it, and makes the tensor an ordinary one again.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any

from tapegraph.locks import Lock
from tapegraph.recording import node as nodes
from tapegraph.recording.node import Node
from tapegraph.typed import Array

Fetch = Callable[[], Array]

_lock = Lock()
_held: Any = Node.__dict__["_array"]  # the slot, whatever the class
_travellers: weakref.WeakValueDictionary[int, Node] = weakref.WeakValueDictionary()


def send_away(node: Node, fetch: Fetch, *, comes_back: bool = True) -> None:
    """Leave a tensor's numbers with an engine.

    Parameters
    ----------
    node : Node
        A leaf.
    fetch : callable
        Gives an array that nobody else holds.
    comes_back : bool
        False where it raises, as there are no numbers to be had.
    """
    with _lock():
        _held.__set__(node, fetch)
        if not is_away(node):
            node.__class__ = nodes.away_class
            if comes_back:
                _travellers[id(node)] = node


def is_away(node: Node) -> bool:
    """Tell whether an engine keeps a tensor's numbers."""
    return type(node) is nodes.away_class


def present(node: Node) -> Array:
    """Return a tensor's array, fetching it where it is away."""
    with _lock():
        value = _held.__get__(node)
        if type(node) is nodes.away_class:
            value = value()
            _come_home(node, value)
        return value  # type: ignore[no-any-return]


def put(node: Node, array: Array) -> None:
    """Give a tensor that may be away an array of its own."""
    with _lock():
        _come_home(node, array)


def _come_home(node: Node, array: Array) -> None:
    _held.__set__(node, array)
    node.__class__ = nodes.tensor_class
    _travellers.pop(id(node), None)


def _all_home() -> None:
    """Fetch everything: a child of this process cannot ask the engine."""
    for node in list(_travellers.values()):
        present(node)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_all_home)
