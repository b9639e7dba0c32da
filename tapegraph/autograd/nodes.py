"""Boxes, nodes and traces by hand, as autograd's own operators are written with them.

A box is a tensor of the tape or a dual, and its node a view of it. `new_box` starts what a pass
back ends at; what is recorded, and how it is differentiated, stays the tape's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tapegraph.autograd.traced import CONTAINERS, isbox, settled
from tapegraph.differentiation.gradients import Region
from tapegraph.errors import kind_of, message, warn
from tapegraph.ops.elementwise import conj
from tapegraph.pytree import leaves, replaced
from tapegraph.recording.op import NO_ATTRS, Op, Rules
from tapegraph.recording.record import remember
from tapegraph.tensors.dual import Dual, direction, dual_of, lifted
from tapegraph.tensors.tensor import Tensor
from tapegraph.transforms.levels import next_tag
from tapegraph.transforms.reverse import Pullback

# What autograd says too, so that filters of the warning find it.
INDEPENDENT = "Output seems independent of input"


class Node:
    """A place in a graph. The tape makes the places: there are `VJPNode` and `JVPNode`, no others.

    A subclass can be written, but no box be made with it.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        name = type(self).__name__
        fix = f"Write {name}.new_root() to begin a graph; a box has its node as box._node."
        raise TypeError(message(name, "a call", "nodes from the tape", fix))

    @classmethod
    def new_root(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a node for `new_box` to begin a graph with."""
        root = cls.__new__(cls)
        root.initialize_root(*args, **kwargs)
        return root

    def initialize_root(self, *args: Any, **kwargs: Any) -> None:
        """Take what `new_root` was given."""


class VJPNode(Node):
    """Where a traced value stands on the tape, for passes back.

    It has ``parents``, the nodes of what its value was computed from; one of `new_box` has none.
    """

    # Of a root what `new_box` made, or None before; of another the tensor.
    _held: Any = None
    _level = -1
    _is_root = True

    @classmethod
    def _of(cls, tensor: Any) -> VJPNode:
        if tensor._op is BOX:
            return tensor._saved  # type: ignore[no-any-return]
        node = cls.__new__(cls)
        node._held, node._is_root = tensor, False
        return node

    @property
    def parents(self) -> list[VJPNode]:
        """Of what the value was computed from."""
        return [VJPNode._of(x) for x in self._inputs()]

    def vjp(self, g: Any) -> tuple[Any, ...]:
        """Return the cotangent of each parent, for one of the node's value."""
        inputs = self._inputs()
        if not inputs:
            return ()
        seed = direction("vjp", g, "the cotangent", self._held)
        ends = min(x._seq for x in inputs)
        region = Region([self._held], inputs, since=ends)
        found = region.gradients([conj(seed)], record=seed.requires_grad)
        return tuple(_plain(conj(x)) for x in found)

    def _inputs(self) -> list[Any]:
        found = () if self._is_root else self._held._inputs
        return list({id(x): x for x in found if isbox(x)}.values())

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is VJPNode and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> int:
        return id(self) if self._is_root else id(self._held)


class JVPNode(Node):
    """The derivative that a traced value of forward mode carries.

    :ivar g: The derivative.
    """

    def initialize_root(self, g: Any = None) -> None:
        """Take the direction that the derivative is along."""
        self.g = g


class TraceStack:
    """How many traces are open: `new_trace` opens one, and gives its number."""

    def __init__(self) -> None:
        self.top = -1

    @contextmanager
    def new_trace(self) -> Iterator[int]:
        """Open a trace, for a ``with`` statement, and give its number."""
        self.top += 1
        try:
            yield self.top
        finally:
            self.top -= 1


trace_stack = TraceStack()


def new_box(value: Any, trace: int, node: Node) -> Any:
    """Return a value as a traced one, at which graphs begin.

    :param value: A number, an array, a traced value of an outer trace, or tuples, lists and dicts
        of them.
    :param trace: What ``box._trace`` is to be, of this box and of what is computed from it.
    :param node: From ``VJPNode.new_root()``, for passes back, or ``JVPNode.new_root(direction)``.
    :param Returns: Or the structure of them, with ``_trace`` and ``_node`` too.
    :raises TypeError: The node is of another class, or the value is not numeric.
    :raises ValueError: The node is in use already.

    >>> import tapegraph.autograd.numpy as np
    >>> from tapegraph.autograd.core import VJPNode, backward_pass
    >>> x = new_box(2.0, 0, VJPNode.new_root())
    >>> print(backward_pass(1.0, (x * np.exp(x))._node).round(3))
    22.167
    """
    if type(node) is JVPNode:
        return dual_of(*_moved(value, node.g), next_tag())
    if type(node) is not VJPNode or not node._is_root:
        fix = "The tape makes its own nodes; begin with VJPNode.new_root()."
        raise TypeError(message("new_box", f"a {type(node).__name__}", "a root VJPNode", fix))
    if node._held is not None:
        raise ValueError(message("new_box", "a node that has a box", "VJPNode.new_root()"))
    found = [_begun(x, path, node) for path, x in leaves(value, "the value")]
    inside = replaced(value, iter(found))
    node._level = trace
    node._held = _with_node(inside, node) if isinstance(value, CONTAINERS) else inside
    return node._held


def backward_pass(g: Any, end_node: VJPNode) -> Any:
    """Return the cotangent of the box that a graph began with, for one of a result's.

    :param g: The cotangent of the result, of its shape; it may be traced itself.
    :param end_node: ``result._node``.
    :param Returns: The box whose trace is open: of boxes in boxes the last whose pass back is still
        to come.
    :raises TypeError: The node is no VJPNode, or its value does not depend on a box of `new_box`.
    """
    if type(end_node) is not VJPNode:
        received = kind_of(end_node)
        raise TypeError(message("backward_pass", received, "the _node of a traced result"))
    root = _root(end_node)
    if root is None:
        fix = "Trace it from new_box(x, 0, VJPNode.new_root()), or use make_vjp."
        received = "the node of a result that no box was made for"
        raise TypeError(message("backward_pass", received, "one that depends on a box", fix))
    if end_node == root:
        return g
    end = end_node._held
    seed = direction("backward_pass", g, "g", end)
    targets = [x for _, x in leaves(root._held)]
    found = Pullback(end, targets)(conj(seed))
    return replaced(root._held, (_after(conj(x), root) for x in found))


def trace(start_node: Node, fun: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """Return the value of a function at a point, and the node of it; None if it has none.

    - Warns UserWarning: The value does not depend on the point.
    """
    with trace_stack.new_trace() as number:
        end = fun(new_box(x, number, start_node))
    if type(end) is Dual:
        return settled(end.primal), _node_of(end)
    if isbox(end) and _root(VJPNode._of(end)) == start_node:
        targets = [x for _, x in leaves(start_node._held)]  # type: ignore[attr-defined]
        return _after(Pullback(end, targets).value, start_node), _node_of(end)
    warn(f"{INDEPENDENT}: trace gives no node", UserWarning)
    return end, None


def _root(node: VJPNode) -> VJPNode | None:
    """Return the root that was made last of those that a node's value belongs to."""
    seen: set[int] = set()
    ended: set[Any] = set()
    found: list[Any] = []
    pending = [] if node._is_root else [node._held]
    while pending:
        x = pending.pop()
        if id(x) in seen or not isbox(x):
            continue
        seen.add(id(x))
        if x._op is BOX:
            found.append(x)
        elif x._op is AFTER:
            ended.add(x._saved)
        pending.extend(x._inputs)
    if node._is_root:
        return node
    open_ones = (x for x in found if x._saved not in ended)
    newest: Any = max(open_ones, key=lambda x: x._seq, default=None)
    return None if newest is None else newest._saved


def _after(x: Any, root: Node) -> Any:
    """Return a result as one outside of a trace: plain, unless outer derivatives flow through."""
    if not isbox(x):
        return settled(x)
    return _entered(AFTER, x, root)


def _entered(op: Op, x: Any, root: Node) -> Any:
    entry = remember(Tensor, op, x._array.copy("K"), (x,), NO_ATTRS)
    entry._saved = root
    return entry


def _begun(x: Any, path: str, node: VJPNode) -> Any:
    x = lifted("new_box", x, path)
    if type(x) is Dual:
        received = f"a value of forward mode for {path}"
        raise TypeError(message("new_box", received, "plain values", "Use make_vjp."))
    return _entered(BOX, x, node)


def _moved(value: Any, g: Any) -> tuple[Any, Any]:
    if isinstance(value, CONTAINERS):
        received = f"a {type(value).__name__} for a JVPNode"
        raise TypeError(message("new_box", received, "a number or array", "Use make_jvp."))
    x = lifted("new_box", value, "the value")
    return x, direction("new_box", np.ones(x.shape) if g is None else g, "the direction", x)


def _plain(x: Any) -> Any:
    """Return a constant as a plain array or number, and what is traced as it is."""
    return x if x is None or isbox(x) else settled(x)


class _Boxed:
    """What a tuple, list or dict of boxes has of a box."""

    _node: Any = None

    @property
    def _trace(self) -> int:
        return self._node._level if self._node else -1


_KINDS = {
    kind: type(f"Boxed{kind.__name__.title()}", (_Boxed, kind), {}) for kind in (tuple, list, dict)
}


def _with_node(structure: Any, node: VJPNode) -> Any:
    kind = _KINDS.get(type(structure))
    if kind is None:
        received = f"a {type(structure).__name__}"
        raise TypeError(message("new_box", received, "a tuple, list, dict or array"))
    boxed: Any = kind(structure)
    boxed._node = node
    return boxed


def _trace_of(x: Any) -> int:
    """Return the number of the trace that a box belongs to; -1 of what no `new_box` began."""
    if type(x) is Dual:
        return x.tag
    root = _root(VJPNode._of(x))
    return -1 if root is None else root._level


def _node_of(x: Any) -> Any:
    """Return the node of a box."""
    if type(x) is Dual:
        return JVPNode.new_root(settled(x.tangent))
    if not isbox(x):
        raise AttributeError("_node: received a constant; expected a traced value")
    return VJPNode._of(x)


def _identity(needs: list[bool], g: Any, y: Any, x: Any, *, saved: Any) -> list[Any]:
    return [g]


# Where a trace begins, and where something that was computed in it leaves it.
BOX = Op("autograd box", saves=True, rules=Rules(_identity, None, None, _identity))
AFTER = Op("autograd box after", saves=True, rules=Rules(_identity, None, None, _identity))
# By these names autograd's boxes have them; the core knows nothing of nodes.
for _kind in (Tensor, Dual):
    for _name, _get in (("_node", _node_of), ("_trace", _trace_of)):
        setattr(_kind, _name, property(_get))
