"""Boxes and nodes: traced values and the graph behind them, in autograd's terms.

A box is a tensor that a gradient flows through, a dual, or a value of a user class, an array of
one object; its node is a view of it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from tapegraph.errors import kind_of, message, sentence, warn
from tapegraph.ops.elementwise import conj
from tapegraph.ops.shape import RESHAPE
from tapegraph.pytree import leaves, mapped, matched, replaced
from tapegraph.recording import node as nodes
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.node import as_leaf, tape_entry
from tapegraph.recording.op import NO_ATTRS, PARAM, Op, Rules
from tapegraph.recording.scopes import Setting, recorder
from tapegraph.recording.values import RECORDED_AT, handle_of, value_of
from tapegraph.tensors.batched import Batched
from tapegraph.tensors.dual import Dual, direction, lifted
from tapegraph.tensors.tensor import Tensor
from tapegraph.transforms.reverse import Pullback
from tapegraph.typed import Cotangent, Fun, Pytree

# What here, and in `tracer`, has the form of autograd's own inside, and who needs it of the clients
# that `python -m tests.clients` runs:
#
#   new_box, VJPNode, trace_stack                           PennyLane, autograd's examples
#   Box.type_mappings, x._trace, boxes in containers        PennyLane
#   x._value in a rule, what is added to ArrayBox           PennyLane, tidy3d
#   register_notrace                                        tidy3d
#   trace, nodes of one's own, classes of one's own         autograd's examples
#   core.primitive's defgrad                                autograd's own tests
#
# No client needs backward_pass or SparseObject: docs/autograd.md promises them.


class ValueBox:
    """Base class of traced values of user classes; `Box` is its public subclass."""

    _value: Any
    _entry: Any


TENSORS = (Tensor, Dual, Batched)
TRACED = (*TENSORS, ValueBox)
CONTAINERS = (list, tuple, dict)

# autograd's text, so that warning filters match.
INDEPENDENT = "Output seems independent of input"


def isbox(x: Pytree) -> bool:
    """Return whether a derivative flows through a value: autograd calls such values boxes."""
    if type(x) is Tensor:
        return x.requires_grad
    return type(x) is Dual or isinstance(x, ValueBox)


def holds_tensor(x: Pytree) -> bool:
    if isinstance(x, TRACED):
        return True
    if isinstance(x, (list, tuple)):
        return any(map(holds_tensor, x))
    return isinstance(x, dict) and any(map(holds_tensor, x.values()))


def holds_box(x: Pytree) -> bool:
    """Return whether a value is traced, or a list, tuple or dict that holds a traced value."""
    if isinstance(x, CONTAINERS):
        return any(isbox(leaf) for _, leaf in leaves(x))
    return isbox(x)


def getval(x: Pytree) -> Pytree:
    """Return the plain value under all levels; raise ConcretizationError for a captured one."""
    while type(x) is Dual or isinstance(x, ValueBox):
        x = x.primal if type(x) is Dual else x._value
    if type(x) is not Tensor:
        return x
    fix = (
        "Compute with tapegraph.autograd.numpy alone; in place of a @primitive, as most functions "
        "of tapegraph.autograd.scipy are, use tg.defop."
    )
    recorder().read(x, "a plain value", fix)
    return number(np.array(x._array))


def number(x: Pytree) -> Pytree:
    """Return a 0-d array as a NumPy number, and anything else unchanged."""
    return x[()] if isinstance(x, np.ndarray) and x.ndim == 0 else x


def without_constants(x: Pytree) -> Pytree:
    """Return a structure in which tensors that nothing flows through are plain arrays."""
    return mapped(lambda leaf: leaf if isbox(leaf) else getval(leaf), x)


def unboxed(x: Pytree) -> Pytree:
    """Return a transform's result, plain unless a gradient can still flow through it."""
    if isinstance(x, ValueBox):
        return x if unboxed(x._entry) is x._entry else getval(x)
    if type(x) is not Tensor:
        return number(x)
    if recorder().records(x):
        return x
    if x.requires_grad and (
        DIFFERENTIATING.value()
        or any(
            part._op is PARAM or (part._op is BOX and part._saved._level <= trace_stack.top)
            for part in ancestors(x)
        )
    ):
        return x
    return getval(x)


