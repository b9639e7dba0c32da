"""What is traced, and the nodes behind it, as autograd's own operators are written with them.

A box is a tensor of the tape that a gradient flows through, or a dual, and its node a view of it.
`new_box` starts what a pass back ends at; what is recorded, and how it is differentiated, stays the
tape's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tapegraph.differentiation.gradients import Region
from tapegraph.errors import kind_of, message, warn
from tapegraph.ops.elementwise import conj
from tapegraph.pytree import leaves, mapped, replaced
from tapegraph.recording.capture_mode import forbid_read, is_captured
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.op import NO_ATTRS, PARAM, Op, Rules
from tapegraph.recording.record import remember
from tapegraph.tensors.dual import Dual, direction, dual_of, lifted
from tapegraph.tensors.tensor import Tensor
from tapegraph.transforms.levels import next_tag
from tapegraph.transforms.reverse import Pullback

TENSORS = (Tensor, Dual)
CONTAINERS = (list, tuple, dict)

# What autograd says too, so that filters of the warning find it.
INDEPENDENT = "Output seems independent of input"


def isbox(x: Any) -> bool:
    """Return whether a derivative flows through a value: autograd calls such values boxes."""
    return type(x) is Dual or (type(x) is Tensor and x.requires_grad)


def holds_tensor(x: Any) -> bool:
    """Return whether a value is a tensor or dual, or a list, tuple or dict that holds one."""
    if isinstance(x, TENSORS):
        return True
    if isinstance(x, (list, tuple)):
        return any(map(holds_tensor, x))
    return isinstance(x, dict) and any(map(holds_tensor, x.values()))


def holds_box(x: Any) -> bool:
    """Return whether a value is traced, or a list, tuple or dict that holds what is."""
    if isinstance(x, CONTAINERS):
        return any(isbox(leaf) for _, leaf in leaves(x))
    return isbox(x)


def getval(x: Any) -> Any:
    """Return the plain value under all levels; a captured one is a ConcretizationError."""
    while type(x) is Dual:
        x = x.primal
    if type(x) is not Tensor:
        return x
    fix = "Compute with tapegraph.autograd.numpy alone; in place of a @primitive use tg.defop."
    forbid_read(x, "a plain value", fix)
    return number(np.array(x._array))


def number(x: Any) -> Any:
    """Return an array of no axes as a NumPy number, and anything else as it is."""
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x


def without_constants(x: Any) -> Any:
    """Return a structure in which tensors that nothing flows through are plain arrays."""
    return mapped(lambda leaf: leaf if isbox(leaf) else getval(leaf), x)


def settled(x: Any) -> Any:
    """Return what a transform gives: plain, unless something can still flow through it.

    What was recorded for a level that has ended is no reason to stay a tensor; a `tapegraph.param`
    that it depends on is.
    """
    if type(x) is not Tensor:
        return number(x)
    if is_captured(x):
        return x
    reads_parameter = (node._op is PARAM for node in _ancestors(x))
    if x.requires_grad and (DIFFERENTIATING.value() or any(reads_parameter)):
        return x
    return getval(x)


def _ancestors(x: Any) -> Iterator[Any]:
    """Yield a tensor and all that it was computed from, as far as a gradient flows."""
    seen: set[int] = set()
    pending = [x]
    while pending:
        node = pending.pop()
        if id(node) not in seen and getattr(node, "_requires_grad", False):
            seen.add(id(node))
            yield node
            pending.extend(node._inputs)


class OfTraced(type):
    """The type of a class whose instances are traced, or hold what is, and are of its kinds."""

    kinds: tuple[type, ...]

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls.kinds) and holds_box(instance)


class ArrayBox(metaclass=OfTraced):
    """Stands for traced tensors and duals in `isinstance`; their plain value is ``x._value``."""

    kinds = TENSORS

    @classmethod
    def register(cls, value_type: type) -> None:
        """Declare that values of a type are traced, as numbers and all kinds of arrays are.

        :raises TypeError: The type is no number and no array.
        """
        if not issubclass(value_type, (float, int, np.number, np.ndarray)):
            received = f"the class {value_type.__name__}"
            fix = "Trace arrays, or lists, tuples and dicts of them."
            raise TypeError(message("Box.register", received, "a class of real arrays", fix))


# Nodes


class Node:
    """A place in a graph: a `VJPNode` or a `JVPNode`. Of a subclass no box can be made."""

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
        """Take what `new_root` was given; a subclass says what."""


class VJPNode(Node):
    """Where a traced value stands on the tape, for passes back; one of `new_box` has no parents."""

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
        """The nodes of what the value was computed from."""
        return [VJPNode._of(x) for x in self._inputs()]

    def vjp(self, g: Any) -> tuple[Any, ...]:
        """Return the cotangent of each parent, for one of the node's value."""
        inputs = self._inputs()
        if not inputs:
            return ()
        seed = direction("vjp", g, "the cotangent", self._held)
        region = Region([self._held], inputs, since=min(x._seq for x in inputs))
        found = region.gradients([conj(seed)], record=seed.requires_grad)
        return tuple(x if isbox(x) else settled(x) for x in map(conj, found))

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
    """What a traced value of forward mode carries: its derivative ``g``."""

    def initialize_root(self, g: Any = None) -> None:
        """Take the derivative."""
        self.g = g


