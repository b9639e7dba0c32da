"""`while_loop`: a loop whose condition ends it, as the entry ``while_loop``.

Its inputs are the consts of the condition, those of the body, and the first carries; ``cond`` and
``body`` are `SubProgram`s of their consts and the carries. Its outputs are the last carries, and
the number of iterations. The backward differentiates a `scan` of that length.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, NamedTuple, NoReturn

import numpy as np

from tapegraph import random
from tapegraph.batching import BatchedCall
from tapegraph.engines import registry
from tapegraph.engines.backend import use_backend
from tapegraph.errors import check_callable, message
from tapegraph.loops import scan_entry
from tapegraph.loops.body import (
    Replay,
    Traced,
    by_mask,
    drawing_on,
    examples,
    name_failure,
    tangents,
    traced,
    zeros,
    zeros_where,
)
from tapegraph.loops.scan import traced_loop
from tapegraph.loops.scan_entry import Lists, by_role
from tapegraph.numpy_warnings import quietly
from tapegraph.ops.elementwise import where
from tapegraph.ops.shape import broadcast_to
from tapegraph.other_names import unexpected
from tapegraph.pytree import exchanged, replaced
from tapegraph.recording.node import as_leaf
from tapegraph.recording.op import Op, Rules
from tapegraph.recording.program import SubProgram
from tapegraph.recording.record import apply, tensor_like
from tapegraph.recording.scopes import RECORDING, Scope, recorder
from tapegraph.row_sparse import conjugated
from tapegraph.transforms.reverse import vjp
from tapegraph.typed import Fun, Pytree


def while_loop(
    cond: Callable[[Any], Any],
    body: Callable[[Any], Any],
    init: Pytree,
    *,
    max_steps: int | None = None,
    **others: NoReturn,
) -> Pytree:
    """Run ``carry = body(carry)`` while ``cond(carry)`` is true.

    It is one entry, with the gradients of the iterations that ran. If `vmap` has a condition for
    each example, each stops at its own end. XLA compiles its backward only with ``max_steps``.

    :param cond: Takes the carry and returns a bool, or a number that is true unless it is zero.
    :param body: Takes the carry and returns the next one, of the same structure and types. Both run
        once to be recorded (twice, where they draw random numbers), and have no effects. The
        condition draws none.
    :param init: The first carry: numbers, arrays, tensors, and dicts, lists and tuples of them.
    :param max_steps: The maximum number of iterations, 0 or more; the loop then ends whatever the
        condition, and ``cond(last)`` tells which of the two ended it.
    :returns: The last carry, as Tensors.
    :raises TypeError: A function is not callable, or the carry changes its structure or a type.
    :raises ValueError: The condition has axes, or ``max_steps`` is negative.

    >>> w = tg.param(2.0)
    >>> y = tg.while_loop(lambda x: x < 100.0, lambda x: x * w, 3.0)
    >>> y.backward()
    >>> y.item(), w.grad.item()
    (192.0, 576.0)
    """
    if others:
        raise unexpected("while_loop", others)
    check_callable("while_loop", cond)
    check_callable("while_loop", body)
    if max_steps is not None and max_steps < 0:
        raise ValueError(message("while_loop", f"max_steps={max_steps}", "0 or more, or None"))
    try:
        carry, iteration = traced_loop("while_loop", lambda c, _: (body(c), None), init, [])
    except TypeError:
        _check_takes_one(body)
        raise

    if iteration.draws or iteration.draws_on:
        with random.stretch() as drawn:
            last, drawn.end = while_loop(
                lambda c: cond(c[0]),
                lambda c: drawing_on(body, c[1], c[0]),
                (init, drawn.start),
                max_steps=max_steps,
            )
            return last

    def test(*inputs: object) -> Any:
        found = tensor_like("while_loop", cond(replaced(init, iter(inputs))), "the condition")
        if found.shape:
            received = f"a condition of shape {found.shape}"
            fix = "Write np.all or np.any of it."
            raise ValueError(message("while_loop", received, "one bool", fix))
        return found if found.dtype == bool else found != 0

    condition = traced("while_loop", test, list, carry)
    if condition.draws or condition.draws_on:
        received = "a condition that draws random numbers"
        fix = "Draw in the body, and carry the numbers."
        raise RuntimeError(message("while_loop", received, "one without draws", fix))
    lists = (condition.consts, iteration.consts, carry)
    outs = _run(condition.body, iteration.body, lists, max_steps)
    return replaced(iteration.form[0], iter(outs[: len(carry)]))


def _check_takes_one(body: Callable[[Any], Any]) -> None:
    """Raise for a body in TensorFlow's form, which takes each part of the carry as an argument."""
    with suppress(ValueError):  # a function in C without a signature
        try:
            inspect.signature(body).bind(None)
        except TypeError:
            received, expected = "a body of several arguments", "functions of one, the whole carry"
            fix = "Write def body(carry): i, x = carry; likewise in cond."
            raise TypeError(message("while_loop", received, expected, fix)) from None


