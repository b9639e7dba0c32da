"""`primitive`: record any Python function as one entry of the tape.

Its rules use `tapegraph.autograd.numpy`, so that they can be differentiated again.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import compress
from typing import Any, TypeVar, cast

import numpy as np

from tapegraph.autograd.boxes import (
    CONTAINERS,
    READ_BY_RULE,
    JVPNode,
    VJPNode,
    ancestors,
    box_class,
    element_array,
    fitted,
    holds_box,
    holds_tensor,
    left,
    marked,
    number,
    opened,
    tensor_of,
    without_constants,
)
from tapegraph.autograd.boxes import Box as Box
from tapegraph.autograd.boxes import Node as Node
from tapegraph.autograd.boxes import TraceStack as TraceStack
from tapegraph.autograd.boxes import getval as getval
from tapegraph.autograd.boxes import isbox as isbox
from tapegraph.autograd.boxes import new_box as new_box
from tapegraph.autograd.boxes import trace as trace
from tapegraph.autograd.boxes import trace_stack as trace_stack
from tapegraph.autograd.util import subvals as subvals
from tapegraph.errors import kind_of, message, sentence
from tapegraph.pytree import HOLE, cut, filled, leaves, mapped, matched, replaced
from tapegraph.recording.node import next_seq
from tapegraph.recording.op import NO_ATTRS, Op, Rules
from tapegraph.recording.record import tensor_like
from tapegraph.recording.scopes import Scope, recorder
from tapegraph.tensors.dual import Dual, parts, with_tangent
from tapegraph.tensors.tensor import Tensor
from tapegraph.typed import Cotangent, Fun, Pytree

Rule = Fun
F = TypeVar("F", bound=Fun)
# By the function that `primitive` returned: ``rule(argnums, ans, args, kwargs)`` gives a function
# of the cotangent, and ``rule(argnums, tangents, ans, args, kwargs)`` the tangent of the result.
primitive_vjps: dict[Any, Rule] = {}
primitive_jvps: dict[Any, Rule] = {}


def primitive(f_raw: F) -> F:
    """Make a function one operation, whose derivatives `defvjp` and `defjvp` define.

    :param f_raw: Takes and returns any Python values. With a traced argument, also inside lists,
        tuples and dicts, it receives plain values, and its result is traced.
    :raises NotImplementedError: In a derivative: no rule was defined for the function or argument.
    :raises TypeError: In a call: a traced keyword argument has no position in the signature, or the
        result cannot be differentiated.

    >>> from tapegraph.autograd import grad
    >>> from tapegraph.autograd.extend import defvjp, primitive
    >>> cube = primitive(lambda x: x * x * x)
    >>> defvjp(cube, lambda ans, x: lambda g: g * 3.0 * x**2)
    >>> print(grad(cube)(2.0), grad(grad(cube))(2.0))
    12.0 12.0
    """
    name = getattr(f_raw, "__name__", type(f_raw).__name__)
    entry = entry_of(name)

    @functools.wraps(f_raw)
    def wrapped(*args: Pytree, **kwargs: object) -> Pytree:
        if any(map(holds_tensor, args)) or holds_tensor(kwargs):
            return called(wrapped, f_raw, entry, args, kwargs)
        return f_raw(*args, **kwargs)

    wrapped.fun = f_raw  # type: ignore[attr-defined]
    return cast("F", wrapped)


def notrace_primitive(f_raw: F) -> F:
    """Make a function run on plain values, so that no derivative flows through it."""

    # Not `__type_params__`: that of `type` itself is a descriptor on Python 3.12, and refused.
    @functools.wraps(f_raw, assigned=("__module__", "__name__", "__qualname__", "__doc__"))
    def wrapped(*args: Pytree, **kwargs: object) -> Pytree:
        return _on_plain(f_raw, args, kwargs)

    wrapped.fun = f_raw  # type: ignore[attr-defined]
    return cast("F", wrapped)


def register_notrace(trace_type: type, primitive_fun: Fun) -> None:
    """Let a primitive run on plain values in reverse (``VJPNode``) or forward mode (``JVPNode``).

    :raises TypeError: The type is neither.
    """
    by_type: dict[type, Any] = {VJPNode: primitive_vjps, JVPNode: primitive_jvps}
    rules = by_type.get(trace_type)
    if rules is None:
        received = f"the class {trace_type.__name__}"
        raise TypeError(message("register_notrace", received, "VJPNode or JVPNode"))
    rules[primitive_fun] = _untraced


def _untraced(*_: object) -> Pytree:
    """Stand for a rule in a call that is not recorded."""


class SparseObject:
    """A gradient as a function ``mut_add``, which adds it in place to an array of ``vs``."""

    def __init__(self, vs: Any, mut_add: Fun) -> None:
        self.vs = vs
        self.mut_add = mut_add


# Calls


def undefined(kind: str, fun: Fun, where: str) -> NotImplementedError:
    name = name_of(fun)
    fix = f"Define it: def{kind.lower()}({name}, ...)."
    text = f"the function has no {kind} rule for {where}. {fix}"
    return NotImplementedError(sentence(name, text))


def name_of(fun: Fun) -> str:
    return getattr(fun, "__name__", repr(fun))


def entry_of(name: str) -> Op:
    """Return a primitive's operation, which saves the call; the rules are looked up later."""
    # Its name is no identifier, as those of the library's operations and of `tapegraph.defop` are.
    return Op(f"primitive {name}", saves=True, rules=Rules(_swept, None, None, _gradients))


