"""The scalar engine: ``Value``, one number that remembers how it was computed, and ``vsum``.

A ``Value`` is its own tape entry: reference counts free a dropped graph at once. (A shared list
as a tape is 1.7 times as fast, but frees nothing while any handle on it lives.)
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from tapegraph.errors import ConcretizationError, message, sentence
from tapegraph.interrupts import Lock
from tapegraph.other_names import Elsewhere
from tapegraph.recording.lost_gradients import to_number
from tapegraph.recording.node import Node
from tapegraph.recording.scopes import RECORDING, recorder
from tapegraph.recording.watchers import WATCHING
from tapegraph.scalars.numbers import FLOATS, LOCAL_GRADS, SCALAR_OPS
from tapegraph.scalars.recorder import DATA, GRAD, NumberRecorder, recorder_of
from tapegraph.tensors.run_float import RunFloat

Number: TypeAlias = "float | np.floating[Any] | np.integer[Any] | np.bool_"

_new = object.__new__
# The mark of results of `no_grad` and compiled steps, until a sweep of another Value reaches them.
UNRECORDED = object()
_RULES = {op: (SCALAR_OPS[op].number, slopes) for op, slopes in LOCAL_GRADS.items()}
# Bound once for speed: the active `no_grad` blocks, usually none.
_entered = RECORDING.entered.get


def _reflected(op: str, compute: Callable[..., Value]) -> Callable[[Value, Number], Value]:
    def reflect(self: Value, other: Number) -> Value:
        number = _constant(op, other)
        return NotImplemented if number is None else compute(number, self)

    return reflect


def _operator(op: str) -> Callable[[Value, Value | Number], Value]:
    def operate(self: Value, other: Value | Number) -> Value:
        right = other if isinstance(other, Value) else _constant(op, other)
        return NotImplemented if right is None else _computed(op, self, right)

    return operate


def _comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Value, object], bool]:
    def compared(self: Value, other: object) -> bool:
        if _entered():
            _numbers().leaves("comparison", self, other)
        if isinstance(other, Value):
            return compare(self._data, other._data)
        number = other if isinstance(other, int) else _as_float(other)  # Python takes any integer
        return NotImplemented if number is None else compare(self._data, number)

    return compared


def _function(op: str, result: str, x: str, y: str) -> Callable[[Value], Value]:
    """Make the method of an operation on one Value, whose value at ``x`` is ``y``."""

    def function(self: Value) -> Value:
        return _computed(op, self)

    function.__name__, function.__qualname__ = op, f"Value.{op}"
    function.__doc__ = f"Return {result}.\n\n>>> tg.Value({x}).{op}().data\n{y}\n"
    return function


class Value:
    """A differentiable number.

    Arithmetic follows IEEE 754 as NumPy does: ``Value(1.0) / 0`` is inf, and nothing raises. Under
    ``tg.no_grad()`` results are leaves. Comparison is by value; hashing and the graph are by
    identity. NumPy's functions take no Value: write ``v.tanh()`` or ``tg.tanh(v)``.

    :param data: A number: Python's, NumPy's, a 0-d array or constant tensor; kept as a float.
    :param label: A name for people.
    :raises TypeError: ``data`` is not a number.

    >>> x = tg.Value(3.0, label="x")
    >>> y = x * x + 2 * x
    >>> y.backward()
    >>> y.data, x.grad
    (15.0, 8.0)
    """

    __slots__ = (
        "__weakref__",
        "_a",  # first operand, or None
        "_b",  # second operand, or None
        "_cot",  # d root / d self in the running sweep
        "_da",  # d self / d a
        "_data",
        "_db",  # d self / d b
        "_grad",
        "_label",  # set on leaves, and on results with a gradient
        "_many",  # operands of a sum; () on a leaf; unset where _a is set
        "_mark",  # token of the last sweep that reached it
        "_op",
        "_uses",  # edges of the running sweep that have yet to arrive
    )

    _a: Value | None
    _b: Value | None
    _cot: float
    _da: float
    _data: float
    _db: float
    _grad: float
    _label: str
    _many: tuple[Value, ...]
    _mark: object
    _op: str
    _uses: int

    _backward = Elsewhere("_backward", "v.local_grads, by which v.backward() multiplies")
    _children = Elsewhere("_children", "v.args")
    _prev = Elsewhere("_prev", "v.args")

    # NumPy scalars and arrays on the left then leave the operation to the methods below.
    __array_ufunc__ = None
    __pandas_priority__ = 10_000

    def __init__(self, data: Number, label: str = "") -> None:
        number = _as_float(data)
        if number is None or _entered():
            number = _numbers().leaf(self, data, number)
        if number is None:
            raise TypeError(_not_a_number("Value(data)", data))
        self._a = self._b = self._mark = None
        self._many = ()
        self._data = number
        self._grad = 0.0
        self._op = "leaf"
        self.label = label

    # -- a node's attributes -----------------------------------------------------------------

    @property
    def data(self) -> float:
        """The number; settable on a leaf, which does not affect graphs recorded before.

        :raises TypeError: The new value is not a number.
        :raises AttributeError: The Value is a result.
        """
        return _numbers().read(self, DATA) if _entered() else self._data

    @data.setter
    def data(self, data: Number) -> None:
        if self._op != "leaf":
            text = (
                f"{self!r} is the result of {self._op}, and only the data of a leaf can be set. "
                "Set the data of a leaf and compute again, or make a new leaf with Value(...)."
            )
            raise AttributeError(sentence("Value.data", text))
        _numbers().write(self, DATA, data)

    @property
    def grad(self) -> float:
        """The gradient summed over every ``backward()`` so far; 0.0 at first, settable.

        :raises TypeError: The new value is not a number.
        """
        return _numbers().read(self, GRAD) if _entered() else self._grad

    @grad.setter
    def grad(self, grad: Number) -> None:
        _numbers().write(self, GRAD, grad)

    @property
    def label(self) -> str:
        """A name for people, shown by ``repr``.

        :raises TypeError: The new value is not a str.
        """
        return getattr(self, "_label", "")

    @label.setter
    def label(self, label: str) -> None:
        if not isinstance(label, str):
            received = f"{type(label).__name__} {label!r}"
            fix = 'Write Value(2.0, label="x").'
            raise TypeError(message("Value(label)", received, "a str", fix))
        self._label = label

    @property
    def op(self) -> str:
        """The name of the operation that made this node, ``"leaf"`` if none did."""
        return self._op

    @property
    def args(self) -> tuple[Value, ...]:
        """The operands, in the order they were written; numbers appear as Values."""
        if self._a is None:
            return self._many
        return (self._a,) if self._b is None else (self._a, self._b)

    @property
    def local_grads(self) -> tuple[float, ...]:
        """The partial derivative with respect to each operand, as it was when recorded.

        >>> (tg.Value(3.0) * 2).local_grads
        (2.0, 3.0)
        """
        _numbers().leaves("Value.local_grads", self)
        if self._a is None:
            return (1.0,) * len(self._many)
        return (self._da,) if self._b is None else (self._da, self._db)

    # -- differentiation ---------------------------------------------------------------------

    def backward(self) -> None:
        """Add d self / d node to the ``grad`` of every node that self was computed from.

        Each call computes its own derivatives, so calling twice adds the same amounts twice. A
        zero derivative adds exactly zero even where a local derivative is inf or NaN.

        :raises RuntimeError: The Value is a result of `no_grad` or of a compiled step; or a signal
            handler or finaliser calls it inside a running one.

        >>> x, y = tg.Value(2.0), tg.Value(3.0)
        >>> (x * y + x).backward()
        >>> x.grad, y.grad
        (4.0, 2.0)
        """
        global _sweeping
        if self._mark is UNRECORDED:
            text = (
                f"{self!r} is a result of tg.no_grad() or of a compiled step, which keeps no "
                "history. Compute it outside the block, and call backward() inside the step."
            )
            raise RuntimeError(sentence("Value.backward", text))
        lock = _turn.held
        with lock:
            if _sweeping is lock:  # only this thread can see that: it holds the lock
                text = (
                    "a backward() is running in this thread, and a signal handler or finaliser "
                    "calls another. Call it after the first has returned."
                )
                raise RuntimeError(sentence("Value.backward", text))
            _sweeping = lock
            try:
                _numbers().backward(self)
            finally:
                _sweeping = None

    def zero_grad(self) -> None:
        """Set ``grad`` to 0.0."""
        _numbers().write(self, GRAD, 0.0)

    # -- arithmetic --------------------------------------------------------------------------

    def __add__(self, other: Value | Number) -> Value:
        if isinstance(other, Value):
            # _computed written out, here and in __mul__: a network is made of little else.
            out = _new(Value)
            out._a = self
            out._b = other
            out._da = 1.0
            out._data = self._data + other._data
            out._db = 1.0
            out._grad = 0.0
            out._mark = None
            out._op = "add"
            return _aside(out) if _entered() else out
        number = _constant("add", other)
        return NotImplemented if number is None else self + number

    def __mul__(self, other: Value | Number) -> Value:
        if isinstance(other, Value):
            x, y = self._data, other._data
            out = _new(Value)
            out._a = self
            out._b = other
            out._da = y
            out._data = x * y
            out._db = x
            out._grad = 0.0
            out._mark = None
            out._op = "mul"
            return _aside(out) if _entered() else out
        number = _constant("mul", other)
        return NotImplemented if number is None else self * number

    __sub__ = _operator("sub")
    __truediv__ = _operator("div")
    __pow__ = _operator("pow")

    __radd__ = _reflected("add", __add__)
    __rsub__ = _reflected("sub", __sub__)
    __rmul__ = _reflected("mul", __mul__)
    __rtruediv__ = _reflected("div", __truediv__)
    __rpow__ = _reflected("pow", __pow__)

    def __neg__(self) -> Value:
        return _computed("neg", self)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return self.abs()

    # -- functions ---------------------------------------------------------------------------

    exp = _function("exp", "e**x; derivative e**x", "0.0", "1.0")
    log = _function(
        "log", "the natural logarithm, -inf at 0 and NaN below; derivative 1/x", "1.0", "0.0"
    )
    sqrt = _function(
        "sqrt", "the square root, NaN below 0; derivative 1/(2 sqrt x), inf at 0", "9.0", "3.0"
    )
    sin = _function("sin", "the sine, x in radians; derivative cos x", "0.0", "0.0")
    cos = _function("cos", "the cosine, x in radians; derivative -sin x", "0.0", "1.0")
    tan = _function("tan", "the tangent, x in radians; derivative 1 + tan(x)**2", "0.0", "0.0")
    tanh = _function("tanh", "the hyperbolic tangent; derivative 1 - tanh(x)**2", "0.0", "0.0")
    sigmoid = _function("sigmoid", "1/(1 + e**-x); derivative s (1 - s)", "0.0", "0.5")
    relu = _function("relu", "max(x, 0); derivative 1 above 0, otherwise 0", "-2.0", "0.0")
    abs = _function("abs", "the absolute value; derivative the sign of x, 0 at 0", "-2.0", "2.0")

    # -- as a number -------------------------------------------------------------------------

    # Equality is by number, so hashing must not be: nodes differ by identity.
    __hash__ = object.__hash__

    __eq__ = _comparison(operator.eq)
    __ne__ = _comparison(operator.ne)
    __lt__ = _comparison(operator.lt)
    __le__ = _comparison(operator.le)
    __gt__ = _comparison(operator.gt)
    __ge__ = _comparison(operator.ge)

    def __bool__(self) -> bool:
        _numbers().leaves("bool", self)
        return self._data != 0

    def __float__(self) -> float:
        _numbers().leaves("float", self)
        to_number("Value", "float")
        return self._data

    def __int__(self) -> int:
        _numbers().leaves("int", self)
        to_number("Value", "int")
        return int(self._data)

    def __format__(self, spec: str) -> str:
        _numbers().leaves("format", self)
        return format(self._data, spec) if spec else repr(self)

    def __repr__(self) -> str:
        label = f", label={self.label!r}" if self.label else ""
        return f"Value(data={self._data!r}, grad={self._grad!r}{label})"

    if not TYPE_CHECKING:  # type checkers are to refuse it too

        def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
            # Without it, np.asarray(value) would be an object array that loses the gradient later.
            text = (
                f"an array would lose the gradient of {self!r}. Use .data for its number, tg.vsum "
                "for a sum of Values, or tg.param(array)."
            )
            raise TypeError(sentence("numpy.asarray", text))

    def __reduce__(self) -> Any:
        if self._op != "leaf":
            fix = "Pickle its leaves, or value.data."
            raise TypeError(message("pickle", f"a result of {self._op}", "a leaf", fix))
        _numbers().leaves("pickle", self)
        return Value, (self._data, self.label)

    # -- tapegraph's functions ---------------------------------------------------------------

    @staticmethod
    def __tapegraph_apply__(
        name: str, inputs: tuple[Value | Number, ...], attrs: Mapping[str, object]
    ) -> Value:
        """Apply the operation ``name``, as ``tg.exp(v)``, when an input is a Value."""
        rule = _OPERATIONS.get(name)
        if rule is None:
            hint = "Add Values up with tg.vsum(values). " if name == "sum" else ""
            known = ", ".join(_OPERATIONS)
            fix = f"{hint}Use tg.param(data) for arrays (on Values: {known})."
            raise TypeError(message(name, "a Value, which is a scalar", "a Tensor", fix))
        if attrs:
            received = f"the option {next(iter(attrs))!r} together with a Value"
            fix = "A Value is a scalar: use tg.param(data) for arrays."
            raise TypeError(message(name, received, "no option", fix))
        # Another type's operator may have led here, and must not be asked again.
        return rule(*[_operand(name, x) for x in inputs])


def vsum(values: Iterable[Value | Number]) -> Value:
    """Return the sum of any number of Values as one node; derivative 1 for each.

    :param values: Without any, the result is the constant 0.
    :returns: Value.
    :raises TypeError: An item is neither a Value nor a number.

    >>> tg.vsum([tg.Value(1.0), tg.Value(2.0)])
    Value(data=3.0, grad=0.0)
    """
    if isinstance(values, Value) or not isinstance(values, Iterable):
        kind = type(values).__name__
        raise TypeError(message("vsum", kind, "an iterable of Values", "Write vsum([a, b, c])."))
    operands = tuple([v if isinstance(v, Value) else _operand("sum", v) for v in values])
    if not operands:
        return Value(0.0)
    # Not by `sum`, which rounds otherwise from Python 3.12 on.
    out = _many("sum", operands, functools.reduce(operator.add, [v._data for v in operands], 0.0))
    return _aside(out) if _entered() else out


# -- recording -------------------------------------------------------------------------------


def _computed(op: str, a: Value, b: Value | None = None) -> Value:
    """Record an operation of one or two operands by its row in the tables of scalars."""
    compute, slopes = _RULES[op]
    out = _new(Value)
    out._a = a
    out._b = b
    x = a._data
    if b is None:
        out._data = data = compute(x)
        (out._da,) = slopes(FLOATS, data, x)
    else:
        y = b._data
        out._data = data = compute(x, y)
        out._da, out._db = slopes(FLOATS, data, x, y)
    out._grad = 0.0
    out._mark = None
    out._op = op
    return _aside(out) if _entered() else out


def _many(op: str, args: tuple[Value, ...], data: float) -> Value:
    out = _new(Value)
    out._a = out._b = out._mark = None
    out._many = args
    out._data = data
    out._grad = 0.0
    out._op = op
    return out


def _aside(out: Value) -> Value:
    """Return a result inside some scope: in a captured program, or a leaf without history."""
    op, args, data = out._op, out.args, out._data
    if not recorder().flows:
        out = _many("leaf", (), data)
        out._mark = UNRECORDED
    for watcher in WATCHING.value():
        watcher.result(op, args, data)
    _numbers().result(out, op, args, data)
    return out


def _as_float(x: object) -> float | None:
    if issubclass(type(x), float):  # and not a stand-in inside a step
        return float(x)  # type: ignore[arg-type]
    if isinstance(x, int):
        try:
            return float(x)
        except OverflowError:
            received = "an integer beyond the range of a float"
            raise OverflowError(message("Value", received, "at most 1.8e308")) from None
    if isinstance(x, Node) and not x._requires_grad and not recorder().records(x):
        x = x._array
    if isinstance(x, (np.generic, np.ndarray)) and x.ndim == 0 and x.dtype.kind in "biuf":
        return float(x)
    return None


class _Plain:
    """Values outside a captured program: they hold numbers."""

    def leaf(self, value: Value, data: object, number: float | None) -> float | None:
        """Return a new leaf's content, None if that is not a number."""
        return number

    def read(self, value: Value, name: str) -> Any:
        return getattr(value, name)

    def write(self, value: Value, name: str, data: object) -> None:
        number = _as_float(data)
        if number is None:
            raise TypeError(_not_a_number(f"Value.{name[1:]}", data))
        setattr(value, name, number)

    def leaves(self, what: str, *values: object) -> None:
        """Check that the numbers of Values may be read as plain ones."""

    def has(self, x: object) -> bool:
        """Return whether an object is one number of the program, without a gradient."""
        return False

    def result(self, out: Value, op: str, args: tuple[Value, ...], data: float) -> None:
        """Record the result of an operation."""

    def backward(self, root: Value) -> None:
        _sweep(root)