# The entry


def _run(cond: SubProgram, body: SubProgram, lists: Lists, max_steps: int | None) -> Sequence[Any]:
    attrs = {"cond": cond, "body": body, "carries": len(lists[2]), "max_steps": max_steps}
    return apply(WHILE_LOOP, (*lists[0], *lists[1], *lists[2]), attrs)


def _by_role(inputs: Sequence[object], cond: SubProgram, carries: int) -> Lists:
    return by_role(inputs, len(inputs) - len(cond.inputs), carries)


def _forward(
    *inputs: object, cond: SubProgram, body: SubProgram, carries: int, max_steps: int | None
) -> tuple[Any, ...]:
    of_cond, of_body, first = _by_role(list(map(np.asarray, inputs)), cond, carries)
    native = registry.engine(registry.NATIVE)

    def run() -> tuple[Any, ...]:
        now, count = first, 0
        with (
            native.inner(cond).forward([*of_cond, *now]) as test,
            native.inner(body).forward([*of_body, *now]) as step,
        ):
            while count != max_steps:
                try:
                    runs, given = cond, [*of_cond, *now]
                    if not test(given)[0]:
                        break
                    runs, given = body, [*of_body, *now]
                    now = step(given)
                except Exception as error:
                    name_failure(error, runs, given, f"iteration {count}")
                    raise
                count += 1
        return (*map(np.array, now), np.array(count, np.int64))

    return quietly(run)


def _vjp(
    needs: Sequence[bool], g: Sequence[object], y: Sequence[Any], *inputs: object, **attrs: Any
) -> list[Any]:
    """Return the backward of the scan that makes the same iterations, which it runs again."""
    carries = attrs["carries"]
    of_cond, of_body, first = _by_role(list(map(np.asarray, inputs)), attrs["cond"], carries)
    start = len(of_cond)
    scan = {**_as_scan(attrs["body"], carries, int(y[carries])), "keeps": False}
    grads = scan_entry.scan_vjp(needs[start:], g[:carries], None, *of_body, *first, **scan)
    return [*zeros_where(needs[:start], of_cond, np.zeros_like), *grads]


def _as_scan(body: SubProgram, carries: int, length: int) -> dict[str, Any]:
    loop = {"body": body, "carries": carries, "xs": 0, "length": length, "reverse": False}
    return loop | {"checkpoint": 1, "keeps": True, "residuals": 0}


def _recorded(
    needs: Sequence[bool], g: Sequence[object], y: Sequence[Any], *inputs: object, **attrs: Any
) -> list[Any]:
    """Return the backward of the scan that makes the same iterations.

    In a captured program, where their number is unknown, the scan has ``max_steps`` iterations, and
    those after the end leave the carry unchanged; without ``max_steps`` every run records it anew.
    """
    cond, body, carries = attrs["cond"], attrs["body"], attrs["carries"]
    of_cond, of_body, first = _by_role(inputs, cond, carries)
    consts, start, step = of_body, len(of_cond), body

    def masked(*leaves: object) -> tuple[Any, ...]:
        of_cond, of_body, now = _by_role(leaves, cond, carries)
        (active,) = Replay(cond)(*of_cond, *now)
        new = Replay(body)(*of_body, *now)
        return tuple(where(active, a, b) for a, b in zip(new, now, strict=True))

    if not recorder().records(y[carries]):
        length = int(y[carries]._array)
    elif attrs["max_steps"] is None:
        again = Anew(_again, (cond, body, carries))
        return pulled(needs, g[:carries], None, *inputs, of=again)
    else:
        length, start = attrs["max_steps"], 0
        found = body.make(("masked", cond), traced, "while_loop", masked, list, inputs)
        step, consts = found.body, [*found.made, *of_cond, *of_body]
    scan = _as_scan(step, carries, length)
    given = (*consts, *first)
    outs = apply(scan_entry.SCAN, given, scan)
    wanted = [*[False] * (len(given) - len(needs) + start), *needs[start:]]
    seeds = [*g[:carries], *[None] * carries]
    grads = scan_entry.recorded_scan_vjp(wanted, seeds, outs, *given, **scan)
    of_rest = zeros_where(needs[:start], of_cond[:start])
    return [*of_rest, *grads[len(given) - len(needs) + start :]]


