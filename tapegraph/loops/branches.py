"""`cond` and `switch`: one of several functions runs, as the entry ``cond``.

Its inputs are the index of the branch, clipped to the range, and the *operands*. Attributes:
- ``branches``: a `SubProgram` for each index, with outputs of the same types.
- ``reads``: for each branch the positions of its inputs among the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from tapegraph import random
from tapegraph.batching import BatchedCall
from tapegraph.differentiation.jvps import added
from tapegraph.engines import registry
from tapegraph.engines.engine import Reverse
from tapegraph.errors import check_callable, message
from tapegraph.kinds import Operand
from tapegraph.loops.body import (
    Replay,
    Traced,
    by_mask,
    check_form,
    cotangents,
    drawing_on,
    examples,
    loop_operand,
    name_failure,
    taker,
    tangents,
    traced,
    zeros,
    zeros_where,
)
from tapegraph.numpy_warnings import quietly
from tapegraph.other_names import unexpected
from tapegraph.pytree import leaves, replaced
from tapegraph.recording.op import Op, Rules
from tapegraph.recording.program import SubProgram
from tapegraph.recording.record import apply, tensor_like
from tapegraph.row_sparse import has_nan
from tapegraph.typed import Fun, Pytree


def cond(
    pred: Operand,
    true_fn: Fun,
    false_fn: Fun,
    *operands: Pytree,
    **others: NoReturn,
) -> Pytree:
    """Run one of two functions: ``true_fn(*operands)`` if ``pred`` is true, else ``false_fn``.

    It is one entry, which holds both functions and runs one, through which gradients flow. Each
    function runs once to be recorded, has no effects, and may read outside values. If `vmap` has
    a ``pred`` for each example, both run, and `where` chooses.

    :param pred: A bool or a number without axes; a number is true where it is not zero.
    :param true_fn, false_fn: Functions of the operands that return tensors of the same types, and
        dicts, lists and tuples of them.
    :param *operands: Numbers, arrays, tensors, and dicts, lists and tuples of them.
    :returns: The function's result, as Tensors.
    :raises TypeError: A function is not callable, or the two differ in structure or types.
    :raises ValueError: ``pred`` has axes.

    >>> x = tg.param(-2.0)
    >>> y = tg.cond(x > 0, lambda x: x * x, lambda x: -3.0 * x, x)
    >>> y.backward()
    >>> y.item(), x.grad.item()
    (6.0, -3.0)
    """
    if others:
        raise unexpected("cond", others)
    check_callable("cond", true_fn)
    check_callable("cond", false_fn)
    chosen = loop_operand("cond", pred, "pred")
    chosen = chosen if chosen.dtype == bool else chosen != 0
    return _chosen("cond", "pred", chosen, (false_fn, true_fn), operands)


def switch(
    index: Operand, branches: Sequence[Fun], *operands: Pytree, **others: NoReturn
) -> Pytree:
    """Run one of several functions, ``branches[index]``, on the operands.

    :param index: An integer without axes; one out of range counts as the nearest, as in JAX.
    :param branches: The functions, as for `cond`.
    :param *operands: Their arguments.
    :returns: The function's result, as Tensors.
    :raises TypeError: A function is not callable, ``index`` is no integer, or functions differ in
        structure or types.
    :raises ValueError: There is no function, or ``index`` has axes.

    >>> tg.switch(1, [lambda x: x, lambda x: x + 10.0], 2.0)
    Tensor(12.)
    """
    if others:
        raise unexpected("switch", others)
    if not branches:
        raise ValueError(message("switch", "no functions", "one or more"))
    for branch in branches:
        check_callable("switch", branch)
    chosen = tensor_like("switch", index, "index")
    if chosen.dtype.kind not in "biu":
        received = f"an index of dtype {chosen.dtype}"
        raise TypeError(message("switch", received, "an integer", "Write .astype(int)."))
    return _chosen("switch", "index", chosen, tuple(branches), operands)


def _chosen(
    op: str, argument: str, index: Any, functions: Sequence[Fun], operands: tuple[object, ...]
) -> Any:
    if index.shape:
        received = f"{argument} of shape {index.shape}"
        fix = "Write tg.where to choose element by element, or tg.vmap to choose by example."
        raise ValueError(message(op, received, "one number", fix))
    held = list(leaves(operands, "operands"))
    given = [loop_operand(op, x, path) for path, x in held]
    flows = [bool(x.requires_grad) for x in given]
    founds = [traced(op, f, lambda x: replaced(operands, iter(x)), given, flows) for f in functions]
    if any(found.draws or found.draws_on for found in founds):
        with random.stretch() as drawn:
            further = [partial(drawing_on, f) for f in functions]
            out, drawn.end = _chosen(op, argument, index, further, (drawn.start, *operands))
            return out
    first = founds[0]
    types = first.body.types(first.body.outputs)
    paths = [path for path, _ in leaves(first.form, "the result")]
    for found in founds:
        check_form(op, found.form, first.form, "the result of a function", "another")
        ours = found.body.types(found.body.outputs)
        for path, (shape, dtype), (like, other) in zip(paths, ours, types, strict=True):
            if (shape, dtype) != (like, other):
                received = f"functions that give shape {shape} and dtype {dtype} at {path}"
                received += f", and shape {like} and dtype {other}"
                fix = "Write .astype() or tg.broadcast_to() in one of them."
                raise TypeError(message(op, received, "one type", fix))
    outs = _run(index, [(found.body, [*found.consts, *given]) for found in founds])
    return replaced(first.form, iter(outs))


# The entry

Branch = tuple[SubProgram, list[Any]]


def _run(index: object, branches: Sequence[Branch]) -> list[Any]:
    places: dict[int, int] = {}
    operands: list[Any] = []
    for x in (x for _, inputs in branches for x in inputs):
        if id(x) not in places:
            places[id(x)] = len(operands)
            operands.append(x)
    attrs = {
        "branches": tuple(body for body, _ in branches),
        "reads": tuple(tuple(places[id(x)] for x in inputs) for _, inputs in branches),
    }
    return list(apply(COND, (index, *operands), attrs))


def _run_derived(index: object, founds: Sequence[Traced], inputs: Sequence[list[Any]]) -> list[Any]:
    pairs = zip(founds, inputs, strict=True)
    return _run(index, [(f.body, [*f.made, *xs]) for f, xs in pairs])


def _taken(
    index: object, *operands: object, branches: Sequence[SubProgram], reads: Sequence[Sequence[int]]
) -> tuple[SubProgram, Sequence[int], list[Any]]:
    chosen = min(max(int(np.asarray(index)), 0), len(branches) - 1)
    places = reads[chosen]
    return branches[chosen], places, [np.asarray(operands[i]) for i in places]


def _forward(*operands: object, **attrs: Any) -> tuple[Any, ...]:
    body, _, inputs = _taken(*operands, **attrs)

    def run() -> list[Any]:
        with registry.engine(registry.NATIVE).inner(body).forward(inputs) as step:
            try:
                return step(inputs)
            except Exception as error:
                name_failure(error, body, inputs, "a branch")
                raise

    held = set(map(id, inputs))
    return tuple(np.array(x) if x.base is not None or id(x) in held else x for x in quietly(run))


def _vjp(
    needs: Sequence[bool], g: Sequence[object], y: object, *inputs: object, **attrs: Any
) -> list[Any]:
    operands = inputs[1:]
    body, places, read = _taken(*inputs, **attrs)
    program, inner = body.program, registry.engine(registry.NATIVE).inner(body)
    wanted = [i for i, at in enumerate(places) if needs[1 + at] and program.needs[body.inputs[i]]]
    flowing = [i for i, x in enumerate(g) if x is not None and program.needs[body.outputs[i]]]
    grads = [None, *zeros_where(needs[1:], operands, np.zeros_like)]
    if not wanted or not flowing:
        return grads
    given = [np.asarray(g[i]) for i in flowing]
    kind = Reverse(tuple(body.inputs[i] for i in wanted), tuple(body.outputs[i] for i in flowing))

    def run() -> list[Any]:
        with inner.pullback(kind, read, given) as pull:
            found = pull([*read, *given])
        if any(map(has_nan, found)):
            found = inner.strong_pullback(kind)([*read, *given])
        return found

    met: set[int] = set()
    for i, grad in zip(wanted, quietly(run), strict=True):
        place = 1 + places[i]
        grads[place] = grads[place] + grad if place in met else grad
        met.add(place)
    return grads


def _recorded(
    needs: Sequence[bool], g: Sequence[object], y: object, index: object, *operands: Any, **of: Any
) -> list[Any]:
    wanted = [i for i, x in enumerate(operands) if needs[1 + i] and x.dtype.kind in "fc"]
    seeded = tuple(i for i, x in enumerate(g) if x is not None)
    seeds = [g[i] for i in seeded]
    founds, lists = [], []
    for body, places in zip(of["branches"], of["reads"], strict=True):
        # Operands that it does not read are passed too, for the type of their zero gradients.
        inputs = [*(operands[i] for i in places), *seeds, *(operands[i] for i in wanted)]
        key = ("transposed", tuple(places), tuple(wanted), seeded)
        founds.append(body.make(key, _transposed, body, places, wanted, seeded, inputs))
        lists.append(inputs)
    grads = [None] * (1 + len(operands))
    for i, grad in zip(wanted, _run_derived(index, founds, lists), strict=True):
        grads[1 + i] = grad
    return grads


def _transposed(
    body: SubProgram,
    places: Sequence[int],
    wanted: Sequence[int],
    seeded: Sequence[int],
    inputs: Sequence[object],
) -> Traced:
    by = [i for i, at in enumerate(places) if at in wanted]

    def backward(*leaves: object) -> tuple[Any, ...]:
        take = taker(leaves)
        own = take(len(places))
        seeds = dict(zip(seeded, take(len(seeded)), strict=True))
        found: dict[int, Any] = {}
        for i, grad in zip(by, cotangents(Replay(body), own, seeds, by), strict=True):
            found[places[i]] = added(found.get(places[i]), grad)
        like = dict(zip(wanted, take(len(wanted)), strict=True))
        return tuple(found[i] if i in found else zeros(like[i]) for i in wanted)

    return traced("cond", backward, list, inputs)


def _jvp(
    moving: Sequence[object], y: object, index: object, *operands: object, **attrs: Any
) -> tuple[Any, ...]:
    branches, reads = attrs["branches"], attrs["reads"]
    turned = {i: t for i, t in enumerate(moving[1:]) if t is not None}

    def derived(forced: tuple[int, ...]) -> tuple[list[Traced], list[list[Any]], set[int]]:
        founds, lists, have = [], [], set(forced)
        for body, places in zip(branches, reads, strict=True):
            of = tuple(i for i, at in enumerate(places) if at in turned)
            inputs = [*(operands[i] for i in places), *(turned[places[i]] for i in of)]
            found, more = body.make(("tangents", of, forced), _moved, body, of, forced, inputs)
            founds.append(found)
            lists.append(inputs)
            have |= more
        return founds, lists, have

    _, _, have = derived(())
    moved = tuple(sorted(have))
    result = [None] * len(branches[0].outputs)
    if moved:
        founds, lists, _ = derived(moved)
        for i, tangent in zip(moved, _run_derived(index, founds, lists), strict=True):
            result[i] = tangent
    return tuple(result)


def _moved(
    body: SubProgram, of: Sequence[int], forced: Sequence[int], inputs: Sequence[object]
) -> tuple[Traced, set[int]]:
    """Return the tangents of some outputs as a body, and which outputs have one."""
    have: set[int] = set()

    def forward(*leaves: object) -> tuple[Any, ...]:
        take = taker(leaves)
        own = take(len(body.inputs))
        outs, found = tangents(Replay(body), own, dict(zip(of, take(len(of)), strict=True)))
        have.update(i for i, t in enumerate(found) if t is not None)
        return tuple(zeros(outs[i]) if found[i] is None else found[i] for i in forced)

    return traced("cond", forward, list, inputs), have


def _batch(call: BatchedCall) -> tuple[Any, ...]:
    """Return the examples by the branch of all, or selected from the results of every branch."""
    branches, reads = call.attrs["branches"], call.attrs["reads"]
    index, operands, flags = call.xs[0], call.xs[1:], call.batched[1:]
    lists = [[operands[i] for i in places] for places in reads]
    batched = [tuple(flags[i] for i in places) for places in reads]
    if not call.batched[0]:
        founds = [
            body.make(("examples", own, call.size), _batched, body, own, call.size, inputs)
            for body, own, inputs in zip(branches, batched, lists, strict=True)
        ]
        return tuple(_run_derived(index, founds, lists))
    each = [
        examples(Replay(body), inputs, own, call.size)[0]
        for body, own, inputs in zip(branches, batched, lists, strict=True)
    ]
    results = each[-1]
    for k in range(len(branches) - 2, -1, -1):
        results = by_mask(index <= k, each[k], results)
    return tuple(results)


def _batched(
    body: SubProgram, flags: Sequence[bool], size: int, inputs: Sequence[object]
) -> Traced:
    def forward(*leaves: object) -> tuple[Any, ...]:
        return tuple(examples(Replay(body), leaves, flags, size)[0])

    return traced("cond", forward, list, inputs)


_RULES = Rules(_vjp, _jvp, None, _recorded, _batch)
COND = Op("cond", _forward, several=True, takes_complex=True, rules=_RULES)
