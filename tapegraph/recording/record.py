"""Recording: run an operation in NumPy now, and hand its result to the recorder: the hot path.

`unary` and `binary` make the functions of element-wise operations; `apply` serves all others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, TypeVar

import numpy as np

from tapegraph.arrays import check_broadcast
from tapegraph.errors import kind_of, message, user_line
from tapegraph.numpy_warnings import watched
from tapegraph.recording import node as nodes
from tapegraph.recording import numpy_functions
from tapegraph.recording.node import as_leaf, is_weak, numeric
from tapegraph.recording.op import ALL, KEEPS_ALL, NO_ATTRS, PART, Attrs, Op, OpKind, Outputs
from tapegraph.recording.scopes import RECORDER
from tapegraph.recording.values import restore
from tapegraph.recording.watchers import OTHERS, computed
from tapegraph.typed import Array, DType, Fun

F = TypeVar("F", bound=Fun)
_ndarray = np.ndarray
# Bound once: each lookup saved here is paid by every recorded operation.
_recorder = RECORDER.get
_wraps_arrays = numpy_functions.wraps_arrays
_SCALARS = (float, int, bool)
_PLAIN = frozenset({*_SCALARS, _ndarray, np.float64})
_SHAPE, _INDEX = OpKind.SHAPE, OpKind.INDEX
# The recording functions of element-wise operations, by the operation's name.
ELEMENTWISE: dict[str, Fun] = {}


def operand(op: str, value: Any, argument: str) -> Any:
    """Convert a user's value to a recorded object, a foreign one or a weak Python scalar."""
    cls = type(value)
    if cls is nodes.tensor_class or cls in _SCALARS or hasattr(cls, "__tapegraph_apply__"):
        return value
    if cls is nodes.remote_class:
        restore(value)
        return value
    if value is None:
        raise TypeError(message(op, f"{kind_of(value)} for {argument!r}", "numbers"))
    return as_leaf(numeric(value, op, argument))


def tensor_like(op: str, value: object, argument: str = "x") -> Any:
    """Return a recorded or foreign object unchanged, and anything else as a constant tensor."""
    cls = nodes.tensor_class
    if type(value) is cls:
        return value
    if type(value) is _ndarray:
        return as_leaf(numeric(value, op, argument))
    handler = foreign((value,))
    if handler is not None:
        # A scalar engine has no axes; its handler says that the operation is not for it.
        return value if hasattr(value, "ndim") else handler(op, (value,), NO_ATTRS)
    value = operand(op, value, argument)
    return value if type(value) is cls else as_leaf(np.asarray(value))


def floating(op: str, value: object, argument: str = "x") -> Any:
    """Return a tensor; integers and bools become float64."""
    x = tensor_like(op, value, argument)
    return x if x.dtype.kind in "fc" else x * 1.0


def of_one_dtype(op: str, values: Sequence[Any], argument: str) -> list[Any]:
    """Return tensors; Python numbers take the dtype that all have together."""
    parts = [x if is_weak(x) else tensor_like(op, x, argument) for x in values]
    dtypes = [getattr(x, "dtype", x) for x in parts]
    common = np.result_type(*dtypes) if dtypes else None
    return [as_leaf(watched(op, np.asarray, x, common)) if is_weak(x) else x for x in parts]


def beside(op: str, value: Any, argument: str, other: Any) -> Any:
    """Return an operand; a Python complex number takes the precision of the other one."""
    if type(value) is not complex:
        return operand(op, value, argument)
    like = getattr(other, "dtype", other if type(other) in _SCALARS else None)
    return as_leaf(np.array(value, np.result_type(value, 0 if like is None else like)))


def is_complex(*values: object) -> bool:
    return any(
        getattr(getattr(value, "dtype", None), "kind", None) == "c" or type(value) is complex
        for value in values
    )


def real_only(op: str) -> TypeError:
    fix = "Take x.real, x.imag or tg.abs(x) first."
    return TypeError(message(op, "complex numbers", "real numbers", fix))


def keep_parts(op: str, what: str, given: DType, wanted: DType) -> None:
    """Raise if complex numbers stand where real ones are wanted: a part would be lost."""
    if given.kind == "c" and wanted.kind != "c":
        received = f"{what} of dtype {given} for {wanted}, which would drop the imaginary part"
        raise TypeError(message(op, received, "real numbers", "Take its .real."))


def as_dtype(op: str, array: Array, dtype: DType) -> Array:
    keep_parts(op, "data", array.dtype, dtype)
    return array.astype(dtype, copy=False)