def _again(cond: SubProgram, body: SubProgram, carries: int, *inputs: object) -> Sequence[Any]:
    return _run(cond, body, _by_role(inputs, cond, carries), None)[:carries]


def _jvp(moving: Sequence[object], y: object, *inputs: object, **attrs: Any) -> tuple[Any, ...]:
    cond, carries = attrs["cond"], attrs["carries"]
    of_cond, of_body, first = _by_role(inputs, cond, carries)
    _, by_body, by_init = _by_role(moving, cond, carries)
    step, (consts, carry, _), of_carry, _ = scan_entry.moved_iterations(
        "while_loop", attrs["body"], (of_body, first, []), (by_body, by_init, [])
    )

    def test(*leaves: object) -> Any:
        return Replay(cond)(*leaves[: len(cond.inputs)])[0]

    key, shown = ("beside", tuple(of_carry)), [*of_cond, *carry]
    condition = cond.make(key, traced, "while_loop", test, list, shown)
    given = ([*condition.made, *of_cond], [*step.made, *consts], carry)
    outs = _run(condition.body, step.body, given, attrs["max_steps"])
    result = [None] * (carries + 1)
    for i, tangent in zip(of_carry, outs[carries:-1], strict=True):
        result[i] = tangent
    return tuple(result)


def _batch(call: BatchedCall) -> tuple[Any, ...]:
    """Return the examples by a loop that goes on while one of them does; the others keep theirs."""
    cond, body, carries = call.attrs["cond"], call.attrs["body"], call.attrs["carries"]
    of_cond, of_body, first = _by_role(call.xs, cond, carries)
    a, b, c = map(tuple, _by_role(call.batched, cond, carries))
    start = len(call.xs) - carries
    while True:
        carry = [call.spread(start + i) if c[i] else x for i, x in enumerate(first)]
        count = as_leaf(np.zeros(call.size, np.int64))
        given = [*of_cond, *of_body, *carry]
        key = ("examples", cond, a, b, c, call.size)
        test, step, apart, differ = body.make(
            key, _batched, cond, body, (a, b, c), call.size, [*given, count]
        )
        wider = tuple(apart or x or y for x, y in zip(c, differ, strict=True))
        if wider == c:
            break
        c = wider
    lists = ([*test.made, *of_cond], [*step.made, *of_cond, *of_body], [*carry, count])
    outs = _run(test.body, step.body, lists, call.attrs["max_steps"])
    last = outs[:carries]
    last = [x if c[i] else broadcast_to(x, (call.size, *x.shape)) for i, x in enumerate(last)]
    return (*last, outs[carries])


