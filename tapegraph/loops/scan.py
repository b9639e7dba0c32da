"""`scan` and `fori_loop`: a loop inside a function (the entry: `tapegraph.loops.scan_entry`)."""

from __future__ import annotations

import math
import operator
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NoReturn

import numpy as np

from tapegraph import random
from tapegraph.errors import check_callable, kind_of, message
from tapegraph.loops.body import Traced, check_form, drawing_on, example, loop_operand, traced
from tapegraph.loops.scan_entry import row, run_scan
from tapegraph.other_names import unexpected
from tapegraph.pytree import leaves, replaced
from tapegraph.recording.node import is_weak
from tapegraph.recording.record import tensor_like
from tapegraph.recording.scopes import recorder
from tapegraph.typed import Pytree

_ORDER = "The arguments are tg.scan(f, init, xs)."
_PAIR = "To stack the carries write return carry, carry."


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Pytree,
    xs: Pytree = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    checkpoint: int | Literal["sqrt"] | None = None,
    **others: NoReturn,
) -> tuple[Pytree, Pytree]:
    """Run a loop inside a function: ``carry, y = f(carry, x)`` for each row ``x`` of ``xs``.

    It is one entry of the tape and of a compiled program, whatever the number of iterations, and
    its gradients are those of the loop in Python. (For many calls of a compiled step, see
    ``step.scan``.)

    :param f: Takes the carry and a row of ``xs``, and returns the next carry and a value to stack.
        It runs once to be recorded, has no effects, and may read outside values, with gradients.
    :param init: The first carry: numbers, arrays, tensors, and dicts, lists and tuples of them.
    :param xs: A structure of arrays with a leading axis of one length; None for none.
    :param length: The number of iterations; required without ``xs``.
    :param reverse: Begin with the last row; rows of the result lie as those of ``xs``.
    :param checkpoint: The backward runs iterations again, by default from the carry of each and,
        natively, from results in it that take long to compute; for an int k from the carry of every
        k-th alone, for ``"sqrt"`` of every ``ceil(sqrt(length))``-th.
    :returns: The last carry, and the stacked values along a new first axis: Tensors in the
        structures that ``f`` returns.
    :raises TypeError: ``f`` is not callable or returns no pair; its carry differs from ``init`` in
        structure, shape or dtype.
    :raises ValueError: Lengths differ, or none is known; ``checkpoint`` is no number of iterations.
    :raises ConcretizationError: ``f`` reads a number, as in ``if carry > 0``: use `where` or
        `cond`.

    >>> w = tg.param(2.0)
    >>> last, products = tg.scan(lambda p, x: (p * w * x, p), 1.0, np.array([1.0, 2.0, 3.0]))
    >>> last.item(), products
    (48.0, Tensor([1., 2., 8.], op='scan'))
    >>> last.backward()
    >>> w.grad.item()
    72.0
    """
    if others:
        raise unexpected("scan", others)
    return _scan("scan", f, init, xs, length, reverse, checkpoint)


def _scan(
    op: str,
    f: Callable[[Any, Any], Any],
    init: Pytree,
    xs: Pytree,
    length: int | None = None,
    reverse: bool = False,
    checkpoint: int | Literal["sqrt"] | None = None,
) -> tuple[Pytree, Pytree]:
    check_callable(op, f)
    rows = [(path, loop_operand(op, x, path)) for path, x in leaves(xs, "xs")]
    n = _length(rows, length)
    every = _every(checkpoint, n)
    given = [x for _, x in rows]

    def body(carry: object, parts: Sequence[object]) -> Any:
        out = f(carry, replaced(xs, iter(parts)))
        if not (isinstance(out, tuple) and len(out) == 2):
            kind = f"a tuple of {len(out)}" if isinstance(out, tuple) else f"a {type(out).__name__}"
            received = f"a function that returns {kind}"
            expected = "a pair: the next carry, and the values to stack"
            raise TypeError(message("scan", received, expected, _PAIR))
        return out

    carry, found = traced_loop(op, body, init, given)
    if found.draws_on or (found.draws and recorder().stream is not None):

        def further(carry: Any, x: Any) -> Any:
            (held, y), end = drawing_on(f, carry[1], carry[0], x)
            return (held, end), y

        with random.stretch() as stretch:
            start = (init, stretch.start)
            (last, stretch.end), ys = _scan(op, further, start, xs, length, reverse, checkpoint)
            return last, ys
    drawn = drawn_rows(found.draws, n, reverse)
    outs = run_scan(found.body, (found.consts, carry, [*given, *drawn]), n, reverse, every)
    last, ys = outs[: len(carry)], outs[len(carry) : len(found.body.outputs)]
    of_carry, of_y = found.form
    return replaced(of_carry, iter(last)), replaced(of_y, iter(ys))


