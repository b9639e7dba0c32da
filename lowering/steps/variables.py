"""Tensors that compiled steps keep in TensorFlow: one variable each, whichever step uses it."""

from __future__ import annotations

import weakref

import numpy as np

from tapegraph.locks import Lock
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.transfer import copied
from tapegraph.recording.away import Away, is_away
from tapegraph.recording.node import Node
from tapegraph.typed import Array

_lock = Lock()
_known: dict[tuple[int, tuple[int, ...], str], Kept] = {}


class Kept:
    """A tensor's variable, and the array at home that is known to hold the same numbers.

    Attributes
    ----------
    variable : tf.Variable
        Of the tensor's shape and dtype.
    away : Away
        What stands for the tensor's array while the variable alone has its numbers.
    """

    __slots__ = ("_array", "_changed", "_node", "away", "variable")

    def __init__(self, node: Node) -> None:
        tf = tensorflow()
        array = node._array
        with tf.init_scope():
            self.variable = tf.Variable(copied(array), trainable=False, dtype=array.dtype)
        self.away = Away(self.fetch, node)
        self._node = weakref.ref(node)
        self._remember(node, array)

    def _remember(self, node: Node, array: Array) -> None:
        self._array = array
        self._changed = getattr(node, "_changed", 0)

    def push(self, node: Node) -> None:
        """Give the variable the tensor's numbers, where they have changed at home."""
        if is_away(node):
            return
        array = node._array
        if array is not self._array or getattr(node, "_changed", 0) != self._changed:
            self.variable.assign(copied(array))
            self._remember(node, array)

    def fetch(self) -> Array:
        """Return the numbers as an array that nobody else holds."""
        array = np.array(self.variable.read_value())
        node = self._node()
        if node is not None:
            self._remember(node, array)
        return array


def kept(node: Node) -> Kept:
    """Return the variable of a tensor, which is made at the first call and goes with the tensor."""
    key = (id(node), node._array.shape, node._array.dtype.str)
    with _lock():
        found = _known.get(key)
        if found is None:
            found = Kept(node)
            weakref.finalize(node, _known.pop, key, None)
            _known[key] = found
        return found