def _flowing(x: Pytree) -> list[Pytree]:
    return [part for part in x._inputs if getattr(part, "_requires_grad", False)]


def ancestors(x: Pytree, inputs: Callable[[Any], Iterable[object]] = _flowing) -> Iterator[Pytree]:
    """Yield the entry of a tensor, and all entries that it was computed from, each once."""
    x = getattr(x, "_entry", None) or x
    found = {id(x): x}
    pending = [x]
    for node in pending:  # grows as it goes
        yield node
        new = {id(part): part for part in inputs(node) if id(part) not in found}
        found |= new
        pending += new.values()


def fitted(given: Pytree, form: Pytree) -> Pytree:
    """Return a cotangent in the structure of a form, if it matches the form.

    An array stands for a list or tuple of its length, None for any structure.
    """
    if given is None or not any(leaf for _, leaf in leaves(form)):
        return mapped(lambda _: None, form)
    if isinstance(form, dict) and isinstance(given, dict) and form.keys() == given.keys():
        return {key: fitted(given[key], form[key]) for key in form}
    if not isinstance(form, (list, tuple)):
        return given
    if isinstance(given, (np.ndarray, *TENSORS)) and given.shape[:1] == (len(form),):
        given = [given[i] for i in range(len(form))]
    if not isinstance(given, (list, tuple)) or len(given) != len(form):
        return given
    parts = list(map(fitted, given, form))
    if hasattr(given, "_fields"):
        return type(given)(*parts)
    return tuple(parts) if isinstance(given, tuple) else parts


def marked(
    op: str, given: Pytree, form: Pytree, argument: str, of: str
) -> list[tuple[str, Pytree]]:
    """Return the parts, and their paths, of a `fitted` cotangent that a form marks."""
    pairs = zip(matched(op, fitted(given, form), form, argument, of), leaves(form), strict=True)
    return [pair for pair, (_, mark) in pairs if mark]


class OfTraced(type):
    """The type of `Box` and its kind, whose instances are tensors or containers of tensors."""

    def __instancecheck__(cls, instance: object) -> bool:
        kinds = vars(cls).get("kinds")
        if kinds is None:
            return super().__instancecheck__(instance)
        return isinstance(instance, kinds) and holds_box(instance)

    def __call__(cls, value: Pytree, trace: int, node: Any) -> Pytree:
        if vars(cls).get("kinds") is None:
            return super().__call__(value, trace, node)
        if type(node) is VJPNode and not node._is_root:
            return node._held
        if isinstance(value, CONTAINERS):
            return new_box(value, trace, node)
        return _held(_begun(value, "the value", trace, node, as_array=True), trace, node)

    def __setattr__(cls, name: str, value: Pytree) -> None:
        """Set an attribute, also on tensors where the class stands for them."""
        super().__setattr__(name, value)
        if TENSORS[0] in vars(cls).get("kinds", ()) and name not in _DISPATCHED:
            for kind in TENSORS:
                own = inspect.getattr_static(kind, name, None)
                own = own.own if type(own) is _WhileTraced else own
                setattr(kind, name, value if own is None else _WhileTraced(own, value))


# How NumPy finds who computes: of tensors the tape does, whatever a library's boxes do.
_DISPATCHED = ("__array_ufunc__", "__array_function__", "__array_priority__")