class _Captured(_Plain):
    """Values in a captured program: they refer to numbers that the program computes."""

    def __init__(self, recorder: NumberRecorder) -> None:
        self._recorder = recorder

    def leaf(self, value: Value, data: object, number: float | None) -> float | None:
        i = self._index(data, number)
        if i is None:
            return None
        self._recorder.enter(value, i)
        return self._recorder.number(i)

    def _index(self, data: Any, number: float | None) -> int | None:
        if number is not None:
            return self._recorder.constant(number)
        if type(data) is RunFloat and data.source is self._recorder:
            return data.place
        if not self.has(data):
            return None
        return self._recorder.element(data if isinstance(data, Node) else data.detach())

    def read(self, value: Value, name: str) -> Any:
        i = self._recorder.index(value, name)
        return RunFloat(self._recorder, i) if self._recorder.stays(i) else self._recorder.number(i)

    def write(self, value: Value, name: str, data: object) -> None:
        i = self._index(data, _as_float(data))
        if i is None:
            raise TypeError(_not_a_number(f"Value.{name[1:]}", data))
        self._recorder.assign(value, name, i)

    def leaves(self, what: str, *values: object) -> None:
        """Raise if a number that differs from run to run would be read."""
        for value in values:
            if isinstance(value, Value):
                i = self._recorder.index(value)
                if self._recorder.stays(i):
                    received = self._recorder.origin(i)
                    fix = "Return it and read it outside; relu() and abs() choose by a number."
                    raise ConcretizationError(message(what, received, "Values", fix))

    def has(self, x: object) -> bool:
        shape, needs = getattr(x, "shape", None), getattr(x, "requires_grad", True)
        return shape == () and not needs and hasattr(x, "detach")

    def result(self, out: Value, op: str, args: tuple[Value, ...], data: float) -> None:
        operands = tuple([self._recorder.index(x) for x in args])
        self._recorder.enter(out, self._recorder.computed(op, operands, data))

    def backward(self, root: Value) -> None:
        self._recorder.backward(root, _in_order(root))