def rules_for(args: tuple[Pytree, ...]) -> dict[Any, Rule]:
    """Return the JVP rules if an argument is a dual, else the VJP rules."""
    return primitive_jvps if any(type(x) is Dual for _, x in leaves(args)) else primitive_vjps


def called(
    fun: Fun, f_raw: Fun, entry: Op, args: tuple[Pytree, ...], kwargs: dict[str, object]
) -> Pytree:
    """Call a primitive with tensors or duals among its arguments."""
    if _untraced in (primitive_jvps.get(fun), primitive_vjps.get(fun)):
        if rules_for(args).get(fun) is _untraced:
            return _on_plain(f_raw, args, kwargs)
    if holds_box(kwargs):
        if not any(map(holds_box, args)):  # the function itself is differentiated then
            return f_raw(*args, **kwargs)
        with suppress(ValueError):  # of what is written in C, without a signature
            bound = inspect.signature(f_raw).bind(*args, **kwargs)
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        if holds_box(kwargs):
            fix = "Pass it by position, where rules can find it."
            raise TypeError(message(entry.name, "a traced keyword argument", "a plain one", fix))
    tags = [x.tag for _, x in leaves(args) if type(x) is Dual]
    if tags and recorder().flows:
        return _with_tangent(fun, max(tags), args, kwargs)
    start = next_seq()
    out = _on_plain(f_raw, args, kwargs)
    if not recorder().flows or not any(map(holds_box, args)):
        return out
    return _Call(fun, entry.name, args, kwargs, out, start).on_tape(entry)


def _on_plain(f_raw: Fun, args: tuple[Pytree, ...], kwargs: dict[str, object]) -> Pytree:
    return f_raw(*map(_plain, args), **{k: _plain(v) for k, v in kwargs.items()})


def _plain(x: Pytree) -> Pytree:
    """Return an argument without its levels; one that holds no tensor is the same object."""
    if isinstance(x, CONTAINERS):
        return mapped(getval, x) if holds_tensor(x) else x
    return getval(x)


def _with_tangent(
    fun: Fun, tag: int, args: tuple[Pytree, ...], kwargs: dict[str, object]
) -> Pytree:
    """Call a primitive on the values of a forward-mode level, and its rule on the tangents."""
    rule = primitive_jvps.get(fun)
    at_tag = [any(type(x) is Dual and x.tag == tag for _, x in leaves(arg)) for arg in args]
    duals = list(compress(range(len(args)), at_tag))
    if rule is None:
        raise undefined("JVP", fun, f"arguments {duals}")
    primals, tangents = list(args), []
    for i in duals:
        primals[i] = without_constants(mapped(lambda x: parts(x, tag)[0], args[i]))
        tangents.append(without_constants(mapped(lambda x: _tangent(x, tag), args[i])))
    ans = fun(*primals, **kwargs)
    tangent = rule(tuple(duals), tangents, ans, tuple(primals), kwargs)
    if tangent is None:
        return ans
    several = isinstance(ans, CONTAINERS)

    def moved(x: Pytree, t: Pytree) -> Pytree:
        whole = several and (t is None or np.asarray(getval(x)).dtype.kind not in "fc")
        return x if whole else _dual(name_of(fun), x, t, tag)

    form = mapped(lambda _: True, ans)
    along = matched(name_of(fun), fitted(tangent, form), form, "the tangent", "the result")
    pairs = zip(leaves(ans), along, strict=True)
    return replaced(ans, (moved(x, t) for (_, x), (_, t) in pairs))