class TraceStack:
    """How many traces are open: `new_trace` opens one, and gives its number."""

    def __init__(self) -> None:
        self.top = -1

    @contextmanager
    def new_trace(self) -> Iterator[int]:
        """Open a trace for a ``with`` statement, which is given its number."""
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
    :returns: A box, or the structure of them, which has ``_trace`` and ``_node`` too.
    :raises TypeError: The node is of another class, or the value is not numeric.
    :raises ValueError: The node is in use already.

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
    :returns: That of the box whose trace is open: of boxes in boxes the last whose pass back is
        still to come.
    :raises TypeError: The node is no VJPNode, or its value does not depend on a box of `new_box`.
    """
    if type(end_node) is not VJPNode:
        expected = "the _node of a traced result"
        raise TypeError(message("backward_pass", kind_of(end_node), expected))
    root = _root(end_node)
    if root is None:
        fix = "Trace it from new_box(x, 0, VJPNode.new_root()), or use make_vjp."
        received = "the node of a result that no box was made for"
        raise TypeError(message("backward_pass", received, "one that depends on a box", fix))
    if end_node == root:
        return g
    seed = direction("backward_pass", g, "g", end_node._held)
    found = Pullback(end_node._held, _begun_at(root))(conj(seed))
    return replaced(root._held, (_after(conj(x), root) for x in found))


def trace(start_node: Node, fun: Callable[[Any], Any], x: Any) -> tuple[Any, Any]:
    """Return a function's value at a point, and its node: None, with a warning, of a constant."""
    with trace_stack.new_trace() as level:
        end = fun(new_box(x, level, start_node))
    if type(end) is Dual:
        return settled(end.primal), _node_of(end)
    if isbox(end) and _root(VJPNode._of(end)) == start_node:
        return _after(Pullback(end, _begun_at(start_node)).value, start_node), _node_of(end)
    warn(f"{INDEPENDENT}: trace gives no node", UserWarning)
    return end, None


def _root(node: VJPNode) -> VJPNode | None:
    """Return the root that was made last of those that a node's value belongs to."""
    if node._is_root:
        return node
    before = list(_ancestors(node._held))
    ended = {x._saved for x in before if x._op is AFTER}
    open_ones = (x for x in before if x._op is BOX and x._saved not in ended)
    newest = max(open_ones, key=lambda x: x._seq, default=None)
    return None if newest is None else newest._saved


def _begun_at(root: Any) -> list[Any]:
    """Return the boxes that a root stands for."""
    return [x for _, x in leaves(root._held)]


def _after(x: Any, root: Node) -> Any:
    """Return a result as one outside of a trace: plain, unless outer derivatives flow through."""
    return _entered(AFTER, x, root) if isbox(x) else settled(x)


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
