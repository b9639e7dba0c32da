"""The entry ``scan``: a loop of a known number of iterations, and its derivatives.

Inputs: the *consts* that every iteration reads; the *carries* of the first; the *xs*, arrays of
``length`` rows of which each iteration reads one, the body's random numbers last. Attributes:
- ``body``: a `SubProgram` of the consts, an iteration's carries and a row of each of xs, to the
  next carries and then the values to stack.
- ``carries``, ``xs``, ``length``: how many there are.
- ``reverse``: the first iteration reads the last row; stacked rows lie as those of xs.
- ``checkpoint``, ``keeps``: one carry in so many iterations is kept, where a gradient flows.
- ``residuals``: how many of the body's last outputs its backward alone reads.
Outputs: the last carries; the stacked values; with ``keeps``, for each carry an array of the inputs
of each ``checkpoint``-th iteration from the first on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tapegraph.batching import BatchedCall
from tapegraph.engines import registry
from tapegraph.engines.engine import Inner, Iteration, LoopRows, Reverse
from tapegraph.loops.body import (
    Replay,
    Traced,
    cotangents,
    example,
    examples,
    name_failure,
    taker,
    tangents,
    traced,
    zeros,
    zeros_where,
)
from tapegraph.numpy_warnings import quietly
from tapegraph.ops.shape import broadcast_to, moveaxis
from tapegraph.recording.node import as_leaf
from tapegraph.recording.op import GRADIENT, Attrs, Op, OpKind, Rules
from tapegraph.recording.program import SubProgram, interned
from tapegraph.recording.record import apply
from tapegraph.recording.scopes import recorder
from tapegraph.row_sparse import has_nan
from tapegraph.typed import Fun

# How many bytes the carries of a block take, and how many iterations it has whatever they take.
_BLOCK, _FEWEST = 1 << 18, 16
# Computing these again takes no longer than reading them from memory.
_CHEAP = ("add", "sub", "neg", "mul")


# The consts, carries and xs of an entry.
Lists = tuple[list[Any], list[Any], list[Any]]


def run_scan(
    body: SubProgram, lists: Lists, length: int, reverse: bool, checkpoint: int, keeps: bool = False
) -> Sequence[Any]:
    """Record a scan, and return its outputs; it keeps carries if anybody reads them."""
    consts, carries, xs = lists
    inputs = (*consts, *carries, *xs)
    flows = recorder().flows and any(x.requires_grad for x in inputs)
    step = body
    if flows and checkpoint == 1:
        step = body.make(("with residuals", len(consts)), _with_residuals, body, len(consts))
    end, kept = len(body.outputs), len(step.outputs)
    attrs = {"body": step, "carries": len(carries), "xs": len(xs), "length": length}
    attrs |= {"reverse": reverse, "checkpoint": checkpoint}
    outs = apply(SCAN, inputs, {**attrs, "keeps": keeps or flows, "residuals": kept - end})
    return [*outs[:end], *outs[kept:]]


# What a native backward reads in place of computing it again


def _with_residuals(body: SubProgram, consts: int) -> SubProgram:
    """Return a body, the first ``consts`` inputs shared by all iterations, with residuals too."""
    kept = _kept(body, consts)
    return _with_outputs(body, (*body.outputs, *kept)) if kept else body


def _with_outputs(body: SubProgram, outputs: tuple[int, ...]) -> SubProgram:
    return interned(body.with_program(replace(body.program, outputs=outputs)))


def _kept(body: SubProgram, consts: int) -> tuple[int, ...]:
    """Return the slots of dear results that the backward reads, and that differ by iteration."""
    program = body.program
    if GRADIENT in program.ops:
        return ()
    read = _read(body)
    differs, dear = set(body.inputs[consts:]), list[bool]()
    kept = []
    for slot, (op, inputs) in enumerate(zip(program.ops, program.inputs, strict=True)):
        cheap = op.kind in (OpKind.SHAPE, OpKind.INDEX) or op.name in _CHEAP
        dear.append(bool(inputs) and (not cheap or any(dear[i] for i in inputs)))
        if not differs.isdisjoint(inputs):
            differs.add(slot)
        if dear[slot] and slot in read and slot in differs and not (op.saves or op.several):
            dear[slot] = False  # for those that are computed from it
            kept.append(slot)
    return tuple(kept)


def _read(body: SubProgram) -> set[int]:
    """Return the slots whose values the backward reads; of an entry that runs again, its inputs."""
    program, found = body.program, set[int]()
    for slot, (op, inputs) in enumerate(zip(program.ops, program.inputs, strict=True)):
        if not inputs or not program.needs[slot]:
            continue
        if op.saves or op.several:
            found.update(inputs)
            continue
        bits = 0
        for place, i in enumerate(inputs):
            if program.needs[i]:
                bits |= op.reads[min(place, len(op.reads) - 1)]
        found.update(i for place, i in enumerate(inputs) if bits >> 1 + place & 1)
        if bits & 1:
            found.add(slot)
    return found


# The entry


def by_role(inputs: Sequence[object], carries: int, xs: int) -> Lists:
    first, last = len(inputs) - carries - xs, len(inputs) - xs
    return list(inputs[:first]), list(inputs[first:last]), list(inputs[last:])


def traced_iteration(f: Fun, lists: Lists, op: str = "scan") -> Traced:
    consts, carries, xs = lists
    return traced(op, f, list, [*consts, *carries, *(row(example(x)) for x in xs)])


def row(array: Any) -> Any:
    """Return an example of an array's rows: the first, or zeros."""
    return array[0, ...] if len(array) else np.zeros(array.shape[1:], array.dtype)