class _WhileTraced:
    """A tensor's attribute that autograd code replaces; only differentiated code sees the other."""

    def __init__(self, own: Any, given: Pytree) -> None:
        self.own, self.given = own, given

    def __get__(self, x: Pytree, kind: Any = None) -> Any:
        if x is None:  # looked up on the class, and called with a tensor
            return functools.wraps(self.own)(lambda x, *a, **k: self.__get__(x, kind)(*a, **k))
        found = self.given if isbox(x) and DIFFERENTIATING.value() else self.own
        bind = getattr(type(found), "__get__", None)
        return found if bind is None else bind(found, x, kind)


class _Makers(dict[type, Fun]):
    """Box classes, or functions that make boxes, by the class of the value."""

    def __setitem__(self, kind: Any, maker: Fun) -> None:
        arrays = issubclass(kind, np.ndarray) and kind is not np.ndarray
        if arrays and kind not in self and "__array_ufunc__" in vars(kind):
            own = kind.__array_ufunc__

            @functools.wraps(own)
            def array_ufunc(
                self: Any, ufunc: Any, method: str, *inputs: Pytree, **options: object
            ) -> Pytree:
                """Leave a ufunc of tensors to them."""
                if not any(isinstance(x, TENSORS) for x in inputs):
                    return own(self, ufunc, method, *inputs, **options)
                plain = (x.view(np.ndarray) if isinstance(x, kind) else x for x in inputs)
                return getattr(ufunc, method)(*plain, **options)

            kind.__array_ufunc__ = array_ufunc
        super().__setitem__(kind, maker)


class Box(ValueBox, metaclass=OfTraced):
    """A traced value; subclass it for values of a class of your own, and register that class.

    :param value, trace, node: A value of the class, and the arguments of `new_box`.
    :ivar type_mappings: The class, or maker, of boxes by the class of the value.
    """

    kinds: ClassVar[tuple[type, ...]] = TRACED
    types: ClassVar[set[type]] = set()
    type_mappings: ClassVar[dict[type, Fun]] = _Makers()

    def __init__(self, value: Pytree, trace: int, node: Any) -> None:
        if type(node) is not VJPNode:
            received = f"a {type(node).__name__} for a value of class {type(value).__name__}"
            fix = "Differentiate with respect to it in reverse mode: grad or make_vjp."
            raise TypeError(message("new_box", received, "a root VJPNode", fix))
        self._value = value
        self._entry = _entered(BOX, tensor_of(value), node) if node._is_root else node._held

    @property
    def _node(self) -> Any:
        return VJPNode._of(self._entry)

    @property
    def _trace(self) -> int:
        return _trace_of(self._entry)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __str__(self) -> str:
        return f"{type(self).__name__} of {self._value}"

    @classmethod
    def register(cls, value_type: type) -> None:
        """Declare that values of a type are traced, as boxes of this class."""
        Box.types.add(cls)
        Box.type_mappings[value_type] = cls
        Box.type_mappings[cls] = cls


class ArrayBox(Box):
    """Stands for traced tensors and duals in `isinstance`; their plain value is ``x._value``."""

    kinds = TENSORS


for _array in (np.ndarray, float, complex, np.float64, np.float32, np.complex128, np.complex64):
    ArrayBox.register(_array)


# Values of one's own classes


class Element:
    """A value of a user class as an element of an object array, so that a sweep can add it up."""

    __slots__ = ("value",)

    def __init__(self, value: Pytree) -> None:
        self.value = value

    def __add__(self, other: Pytree) -> Element:
        return Element(self.space.add(self.value, other.value))

    def __mul__(self, other: Pytree) -> float:
        """Return a number that is not NaN: a sweep looks for NaN in the square."""
        return 0.0

    @property
    def space(self) -> Any:
        from tapegraph.autograd.numpy.numpy_vspaces import vspace  # which needs this module

        return vspace(self.value)


def maker_of(x: Pytree) -> Any:
    """Return the entry of `Box.type_mappings` for a value, or None if tensors are its boxes."""
    maker = Box.type_mappings.get(type(x))
    return None if "kinds" in getattr(maker, "__dict__", ()) else maker