def foreign(values: tuple[object, ...]) -> Any:
    """Return the handler of the first value that brings its own arithmetic, or None.

    It is a class's ``__tapegraph_apply__``; of dual levels the deepest one's. In the body of a loop
    values of outer levels are constants.
    """
    cls = nodes.tensor_class
    found, level = None, -1
    for value in values:
        if type(value) is not cls:
            handler = getattr(type(value), "__tapegraph_apply__", None)
            if handler is not None and getattr(value, "tag", 0) > level:
                found, level = handler, getattr(value, "tag", 0)
    if found is not None:
        body = _recorder().body
        if body is not None and any(map(body.is_outer, values)) and level < body.level:
            return body.apply
    return found


def unary(
    name: str, forward: Callable[[Any], Any], *, takes_complex: bool = False
) -> Callable[[F], F]:
    """Make the recording function of an element-wise operation of one array, from a docstring."""
    op = Op(name, _wide(forward), kind=OpKind.ELEMENTWISE, takes_complex=takes_complex)

    def decorate(stub: object) -> Any:
        def record(x: Any, /) -> Any:
            cls = nodes.tensor_class
            if type(x) is not cls:
                handler = foreign((x,))
                if handler is not None:
                    return handler(name, (x,), NO_ATTRS)
                x = operand(name, x, "x")
                if type(x) is not cls:
                    x = as_leaf(np.asarray(x))
            try:
                out = forward(x._array) if not OTHERS else computed(op, (x._array,))
            except RuntimeWarning:
                out = watched(name, op.forward, x._array)
            except TypeError:
                if x._array.dtype.kind == "c":  # NumPy refuses it
                    raise real_only(name) from None
                raise
            if type(out) is not _ndarray:
                out = np.asarray(out)
            if not takes_complex and out.dtype.kind == "c":
                raise real_only(name)
            if not x._requires_grad and out.dtype.char == "e":  # of small integers
                out = np.asarray(op.forward(x._array))
            here = _recorder()
            if not (x._requires_grad and here.flows):
                return here.constant(op, out, (x,), NO_ATTRS)
            return here.result(op, out, (x,))

        return _registered(name, forward, record, stub)

    return decorate


