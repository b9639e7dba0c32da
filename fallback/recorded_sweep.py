"""The reverse sweep on Tensors: gradients are results like any other, and differentiable.

A tangent rule is linear in its tangents and a gradient rule in the cotangent, and both use recorded
operations: the derivative of either with respect to that variable is its transpose, recorded.
"""

# ruff: noqa: D102 - what `Arrays` says of a part of the arithmetic holds of those that replace it

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from tapegraph.differentiation.gradients import Region
from tapegraph.differentiation.jvps import added
from tapegraph.fallback.rules import JointVJP, Row, Rule, StrongTensor, as_tensor, recorded_row
from tapegraph.fallback.sweep import Arrays, fitted
from tapegraph.ops.elementwise import conj, real
from tapegraph.ops.shape import alias, stack
from tapegraph.recording.node import as_leaf
from tapegraph.recording.numpy_functions import innermost
from tapegraph.recording.op import DEFINED, Op
from tapegraph.recording.program import Recording
from tapegraph.recording.record import apply, outputs_of
from tapegraph.recording.scopes import recorder
from tapegraph.recording.values import handle_of
from tapegraph.recording.watchers import WATCHING, Watcher, unwatched
from tapegraph.tensors.batched import Batched, at_level, leaf_of_examples, levels_of, up_to
from tapegraph.tensors.dual import Dual, dual_of
from tapegraph.tensors.dual import parts as parts_of


def recorded_gradients(
    recording: Recording, seeds: Sequence[object], strong: type[StrongTensors] | None = None
) -> list[Any]:
    """Return the gradients of the wanted slots as Tensors, given a Tensor per output.

    A captured program cannot test for NaN: its zeros are strong from the first sweep on. So they
    are with watchers, which would otherwise see infinite slopes that a zero absorbs.
    """
    strong = strong or StrongTensors
    watchers = WATCHING.value()
    with np.errstate(all="ignore"):
        if watchers:
            with unwatched():
                return strong(recording, watchers).swept(seeds)
        if recorder().records(*recording.nodes):
            return strong(recording).swept(seeds)
        grads = Tensors(recording).swept(seeds)
        if any(np.isnan(innermost(g)._array).any() for g in grads):
            grads = strong(recording).swept(seeds)
    return grads


class Tensors(Arrays):
    """The arithmetic of Tensors: the sweep's operations are recorded."""

    def row(self, slot: int) -> Row:
        op = self.program.ops[slot]
        rules = op.rules
        if rules is not None and rules.recorded is None:
            if not recorder().flows:
                return JointVJP(partial(_on_arrays, op))
            if rules.jvp is not None:
                return transposed_jvp(rules.jvp)
        try:
            return recorded_row(op)
        except NotImplementedError as error:
            described = self.recording.describe(slot)
            raise NotImplementedError(f"gradients: {error} ({described})") from None

    def takes_saved(self, op: Op) -> bool:
        return op.saves and op.rules is not None

    def parts(self, slot: int, g: object) -> Iterator[tuple[int, Any]]:
        rules = self.program.ops[slot].rules
        if rules is None or rules.batch is not None or type(g) is not Batched:
            return super().parts(slot, g)
        return self._one_by_one(slot, g)

    def _one_by_one(self, slot: int, g: Batched) -> Iterator[tuple[int, Any]]:
        with up_to(g.tag - 1):
            rows = [[*super(Tensors, self).parts(slot, row)] for row in g.inner]
        for same in zip(*rows, strict=True):
            i = same[0][0]
            yield i, Batched(stack([self.fitted(i, part) for _, part in same]), g.tag)

    def operand(self, slot: int) -> Any:
        node = self.recording.nodes[slot]
        return self.recording.values[slot] if node is None else handle_of(node)

    def result(self, slot: int) -> Any:
        y = self.operand(slot)
        return outputs_of(y) if self.program.ops[slot].several else y

    def fitted(self, slot: int, part: object) -> Any:
        part = as_tensor(part)
        if isinstance(part, np.ndarray):  # of a user's rule that depends on nothing recorded
            part = as_leaf(part)
        return super().fitted(slot, part)

    def total(self, slot: int, held: Any, part: Any) -> Any:
        return held + part

    def zeros(self, slot: int) -> Any:
        return as_leaf(np.zeros(self.program.shapes[slot], self.program.dtypes[slot]))


class StrongTensors(Tensors):
    """The arithmetic of Tensors with strong zeros."""

    def cotangent(self, slot: int, g: object) -> Any:
        return g if self.program.ops[slot].rules is not None else StrongTensor(g)  # of ours alone

    def notify(self, watcher: Watcher, slot: int, part: object, grad: object) -> None:
        given, found = (getattr(innermost(as_tensor(x)), "_array", x) for x in (part, grad))
        watcher.added(self.recording, self._by, slot, given, found, strong=True)


class TangentTensors(StrongTensors):
    """The same for tangents: zeros of a local derivative are strong too."""

    def operand(self, slot: int) -> Any:
        return _strong(super().operand(slot))

    def result(self, slot: int) -> Any:
        y = super().result(slot)
        return tuple(map(_strong, y)) if self.program.ops[slot].several else y


