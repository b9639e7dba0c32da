"""Recording whole: inside the scope, whatever depends on an input or on state is an entry.

Outside, only what a gradient flows through is recorded, and comparisons, predicates and indices are
plain arrays. A program that is run again with other numbers must not hold such arrays: inside the
scope they are entries too, operations of the table without a gradient. A number that would leave
the program (``bool``, ``float``, ``.numpy()``, a shape that depends on numbers) is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Any

import numpy as np

from tapegraph.recording.concretization import CURRENT
from tapegraph.recording.node import Node, constant, mark_changed, next_seq, numeric
from tapegraph.recording.op import CONSTANT, INPUT
from tapegraph.recording.recorded import Recording
from tapegraph.recording.trace import linearise
from tapegraph.typed import Array


class Whole:
    """A scope in which every operation that depends on an input or on state is recorded.

    State is every tensor from before the scope, and its gradient. What happens inside happens
    eagerly too, and is taken back where the scope is left by an exception.

    Attributes
    ----------
    readings : list of (Node, callable)
        Leaves whose numbers are read anew before every run, such as a learning rate.
    gradients : dict of int to (Node, Tensor or None)
        The state whose gradient was touched, by id, and what it is now; None is none, or zero.

    Examples
    --------
    >>> import numpy as np
    >>> import tapegraph as tg
    >>> with Whole() as whole:
    ...     x = whole.input(np.array([1.0, -2.0]))
    ...     y = np.where(x > 0, x, 0.1 * x)
    >>> [entry.op for entry in whole.recording([y])]
    ['input', 'scalar', 'greater', 'scalar', 'mul', 'where']
    """

    def __init__(self) -> None:
        self._start = next_seq()
        self._tokens: list[Token[Any]] = []
        self.readings: list[tuple[Node, Callable[[], Any]]] = []
        self.gradients: dict[int, tuple[Node, Any]] = {}
        # Gradients from before the scope that something inside has read: the leaf, and whose.
        self.read_gradients: list[tuple[Node, Node]] = []
        self.without_gradient: list[Node] = []  # state that had none when that was asked
        # The values that state was given inside, in time order, by the leaf's id.
        self._updates: dict[int, list[tuple[int, Node, Node]]] = {}
        self._versions: dict[int, Node] = {}
        self._before: list[Callable[[], None]] = []

    def __enter__(self) -> Whole:
        self._tokens.append(CURRENT.set(self))
        return self

    def __exit__(self, kind: Any, *exception: object) -> None:
        CURRENT.reset(self._tokens.pop())
        if kind is not None:
            for undo in reversed(self._before):
                undo()

    # Leaves

    def input(self, value: Any, name: str | None = None) -> Any:
        """Return a value as a leaf of the program: numbers that another run may change."""
        leaf = constant(np.array(numeric(value, "input", "value")))
        leaf._op = INPUT
        leaf._name = name
        return leaf

    def reading(self, read: Callable[[], Any], dtype: Any) -> Any:
        """Return a number as a leaf that every run reads anew, such as a learning rate.

        Parameters
        ----------
        read : callable
            Gives the number.
        dtype : dtype
            What it is read as: that of the arrays it meets, as a Python number would take it.
        """
        leaf = self.input(np.asarray(read(), dtype))
        self.readings.append((leaf, read))
        return leaf

    def depends(self, x: Any) -> bool:
        """Tell whether a tensor comes from an input or from state."""
        return isinstance(x, Node) and (x._op is not CONSTANT or x._seq < self._start)

    def is_state(self, x: Node) -> bool:
        """Tell whether a tensor is from before the scope."""
        return x._seq < self._start

    # State

    def assign(self, leaf: Node, array: Array, value: Any) -> None:
        """Give state a new value, here and in the program."""
        before, changed = leaf._array, getattr(leaf, "_changed", None)

        def undo() -> None:
            leaf._array = before
            if changed is not None:
                leaf._changed = changed

        self._before.append(undo)
        leaf._array = array
        mark_changed(leaf)
        node = value if isinstance(value, Node) else constant(array)
        if node._array.shape != array.shape or node._array.dtype != array.dtype:
            raise NotImplementedError("assign: a whole recording takes values of the state's type")
        self._updates.setdefault(id(leaf), []).append((next_seq(), leaf, node))
        self._versions[id(node)] = leaf

    def gradient(self, leaf: Node) -> Any:
        """Return the gradient of state as a tensor; None where there is none."""
        if id(leaf) not in self.gradients:
            held = getattr(leaf, "_grad", None)
            grad = None
            if held is None:
                self.without_gradient.append(leaf)
            else:
                from_before = held if isinstance(held, np.ndarray) else _dense(held, leaf)
                grad = self.input(from_before)
                self.read_gradients.append((grad, leaf))
            self.gradients[id(leaf)] = (leaf, grad)
        return self.gradients[id(leaf)][1]

    def set_gradient(self, leaf: Node, grad: Any) -> None:
        """Give state a new gradient."""
        self.gradients[id(leaf)] = (leaf, grad)

    # The program

    def reads(self, node: Node) -> tuple[Any, ...]:
        """Return what an entry reads: of state that was updated, the version of its time."""
        if node._seq < self._start:
            return ()  # state: how it was made is no part of this program
        return tuple(self._version(x, node._seq) for x in node._inputs)

    def leaf_of(self, node: Node) -> Node:
        """Return the state that a node is a version of, or the node itself."""
        return self._versions.get(id(node), node)

    def latest(self, leaf: Node) -> Node:
        """Return the present version of state."""
        return self._version(leaf, next_seq())  # type: ignore[no-any-return]

    def _version(self, x: Any, seq: int) -> Any:
        for time, leaf, value in reversed(self._updates.get(id(x), ())):
            if leaf is x and time < seq:
                return value
        return x

    def recording(self, outputs: Sequence[Any]) -> Recording:
        """Return the program from inputs and state to some results and to the state's new values.

        Parameters
        ----------
        outputs : sequence of Tensor
        """
        last = [versions[-1] for versions in self._updates.values()]
        return linearise(
            [self.latest(x) for x in outputs],
            differentiate=False,
            reads=self.reads,
            updates=[(leaf, value) for _, leaf, value in last],
        )


def _dense(held: Any, leaf: Node) -> Array:
    dense = getattr(held, "dense", None)
    return dense() if dense is not None else np.zeros_like(leaf._array)