def _tangent(x: Pytree, tag: int) -> Pytree:
    primal, tangent = parts(x, tag)
    return np.zeros(np.shape(primal)) if tangent is None else tangent


def _dual(name: str, primal: Pytree, tangent: Pytree, tag: int) -> Pytree:
    x, t = (tensor_like(name, _at_most_double(p), "a result") for p in (primal, tangent))
    if x.dtype.kind not in "fc":
        x = x * 1.0
    made = with_tangent(x, t, tag)
    if made.tangent.shape != x.shape:
        received = f"a tangent of shape {made.tangent.shape}"
        raise ValueError(message(name, received, f"the result's shape {x.shape}"))
    return made


def _at_most_double(x: Pytree) -> Pytree:
    """Return numbers of extended precision, which some of SciPy's functions give, in double."""
    kind = getattr(getattr(x, "dtype", None), "char", "")
    return x.astype({"g": np.float64, "G": np.complex128}[kind]) if kind in ("g", "G") else x


class _Call:
    """One recorded call of a primitive: arguments with holes for tensors, and the result's form."""

    def __init__(
        self, fun: Fun, name: str, args: Pytree, kwargs: Any, out: Pytree, start: int
    ) -> None:
        self._fun, self._name, self._kwargs, self._start = fun, name, kwargs, start
        boxes = [(i, x) for i, arg in enumerate(args) for _, x in leaves(arg) if isbox(x)]
        self.inputs = tuple(tensor_of(x) for _, x in boxes)
        self._argnums = [i for i, _ in boxes]  # where each of them stands
        self._args = [
            mapped(lambda leaf: HOLE if isbox(leaf) else getval(leaf), x)
            if holds_box(x)
            else _plain(x)
            for x in args
        ]
        self._form = out
        self._several = isinstance(out, CONTAINERS)
        self._arrays = [self._result(x) for _, x in leaves(out)]
        self._vjps: dict[tuple[int, ...], Rule] = {}

    def on_tape(self, entry: Op) -> Pytree:
        flat = [a for a in self._arrays if a is not None]
        if not self._several:
            packed = flat[0]
        elif flat:
            packed = np.concatenate([a.ravel() for a in flat])
        else:
            return self._form
        node = recorder().result(entry, packed, self.inputs, NO_ATTRS, self)
        return self._unpacked(node)

    def gradients(
        self, needs: Sequence[bool], g: Cotangent, y: Pytree, inputs: Pytree
    ) -> list[Pytree]:
        wanted = tuple(dict.fromkeys(compress(self._argnums, needs)))
        recorded = isinstance(g, Tensor)
        if recorded:  # an outer derivative flows through: the rule gets its traced values
            with Scope(READ_BY_RULE, self.inputs):
                vjp = self._rule(wanted, left(y), list(map(left, inputs)))
                found = list(vjp(without_constants(self._unpacked(left(g), zeros=True))))
        else:
            if wanted not in self._vjps:  # the same for every cotangent of the call
                self._vjps[wanted] = self._rule(wanted, y, inputs)
            found = list(self._vjps[wanted](self._unpacked(g, zeros=True)))
        rows: dict[int, Iterator[Pytree]] = {}
        for i, part in zip(wanted, found, strict=True):
            if isinstance(part, SparseObject):
                part = part.mut_add(part.vs.zeros())
            form = mapped(lambda x: x is HOLE, self._args[i])
            pairs = marked(self._name, part, form, "the gradient", f"argument {i}")
            rows[i] = iter([x for _, x in pairs])
        grads: list[Pytree] = []
        for argnum, needed, x in zip(self._argnums, needs, inputs, strict=True):
            grad = next(rows[argnum]) if argnum in rows else None
            missing = grad is None or not needed
            grads.append(None if missing else self._checked(argnum, grad, x.shape, recorded))
        return grads

    def _rule(self, wanted: tuple[int, ...], y: Pytree, inputs: Sequence[Pytree]) -> Rule:
        rule = primitive_vjps.get(self._fun)
        if rule is None:
            raise undefined("VJP", self._fun, f"arguments {list(wanted)}")
        return rule(wanted, self._unpacked(y), self._filled(inputs), self._kwargs)

    def _result(self, x: Pytree) -> Pytree:
        """Return a result as an array of floats; None if it has no derivative."""
        if isbox(x):
            self._check_reads_arguments(x)
            x = getval(x)
        if box_class(x) is not None:
            if self._several:
                received = (
                    f"a {type(self._form).__name__} with a {type(x).__name__} in it as a result"
                )
                raise TypeError(message(self._name, received, f"the {type(x).__name__} alone"))
            return element_array(x)
        if isinstance(x, (np.ndarray, np.generic, float, int, complex)):
            array = np.array(x)
            if array.dtype.kind in "fc":
                return _at_most_double(array)
            if array.dtype.kind in "biu" and not self._several:
                return array.astype(np.float64)
        if self._several:
            return None  # whole numbers beside floats are indices, and stay whole
        raise TypeError(message(self._name, f"the result {kind_of(x)}", "numbers"))

    def _check_reads_arguments(self, x: Pytree) -> None:
        """Raise if a result is traced but comes from no argument: no rule would reach it."""
        given = {id(getattr(x, "_entry", None) or x) for x in self.inputs}

        def is_beside(node: object) -> bool:
            flows = getattr(node, "_requires_grad", type(node) is Dual)
            return bool(flows) and id(node) not in given

        for node in ancestors(tensor_of(x), lambda node: node._inputs if is_beside(node) else ()):
            if is_beside(node) and (type(node) is Dual or node._seq <= self._start):
                text = "the result depends on a traced value that is no argument. Pass it as one."
                raise TypeError(sentence(self._name, text))

    def _unpacked(self, packed: Cotangent, zeros: bool = False) -> Pytree:
        """Return the tensors that `on_tape` joined, or their cotangents, in the result's form.

        Parts without a derivative are unchanged, or with ``zeros`` arrays of zeros.
        """
        if not self._several:
            return _opened(packed)
        pieces = cut(packed, (array.shape for array in self._arrays if array is not None))

        def part(x: Pytree, array: Pytree) -> Pytree:
            if array is None:
                return np.zeros_like(x) if zeros and isinstance(x, np.ndarray) else x
            piece = next(pieces)
            # A real array beside a complex one is real again.
            return number(np.real(piece) if array.dtype.kind == "f" else piece)

        pairs = zip(leaves(self._form), self._arrays, strict=True)
        return replaced(self._form, (part(x, array) for (_, x), array in pairs))

    def _filled(self, inputs: Sequence[Pytree]) -> tuple[Pytree, ...]:
        operands = map(_opened, inputs)
        return tuple(
            filled(argument, operands) if i in self._argnums else argument
            for i, argument in enumerate(self._args)
        )

    def _checked(self, argnum: int, grad: Pytree, shape: tuple[int, ...], recorded: bool) -> Pytree:
        """Return a gradient as an array or tensor that broadcasts from the input's shape."""
        if box_class(grad) is not None:
            if recorded:
                kind = type(getval(grad)).__name__
                text = f"a {kind} has no second derivative. Compute with arrays."
                raise NotImplementedError(sentence(self._name, text))
            return element_array(grad)
        grad = grad if recorded and isinstance(grad, Tensor) else np.asarray(getval(grad))
        if grad.dtype.kind not in "fcbiu":
            received = f"{kind_of(grad)} as the gradient for argument {argnum}"
            raise TypeError(message(self._name, received, "numbers"))
        try:
            common = np.broadcast_shapes(grad.shape, shape)
        except ValueError:
            received = f"a gradient of shape {grad.shape} for argument {argnum}"
            expected = f"the argument's shape {shape}"
            raise ValueError(message(self._name, received, expected)) from None
        return grad if common == grad.shape else np.broadcast_to(grad, common)


def _opened(x: Pytree) -> Pytree:
    x = opened(x)
    return x if isinstance(x, Tensor) else number(x)


def _gradients(needs: list[bool], g: Cotangent, y: Pytree, *inputs: Pytree, saved: _Call) -> Any:
    return saved.gradients(needs, g, y, inputs)


def _swept(needs: list[bool], g: Cotangent, *values: Pytree, saved: _Call) -> list[Pytree]:
    found = _gradients(needs, np.array(g), *values, saved=saved)
    return [None if x is None else np.array(x) for x in found]
