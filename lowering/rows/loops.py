"""TensorFlow nodes of entries with inner programs: loops, branches, and rules of users.

A rule ``rule(translator, read, *inputs, **attrs)`` returns the entry's outputs, of which only those
in ``read`` need be there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from tapegraph.lowering.rows import (
    DRAWN,
    NotLowered,
    Size,
    WithGradient,
    known,
    own_gradient,
    raw,
    scalar,
    taped,
)
from tapegraph.lowering.runtime import GraphTensor, tf
from tapegraph.recording.program import SubProgram
from tapegraph.typed import Fun

GraphTensors = Sequence[GraphTensor]
# Where an iteration lies among others.
Place = GraphTensor | int


# A ``tf.TensorArray``.
TensorArray: TypeAlias = Any
Stacks = Sequence[TensorArray]


def _scan(
    translator: Any,
    read: set[int],
    *inputs: GraphTensor,
    body: SubProgram,
    carries: int,
    xs: int,
    length: Place,
    reverse: bool,
    checkpoint: int,
    keeps: bool,
    residuals: int,
) -> list[GraphTensor | None]:
    """Emit a loop, whose gradient runs the iterations again, backwards, from the kept carries."""
    if isinstance(length, Size):
        length = tf.cast(length.tensor, "int32")
    consts = len(inputs) - carries - xs
    loop = GraphIterations(translator.body(body), consts, carries, length, reverse)
    count, last = len(body.outputs), -(-length // checkpoint)
    stacked = [i for i in range(carries, count) if i in read]

    def keep(i: Place, carry: GraphTensors, stacks: Stacks) -> list[TensorArray]:
        if checkpoint == 1:
            return [stack.write(loop.place(i), c) for stack, c in zip(stacks, carry, strict=True)]
        at = loop.place(i // checkpoint, last)
        return tf.cond(
            tf.equal(i % checkpoint, 0),
            lambda: [stack.write(at, c) for stack, c in zip(stacks, carry, strict=True)],
            lambda: list(stacks),
        )

    def forward(*inputs: GraphTensor) -> tuple[GraphTensors, GraphTensors, GraphTensors]:
        """Return the last carries, stacked values and kept carries, and check the iterations."""
        start = list(inputs[consts : consts + carries])
        kept = [_stack(last, x.shape, x.dtype) for x in start] if keeps else []
        types = body.types([body.outputs[i] for i in stacked])
        stacks = [_stack(length, shape, dtype) for shape, dtype in types]

        def step(
            i: Place, carry: GraphTensors, stacks: Stacks, kept: Stacks, right: GraphTensors
        ) -> tuple[Any, ...]:
            kept = keep(i, carry, kept) if keeps else kept
            outs, stands = loop.body(loop.inputs(i, carry, inputs))
            ys = (outs[j] for j in stacked)
            at = loop.place(i)
            stacks = [stack.write(at, y) for stack, y in zip(stacks, ys, strict=True)]
            right = [a & b for a, b in zip(right, stands, strict=True)]
            return i + 1, outs[:carries], stacks, kept, right

        right = [tf.constant(True)] if loop.body.checks else []
        carry, stacks, kept, right = _times(0, length, step, (start, stacks, kept, right))
        for flag in right:
            translator.check(flag)
        return carry, [stack.stack() for stack in stacks], [stack.stack() for stack in kept]

    def with_gradient(*inputs: GraphTensor) -> WithGradient:
        carry, ys, kept = forward(*translator.apart(inputs))

        def gradient(*gs: GraphTensor) -> list[GraphTensor | None]:
            seeds = dict(zip(range(carries), gs, strict=False))
            seeds |= dict(zip(stacked, gs[carries:], strict=False))
            of_kept = gs[carries + len(stacked) :]
            return loop.pulled(inputs, kept, checkpoint, seeds, of_kept)

        return [*carry, *ys, *kept], gradient

    outs = own_gradient(with_gradient, *inputs) if keeps else list(chain(*forward(*inputs)))
    return _placed(count, (*range(carries), *stacked), outs) + [*outs][carries + len(stacked) :]


def _while_loop(
    translator: Any,
    read: set[int],
    *inputs: GraphTensor,
    cond: SubProgram,
    body: SubProgram,
    carries: int,
    max_steps: int | None,
) -> list[GraphTensor | None]:
    """Emit a loop, whose gradient runs it once more, keeps the carries, and runs backwards."""
    first = len(cond.inputs) - carries
    test = translator.body(cond)
    if test.checks:
        raise NotLowered("while_loop has a condition that takes gradients or checks indices")

    def run(
        inputs: GraphTensors, stacks: Stacks = ()
    ) -> tuple[GraphTensors, Stacks, GraphTensor, GraphTensors]:
        """Return the last carries, those of each iteration, their number, and the checks."""
        of_cond, of_body = inputs[:first], inputs[first : len(inputs) - carries]
        iteration = translator.body(body)

        def goes_on(i: Place, carry: GraphTensors, *_: object) -> GraphTensor:
            (more,), _ = test([*of_cond, *carry])
            return more if max_steps is None else tf.logical_and(i < max_steps, more)

        def step(
            i: Place, carry: GraphTensors, stacks: Stacks, right: GraphTensors
        ) -> tuple[Any, ...]:
            stacks = [x.write(i, c) for x, c in zip(stacks, carry, strict=False)]
            outs, stands = iteration([*of_body, *carry])
            return i + 1, outs, stacks, [a & b for a, b in zip(right, stands, strict=True)]

        right = [tf.constant(True)] if iteration.checks else []
        start = (tf.constant(0), list(inputs[len(inputs) - carries :]), list(stacks), right)
        found = tf.while_loop(goes_on, step, start, parallel_iterations=1)
        count, last, stacks, right = found
        return last, list(stacks), count, right

    def with_gradient(*inputs: GraphTensor) -> WithGradient:
        carry, _, count, right = run(translator.apart(inputs))
        for flag in right:
            translator.check(flag)

        def gradient(*gs: GraphTensor) -> list[GraphTensor | None]:
            if translator.with_xla and max_steps is None:
                raise NotLowered("XLA compiles the backward of while_loop only with max_steps")
            rows = count if max_steps is None or not translator.with_xla else max_steps
            kept = [_stack(rows, x.shape, x.dtype) for x in inputs[-carries:]]
            _, stacks, _, _ = run(inputs, kept)
            given = inputs[first:]
            consts = len(given) - carries
            loop = GraphIterations(translator.body(body), consts, carries, count, False)
            seeds = dict(enumerate(gs[:carries]))
            return [None] * first + loop.pulled(given, [x.stack() for x in stacks], 1, seeds, ())

        return [*carry, tf.cast(count, tf.int64)], gradient

    return list(own_gradient(with_gradient, *inputs))


def _branches(
    translator: Any,
    read: set[int],
    index: GraphTensor,
    *operands: GraphTensor,
    branches: Sequence[SubProgram],
    reads: Sequence[Sequence[int]],
) -> list[GraphTensor | None]:
    """Emit a choice; its gradient is one between the gradients of the branches, run again."""
    bodies = list(map(translator.body, branches))
    checks = any(body.checks for body in bodies)
    if index.dtype == tf.bool:
        index = tf.cast(index, tf.int32)
    last = tf.constant(len(branches) - 1, index.dtype)
    index = tf.cast(tf.minimum(tf.maximum(index, tf.zeros_like(index)), last), tf.int32)

    def chosen(runs: Sequence[Callable[[], Any]]) -> Any:
        if len(runs) == 1:
            return runs[0]()
        if len(runs) == 2:
            return tf.cond(tf.equal(index, 1), runs[1], runs[0])
        return tf.switch_case(index, list(runs))

    def with_gradient(*operands: GraphTensor) -> WithGradient:
        given = translator.apart(operands)

        def forward(body: Any, places: Sequence[int]) -> tuple[GraphTensors, GraphTensor]:
            outs, stands = body([given[i] for i in places])
            return list(map(tf.identity, outs)), stands[0] if stands else tf.constant(True)

        runs = [partial(forward, *pair) for pair in zip(bodies, reads, strict=True)]
        outs, stands = chosen(runs)
        if checks:
            translator.check(stands)
        flows = {
            place
            for body, places in zip(bodies, reads, strict=True)
            for place, slot in zip(places, body.inner.inputs, strict=True)
            if body.program.needs[slot] and _is_inexact(operands[place])
        }

        def backward(
            gs: GraphTensors, body: Any, places: Sequence[int]
        ) -> list[GraphTensor | None]:
            needs, given = body.program.needs, [operands[i] for i in places]
            slots = enumerate(body.inner.outputs)
            seeded = {i: gs[i] for i, slot in slots if needs[slot] and gs[i] is not None}
            flow = [j for j, place in enumerate(places) if place in flows]
            found = _pulled_back(body, given, flow, seeded)
            grads = {places[j]: grad for j, grad in found.items()}
            return [grads[i] if i in grads else tf.zeros_like(operands[i]) for i in sorted(flows)]

        def gradient(*gs: GraphTensor) -> list[GraphTensor | None]:
            runs = [partial(backward, gs, *pair) for pair in zip(bodies, reads, strict=True)]
            return _placed(len(operands), sorted(flows), chosen(runs) if flows else ())

        return outs, gradient

    return list(own_gradient(with_gradient, *operands))


class GraphIterations(NamedTuple):
    """The iterations of a loop, whose body takes so many constants, carries, and rows."""

    body: Any
    consts: int
    carries: int
    length: Place
    reverse: bool

    def place(self, i: Place, count: Place | None = None) -> Place:
        return (self.length if count is None else count) - 1 - i if self.reverse else i

    def inputs(self, i: Place, carry: GraphTensors, inputs: GraphTensors) -> list[GraphTensor]:
        rows = inputs[self.consts + self.carries :]
        at = self.place(i)
        return [*inputs[: self.consts], *carry, *(_row(x, at) for x in rows)]

    def pulled(
        self,
        inputs: GraphTensors,
        kept: GraphTensors,
        every: int,
        seeds: Mapping[int, Any],
        of_kept: GraphTensors,
    ) -> list[GraphTensor | None]:
        """Return each input's cotangent, given those of outputs and of kept carries."""
        first, second = self.consts, self.consts + self.carries
        needs, slots = self.body.program.needs, self.body.inner.inputs
        flow = [i for i, slot in enumerate(slots) if needs[slot] and _is_inexact(inputs[i])]
        of_consts = [i for i in flow if i < first]
        of_carry = [i for i in flow if first <= i < second]
        of_rows = [i for i in flow if i >= second]
        out = self.body.inner.outputs
        stacked = [
            i for i, g in seeds.items() if i >= self.carries and g is not None and needs[out[i]]
        ]

        def pull(
            i: Place, carry: GraphTensors, back: GraphTensors, totals: GraphTensors, stacks: Stacks
        ) -> tuple[Any, ...]:
            at = self.place(i)
            seeded = dict(zip((j - first for j in of_carry), back, strict=True))
            seeded |= {j: _row(seeds[j], at) for j in stacked}
            grads = _pulled_back(self.body, self.inputs(i, carry, inputs), flow, seeded)
            back = [grads[j] for j in of_carry]
            totals = [a + grads[j] for a, j in zip(totals, of_consts, strict=True)]
            stacks = [s.write(at, grads[j]) for s, j in zip(stacks, of_rows, strict=True)]
            return back, totals, stacks

        def kept_too(back: GraphTensors, at: Place) -> list[GraphTensor]:
            gs = [of_kept[j - first] if of_kept else None for j in of_carry]
            return [a if g is None else a + _row(g, at) for a, g in zip(back, gs, strict=True)]

        def segment(s: Place, *state: object) -> tuple[Any, ...]:
            """Pull back through the iterations from one kept carry to the next."""
            start, at = s * every, self.place(s, last)
            stop = tf.minimum(start + every, self.length)
            carry = [_row(x, at) for x in kept]
            stacks = [_stack(every, x.shape, x.dtype) for x in carry]

            def again(i: Place, carry: GraphTensors, stacks: Stacks) -> tuple[Any, ...]:
                stacks = [x.write(i - start, c) for x, c in zip(stacks, carry, strict=True)]
                return i + 1, self.body(self.inputs(i, carry, inputs))[0][: self.carries], stacks

            _, stacks = _times(start, stop, again, (carry, stacks))

            def one(i: Place, *state: Any) -> tuple[Any, ...]:
                before = [x.read(i - start) for x in stacks]
                return i - 1, *pull(i, before, *state)

            back, *rest = _times(stop - 1, start - 1, one, state, down=True)
            return s - 1, kept_too(back, at), *rest

        def one(i: Place, *state: Any) -> tuple[Any, ...]:
            at = self.place(i)
            back, *rest = pull(i, [_row(x, at) for x in kept], *state)
            return i - 1, kept_too(back, at), *rest

        last = -(-self.length // every)
        zeros = tf.zeros_like
        state = (
            [zeros(inputs[j]) if seeds[j - first] is None else seeds[j - first] for j in of_carry],
            [zeros(inputs[j]) for j in of_consts],
            [_stack(self.length, inputs[j].shape[1:], inputs[j].dtype) for j in of_rows],
        )
        step = one if every == 1 else segment
        back, totals, stacks = _times(last - 1, -1, step, state, down=True)
        found = (*back, *totals, *(x.stack() for x in stacks))
        return _placed(len(inputs), (*of_carry, *of_consts, *of_rows), found)


def _custom_vjp(
    translator: Any, read: set[int], *inputs: GraphTensor, rule: Any, backward: SubProgram
) -> list[GraphTensor | None]:
    """Emit results unchanged, whose gradient is the user's own, an inner program."""
    body = translator.body(backward)
    stop = rule.results + rule.given
    given, reads = inputs[rule.results : stop], inputs[stop:]
    kept = len(reads) - rule.consts

    def with_gradient(*inputs: GraphTensor) -> WithGradient:
        def gradient(*gs: GraphTensor) -> list[GraphTensor | None]:
            results = inputs[: rule.results]
            seeds = [tf.zeros_like(x) if g is None else g for g, x in zip(gs, results, strict=True)]
            found, stands = body([*reads[kept:], *given, *reads[:kept], *seeds])
            for flag in stands:
                translator.check(flag)
            present = [i for i, there in enumerate(rule.present, rule.results) if there]
            return _placed(len(inputs), present, found)

        return list(map(tf.identity, inputs[: rule.results])), gradient

    return list(own_gradient(with_gradient, *inputs))


def _draw(translator: Any, read: set[int], position: Any, *, random: Any) -> list[Any]:
    """Emit a call of NumPy's generator."""
    if translator.with_xla:
        raise NotLowered("XLA compiles no draw in a branch, nor in a loop around one")
    numbers, end = tf.numpy_function(
        lambda x: random.at(x), [position], [random.dtype, tf.int64], stateful=False
    )
    numbers.set_shape(random.shape)
    end.set_shape(position.shape)
    return [numbers, end]


def _pulled_back(
    body: Any, given: GraphTensors, flow: Sequence[int], seeds: Mapping[int, GraphTensor]
) -> dict[int, GraphTensor]:
    """Run a body again; return cotangents of some inputs, given those of some outputs, by place."""
    sources = [given[i] for i in flow]
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        outs, _ = body(given)
    found = taped(tape, [outs[i] for i in seeds], sources, list(seeds.values()))
    return dict(zip(flow, map(tf.convert_to_tensor, found), strict=True))


def _placed(count: int, places: Sequence[int], tensors: GraphTensors) -> list[GraphTensor | None]:
    found = dict(zip(places, tensors, strict=False))
    return [found.get(i) for i in range(count)]


def _is_inexact(x: GraphTensor) -> bool:
    return bool(x.dtype.is_floating or x.dtype.is_complex)


def _row(x: GraphTensor, place: Place) -> GraphTensor:
    return raw.GatherV2(params=x, indices=place, axis=scalar(0, "int32"))


def _stack(length: Place, shape: Any, dtype: Any) -> TensorArray:
    return tf.TensorArray(dtype, size=length, element_shape=known(tuple(shape)))


def _times(
    start: Place, stop: Place, step: Fun, state: Sequence[object], *, down: bool = False
) -> Any:
    """Emit a loop over integers, and return its last state."""

    def goes_on(i: Place, *_: object) -> GraphTensor | bool:
        return i > stop if down else i < stop

    _, *found = tf.while_loop(
        goes_on, step, (tf.convert_to_tensor(start), *state), parallel_iterations=1
    )
    return found


EMITTED: dict[str, Callable[..., list[GraphTensor | None]]] = {
    "scan": _scan,
    "while_loop": _while_loop,
    "cond": _branches,
    "custom_vjp": _custom_vjp,
    DRAWN: _draw,
}
