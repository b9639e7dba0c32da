"""Derivatives that no program can hold beforehand: they are recorded anew in every run.

The entry ``at_run_time``: its inputs are tensors, its attribute ``of`` says what is computed from
them, as recorded operations. Its derivatives are such entries too. It runs natively alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context
from typing import Any, NamedTuple

import numpy as np

from tapegraph.arrays import conjugated, quietly
from tapegraph.batching import BatchedCall
from tapegraph.engines.backend import use_backend
from tapegraph.loops.body import examples, tangents, zeros
from tapegraph.pytree import exchanged
from tapegraph.recording.node import as_leaf
from tapegraph.recording.op import Op, Rules
from tapegraph.recording.record import apply
from tapegraph.recording.scopes import RECORDING, Scope
from tapegraph.transforms.reverse import vjp
from tapegraph.typed import Fun


class Anew(NamedTuple):
    """A function of tensors that gives a list of them: ``rule(*of, *tensors)``."""

    rule: Fun
    of: tuple[Any, ...]

    def __call__(self, *tensors: object) -> Sequence[Any]:
        return self.rule(*self.of, *tensors)


def at_run_time(of: Anew, *inputs: object) -> Sequence[Any]:
    return apply(AT_RUN_TIME, inputs, {"of": of})


def pulled(needs: Sequence[bool], g: Sequence[Any], y: object, *inputs: Any, of: Anew) -> list[Any]:
    """Record the cotangents of inputs, given those of outputs, as what is computed in every run."""
    wanted = tuple(i for i, x in enumerate(inputs) if needs[i] and x.dtype.kind in "fc")
    seeded = tuple(i for i, x in enumerate(g) if x is not None)
    grads: list[Any] = [None] * len(inputs)
    if wanted and seeded:
        pull = Anew(_pulled, (of, wanted, seeded))
        found = at_run_time(pull, *inputs, *(g[i] for i in seeded))
        for i, grad in zip(wanted, found, strict=True):
            grads[i] = grad
    return grads


def _pulled(
    of: Anew, wanted: Sequence[int], seeded: Sequence[int], *tensors: object
) -> Sequence[Any]:
    inputs, seeds = tensors[: -len(seeded)], tensors[-len(seeded) :]

    def f(*points: object) -> list[Any]:
        outs = of(*exchanged(inputs, wanted, points))
        return [outs[i] for i in seeded]

    _, pullback = vjp(f, *(inputs[i] for i in wanted))
    grads = pullback(list(map(conjugated, seeds)))  # which a sweep carries
    return list(map(conjugated, grads if len(wanted) > 1 else (grads,)))


def _moved(of: Anew, moving: Sequence[int], *tensors: object) -> Sequence[Any]:
    inputs, given = tensors[: -len(moving)], tensors[-len(moving) :]
    outs, found = tangents(of.__call__, inputs, dict(zip(moving, given, strict=True)))
    return [zeros(x) if t is None else t for x, t in zip(outs, found, strict=True)]


def _of_examples(of: Anew, batched: Sequence[bool], size: int, *tensors: object) -> Sequence[Any]:
    return examples(of.__call__, tensors, batched, size)[0]


def _forward(*inputs: object, of: Anew) -> tuple[Any, ...]:
    def run() -> tuple[Any, ...]:
        with use_backend("native"), Scope(RECORDING, True):
            return tuple(np.array(x._array) for x in of(*(as_leaf(np.asarray(x)) for x in inputs)))

    return Context().run(quietly, run)  # outside of every capture


def _vjp(
    needs: Sequence[bool], g: Sequence[object], y: object, *inputs: object, of: Anew
) -> list[Any]:
    given = [None if x is None else as_leaf(np.asarray(x)) for x in g]
    leaves = (as_leaf(np.asarray(x)) for x in inputs)
    grads = Context().run(pulled, needs, given, None, *leaves, of=of)
    return [None if x is None else x._array for x in grads]


def _jvp(moving: Sequence[object], y: object, *inputs: object, of: Anew) -> Sequence[Any]:
    places = tuple(i for i, t in enumerate(moving) if t is not None)
    given = (t for t in moving if t is not None)
    return at_run_time(Anew(_moved, (of, places)), *inputs, *given)


def _batch(call: BatchedCall) -> Sequence[Any]:
    each = Anew(_of_examples, (call.attrs["of"], tuple(call.batched), call.size))
    return at_run_time(each, *call.xs)


AT_RUN_TIME = Op(
    "at_run_time",
    _forward,
    several=True,
    takes_complex=True,
    rules=Rules(_vjp, _jvp, None, pulled, _batch),
)