def fori_loop(lower: int, upper: int, body: Callable[[Any, Any], Any], init: Pytree) -> Pytree:
    """Run ``carry = body(i, carry)`` for each ``i`` from ``lower`` to ``upper - 1``, as a `scan`.

    :param lower, upper: Integers; no iteration where ``upper <= lower``.
    :param body: Takes an integer tensor and the carry, and returns the next carry.
    :param init: The first carry, as for `scan`.
    :returns: The last carry.
    :raises TypeError: A bound is no integer; or as for `scan`.

    >>> tg.fori_loop(0, 5, lambda i, x: x * 2.0 + i, 0.0)
    Tensor(26.)
    """
    check_callable("fori_loop", body)
    try:
        iterations = np.arange(operator.index(lower), operator.index(upper))
    except TypeError:
        received = f"bounds of {kind_of(lower)} and {kind_of(upper)}"
        fix = "Write tg.while_loop for a number of iterations that is computed."
        raise TypeError(message("fori_loop", received, "integers", fix)) from None
    carry, _ = _scan("fori_loop", lambda carry, i: (body(i, carry), None), init, iterations)
    return carry


def _length(rows: list[tuple[str, Any]], length: int | None) -> int:
    lengths = {} if length is None else {"length": operator.index(length)}
    for path, x in rows:
        if not x.shape:
            received = f"{path} without an axis"
            raise ValueError(message("scan", received, "rows along axis 0", _ORDER))
        lengths[path] = x.shape[0]
    if not lengths:
        raise ValueError(message("scan", "neither xs nor a length", "one of them", _ORDER))
    (first, n), *others = lengths.items()
    for path, m in others:
        if m != n:
            received = f"{n} iterations by {first} and {m} by {path}"
            raise ValueError(message("scan", received, "one length"))
    if n < 0:
        raise ValueError(message("scan", f"length={n}", "0 or more"))
    return n


def _every(checkpoint: object, n: int) -> int:
    if checkpoint is None:
        return 1
    if checkpoint == "sqrt":
        return max(1, math.ceil(math.sqrt(n)))
    if isinstance(checkpoint, (int, np.integer)) and checkpoint >= 1:
        return int(checkpoint)
    expected = 'a number of iterations, 1 or more, or "sqrt"'
    raise ValueError(message("scan", f"checkpoint={checkpoint!r}", expected))


# The carry


def traced_loop(
    op: str,
    f: Callable[[Any, list[Any]], tuple[Any, Any]],
    init: object,
    xs: Sequence[Any],
) -> tuple[list[Any], Traced]:
    """Return the first carry as tensors, and ``f(carry, rows of xs)`` as an inner program."""
    held = list(leaves(init, "init"))
    carry = [loop_operand(op, x, path) for path, x in held]
    count = len(carry)

    def arguments(inputs: list[Any]) -> tuple[Any, ...]:
        return replaced(init, iter(inputs[:count])), inputs[count:]

    rows = [row(example(x)) for x in xs]
    flows = [bool(x.requires_grad) for x in (*carry, *xs)]
    while True:
        found = traced(op, f, arguments, [*carry, *rows], flows)
        check_form(op, found.form[0], init, "the carry that the function returns", "init")
        program, again = found.body.program, False
        for i, slot in enumerate(found.body.outputs[:count]):
            shape, dtype = program.shapes[slot], program.dtypes[slot]
            path, value = held[i]
            if is_weak(value) and dtype != carry[i].dtype and shape == ():
                carry[i], again = loop_operand(op, value, path, dtype).astype(dtype), True
            elif (shape, dtype) != (carry[i].shape, carry[i].dtype):
                received = f"a carry of shape {shape} and dtype {dtype} at {path}"
                expected = f"that of init, shape {carry[i].shape} and dtype {carry[i].dtype}"
                fix = (
                    "Give init that type, or write .astype() or tg.broadcast_to() in the function."
                )
                raise TypeError(message(op, received, expected, fix))
            elif program.needs[slot] and not flows[i] and dtype.kind in "fc":
                flows[i] = again = True
        if not again:
            return carry, found


def drawn_rows(draws: Sequence[Any], length: int, reverse: bool) -> list[Any]:
    """Draw a body's random numbers in the order of the iterations, a row for each."""
    waiting: list[deque[Any]] = [deque() for _ in draws]

    def take(i: int) -> Any:
        if not waiting[i]:
            iterations = [[draw.draw() for draw in draws] for _ in range(length)]
            if reverse:
                iterations.reverse()
            for j, draw in enumerate(draws):
                rows = [row[j] for row in iterations]
                shape = (length, *draw.shape)
                waiting[j].append(np.array(rows, draw.dtype).reshape(shape))
        return waiting[i].popleft()

    found = []
    for i, draw in enumerate(draws):
        rows = random.drawn(draw.op, partial(take, i), draw.dtype, **draw.by)
        found.append(tensor_like("scan", rows))
    return found