def _batched(
    cond: SubProgram,
    body: SubProgram,
    flags: tuple[tuple[bool, ...], tuple[bool, ...], tuple[bool, ...]],
    size: int,
    inputs: Sequence[object],
) -> tuple[Traced, Traced, bool, list[bool]]:
    """Return the condition and the iteration of all examples, with a count for each."""
    a, b, c = flags
    apart: list[bool] = []
    after: list[bool] = []

    def active(of_cond: Sequence[object], now: Sequence[object]) -> Any:
        (found,), (differs,) = examples(Replay(cond), [*of_cond, *now], (*a, *c), size)
        apart.append(differs)
        return found

    def test(*leaves: object) -> Any:
        return np.any(active(leaves[: len(a)], leaves[len(a) : -1]))

    def step(*leaves: object) -> tuple[Any, ...]:
        of_cond, of_body, now = _by_role(leaves[:-1], cond, len(c))
        goes_on = active(of_cond, now)
        outs, differ = examples(Replay(body), [*of_body, *now], (*b, *c), size)
        after.extend(differ)
        if apart[0] and all(c):
            outs = by_mask(goes_on, outs, now)
        else:
            outs = [x if c[i] or differ[i] else x[0] for i, x in enumerate(outs)]
        return (*outs, leaves[-1] + goes_on)

    own = [*inputs[: len(a)], *inputs[len(a) + len(b) :]]
    found = traced("while_loop", test, list, own)
    return found, traced("while_loop", step, list, inputs), apart[0], after


_RULES = Rules(_vjp, _jvp, None, _recorded, _batch)
WHILE_LOOP = Op("while_loop", _forward, several=True, takes_complex=True, rules=_RULES)


# The entry ``at_run_time``: derivatives that no program can hold beforehand, recorded anew in every
# run. Its attribute ``of`` says what is computed from its inputs, as recorded operations; its
# derivatives are such entries too. It runs natively alone.


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
        pull = Anew(_pulled_anew, (of, wanted, seeded))
        found = at_run_time(pull, *inputs, *(g[i] for i in seeded))
        for i, grad in zip(wanted, found, strict=True):
            grads[i] = grad
    return grads


def _pulled_anew(
    of: Anew, wanted: Sequence[int], seeded: Sequence[int], *tensors: object
) -> Sequence[Any]:
    inputs, seeds = tensors[: -len(seeded)], tensors[-len(seeded) :]

    def f(*points: object) -> list[Any]:
        outs = of(*exchanged(inputs, wanted, points))
        return [outs[i] for i in seeded]

    _, pullback = vjp(f, *(inputs[i] for i in wanted))
    grads = pullback(list(map(conjugated, seeds)))  # which a sweep carries
    return list(map(conjugated, grads if len(wanted) > 1 else (grads,)))


def _moved_anew(of: Anew, moving: Sequence[int], *tensors: object) -> Sequence[Any]:
    inputs, given = tensors[: -len(moving)], tensors[-len(moving) :]
    outs, found = tangents(of.__call__, inputs, dict(zip(moving, given, strict=True)))
    return [zeros(x) if t is None else t for x, t in zip(outs, found, strict=True)]


def _examples_anew(of: Anew, batched: Sequence[bool], size: int, *tensors: object) -> Sequence[Any]:
    return examples(of.__call__, tensors, batched, size)[0]


def _forward_anew(*inputs: object, of: Anew) -> tuple[Any, ...]:
    def run() -> tuple[Any, ...]:
        with use_backend("native"), Scope(RECORDING, True):
            return tuple(np.array(x._array) for x in of(*(as_leaf(np.asarray(x)) for x in inputs)))

    return Context().run(quietly, run)  # outside of every capture


def _vjp_anew(
    needs: Sequence[bool], g: Sequence[object], y: object, *inputs: object, of: Anew
) -> list[Any]:
    given = [None if x is None else as_leaf(np.asarray(x)) for x in g]
    leaves = (as_leaf(np.asarray(x)) for x in inputs)
    grads = Context().run(pulled, needs, given, None, *leaves, of=of)
    return [None if x is None else x._array for x in grads]


def _jvp_anew(moving: Sequence[object], y: object, *inputs: object, of: Anew) -> Sequence[Any]:
    places = tuple(i for i, t in enumerate(moving) if t is not None)
    given = (t for t in moving if t is not None)
    return at_run_time(Anew(_moved_anew, (of, places)), *inputs, *given)


def _batch_anew(call: BatchedCall) -> Sequence[Any]:
    each = Anew(_examples_anew, (call.attrs["of"], tuple(call.batched), call.size))
    return at_run_time(each, *call.xs)


_RULES_ANEW = Rules(_vjp_anew, _jvp_anew, None, pulled, _batch_anew)
AT_RUN_TIME = Op("at_run_time", _forward_anew, several=True, takes_complex=True, rules=_RULES_ANEW)