_PLAIN = _Plain()


def _numbers() -> _Plain:
    """Return the behaviour of Values here: plain numbers, or numbers of a program."""
    capture = recorder().capture
    return _PLAIN if capture is None else _Captured(recorder_of(capture))


# NumPy's and Python's own messages would not help.
_NEVER_OPERANDS = (np.ndarray, np.generic, list, tuple, dict, set, str, bytes, complex, type(None))


def _constant(op: str, other: object) -> Value | None:
    """Return the operand ``other`` as a leaf, None to let its own type answer for it."""
    number = _as_float(other)
    if number is not None:
        return Value(number)
    if _numbers().has(other):
        return Value(other)  # type: ignore[arg-type]
    if isinstance(other, _NEVER_OPERANDS):
        raise TypeError(_not_a_number(op, other))
    return None


def _operand(op: str, x: object) -> Value:
    value = x if isinstance(x, Value) else _constant(op, x)
    if value is None:
        raise TypeError(_not_a_number(op, x))
    return value


def _not_a_number(where: str, received: object) -> str:
    kind = type(received).__name__
    if isinstance(received, Value):
        fix = "Use the Value itself, or its .data for a new leaf with the same number."
    elif hasattr(received, "shape") and not isinstance(received, np.generic):
        kind += f" of shape {received.shape}"
        fix = "A Value is a scalar: use tg.param(data) for arrays."
    elif isinstance(received, (list, tuple)):
        kind += f" of length {len(received)}"
        fix = "A Value is a scalar: use tg.param(data) for arrays."
    elif isinstance(received, (str, bytes)):
        kind += f" {received[:40]!r}"
        fix = "Convert it with float(...) first."
    else:
        fix = "Convert it to a float first."
    return message(where, kind, "a number or a Value", fix)


