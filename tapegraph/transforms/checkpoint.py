"""`checkpoint`: recompute a function's intermediate results in the backward.

The results of a call are one entry, whose inputs are the arguments, and what is closed over.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

import numpy as np

from tapegraph import random
from tapegraph.differentiation.gradients import Region
from tapegraph.errors import check_callable, sentence
from tapegraph.ops.shape import alias
from tapegraph.other_names import unexpected
from tapegraph.pytree import HOLE, cut, leaves, mapped, matched, replaced
from tapegraph.recording.lost_gradients import DIFFERENTIATING
from tapegraph.recording.node import next_seq
from tapegraph.recording.op import NO_ATTRS, Op, Rules
from tapegraph.recording.scopes import RECORDING, Scope, recorder
from tapegraph.row_sparse import conjugated
from tapegraph.tensors.tensor import Tensor
from tapegraph.typed import Fun

F = TypeVar("F", bound=Fun)


def checkpoint(f: F, **others: NoReturn) -> F:
    """Return the same function, but recompute its intermediate results in the backward.

    It takes the memory of its results alone, and the time of a second run. Gradients of any order
    are those of ``f``, with respect to its arguments and to whatever else it reads.

    :param f: Takes and returns tensors, and dicts, lists and tuples of them. A second run must
        compute the same numbers; it repeats the draws of `tapegraph.random`.
    :returns: Callable with the arguments and results of ``f``. Where nothing is kept anyway (under
        `no_grad`, in forward mode, in a compiled step) it calls ``f`` itself.
    :raises TypeError: ``f`` is not callable.
    :raises RuntimeError: In the backward: the second run of ``f`` gave other numbers, or read other
        tensors.

    >>> x = tg.param([1.0, 2.0])
    >>> y = tg.checkpoint(lambda x: tg.exp(tg.sin(x)) * x)(x)
    >>> y.op, len(tg.tape())
    ('checkpoint', 2)
    >>> y.sum().backward()
    >>> bool(np.allclose(x.grad, np.exp(np.sin(x.data)) * (1 + x.data * np.cos(x.data))))
    True
    """
    if others:
        raise unexpected("checkpoint", others)
    check_callable("checkpoint", f)

    @functools.wraps(f)
    def checkpointed(*args: object, **kwargs: object) -> Any:
        given = [x for _, x in leaves((args, kwargs))]
        foreign = any(hasattr(type(x), "__tapegraph_apply__") for x in given)
        if foreign or not recorder().flows or recorder().capture is not None:
            return f(*args, **kwargs)
        return _Segment(f, (args, kwargs)).first()

    return checkpointed  # type: ignore[return-value]


class _Segment:
    def __init__(self, f: Fun, call: tuple[object, object]) -> None:
        self._f = f
        self._call = call
        self._given = [x for _, x in leaves(call) if isinstance(x, Tensor)]
        self._stream = random.get_state()
        self._differentiating = DIFFERENTIATING.value()
        self._closed_over: list[Any] = []
        self._form: Any = None

    def first(self) -> Any:
        """Run the function, and return its results without their history."""
        start = next_seq()
        form, targets = self._run()
        results = [x for _, x in leaves(form)]
        if any(hasattr(type(x), "__tapegraph_apply__") for x in results):
            return form
        self._form = mapped(lambda _: HOLE, form)
        outs = _flowing(results)
        self._closed_over = Region(outs, targets, since=start).outside
        inputs = (*self._given, *self._closed_over)
        if not outs or not any(x._requires_grad for x in inputs):
            ended = (x.detach() if isinstance(x, Tensor) else x for x in results)
            return replaced(form, ended)
        packed = recorder().result(CHECKPOINT, _packed(outs), inputs, NO_ATTRS, self)
        parts = dict(zip(map(id, outs), _unpacked(packed, outs), strict=True))
        return replaced(form, (parts.get(id(x), x) for x in results))

    def gradients(self, needs: Sequence[bool], g: object, y: Any, *, record: bool) -> list[Any]:
        start = next_seq()
        with self._as_at_first():
            form, targets = self._run()
        along = matched("checkpoint", form, self._form, "a second run's result", "the first's")
        outs = _flowing([x for _, x in along])
        if not outs or not np.array_equal(_packed(outs), y, equal_nan=True):
            text = (
                "the function gives other numbers when it runs again. Draw with tg.random, and "
                "change nothing that the function reads before the backward."
            )
            raise RuntimeError(sentence("checkpoint", text))
        inputs = [*targets, *self._closed_over]
        region = Region(outs, inputs, since=start)
        if region.outside:
            text = "the function reads other tensors when it runs again."
            raise RuntimeError(sentence("checkpoint", text))
        seeds = _unpacked(conjugated(g), outs)
        found = map(conjugated, region.gradients(seeds, record=record, natively=True))
        return [grad if needed else None for grad, needed in zip(found, needs, strict=True)]

    def _run(self) -> tuple[Any, list[Any]]:
        targets = [alias(x) if x.dtype.kind in "fc" else x for x in self._given]
        own = iter(targets)
        inside = (next(own) if isinstance(x, Tensor) else x for _, x in leaves(self._call))
        args, kwargs = replaced(self._call, inside)
        return self._f(*args, **kwargs), targets

    @contextmanager
    def _as_at_first(self) -> Iterator[None]:
        """Record in the scopes of the first run, and repeat its draws."""
        now = random.get_state()
        random.set_state(self._stream)
        try:
            with Scope(RECORDING, True), Scope(DIFFERENTIATING, self._differentiating):
                yield
        finally:
            random.set_state(now)


def _flowing(results: Sequence[object]) -> list[Any]:
    return [x for x in results if isinstance(x, Tensor) and x._requires_grad]


def _packed(outs: Sequence[Any]) -> Any:
    if len(outs) == 1:
        return outs[0]._array
    return np.concatenate([x._array.ravel() for x in outs])


def _unpacked(packed: Any, outs: Sequence[Any]) -> list[Any]:
    if len(outs) == 1:
        return [packed]
    parts = zip(outs, cut(packed, [x.shape for x in outs]), strict=True)
    return [(part if x.dtype.kind == "c" else np.real(part)).astype(x.dtype) for x, part in parts]


def _vjp(needs: list[bool], g: object, y: object, *inputs: object, saved: _Segment) -> list[Any]:
    found = saved.gradients(needs, np.asarray(g), y, record=False)
    return [None if grad is None else grad._array for grad in found]


def _recorded(needs: list[bool], g: Any, y: Any, *inputs: object, saved: _Segment) -> list[Any]:
    return saved.gradients(needs, g, y._array, record=True)


CHECKPOINT = Op("checkpoint", saves=True, rules=Rules(_vjp, None, None, _recorded))