def _wide(forward: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a forward that takes small integers as float64 where NumPy answers in float16."""

    @functools.wraps(forward)
    def run(x: Any) -> Any:
        if x.dtype.itemsize == 1 and forward(np.empty(0, x.dtype)).dtype.char == "e":
            x = x.astype(np.float64)
        return forward(x)

    return run


def binary(
    name: str,
    forward: Callable[[Any, Any], Any],
    ufunc: np.ufunc | None = None,
    *,
    takes_complex: bool = False,
) -> Callable[[F], F]:
    """Make the recording function of an element-wise operation of two broadcast arrays."""
    op = Op(name, forward, kind=OpKind.ELEMENTWISE, takes_complex=takes_complex, reads=(ALL, ALL))
    called = forward if ufunc is None else ufunc

    def decorate(stub: object) -> Any:
        def record(x1: Any, x2: Any, /) -> Any:
            cls = nodes.tensor_class
            if type(x1) is cls:
                x, needs_x1, needs_x2 = x1._array, x1._requires_grad, False
                if type(x2) is cls:
                    y, needs_x2 = x2._array, x2._requires_grad
                elif type(x2) is float or type(x2) is int:
                    y = x2
                else:
                    handler = foreign((x2,))
                    if handler is not None:
                        return handler(name, (x1, x2), NO_ATTRS)
                    if type(x2) is not _ndarray and _wraps_arrays(x2):
                        return called(x1, x2)
                    x2 = beside(name, x2, "x2", x1)
                    y = x2
                    if type(x2) is cls:
                        y, needs_x2 = x2._array, x2._requires_grad
            elif type(x2) is cls and (type(x1) is float or type(x1) is int):
                x, needs_x1, y, needs_x2 = x1, False, x2._array, x2._requires_grad
            else:
                if type(x1) not in _PLAIN and (_wraps_arrays(x1) or _wraps_arrays(x2)):
                    return called(x1, x2)
                handler = foreign((x1, x2))
                if handler is not None:
                    return handler(name, (x1, x2), NO_ATTRS)
                if type(x1) is complex or type(x2) is complex:
                    x1, x2 = beside(name, x1, "x1", x2), beside(name, x2, "x2", x1)
                else:
                    x1, x2 = operand(name, x1, "x1"), operand(name, x2, "x2")
                if type(x1) is not cls and type(x2) is not cls:
                    x1 = as_leaf(np.asarray(x1))
                x, needs_x1 = (x1._array, x1._requires_grad) if type(x1) is cls else (x1, False)
                y, needs_x2 = (x2._array, x2._requires_grad) if type(x2) is cls else (x2, False)
            try:
                out = forward(x, y) if not OTHERS else computed(op, (x, y))
            except RuntimeWarning:
                out = watched(name, forward, x, y)
            except (TypeError, ValueError, OverflowError) as error:
                wide = _widened(name, x1, x2)
                if wide is None:
                    raise _refused(name, x, y, error) from error
                return record(*wide)
            if type(out) is not _ndarray:
                out = np.asarray(out)
            if not takes_complex and out.dtype.kind == "c":
                raise real_only(name)
            here = _recorder()
            if not ((needs_x1 or needs_x2) and here.flows):
                return here.constant(op, out, (x1, x2), NO_ATTRS)
            if here.keeps_all:
                keeps, keeps_x, keeps_y = KEEPS_ALL
            elif needs_x1:
                keeps, keeps_x, keeps_y = op.keeps[2 if needs_x2 else 0]
            else:
                keeps, keeps_x, keeps_y = op.keeps[1]
            if type(x1) is cls and x1._entry is not None:
                x1 = x1._entry
                if keeps_x:
                    x1._array = x
            if type(x2) is cls and x2._entry is not None:
                x2 = x2._entry
                if keeps_y:
                    x2._array = y
            return here.result(op, out, (x1, x2), NO_ATTRS, None, keeps)

        return _registered(name, called, record, stub)

    return decorate


def apply(op: Op, inputs: tuple[Any, ...], attrs: Attrs = NO_ATTRS) -> Any:
    """Run an operation on results of `operand`, and record it; several outputs are a tuple."""
    cls = nodes.tensor_class
    arrays = []
    for x in inputs:
        if type(x) is cls:
            arrays.append(x._array)
        elif hasattr(type(x), "__tapegraph_apply__"):
            return foreign(inputs)(op.name, inputs, attrs)
        else:
            arrays.append(restore(x) if type(x) is nodes.remote_class else x)
    if not op.takes_complex:
        for array in arrays:
            if type(array) is _ndarray and array.dtype.kind == "c":
                raise real_only(op.name)
    try:
        out = computed(op, tuple(arrays), attrs) if OTHERS else op.forward(*arrays, **attrs)
    except RuntimeWarning:
        out = watched(op.name, op.forward, *arrays, **attrs)
    saved = None
    if op.saves:
        out, saved = out
    if op.several:
        out = Outputs(map(np.asarray, out))
    elif type(out) is not _ndarray:
        out = np.asarray(out)
    here, flows = _recorder(), op.differentiable
    for x in inputs if flows is None else compress(inputs, flows):
        if type(x) is cls and x._requires_grad:
            if here.flows:
                node = here.result(op, out, inputs, attrs, saved)
                if op.kind is _SHAPE or op.kind is _INDEX:
                    base = out.base
                    if base is not None and (base is arrays[0] or base is arrays[0].base):
                        node._base = inputs[0]  # which holds the same memory
                return outputs_of(node) if op.several else node
            break
    node = here.constant(op, out, inputs, attrs)
    return outputs_of(node) if op.several else node


def outputs_of(node: Any) -> tuple[Any, ...]:
    here, parts = _recorder(), []
    for i, array in enumerate(node._array):
        flows = node._requires_grad and array.dtype.kind in "fc" and here.flows
        record = here.result if flows else here.constant
        parts.append(record(PART, array, (node,), {"output": i}))
    return tuple(parts)


def _registered(name: str, forward: Any, record: Any, stub: object) -> Any:
    # Not `functools.wraps`, whose ``__wrapped__`` would lead to the stub.
    for attribute in functools.WRAPPER_ASSIGNMENTS:
        setattr(record, attribute, getattr(stub, attribute))
    ELEMENTWISE[name] = record
    if isinstance(forward, np.ufunc):
        numpy_functions.implements(forward)(record)
    return record


def _widened(name: str, a: object, b: object) -> tuple[Any, Any] | None:
    """Return operands with a Python integer beyond 64 bits as a float, or None without one."""
    if not any(type(v) is int and not -(2**63) <= v < 2**63 for v in (a, b)):
        return None
    try:
        first, second = (float(v) if type(v) is int else v for v in (a, b))
    except OverflowError:
        received = "an integer beyond the range of float64"
        raise OverflowError(message(name, received, "a number of at most 1.8e308")) from None
    return first, second


def _refused(name: str, x: Any, y: Any, error: Exception) -> Exception:
    if isinstance(error, TypeError) and is_complex(x, y):
        return real_only(name)
    if isinstance(error, ValueError):  # else of an integer to a negative power
        check_broadcast(name, np.shape(x), np.shape(y))
    kind = next(kind for kind in (ValueError, OverflowError, TypeError) if isinstance(error, kind))
    return kind(f"{name}: {error} (at {user_line()})")
