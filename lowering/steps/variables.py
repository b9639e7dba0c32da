"""State of compiled steps in TensorFlow: one variable per tensor, shared by all steps.

If a parameter is read only by rows and changes by ``p - scale * gradient``, its gradient stays
row-sparse, its variable is never read whole, and the update is a scatter.
"""

from __future__ import annotations

import re
import weakref

import numpy as np

from tapegraph.engines.engine import SgdUpdate, sgd_updates
from tapegraph.interrupts import Lock
from tapegraph.lowering.calls import copied
from tapegraph.lowering.runtime import tensorflow
from tapegraph.lowering.translate import row_of
from tapegraph.recording.node import Node
from tapegraph.recording.op import GRADIENT
from tapegraph.recording.program import Program
from tapegraph.recording.values import RemoteArray, is_remote
from tapegraph.typed import Array

_lock = Lock()
_known: dict[tuple[int, tuple[int, ...], str], StateVariable] = {}


class StateVariable:
    """A tensor's variable, and the NumPy array known to hold the same numbers."""

    __slots__ = ("_array", "_changed", "_node", "remote", "variable")

    def __init__(self, node: Node) -> None:
        tf = tensorflow()
        array = node._array
        with tf.init_scope():
            name = node_name(node.name or "state")
            self.variable = tf.Variable(copied(array), trainable=False, name=name)
        self.remote = RemoteArray(self.fetch, node)
        self._node = weakref.ref(node)
        self._remember(node, array)

    def _remember(self, node: Node, array: Array) -> None:
        self._array = array
        self._changed = getattr(node, "_changed", 0)

    def push(self, node: Node) -> None:
        """Assign the tensor's numbers to the variable, if they have changed in NumPy."""
        if is_remote(node):
            return
        array = node._array
        if array is not self._array or getattr(node, "_changed", 0) != self._changed:
            self.variable.assign(copied(array))
            self._remember(node, array)

    def fetch(self) -> Array:
        """Return the numbers as an array that nobody else holds."""
        with tensorflow().init_scope():  # a graph that is being traced may need the numbers
            array = np.array(self.variable.read_value())
        node = self._node()
        if node is not None:
            self._remember(node, array)
        return array


def node_name(name: str) -> str:
    """Return a name that nodes may have, for TensorBoard and profilers."""
    return re.sub(r"[^A-Za-z0-9_./-]", "_", name).lstrip("_/-") or "value"


def variable_of(node: Node) -> StateVariable:
    """Return a tensor's variable, made at the first call and freed with the tensor."""
    key = (id(node), node._array.shape, node._array.dtype.str)
    with _lock.held:
        found = _known.get(key)
        if found is None:
            found = StateVariable(node)
            weakref.finalize(node, _known.pop, key, None)
            _known[key] = found
        return found


def tables(program: Program) -> dict[int, SgdUpdate]:
    """Return the updates of tables by the slot of the parameter."""
    readers = program.readers()
    return {
        leaf: update
        for leaf, update in sgd_updates(program).items()
        if leaf not in program.outputs
        and _reads_rows(program, leaf, readers[leaf] - {update.difference, update.gradient})
    }


def _reads_rows(program: Program, leaf: int, readers: set[int]) -> bool:
    return bool(readers) and all(
        bool(program.inputs[slot])
        and program.ops[slot] is not GRADIENT
        and row_of(program.ops[slot], whole=True).reads_rows(**program.attrs[slot])
        and program.inputs[slot][0] == leaf
        and leaf not in program.inputs[slot][1:]
        for slot in readers
    )
