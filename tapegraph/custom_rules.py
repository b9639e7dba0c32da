"""`custom_vjp` and `custom_jvp`: the user's own derivatives for functions of tensors.

A call leaves one entry, of the results, the arguments, and the tensors that the backward reads. Its
gradient runs the user's backward on the residuals; where it is recorded, on those of a second run
of the forward. In a captured step the backward is an inner program.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from tapegraph.batching import BatchedCall
from tapegraph.engines import registry
from tapegraph.errors import check_callable, message
from tapegraph.loops.body import traced
from tapegraph.pytree import HOLE, filled, leaves, mapped, matched, with_holes
from tapegraph.random import Repeated
from tapegraph.recording.node import as_leaf
from tapegraph.recording.op import Op, Rules
from tapegraph.recording.program import SubProgram
from tapegraph.recording.record import apply, tensor_like
from tapegraph.recording.scopes import no_grad, recorder
from tapegraph.row_sparse import conjugated
from tapegraph.tensors.batched import Batched, entered_again, of_all_examples, of_one_example, up_to
from tapegraph.tensors.dual import Dual
from tapegraph.tensors.tensor import Tensor
from tapegraph.transforms.levels import next_tag, stop_gradient
from tapegraph.transforms.reverse import ones_along, vjp
from tapegraph.typed import Fun

Rule = Fun


class _Custom:
    """A function with its own rule, called in its place."""

    def __init__(self, f: Fun, nondiff_argnums: Sequence[int] = ()) -> None:
        self._op = type(self).__name__
        check_callable(self._op, f)
        functools.update_wrapper(self, f)  # type: ignore[arg-type]
        self._f = f
        self._fixed = tuple(nondiff_argnums)
        self._defaults = getattr(f, "__defaults__", None)

    def _arguments(self, args: tuple[object, ...], kwargs: dict[str, object]) -> list[Any]:
        if not kwargs and not self._defaults:
            return list(args)
        bound = inspect.signature(self._f).bind(*args, **kwargs)
        bound.apply_defaults()
        return list(bound.args)

    def _called(self, args: Sequence[object], forward: Rule, backward: Rule) -> Any:
        places = [i for i in range(len(args)) if i not in self._fixed]
        if not any(_flows(x) for i in places for _, x in leaves(args[i])):
            return self._f(*args)
        fixed = [args[i] for i in self._fixed]
        return _Call(
            self._op, args, places, forward, functools.partial(backward, *fixed)
        ).recorded()


class custom_vjp(_Custom):  # noqa: N801 - it is called like a function
    """A function of tensors whose gradient is a rule of yours; also a decorator.

    :param f: Takes numbers, arrays, tensors, and dicts, lists and tuples of them; returns such.
    :param nondiff_argnums: Positions of other arguments, or of those without a gradient. The
        backward takes them first.

    Give it its rule by ``f.defvjp(forward, backward)``:

    - ``forward(*args)`` returns a pair: the result of ``f``, and a tree of residuals.
    - ``backward(residuals, cotangent)`` takes the tree, and a cotangent in the result's structure;
      it returns a tuple with the gradient of each argument, in its structure, or None for zero.

    Both are written with operations on tensors; the backward runs once per call, on tensors without
    numbers. Gradients of any order, `jvp` and `vmap` follow from it.

    :raises TypeError: ``f`` or a rule is not callable; ``forward`` returns no pair, ``backward`` no
        tuple with a part for each argument.
    :raises RuntimeError: There is no rule, or a gradient flows to a tensor that is not an argument.
    :raises ValueError: A gradient differs from its argument in structure or shape.

    >>> @tg.custom_vjp
    ... def log1pexp(x):
    ...     return tg.log(1.0 + tg.exp(x))
    >>> def forward(x):
    ...     return log1pexp(x), x
    >>> def backward(x, g):
    ...     return (g * (1.0 - 1.0 / (1.0 + tg.exp(x))),)
    >>> log1pexp.defvjp(forward, backward)
    >>> tg.grad(log1pexp)(100.0)
    1.0
    """

    _rule: tuple[Rule, Rule] | None = None

    def defvjp(self, forward: Rule, backward: Rule) -> None:
        """Set the rule: two functions, as the class describes them."""
        check_callable("custom_vjp", forward, "forward")
        check_callable("custom_vjp", backward, "backward")
        self._rule = forward, backward

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if self._rule is None:
            name = getattr(self, "__name__", "f")
            text = f"custom_vjp: {name} has no rule. Write {name}.defvjp(forward, backward)."
            raise RuntimeError(text)
        return self._called(self._arguments(args, kwargs), *self._rule)


class custom_jvp(_Custom):  # noqa: N801 - it is called like a function
    """A function of tensors whose tangent is a rule of yours; also a decorator.

    :param f: Takes numbers, arrays, tensors, and dicts, lists and tuples of them; returns such.
    :param nondiff_argnums: Positions of other arguments, or of those without a tangent. The rule
        takes them first.

    Give it its rule by ``f.defjvp(rule)``: ``rule(primals, tangents)`` takes two tuples, and
    returns the result and its tangent, which is linear in the tangents. It is written with
    operations on tensors. The gradient is its transpose; derivatives of any order, and
    `vmap`, follow.

    :raises TypeError: ``f`` or the rule is not callable, or the rule returns no pair.
    :raises RuntimeError: There is no rule, or a gradient flows to a tensor that is not an argument.

    >>> @tg.custom_jvp
    ... def safe_sqrt(x):
    ...     return tg.sqrt(x)
    >>> @safe_sqrt.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     y = safe_sqrt(x)
    ...     return y, t * 0.5 / tg.maximum(y, 1e-3)
    >>> tg.grad(safe_sqrt)(0.0)
    500.0
    """

    _rule: Rule | None = None

    def defjvp(self, rule: Rule) -> Rule:
        """Set the rule, as the class describes it, and return it; also a decorator."""
        check_callable("custom_jvp", rule, "rule")
        self._rule = rule
        return rule

    def defjvps(self, *rules: Rule | None) -> None:
        """Set a rule per argument, whose tangents are added; None if an argument has no tangent.

        :param *rules: Each takes the tangent, the result, and all arguments.

        >>> product = tg.custom_jvp(lambda x, y: x * y)
        >>> product.defjvps(lambda t, z, x, y: t * y, lambda t, z, x, y: x * t)
        >>> tg.grad(product)(2.0, 3.0)
        3.0
        """

        def rule(primals: tuple[object, ...], tangents: tuple[object, ...]) -> tuple[Any, Any]:
            y = self(*primals)
            parts = [
                one(t, y, *primals)
                for one, t in zip(rules, tangents, strict=True)
                if one is not None
            ]
            return y, functools.reduce(lambda a, b: a + b, parts, 0.0 * y)

        self.defjvp(rule)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        rule = self._rule
        if rule is None:
            name = getattr(self, "__name__", "f")
            raise RuntimeError(f"custom_jvp: {name} has no rule. Write {name}.defjvp(rule).")
        given = self._arguments(args, kwargs)
        places = [i for i in range(len(given)) if i not in self._fixed]

        def forward(*args: object) -> tuple[Any, Any]:
            return self._f(*args), tuple(args[i] for i in places)

        def backward(*given: Any) -> Any:
            *fixed, primals, g = given

            def tangent(*tangents: object) -> Any:
                out = rule(*fixed, primals, tangents)
                return _pair("custom_jvp", out, "a rule", "result and tangent")[1]

            anywhere = (mapped(ones_along, x) for x in primals)
            _, transposed = vjp(tangent, *anywhere)
            found = transposed(g)
            return found if len(primals) > 1 else (found,)

        return self._called(given, forward, backward)


def _pair(op: str, found: object, by: str, parts: str) -> tuple[Any, Any]:
    if not isinstance(found, tuple) or len(found) != 2:
        received = f"{by} that returns a {type(found).__name__}"
        raise TypeError(message(op, received, f"a pair: {parts}"))
    return found


def _is_tensor(x: object) -> bool:
    return isinstance(x, (Tensor, Dual, Batched))


def _flows(x: Any) -> bool:
    return _is_tensor(x) and bool(x.requires_grad)


def _is_numeric(x: object) -> bool:
    return isinstance(x, np.ndarray) or _is_tensor(x)


class _Call:
    """One call of a function with a rule, in whose arguments a derivative flows."""

    def __init__(
        self, op: str, args: Sequence[object], places: list[int], forward: Rule, backward: Rule
    ) -> None:
        self.op = op
        self._places = places
        self._forward, self._backward = forward, backward
        self._draws = Repeated()
        self.given = [x for i in places for _, x in leaves(args[i]) if _is_tensor(x)]
        self._args = [with_holes(x, _is_tensor) if i in places else x for i, x in enumerate(args)]
        out, residuals = self._run(list(map(stop_gradient, self.given)))
        out = mapped(lambda x: tensor_like(op, x, "the result"), out)
        self.values = [x for _, x in leaves(out)]
        self.residuals = [
            tensor_like(op, stop_gradient(x), "a residual")
            for _, x in leaves(residuals)
            if _is_numeric(x)
        ]
        self._out, self._residuals = with_holes(out, _is_tensor), with_holes(residuals, _is_numeric)
        if any(map(_flows, self.values)):
            raise RuntimeError(
                f"{op}: the function closes over a tensor that needs a gradient, which its rule "
                "cannot give. Pass the tensor as an argument."
            )

    def recorded(self) -> Any:
        inputs = (*self.values, *self.given, *self.residuals)
        rule = _Rule(self.gradients, len(self.values), len(self.given))
        self.values = self.given = self.residuals = []  # the entry keeps the values it needs
        if recorder().capture is not None:
            inputs = (*inputs, *rule.trace(inputs))
        return filled(self._out, iter(apply(CUSTOM, inputs, rule.attrs())))

    def _run(self, given: Sequence[object]) -> tuple[Any, Any]:
        tensors = iter(given)
        with self._draws.run():
            found = self._forward(*(filled(x, tensors) for x in self._args))
        return _pair(self.op, found, "a forward", "the result, and residuals")

    def gradients(
        self, given: Sequence[object], residuals: Sequence[object] | None, g: Sequence[object]
    ) -> list[Any]:
        if residuals is None:
            again = self._run(given)[1]
        else:
            again = filled(self._residuals, iter(residuals))
        found = self._backward(again, filled(self._out, iter(g)))
        count = len(self._places)
        if not isinstance(found, tuple) or len(found) != count:
            several = f"a tuple of {len(found)}" if isinstance(found, tuple) else repr(type(found))
            expected = f"a tuple of {count}, a gradient for each argument"
            raise TypeError(message(self.op, f"{several} from the backward", expected))
        tensors = iter(given)
        return [
            self._fitted(grad, next(tensors), path)
            for i, part in zip(self._places, found, strict=True)
            for x, path, grad in self._along(part, self._args[i], f"argument {i}")
            if x is HOLE
        ]

    def _along(self, part: object, arg: object, path: str) -> Iterator[tuple[Any, str, Any]]:
        if part is None:
            yield from ((x, path, None) for _, x in leaves(arg))
            return
        pairs = matched(self.op, part, arg, f"the gradient of {path}", "the argument")
        for (_, x), (place, grad) in zip(leaves(arg), pairs, strict=True):
            yield x, place, grad

    def _fitted(self, grad: Any, x: Any, path: str) -> Any:
        if grad is None or x.dtype.kind not in "fc":
            return None
        grad = tensor_like(self.op, grad, path)
        if grad.shape != x.shape:
            received = f"shape {grad.shape} for {path}"
            raise ValueError(message(self.op, received, f"the argument's shape, {x.shape}"))
        return grad if x.dtype.kind == "c" or grad.dtype.kind != "c" else grad.real


class _Rule:
    """The gradient of an entry, as an attribute.

    :ivar results, given: The numbers of results, the first inputs, and of flows after them.
    :ivar backward: In a captured step an inner program, of the flows, the ``consts`` last inputs,
        residuals and cotangents; it gives the gradients marked ``present``.
    """

    def __init__(self, gradients: Callable[..., list[Any]], results: int, given: int) -> None:
        self.gradients = gradients
        self.results, self.given = results, given
        self.backward: SubProgram | None = None
        self.present: tuple[bool, ...] = (True,) * given
        self.consts = 0

    def attrs(self) -> dict[str, Any]:
        return {"rule": self, "backward": self.backward}

    def parts(self, inputs: Sequence[object]) -> tuple[Sequence[Any], Sequence[Any]]:
        stop = self.results + self.given
        return inputs[self.results : stop], inputs[stop:]

    def trace(self, inputs: Sequence[object]) -> list[Any]:
        """Make the backward an inner program; return the further tensors that it reads."""
        given, residuals = self.parts(inputs)
        reads = (*given, *residuals, *inputs[: self.results])

        def backward(*leaves_: object) -> list[Any]:
            flowing, rest = leaves_[: len(given)], leaves_[len(given) :]
            kept = rest[: len(residuals)]
            return self.gradients(flowing, kept, rest[len(residuals) :])

        found = traced("custom_vjp", backward, list, reads, repeat(False))
        self.backward = found.body
        self.present = tuple(x is not None for x in found.form)
        self.consts = len(found.consts)
        return found.consts

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, _Rule) or self.backward is None:
            return self is other
        return bool(self._key() == other._key())

    def __hash__(self) -> int:
        return id(self) if self.backward is None else hash(self._key())

    def _key(self) -> Any:
        return self.backward, self.results, self.given, self.present, self.consts

    def __repr__(self) -> str:
        return f"<{self.given} gradients>"


def _forward(*inputs: object, rule: _Rule, **attrs: object) -> tuple[Any, ...]:
    return tuple(np.array(x) for x in inputs[: rule.results])


def _vjp(
    needs: Sequence[bool],
    g: Sequence[Any],
    y: Sequence[Any],
    *inputs: object,
    rule: _Rule,
    **attrs: object,
) -> list[Any]:
    arrays = list(map(np.asarray, inputs))
    seeds = [
        np.zeros(x.shape, x.dtype) if s is None else conjugated(np.asarray(s))
        for s, x in zip(g, y, strict=True)
    ]
    given, reads = rule.parts(arrays)
    if rule.backward is None:
        with no_grad(), up_to(0):
            found = rule.gradients(*(list(map(as_leaf, x)) for x in (given, reads, seeds)))
        parts = [None if x is None else x._array for x in found]
    else:
        kept = len(reads) - rule.consts
        given = [*reads[kept:], *given, *reads[:kept], *seeds]
        with registry.engine(registry.NATIVE).inner(rule.backward).forward(given) as run:
            grads = iter(list(map(np.array, run(given))))
        parts = [next(grads) if present else None for present in rule.present]
    return _of_inputs(parts, needs, rule)


def _recorded(
    needs: Sequence[bool],
    g: Sequence[Any],
    y: Sequence[Any],
    *inputs: object,
    rule: _Rule,
    **attrs: object,
) -> list[Any]:
    seeds = [
        as_leaf(np.zeros(x.shape, x.dtype)) if s is None else conjugated(s)
        for s, x in zip(g, y, strict=True)
    ]
    return _of_inputs(rule.gradients(rule.parts(inputs)[0], None, seeds), needs, rule)


def _of_inputs(found: Sequence[object], needs: Sequence[bool], rule: _Rule) -> list[Any]:
    """Return a gradient per input of the entry, as sweeps carry them."""
    grads = [None] * len(needs)
    for i, x in enumerate(found, rule.results):
        if needs[i] and x is not None:
            grads[i] = conjugated(x)
    return grads


def _batch(call: BatchedCall) -> tuple[Any, ...]:
    """Return the examples; the broadcast of a shared argument sums its gradients."""
    rule: _Rule = call.attrs["rule"]
    stop = rule.results + rule.given
    xs = [call.spread(i) if i < stop else x for i, x in enumerate(call.xs)]
    flags = call.batched[stop:]

    def gradients(
        given: Sequence[object], residuals: Sequence[object] | None, g: Sequence[object]
    ) -> list[Any]:
        # In a program inside a program values of outer levels are constants: it is a new one there.
        body = recorder().body
        tag = call.tag if body is None or call.tag > body.level else next_tag()
        with entered_again(tag, call.size) as level:
            wrapped = [[of_one_example(x, level) for x in xs] for xs in (given, g)]
            kept = residuals
            if residuals is not None:
                pairs = zip(residuals, flags, strict=False)
                kept = [of_one_example(x, level) if differs else x for x, differs in pairs]
            found = rule.gradients(wrapped[0], kept, wrapped[1])
            return [None if x is None else of_all_examples(x, level) for x in found]

    of_all = _Rule(gradients, rule.results, rule.given)
    if recorder().capture is not None:
        consts = of_all.trace(xs)
        if any(isinstance(x, Batched) and x.tag == call.tag for x in consts):
            raise RuntimeError(
                "custom_vjp: the backward closes over a value that differs among the examples of "
                "vmap. Pass the value to the function as an argument."
            )
        xs += consts
    return tuple(apply(CUSTOM, tuple(xs), of_all.attrs()))


_RULES = Rules(_vjp, None, None, _recorded, _batch)
CUSTOM = Op("custom_vjp", _forward, several=True, takes_complex=True, rules=_RULES)