# -- the reverse sweep -----------------------------------------------------------------------


# One sweep at a time: a sweep keeps its notes on the nodes, which threads may share.
_turn = Lock()
_sweeping: Any = None  # the sweep's lock: a forked child has another


def _in_order(root: Value) -> list[Value]:
    """Return all that a root was computed from, in the order of `_sweep`."""
    uses = {id(root): 0}
    found = [root]
    for node in found:  # grows as it goes
        for arg in node.args:
            if id(arg) not in uses:
                uses[id(arg)] = 0
                found.append(arg)
            uses[id(arg)] += 1
    order, ready = [], [root]
    while ready:
        node = ready.pop()
        order.append(node)
        # Of two operands `_sweep` makes the first ready first.
        for arg in node.args:
            uses[id(arg)] -= 1
            if not uses[id(arg)]:
                ready.append(arg)
    return order


def _sweep(root: Value) -> None:
    """Add d root / d node to every node's grad: count the edges, sweep, then commit.

    A node is swept after all its uses. Marks are fresh for each sweep, so an interrupted one leaves
    nothing behind; one interrupted in the commit is committed.
    """
    mark = object()
    root._mark = mark
    nodes = [root]
    visit = nodes.append
    for node in nodes:  # grows as it goes
        b = node._b
        if b is not None:
            if b._mark is mark:
                b._uses += 1
            else:
                b._mark = mark
                b._uses = 1
                b._cot = 0.0
                visit(b)
        a = node._a
        if a is not None:
            if a._mark is mark:
                a._uses += 1
            else:
                a._mark = mark
                a._uses = 1
                a._cot = 0.0
                visit(a)
            continue
        for arg in node._many:
            if arg._mark is mark:
                arg._uses += 1
            else:
                arg._mark = mark
                arg._uses = 1
                arg._cot = 0.0
                visit(arg)

    root._cot = 1.0
    ready = [root]
    push, pop = ready.append, ready.pop
    while ready:
        node = pop()
        cot = node._cot
        b = node._b
        a = node._a
        if a is not None:
            if cot:  # zero stays zero, whatever the local derivative; NaN counts as true
                a._cot += node._da * cot
                if b is not None:
                    b._cot += node._db * cot
            a._uses = left = a._uses - 1
            if not left:
                push(a)
            if b is not None:
                b._uses = left = b._uses - 1
                if not left:
                    push(b)
            continue
        for arg in node._many:
            arg._cot += cot
            arg._uses = left = arg._uses - 1
            if not left:
                push(arg)

    if _entered():  # as where somebody looks on
        for watcher in WATCHING.value():
            watcher.swept([(node, node._cot) for node in nodes])
    rest = iter(nodes)
    try:
        _add_up(rest)
    except BaseException:  # a signal's, which came between two of them
        _add_up(rest)
        raise


def _add_up(left: Iterator[Value]) -> None:
    for node in left:
        # A first gradient is stored unchanged: adding to 0.0 would allocate one more float a node.
        node._grad = node._grad + node._cot if node._grad else node._cot


# -- the operations tg's functions may ask for -----------------------------------------------


def _gelu(x: Value) -> Value:
    """Return x Phi(x) in the tanh form: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))."""
    return 0.5 * x * (1.0 + (math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)).tanh())


_METHODS = "sin cos tan exp log sqrt tanh sigmoid relu abs".split()
_OPERATIONS: dict[str, Callable[..., Value]] = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "pow", "neg")},
    "div": operator.truediv,
    **{name: getattr(Value, name) for name in _METHODS},
    "gelu": _gelu,
    "silu": lambda x: x * x.sigmoid(),
}