def _on_arrays(
    op: Op, needs: list[bool], g: object, y: object, *inputs: object, **attrs: object
) -> list[Any]:
    given = {"needs": tuple(needs), "attrs": tuple(attrs.items())}
    found = iter(apply(_gradient_of(op), (g, y, *inputs), given))
    return [next(found) if needed else None for needed in needs]


@cache
def _gradient_of(op: Op) -> Op:
    """Return a user's rule for arrays as an operation, which no gradient flows through."""
    rules: Any = op.rules

    def forward(*given: object, needs: tuple[bool, ...], attrs: tuple[Any, ...]) -> Any:
        grads = rules.vjp(list(needs), *given, **dict(attrs))
        found = zip(needs, given[2:], grads, strict=True)
        return tuple(
            np.zeros_like(x) if part is None else getattr(part, "dense", lambda part=part: part)()
            for needed, x, part in found
            if needed
        )

    name = f"gradient of {op.name}"
    DEFINED.pop(name, None)  # of an operation that this one has replaced
    return Op(name, forward, several=True, differentiable=(), takes_complex=True, rules=rules)


def _strong(operand: object) -> Any:
    floats = hasattr(operand, "dtype") and operand.dtype.kind in "fc"
    return StrongTensor(operand) if floats else operand


def transposed_vjp(op: Op, tag: int) -> Rule:
    """Return the tangent rule of an operation at a level of forward mode."""
    row = recorded_row(op)

    def jvp(tangents: tuple[object, ...], y: Any, *inputs: Any, **attrs: Any) -> Any:
        ys = y if op.several else (y,)
        levels, wider = None, levels_of(*ys, *inputs, *tangents)
        while wider != levels:  # a user's rule that differentiates gives every level's examples
            levels = wider
            leaves = [leaf_of_examples(np.ones(x.shape, x.dtype), levels) for x in ys]
            g = [g for g, _ in leaves] if op.several else leaves[0][0]
            if isinstance(row, JointVJP):
                with up_to(tag):  # a derivative in a user's rule spreads values to each level
                    parts = row.rule([t is not None for t in tangents], g, y, *inputs, **attrs)
            else:
                parts = [
                    None if rule is None or t is None else rule(g, y, *inputs, **attrs)
                    for rule, t in zip(row, tangents, strict=False)
                ]
            wider = levels_of(*ys, *inputs, *tangents, *parts)
        totals = [None] * len(leaves)
        for x, t, part in zip(inputs, tangents, parts, strict=False):
            if t is not None and part is not None:
                back = fitted(part, x.shape, x.dtype)
                totals = [
                    added(total, _pulled_back(back, leaf, t))
                    for total, (_, leaf) in zip(totals, leaves, strict=True)
                ]
        return tuple(totals) if op.several else totals[0]

    return jvp


def _pulled_back(part: Any, g: object, t: Any) -> Any:
    """Return the derivative with respect to ``g`` of ``part`` times ``t``; None for zero."""
    tag = max((x.tag for x in (part, t) if type(x) in (Batched, Dual)), default=None)
    level = next((level for level in recorder().levels if level.tag == tag), None)
    if level is not None:
        found = _pulled_back(at_level(part, level).inner, g, at_level(t, level).inner)
        return None if found is None else Batched(found, level.tag)
    if tag is None:
        region = Region([part], [g])
        if not region.wanted:
            return None
        # A sweep carries conjugates; another one runs inside it here.
        if t.dtype.kind == "c":
            t = conj(t)
        (found,) = recorded_gradients(region.recording, [t], TangentTensors)
        return conj(found) if found.dtype.kind == "c" else found
    (part, moved), (t, turned) = parts_of(part, tag), parts_of(t, tag)
    primal = _pulled_back(part, g, t)
    tangent = None if moved is None else _pulled_back(moved, g, t)
    if turned is not None:
        tangent = added(tangent, _pulled_back(part, g, turned))
    if tangent is None:
        return primal
    if primal is None:
        primal = as_leaf(np.zeros(tangent.shape, tangent.dtype))
    return dual_of(primal, tangent, tag)


def transposed_jvp(jvp: Rule) -> JointVJP:
    def vjp(needs: list[bool], g: Any, y: Any, *inputs: Any, **attrs: Any) -> list[Any]:
        # Of ones: rules may skip products with a zero tangent.
        tangents = tuple(
            alias(as_leaf(np.ones(x.shape, x.dtype))) if needed else None
            for needed, x in zip(needs, inputs, strict=True)
        )
        tangent = jvp(tangents, y, *inputs, **attrs)
        if tangent is None:
            return [None] * len(inputs)
        if y.dtype.kind != "c":
            tangent = real(tangent)
        if tangent.shape != y.shape or tangent.dtype != y.dtype:
            tangent = tangent + as_leaf(np.zeros(y.shape, y.dtype))
        targets = [t for t in tangents if t is not None]
        # A sweep carries conjugates; another one runs inside it here.
        found = iter(Region([tangent], targets).gradients([conj(g)], record=True))
        return [None if t is None else conj(next(found)) for t in tangents]

    return JointVJP(vjp)