def box_class(x: Pytree) -> Any:
    maker = maker_of(x)
    return maker if isinstance(maker, OfTraced) else None


def tensor_of(x: Pytree) -> Pytree:
    """Return the tensor behind a value of a user class; return other values unchanged."""
    if isinstance(x, ValueBox):
        return x._entry
    return x if box_class(x) is None else as_leaf(element_array(x))


def element_array(value: Pytree) -> Pytree:
    array = np.empty(1, object)
    array[0] = Element(getval(value))
    return array


def opened(x: Pytree) -> Pytree:
    """Return the user's value that an object array holds; return other arrays unchanged."""
    if x.dtype.kind != "O":
        return x
    if not isbox(x):
        return (x._array if type(x) is Tensor else x)[0].value
    value = x._array[0].value
    return box_class(value)(value, -1, VJPNode._of(x))


def gradient_of(x: Pytree, target: Any) -> Pytree:
    """Return the gradient of a target in autograd's convention, or as a value of a user class."""
    if target.dtype.kind != "O":
        return conj(x)
    element = (x._array if type(x) is Tensor else x)[0]
    # A sweep's zeros do not know their vector space.
    return opened(x) if type(element) is Element else target._array[0].space.zeros()


# Nodes


class Node:
    """A place in a graph: a `VJPNode`, a `JVPNode`, or a node that `trace` makes."""

    def __init__(self, *args: Pytree, **kwargs: object) -> None:
        name = type(self).__name__
        fix = f"Write {name}.new_root() to begin a graph, and box._node for the node of a box."
        raise TypeError(sentence(name, f"only the tape makes nodes. {fix}"))

    @classmethod
    def new_root(cls, *args: Pytree, **kwargs: object) -> Any:
        root = cls.__new__(cls)
        root.initialize_root(*args, **kwargs)
        return root

    def initialize_root(self, *args: Pytree, **kwargs: Any) -> None:
        """Take the arguments of `new_root`; a subclass defines this."""


class VJPNode(Node):
    """The node of a traced value in reverse mode."""

    # Of a root what `new_box` made, or None before; of another the tensor.
    _held: Any = None
    _level = -1
    _is_root = True

    @classmethod
    def _of(cls, tensor: object) -> VJPNode:
        entry = tape_entry(tensor)
        if entry._op is BOX:
            return entry._saved
        node = cls.__new__(cls)
        node._held, node._is_root = tensor, False
        return node

    def __eq__(self, other: object) -> bool:
        return self is other or (type(other) is VJPNode and self._key() == other._key())

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> int:
        return id(self) if self._is_root else id(tape_entry(self._held))


class JVPNode(Node):
    """Names forward mode for `register_notrace`."""


class TraceStack:
    """The number of open traces; `new_trace` opens one."""

    def __init__(self) -> None:
        self.top = -1

    @contextmanager
    def new_trace(self) -> Iterator[int]:
        self.top += 1
        try:
            yield self.top
        finally:
            self.top -= 1


trace_stack = TraceStack()


def new_box(value: Pytree, trace: int, node: Node) -> Pytree:
    """Return a value as a traced one, the start of a graph.

    :param value: A number, an array, a traced value of an outer trace, or tuples, lists and dicts
        of them.
    :param trace, node: The ``_trace`` of boxes computed from it; ``VJPNode.new_root()``, unused.
    :returns: A box, or the structure of boxes, which has ``_trace`` and ``_node`` too.
    :raises TypeError: The node is of another class, or the value is not numeric.
    :raises ValueError: The node is in use already.

    >>> x = new_box(2.0, 0, VJPNode.new_root())
    >>> print(backward_pass(1.0, (x * np.exp(x))._node).round(3))
    22.167
    """
    if type(node) is not VJPNode or not node._is_root:
        fix = "The tape makes its own nodes; begin with VJPNode.new_root()."
        raise TypeError(message("new_box", f"a {type(node).__name__}", "a root VJPNode", fix))
    if node._held is not None:
        raise ValueError(message("new_box", "a node that has a box", "VJPNode.new_root()"))
    found = [_begun(x, path, trace, node) for path, x in leaves(value, "the value")]
    inside = replaced(value, iter(found))
    if isinstance(value, CONTAINERS):
        if type(inside) not in _BOXED:
            received = f"a {type(inside).__name__}"
            raise TypeError(message("new_box", received, "a tuple, list, dict or array"))
        inside = _BOXED[type(inside)](inside)
        inside._node = node
    node._held = None  # a maker of one's own may have set it to a part
    return _held(inside, trace, node)