def run_derived(found: Traced, lists: Lists, attrs: Attrs) -> Sequence[Any]:
    """Record a scan of a derived body, which also reads arrays that rules made."""
    consts, carries, xs = lists
    how = {key: attrs[key] for key in ("length", "reverse", "checkpoint", "keeps")}
    return run_scan(found.body, ([*found.made, *consts], carries, xs), **how)


def _inner(body: SubProgram) -> Inner:
    return registry.engine(registry.NATIVE).inner(body)


def _forward(
    *inputs: object,
    body: SubProgram,
    carries: int,
    xs: int,
    length: int,
    reverse: bool,
    checkpoint: int,
    keeps: bool,
    residuals: int,
) -> tuple[Any, ...]:
    consts, carry, rows = by_role(list(map(np.asarray, inputs)), carries, xs)
    types = body.types(body.outputs)
    count, first_residual = -(-length // checkpoint), len(body.outputs) - residuals
    order, places = (range(n)[::-1] if reverse else range(n) for n in (length, count))
    kept: list[Any] = [None] * carries * keeps
    stacks: list[Any] = []
    for i, (shape, dtype) in enumerate(types[carries:], carries):
        c = body.outputs.index(body.outputs[i])
        if i < first_residual or c >= len(kept):
            stacks.append(np.empty((length, *shape), dtype))
            continue
        # A residual is the next carry: both lie in one array, of a row more.
        whole = np.empty((length + 1, *shape), dtype)
        whole[length if reverse else 0] = carry[c]
        parts = whole[1:], whole[:-1]
        stack, kept[c] = parts[::-1] if reverse else parts
        stacks.append(stack)
    # The kept carries whose rows are written as such.
    own = {
        c: np.empty((count, *carry[c].shape), carry[c].dtype)
        for c, x in enumerate(kept)
        if x is None
    }

    def run() -> list[Any]:
        now = carry
        first = [*consts, *carry, *(x[0, ...] for x in rows)]
        with _inner(body).forward(first) as step:

            def block(start: int, n: int, works: list[Any]) -> bool:
                t, by = order[start], order.step
                of_rows, of_stacks = ([LoopRows(x, t, by) for x in xs] for xs in (rows, stacks))
                reads = [*map(LoopRows, consts), *(LoopRows(w, 0, 1) for w in works), *of_rows]
                if not step.many(n, reads, [*(LoopRows(w, 1, 1) for w in works), *of_stacks]):
                    return False
                at = -(-start // checkpoint)
                for c, stack in own.items():
                    found = works[c][at * checkpoint - start : n : checkpoint]
                    stack[:: places.step][at : at + len(found)] = found
                return True

            last = _in_blocks(carry, length, block)
            if last is not None:
                return last
            for i, t in enumerate(order):
                if i % checkpoint == 0:
                    for c, stack in own.items():
                        stack[places[i // checkpoint]] = now[c]
                given = [*consts, *now, *[x[t, ...] for x in rows]]
                try:
                    out = step(given)
                except Exception as error:
                    name_failure(error, body, given, f"iteration {i} of {length}")
                    raise
                now = out[:carries]
                for stack, y in zip(stacks, out[carries:], strict=True):
                    stack[t] = y
        return now

    last = quietly(run) if length else carry
    return (*map(np.array, last), *stacks, *(own.get(c, x) for c, x in enumerate(kept)))


def _in_blocks(
    carry: Sequence[Any], length: int, run: Callable[[int, int, list[Any]], bool]
) -> list[Any] | None:
    """Run many iterations at a time, and return the last carries; None if the engine cannot.

    ``run(start, count, works)`` makes some iterations. Row i of an array of ``works`` is a carry
    before iteration ``start + i``.
    """
    size = min(length, max(_FEWEST, _BLOCK // max(sum(x.nbytes for x in carry), 1)))
    works = [np.empty((size + 1, *x.shape), x.dtype) for x in carry]
    for work, x in zip(works, carry, strict=True):
        work[0] = x
    for start in range(0, length, size):
        count = min(size, length - start)
        if not run(start, count, works):
            return None
        for work in works:
            work[0] = work[count]
    return [work[0, ...] for work in works]


def scan_vjp(
    needs: Sequence[bool], g: Sequence[object], y: Any, *inputs: Any, **attrs: Any
) -> list[Any]:
    """Run the backward of the iterations; add gradients in a sweep's order, later ones first."""
    body, length, every = attrs["body"], attrs["length"], attrs["checkpoint"]
    carries, reverse = attrs["carries"], attrs["reverse"]
    arrays = list(map(np.asarray, inputs))
    consts, carry, rows = by_role(arrays, carries, attrs["xs"])
    outs = y if attrs["keeps"] else _forward(*arrays, **{**attrs, "keeps": True})
    end = len(body.outputs)
    residuals = [np.asarray(x) for x in outs[end - attrs["residuals"] : end]]
    kept = [np.asarray(x) for x in outs[end:]]
    program, inner = body.program, _inner(body)
    first, second, count = len(consts), len(consts) + carries, -(-length // every)
    order, places = (range(n)[::-1] if reverse else range(n) for n in (length, count))
    flows = [program.needs[slot] for slot in body.inputs]
    by_const = [i for i in range(first) if needs[i] and flows[i]]
    by_carry = [i for i in range(first, second) if flows[i]]
    by_row = [i for i in range(second, len(arrays)) if needs[i] and flows[i]]
    flowing = [i for i, slot in enumerate(body.outputs) if program.needs[slot]]
    ends = [i for i in flowing if i < carries and first + i in by_carry]
    stacked = {i: np.asarray(g[i]) for i in flowing if i >= carries and g[i] is not None}
    of_kept = enumerate(g[end:], first)
    read = {i: np.asarray(x) for i, x in of_kept if x is not None and i in by_carry}
    # Consts and carries that are stacked as they are, the last output first.
    fixed = [
        (i, j) for j in reversed(stacked) for i in by_const if body.outputs[j] == body.inputs[i]
    ]
    seeded = [j for j in reversed(stacked) if all(j != k for _, k in fixed)]
    by_slot = {body.outputs[i]: i for i in reversed(ends)}
    early = [(by_slot[body.outputs[j]], j) for j in seeded if body.outputs[j] in by_slot]
    seeded = [j for j in seeded if all(j != k for _, k in early)]
    reached = (*by_carry, *by_row, *by_const)
    kind = Reverse(
        tuple(body.inputs[i] for i in reached),
        (
            *(body.inputs[first + i] for i, _ in early),
            *(body.inputs[i] for i in by_const),
            *(body.outputs[i] for i in (*seeded, *ends)),
        ),
        body.outputs[end - len(residuals) :],
    )

    def carries_of(start: int, stop: int, step: Any) -> list[list[Any]]:
        at = places[start // every]
        found = [[x[at, ...] for x in kept]]
        for t in order[start : stop - 1]:
            found.append(step([*consts, *found[-1], *[x[t, ...] for x in rows]])[:carries])
        return found

    def in_blocks(
        pull: Iteration, grads: dict[int, Any], totals: list[Any], stacks: list[Any]
    ) -> list[Any] | None:
        started = [grads.get(i, carry[i - first]) for i in by_carry]
        sums = [np.array(x, order="C") for x in totals]  # an iteration writes where it has read

        def block(done: int, n: int, works: list[Any]) -> bool:
            t, by = order[length - 1 - done], -order.step
            seeds = [
                *map(LoopRows, sums),
                *(LoopRows(stacked[j], t, by) for j in seeded),
                *(LoopRows(works[by_carry.index(first + j)], 0, 1) for j in ends),
            ]
            of_rows = [LoopRows(x, t, by) for x in (*kept, *rows, *residuals)]
            writes = [
                *(LoopRows(w, 1, 1) for w in works),
                *(LoopRows(x, t, by) for x in stacks),
                *map(LoopRows, sums),
            ]
            return pull.many(n, [*map(LoopRows, consts), *of_rows, *seeds], writes)

        last = _in_blocks(started, length, block)
        if last is None:
            return None
        return [*(x.copy() for x in last), *stacks, *sums]

    def swept(pull: Any, step: Any) -> list[Any]:
        kinds = body.types(body.outputs)
        grads = {}
        for i in ends:
            grads[first + i] = np.zeros(*kinds[i]) if g[i] is None else np.asarray(g[i])
        for i, j in early if length else ():
            grads[first + i] = grads[first + i] + stacked[j][order[-1], ...]
        totals = [np.zeros_like(arrays[i]) for i in by_const]
        for i, j in fixed:
            for x in stacked[j]:
                totals[by_const.index(i)] = totals[by_const.index(i)] + x
        stacks = [np.empty_like(arrays[i], order="C") for i in by_row]
        none = {i: np.zeros_like(carry[i]) for i, _ in early}
        if every == 1 and not early and not read and length:
            done = in_blocks(pull, grads, totals, stacks)
            if done is not None:
                return done
        for segment in range((length - 1) // every, -1, -1) if length else ():
            start = segment * every
            stop = min(start + every, length)
            before = carries_of(start, stop, step)
            for i in range(stop - 1, start - 1, -1):
                t = order[i]
                seeds = [stacked[j][order[i - 1], ...] if i else none[c] for c, j in early]
                seeds += totals
                seeds += [stacked[j][t, ...] for j in seeded]
                seeds += [grads[first + j] for j in ends]
                read_rows = [x[t, ...] for x in (*rows, *residuals)]
                found = pull([*consts, *before[i - start], *read_rows, *seeds])
                grads = dict(zip(by_carry, found, strict=False))
                if i == start:
                    at = places[segment]
                    for j, x in read.items():
                        grads[j] = grads[j] + x[at, ...]
                after = len(by_carry) + len(by_row)
                for stack, grad in zip(stacks, found[len(by_carry) : after], strict=True):
                    stack[t] = grad
                totals = found[after:]
        return [*map(grads.get, by_carry), *stacks, *totals]

    def run() -> list[Any]:
        if not length:
            return swept(None, None)
        begin = [*consts, *carry, *(x[0, ...] for x in rows)]
        seeds = [np.zeros(program.shapes[s], program.dtypes[s]) for s in kind.seeded]
        read = [*begin, *(x[0, ...] for x in residuals)]
        with inner.forward(begin) as step, inner.pullback(kind, read, seeds) as pull:
            found = swept(pull, step)
            if any(map(has_nan, found)):
                found = swept(inner.strong_pullback(kind), step)
        return found

    grads = zeros_where(needs, arrays, np.zeros_like)
    for i, grad in zip(reached, quietly(run), strict=True):
        if needs[i] and grad is not None:
            grads[i] = grad
    return grads


# Derivatives as scans of their own


def recorded_scan_vjp(
    needs: Sequence[bool], g: Sequence[object], y: Sequence[object], *inputs: Any, **attrs: Any
) -> list[Any]:
    """Return the backward as a scan in the other direction, which carries cotangents."""
    body, carries = attrs["body"], attrs["carries"]
    consts, _, rows = by_role(inputs, carries, attrs["xs"])
    kept = y[len(body.outputs) :]
    if not attrs["keeps"] or attrs["checkpoint"] > 1:
        again = apply(SCAN, inputs, {**attrs, "keeps": True, "checkpoint": 1})
        kept = again[len(body.outputs) :]
    end, first, second = len(body.outputs), len(consts), len(consts) + carries
    into, out = (
        [body.program.needs[slot] for slot in part] for part in (body.inputs, body.outputs)
    )
    wanted = [i for i, x in enumerate(needs) if x and into[i] and not first <= i < second]
    of_const = [i for i in wanted if i < first]
    ends = [i for i in range(carries) if into[first + i]]
    seeded = [i for i in range(carries, end) if g[i] is not None and out[i]]
    of_kept = dict(enumerate(g[end:]))
    read = [i for i in ends if of_kept.get(i) is not None]

    def backward(*leaves: object) -> tuple[Any, ...]:
        """Run an iteration's backward: carry cotangents and sums, and stack gradients of rows."""
        take = taker(leaves)
        consts, back, totals = take(first), take(len(ends)), take(len(of_const))
        inputs = [*consts, *take(len(body.inputs) - first)]
        seeds = dict(zip((*ends, *seeded), [*back, *take(len(seeded))], strict=True))
        more = dict(zip(read, take(len(read)), strict=True))
        places = [*(first + i for i in ends), *wanted]
        found = taker(cotangents(Replay(body), inputs, seeds, places))
        pairs = zip(ends, found(len(ends)), strict=True)
        carried = [x + more[i] if i in more else x for i, x in pairs]
        sums = [total + x for total, x in zip(totals, found(len(totals)), strict=True)]
        return (*carried, *sums, *found(len(wanted) - len(sums)))

    types = body.types(body.outputs)
    back = [as_leaf(np.zeros(*types[i])) if g[i] is None else g[i] for i in ends]
    totals = [zeros(inputs[i]) for i in of_const]
    seeds = [*(g[i] for i in seeded), *(of_kept[i] for i in read)]
    lists = (consts, [*back, *totals], [*kept, *rows, *seeds])
    key = ("transposed", first, carries, *map(tuple, (wanted, seeded, read)))
    found = body.make(key, traced_iteration, backward, lists)
    attrs |= {"reverse": not attrs["reverse"], "keeps": False}
    outs = run_derived(found, lists, attrs)[: len(found.body.outputs)]
    grads = zeros_where(needs, inputs)
    for i, grad in zip((*(first + i for i in ends), *wanted), outs, strict=True):
        if needs[i]:
            grads[i] = grad
    return grads


def _jvp(moving: Sequence[object], y: Any, *inputs: Any, **attrs: Any) -> tuple[Any, ...]:
    end, carries, xs = len(attrs["body"].outputs), attrs["carries"], attrs["xs"]
    body, residuals = attrs["body"], attrs["residuals"]
    outputs = body.outputs[: len(body.outputs) - residuals]
    body = body.make(("without residuals", residuals), _with_outputs, body, outputs)
    lists, turned = by_role(inputs, carries, xs), by_role(moving, carries, xs)
    found, lists, of_carry, have = moved_iterations("scan", body, lists, turned)
    stacked = [i for i in have if i >= carries]
    places = [*[None] * carries, *of_carry, *[None] * (len(body.outputs) - carries), *stacked]
    places += [*[None] * carries, *(end + i for i in of_carry)]
    result = [None] * (end + carries * attrs["keeps"])
    for place, tangent in zip(places, run_derived(found, lists, attrs), strict=False):
        if place is not None and place < len(result):
            result[place] = tangent
    return tuple(result)


def moved_iterations(
    op: str, body: SubProgram, lists: Lists, moving: Lists
) -> tuple[Traced, Lists, list[int], list[int]]:
    """Return a loop's iteration with tangents as a body, and its inputs with their tangents.

    Returned too: the carries with a tangent before and after an iteration, and such outputs.
    """
    carry, carries = lists[1], len(lists[1])
    places = [tuple(i for i, t in enumerate(part) if t is not None) for part in moving]
    while True:
        turned = [[part[i] for i in at] for part, at in zip(moving, places, strict=True)]
        pairs = zip(places[1], turned[1], strict=True)
        turned[1] = [zeros(carry[i]) if t is None else t for i, t in pairs]
        consts, now, rows = ([*a, *b] for a, b in zip(lists, turned, strict=True))
        parts = tuple((len(a), at) for a, at in zip(lists, places, strict=True))
        given = (consts, now, rows)
        found, have = body.make(("tangents", parts), _moved, op, body, parts, given)
        wider = tuple(sorted({*places[1], *(i for i in have if i < carries)}))
        if wider == places[1]:
            return found, given, list(wider), have
        places[1] = wider


def _moved(
    op: str, body: SubProgram, parts: Sequence[tuple[int, Sequence[int]]], lists: Lists
) -> tuple[Traced, list[int]]:
    """Return the body with tangents for ``parts``: the count of each role, and what moves."""
    have: list[int] = []
    carries, of_carry = parts[1]

    def forward(*leaves: object) -> tuple[Any, ...]:
        take = taker(leaves)
        inputs: list[Any] = []
        moving: dict[int, Any] = {}
        for count, places in parts:
            start = len(inputs)
            inputs += take(count)
            moving |= {start + i: t for i, t in zip(places, take(len(places)), strict=True)}
        outs, turned = tangents(Replay(body), inputs, moving)
        have.extend(i for i, t in enumerate(turned) if t is not None)
        next_ = [zeros(outs[i]) if turned[i] is None else turned[i] for i in of_carry]
        stacked = (t for t in turned[carries:] if t is not None)
        return (*outs[:carries], *next_, *outs[carries:], *stacked)

    return traced_iteration(forward, lists, op), have


def _batch(call: BatchedCall) -> tuple[Any, ...]:
    body, carries, keeps = call.attrs["body"], call.attrs["carries"], call.attrs["keeps"]
    consts, carry, rows = by_role(call.xs, carries, call.attrs["xs"])
    first, end, flags = len(consts), len(body.outputs), tuple(call.batched)
    while True:
        lists = (
            consts,
            [call.spread(first + i) if flags[first + i] else x for i, x in enumerate(carry)],
            [moveaxis(x, 0, 1) if flags[i] else x for i, x in enumerate(rows, first + carries)],
        )
        key = ("examples", first, carries, flags, call.size)
        found, differ = body.make(key, _batched, body, flags, call.size, lists)
        now = flags[first : first + carries]
        wider = tuple(a or b for a, b in zip(now, differ, strict=True))
        if wider == now:
            break
        flags = (*flags[:first], *wider, *flags[first + carries :])
    outs = run_derived(found, lists, call.attrs)

    def spread(x: Any) -> Any:
        return broadcast_to(x, (call.size, *x.shape))

    last = [x if now[i] else spread(x) for i, x in enumerate(outs[:carries])]
    kept = [
        moveaxis(x, 1, 0) if now[i] else spread(x)
        for i, x in enumerate(outs[end:] if keeps else ())
    ]
    return (*last, *(moveaxis(x, 1, 0) for x in outs[carries:end]), *kept)


def _batched(
    body: SubProgram, flags: Sequence[bool], size: int, lists: Lists
) -> tuple[Traced, list[bool]]:
    first, carries = len(lists[0]), len(lists[1])
    after: list[bool] = []

    def forward(*leaves: object) -> tuple[Any, ...]:
        outs, differ = examples(Replay(body), leaves, flags, size)
        after.extend(differ[:carries])
        one = [not (flags[first + i] or differ[i]) for i in range(carries)]
        return tuple(x[0] if i < carries and one[i] else x for i, x in enumerate(outs))

    return traced_iteration(forward, lists), after


_RULES = Rules(scan_vjp, _jvp, None, recorded_scan_vjp, _batch)
SCAN = Op("scan", _forward, several=True, takes_complex=True, rules=_RULES)
