"""Inner programs run on cotangents, tangents and examples, for the rules of loops.

A rule traces a function that calls one of these, as a body's derivative does. `Replay(body)`, or
another function of tensors, runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np

from tapegraph.arrays.row_sparse import conjugated
from tapegraph.differentiation.gradients import Region
from tapegraph.recording.node import as_leaf, next_seq
from tapegraph.tensors.batched import Batched, Level, at_level, entered
from tapegraph.tensors.dual import dual_of, parts
from tapegraph.transforms.levels import next_tag


class OfTensors(Protocol):
    """A function of tensors that gives several."""

    def __call__(self, /, *tensors: object) -> Sequence[Any]: ...


def cotangents(
    run: OfTensors, inputs: Sequence[object], seeds: Mapping[int, object], wanted: Sequence[int]
) -> list[Any]:
    """Return the cotangents of wanted leaf inputs, given those of some outputs, as in a sweep."""
    start = next_seq()
    outs = run(*inputs)
    given = {i: seed for i, seed in seeds.items() if outs[i].requires_grad}
    targets = [inputs[i] for i in wanted]
    region = Region([outs[i] for i in given], targets, since=start)
    grads = region.gradients(list(map(conjugated, given.values())), record=True)
    return [
        zeros(x) if grad is None else conjugated(grad)
        for grad, x in zip(grads, targets, strict=True)
    ]


def tangents(
    run: OfTensors, inputs: Sequence[object], moving: Mapping[int, object]
) -> tuple[list[Any], list[Any]]:
    """Return the outputs and their tangents, given those of some inputs; None is zero."""
    tag = next_tag()
    outs = run(*(dual_of(x, moving[i], tag) if i in moving else x for i, x in enumerate(inputs)))
    pairs = [parts(x, tag) for x in outs]
    return [x for x, _ in pairs], [tangent for _, tangent in pairs]


def examples(
    run: OfTensors, inputs: Sequence[object], batched: Sequence[bool], size: int
) -> tuple[list[Any], list[bool]]:
    """Return the outputs of all examples, along the first axis, and which of them differ."""
    level = Level(next_tag(), size, "error")
    with entered(level):
        given = zip(inputs, batched, strict=True)
        outs = run(*(Batched(x, level.tag) if b else x for x, b in given))
        differ = [type(x) is Batched and x.tag == level.tag for x in outs]
        return [at_level(x, level).inner for x in outs], differ


def taker(values: Sequence[object]) -> Callable[[int], list[Any]]:
    """Return a function that takes the next values, as many as it is asked for."""
    left = iter(values)
    return lambda count: list(islice(left, count))


def zeros(x: Any) -> Any:
    return as_leaf(np.zeros(x.shape, x.dtype))


def zeros_where(
    needs: Sequence[bool], inputs: Sequence[Any], like: Callable[[Any], Any] = zeros
) -> list[Any]:
    """Return zero gradients for the inputs that need one, and None for the others."""
    pairs = zip(needs, inputs, strict=True)
    return [like(x) if need and x.dtype.kind in "fc" else None for need, x in pairs]
