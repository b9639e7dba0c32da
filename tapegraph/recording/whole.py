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

from tapegraph.recording import node as nodes
from tapegraph.recording.concretization import CURRENT
from tapegraph.recording.node import Node, constant, next_seq, numeric
from tapegraph.recording.op import CONSTANT, INPUT
from tapegraph.recording.recorded import Recording
from tapegraph.recording.trace import linearise


class Whole:
    """A scope in which every operation that depends on an input or on state is recorded.

    State is every tensor from before the scope. What happens inside happens eagerly too.

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
        # What is read anew before every run, such as a learning rate, by the leaf.
        self.readings: list[tuple[Node, Callable[[], Any]]] = []
        # The values that state was given inside, in time order, by the leaf's id.
        self._updates: dict[int, list[tuple[int, Node, Node]]] = {}

    def __enter__(self) -> Whole:
        self._tokens.append(CURRENT.set(self))
        return self

    def __exit__(self, *exception: object) -> None:
        CURRENT.reset(self._tokens.pop())

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
        return type(x) is nodes.tensor_class and (x._op is not CONSTANT or x._seq < self._start)

    def update(self, leaf: Node, value: Any) -> None:
        """Remember that state takes a new value from here on."""
        node = value if type(value) is nodes.tensor_class else constant(leaf._array)
        self._updates.setdefault(id(leaf), []).append((next_seq(), leaf, node))

    def reads(self, node: Node) -> tuple[Any, ...]:
        """Return what an entry reads: of state that was updated, the version of its time."""
        if node._seq < self._start:
            return ()  # state: how it was made is no part of this program
        return tuple(self._version(x, node._seq) for x in node._inputs)

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
        latest = [versions[-1] for versions in self._updates.values()]
        results = [self._version(x, next_seq()) for x in outputs]
        return linearise(
            results,
            differentiate=False,
            reads=self.reads,
            updates=[(leaf, value) for _, leaf, value in latest],
        )