def _held(box: Pytree, trace: int, node: VJPNode) -> Pytree:
    if node._held is None:
        node._level, node._held = trace, box
    return box


def backward_pass(g: Cotangent, end_node: VJPNode) -> Pytree:
    """Return the cotangent of the innermost box with an open trace, for one of a result's node.

    :raises TypeError: The node is no VJPNode, or its value does not depend on a box of `new_box`.
    """
    if type(end_node) is not VJPNode:
        expected = "the _node of a traced result"
        raise TypeError(message("backward_pass", kind_of(end_node), expected))
    root = _root(end_node)
    if root is None:
        fix = "Trace it from new_box(x, 0, VJPNode.new_root()), or use make_vjp."
        received = "the node of a result that depends on no box"
        raise TypeError(message("backward_pass", received, "one that depends on a box", fix))
    if end_node == root:
        return g
    seed = direction("backward_pass", g, "g", end_node._held)
    targets = _begun_at(root)
    found = map(gradient_of, Pullback(end_node._held, targets)(conj(seed)), targets)
    return replaced(root._held, (_after(x, root) for x in found))


def trace(start_node: Node, fun: Fun, x: Pytree) -> tuple[Pytree, Pytree]:
    """Return a function's value at a point and its node, None, with a warning, for a constant."""
    if not isinstance(start_node, VJPNode):
        end, last = trace(VJPNode.new_root(), fun, x)
        return end, None if last is None else _as_own_nodes(last, start_node)
    with trace_stack.new_trace() as level:
        end = fun(new_box(x, level, start_node))
    if isbox(end) and _root(VJPNode._of(tensor_of(end))) == start_node:
        value = Pullback(tensor_of(end), _begun_at(start_node)).value
        return _after(opened(value), start_node), end._node
    warn(f"{INDEPENDENT}: trace gives no node", UserWarning)
    return end, None


def _as_own_nodes(last: VJPNode, start: Node) -> Node:
    """Return a node of the start's class for a traced value, with a node for each entry before."""
    nodes: dict[Any, Node] = {}
    last_root = _root(last)
    for x in sorted(ancestors(last._held), key=RECORDED_AT):
        parents = {i: nodes[part] for i, part in enumerate(x._inputs) if part in nodes}
        if x._op is BOX and x._saved is last_root:
            nodes[x] = start
        elif x._op is RESHAPE and parents and x.shape == x._inputs[0].shape:
            nodes[x] = parents[0]  # the same value, in another place on the tape
        elif parents:
            args = tuple(number(getattr(handle_of(part), "_array", part)) for part in x._inputs)
            given = number(value_of(x)), _function_of(x._op), args, dict(x._attrs)
            nodes[x] = type(start)(*given, [*parents], [*parents.values()])
    return nodes[tape_entry(last._held)]


def _function_of(op: Op) -> Fun:
    if hasattr(np, op.name):
        return getattr(np, op.name)

    def function(*arrays: object, **attrs: object) -> Pytree:
        return op.forward(*arrays, **attrs)

    function.__name__ = op.name
    return function


def _root(node: VJPNode) -> VJPNode | None:
    """Return the latest of the roots that a node's value belongs to."""
    if node._is_root:
        return node
    before = list(ancestors(node._held))
    ended = {x._saved for x in before if x._op is AFTER}
    open_ones = (x for x in before if x._op is BOX and x._saved not in ended)
    newest = max(open_ones, key=lambda x: x._seq, default=None)
    return None if newest is None else newest._saved


def _begun_at(root: Any) -> list[Pytree]:
    return [tensor_of(x) for _, x in leaves(root._held)]


def _after(x: Pytree, root: Node) -> Pytree:
    """Return a result outside its trace: plain, unless an outer derivative flows through it."""
    return opened(_entered(AFTER, tensor_of(x), root)) if isbox(x) else unboxed(x)


def _entered(op: Op, x: Pytree, root: Node | None) -> Pytree:
    return recorder().result(op, x._array.copy("K"), (x,), NO_ATTRS, root)


def _begun(x: Pytree, path: str, trace: int, node: VJPNode, as_array: bool = False) -> Pytree:
    maker = maker_of(x)
    if maker is not None and not as_array:
        return maker(x, trace, node)
    x = lifted("new_box", x, path)
    if type(x) is Dual:
        received = f"a value of forward mode for {path}"
        raise TypeError(message("new_box", received, "plain values", "Use make_vjp."))
    return _entered(BOX, x, node)


class _Boxed:
    _node: Any = None

    @property
    def _trace(self) -> int:
        return self._node._level if self._node else -1


_BOXED: dict[type, Any] = {
    kind: type(f"Boxed{kind.__name__.title()}", (_Boxed, kind), {}) for kind in (tuple, list, dict)
}


def _trace_of(x: Pytree) -> int:
    """Return the number of the trace that a box belongs to; -1 if no `new_box` began it."""
    if type(x) is Dual:
        return x.tag
    root = _root(VJPNode._of(x))
    return -1 if root is None else root._level


def _node_of(x: Pytree) -> VJPNode:
    if not isbox(x):
        raise AttributeError("_node: received a constant; expected a traced value")
    return VJPNode._of(x)


# The inputs of the call whose rule runs on values of an outer derivative.
READ_BY_RULE: Setting[tuple[Pytree, ...]] = Setting("read by rule", ())


def left(x: Pytree) -> Pytree:
    """Return a value outside the trace of its call, as rules receive it."""
    return _entered(AFTER, x, None) if type(x) is Tensor and isbox(x) else x


def _value_of(x: Pytree) -> Pytree:
    """Return the value of a box: inside a rule one level down, elsewhere plain."""
    inputs = READ_BY_RULE.value()
    return left(x) if inputs and reaches(x, inputs) else x.numpy()[()]


def reaches(x: Pytree, inputs: tuple[Pytree, ...]) -> bool:
    """Return whether a value was computed from inputs of a call and is still inside it."""
    entries = list(map(tape_entry, inputs))
    wanted, since = set(map(id, entries)), min(entry._seq for entry in entries)

    def before(node: Any) -> tuple[Pytree, ...]:
        inside = isinstance(node, nodes.Node) and node._op is not AFTER and node._seq > since
        return node._inputs if inside else ()

    return any(id(node) in wanted for node in ancestors(x, before))


def _identity(
    needs: list[bool], g: Cotangent, y: Pytree, x: Pytree, *, saved: object
) -> list[Pytree]:
    return [g]


# Where a trace begins, and where something that was computed in it leaves it.
BOX = Op("autograd box", saves=True, rules=Rules(_identity, None, None, _identity))
AFTER = Op("autograd box after", saves=True, rules=Rules(_identity, None, None, _identity))
# By these names autograd's boxes have them; the core knows nothing of nodes.
for _kind, _name, _get in (
    (Tensor, "_node", _node_of),
    (Tensor, "_trace", _trace_of),
    (Dual, "_trace", _trace_of),
    (Tensor, "_value", _value_of),
):
    setattr(_kind, _name, property(_get))
