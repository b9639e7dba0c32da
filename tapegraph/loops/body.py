"""From a function to an inner program, the body of a loop or a branch of a choice, and back.

The function runs once, on leaves of its own. What it reads from outside becomes an input. A rule of
a derivative traces a function that runs the program (`Replay`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from itertools import islice, repeat
from typing import Any, NamedTuple
from weakref import ref

import numpy as np

from tapegraph import random
from tapegraph.capture import Capture, expire, leaked
from tapegraph.differentiation.gradients import Region
from tapegraph.draws import no_foreign_draws
from tapegraph.engines import registry
from tapegraph.errors import message
from tapegraph.numpy_warnings import quietly
from tapegraph.ops.elementwise import where
from tapegraph.ops.index import Outside
from tapegraph.ops.shape import reshape
from tapegraph.pytree import exchanged, leaves, mapped, matched, replaced
from tapegraph.recording.node import as_leaf, get_default_dtype, next_seq
from tapegraph.recording.numpy_functions import is_float, promote_runtime_floats
from tapegraph.recording.op import DEFINED, OPS, PART, Attrs
from tapegraph.recording.program import Interpreter, SubProgram, feed_changed_floats, interned
from tapegraph.recording.record import ELEMENTWISE, apply, tensor_like
from tapegraph.recording.scopes import RECORDING, Scope, no_grad, recorder
from tapegraph.recording.tape import Tape
from tapegraph.recording.values import handle_of, restore
from tapegraph.row_sparse import conjugated
from tapegraph.tensors.batched import Batched, Level, at_level, entered
from tapegraph.tensors.dual import Dual, dual_of, parts
from tapegraph.tensors.tensor import Tensor, UpdatedTensor
from tapegraph.tensors.value import Value
from tapegraph.transforms.levels import next_tag
from tapegraph.transforms.reverse import vjp
from tapegraph.typed import Array, DType, Fun


class Draw(NamedTuple):
    """A draw of random numbers in a body, which every iteration makes anew."""

    shape: tuple[int, ...]
    op: str
    draw: Callable[[], Any]
    dtype: Any
    by: dict[str, float]


class Traced(NamedTuple):
    """A function as an inner program.

    :ivar body: Its inputs are the consts, the function's arguments, and the draws.
    :ivar consts: The outside values that it reads: tensors, duals, examples of `vmap`.
    :ivar draws: Its draws, in order.
    :ivar draws_on: Whether the numbers decide how much it draws, in a branch or a loop inside.
    :ivar form: The structure of the function's result, with True for all but None.
    """

    body: SubProgram
    consts: list[Any]
    draws: list[Draw]
    draws_on: bool
    form: Any

    @property
    def made(self) -> list[Any]:
        """The arrays that rules made for a derived body."""
        return [as_leaf(x._array) for x in self.consts]


def _refusal(what: str, fix: str) -> Any:

    def refused(self: Body, *args: object) -> Any:
        raise RuntimeError(message(self._op, f"{what} inside", "a function without effects", fix))

    return refused


class Body(Capture):
    """Captures a function as an inner program, a level inside which outer duals are constants."""

    def __init__(self, op: str) -> None:
        super().__init__()
        self.tape = Tape()  # a new one: nobody else may see these entries
        self.outer = recorder().capture
        self.body = self
        self.level = next_tag()
        self.closed: dict[int, tuple[Any, Any]] = {}  # a leaf and its outer value, by its id
        self.draws: list[tuple[Any, Draw]] = []
        self.draws_on = False
        self._op = op

    def apply(self, name: str, inputs: tuple[object, ...], attrs: Attrs) -> Any:
        given = tuple(self.inside(name, x) for x in inputs)
        operands = tuple(promote_runtime_floats(x, given) if is_float(x) else x for x in given)
        call = ELEMENTWISE.get(name)
        if call:
            return call(*operands)
        return apply(OPS.get(name) or DEFINED[name], operands, dict(attrs))

    def inside(self, op: str, x: Any) -> Any:
        """Return a value as it is in the body: one of an outer level as a leaf."""
        if isinstance(x, Value):
            fix = "Pass value.data, or write the loop in Python."
            raise TypeError(message(self._op, f"a Value in {op}", "numbers or arrays", fix))
        if not self.is_outer(x):
            return x
        known = self.closed.get(id(x))
        if known is None:
            known = self.closed[id(x)] = (self.taken(x, bool(x.requires_grad)), x)
        return known[0]

    def taken(self, x: object, flows: bool) -> Any:
        leaf = self.input(example(x))
        leaf._requires_grad = flows and leaf.dtype.kind in "fc"
        leaf._retains = False
        return leaf

    def is_outer(self, x: Any) -> bool:
        return type(x) in (Dual, Batched) and x.tag < self.level

    def records(self, *values: object) -> bool:
        return super().records(*values) or any(map(self.is_outer, values))

    def read(self, value: object, conversion: str, fix: str) -> None:
        """Raise: a later iteration has another number."""
        if self.is_outer(value):
            value = self.inside(conversion, value)
        if conversion in ("bool", "if"):
            fix = (
                "Write tg.where for a choice between values, tg.cond to run one of two functions; "
                "(a) & (b) for `a and b`."
            )
        super().read(value, conversion, fix)

    def draw(self, op: str, draw: Callable[[], Any], dtype: Any, by: dict[str, float]) -> Any:
        """Return a leaf whose numbers each iteration draws; the stream is unchanged."""
        if self.stream is not None:
            return super().draw(op, draw, dtype, by)
        leaf = self.input(np.asarray(random.peeked(draw), dtype))
        self.draws.append((leaf, Draw(leaf.shape, op, draw, dtype, by)))
        return leaf

    def position(self, read: Callable[[], Array]) -> Any:
        """Return where the stream is; what drew in iterations is to be recorded as `drawing_on`."""
        if self.stream is None:
            self.draws_on = True
            self.stream = self.input(read())
        return self.stream

    def _is_argument(self, data: object) -> bool:
        return False

    # State, which a body has none of

    assign: Any = _refusal(
        "a new value for a tensor", "Make it a part of the carry, and return it."
    )
    before_write: Any = assign
    add_gradients: Any = _refusal("backward()", "Use tg.grad(f), or call backward() on the result.")
    gradient: Any = _refusal("a read of .grad", "Read it outside: a body may close over values.")
    set_gradient: Any = _refusal("a new gradient", "Write it outside.")
    zero_gradient: Any = _refusal("zero_grad()", "Call it outside.")
    set_requires_grad: Any = _refusal("requires_grad_()", "Call it outside.")
    step: Any = _refusal(
        "a step of an optimizer",
        "Compile the step, and write step.scan(...) for many steps of training.",
    )


def traced(
    op: str,
    f: Fun,
    arguments: Callable[[list[Any]], Any],
    given: Sequence[object],
    flows: Iterable[bool] = repeat(True),
) -> Traced:
    """Run a function once on leaves, and return its computation as an inner program.

    :param arguments: Makes the function's arguments of the leaves.
    :param given: Tensors or arrays, examples of what the leaves stand for.
    :param flows: Whether a gradient flows from each of them.
    """
    recorder().flows  # noqa: B018 - a thread's first use makes the recorder that it goes on with
    # In a context that is dropped: an interrupt leaves no scope in force.
    found, tape, inputs = quietly(_traced, op, f, arguments, given, flows)
    expire(leaked(0, inputs, tape), f"{op} of {getattr(f, '__name__', 'a function')}")
    return found


def _traced(
    op: str,
    f: Fun,
    arguments: Callable[[list[Any]], Any],
    given: Sequence[object],
    flows: Iterable[bool],
) -> tuple[Traced, Tape, list[Any]]:
    body = Body(op)
    with body, Scope(RECORDING, True), random.unrepeated(), no_foreign_draws(op, f):
        inputs = list(map(body.taken, given, flows))
        out = f(*arguments(inputs))
        held = [x for _, x in leaves(out)]
        outputs = [body.inside(op, loop_operand(op, x, "the result")) for x in held]
        draws = [leaf for leaf, _ in body.draws]
        recording = body.recording([*outputs, *inputs, *draws])
    program = recording.program
    own = program.outputs[len(outputs) :]
    program.outputs = program.outputs[: len(outputs)]
    feed_changed_floats(recording)
    consts = [slot for slot in program.fed if slot not in own]
    outer = {id(leaf): x for leaf, x in body.closed.values()}
    read = [
        as_leaf(recording.values[slot]) if node is None else handle_of(outer.get(id(node), node))
        for slot, node in ((slot, recording.nodes[slot]) for slot in consts)
    ]
    made = interned(SubProgram(recording, (*consts, *own)))
    form = mapped(lambda _: True, out)
    found = Traced(made, read, [draw for _, draw in body.draws], body.draws_on, form)
    return found, body.tape, [ref(x) for x in (*inputs, *draws)]


def check_form(op: str, given: object, form: object, argument: str, of: str) -> None:
    """Raise a TypeError unless a traced function's result has the structure of another."""
    try:
        lost = [path for path, x in matched(op, given, form, argument, of) if x is None]
    except ValueError as error:
        raise TypeError(*error.args) from None
    if lost:
        raise TypeError(message(op, f"None for {lost[0]}", f"a number, as {of} has"))


def name_failure(error: Exception, body: SubProgram, inputs: Sequence[object], when: str) -> None:
    """Raise an error of a run of a body with the operation, its line and the iteration."""
    if "tapegraph_when" in vars(error):  # of a loop inside
        error.args = (f"{str(error)[:-1]}, in {when})",)
        return
    slot = quietly(registry.engine(registry.NATIVE).inner(body).failing, inputs)
    outside = isinstance(error, Outside)
    if slot is None or not (outside or type(error) is np.linalg.LinAlgError):
        return
    text = f"{error}" if outside else f"{body.program.ops[slot].name}: {error}."
    found = (IndexError if outside else np.linalg.LinAlgError)(
        f"{text} (at {body.recording.where(slot)}, in {when})"
    )
    vars(found)["tapegraph_when"] = when
    raise found from None


def drawing_on(f: Fun, position: object, *args: object) -> tuple[Any, Any]:
    """Call a function, in a body, whose draws begin at a position; return where they end too."""
    body = recorder().body
    body.stream = position
    out = f(*args)
    return out, body.stream


def loop_operand(op: str, x: object, path: str, dtype: DType | None = None) -> Any:
    """Return a loop's operand as a tensor or a value of some level, a float in a dtype."""
    kind = get_default_dtype() if dtype is None else dtype
    value = recorder().number(x, kind)
    found = tensor_like(op, kind.type(value) if type(value) is float else value, path)
    return found._read(op) if type(found) is UpdatedTensor else found


def further_arguments(op: str, args: object) -> tuple[list[Any], Fun]:
    """Return the inputs among further arguments, and a function that replaces them."""
    held = [x for _, x in leaves(args)]
    places = [i for i, x in enumerate(held) if isinstance(x, float) or hasattr(x, "dtype")]

    def having(numbers: Sequence[object]) -> Any:
        return replaced(args, iter(exchanged(held, places, numbers)))

    return [loop_operand(op, held[i], "args") for i in places], having


def traced_without_draws(
    op: str, f: Fun, arguments: Callable[[list[Any]], Any], given: Sequence[object]
) -> Traced:
    found = traced(op, f, arguments, given)
    if found.draws or found.draws_on:
        raise RuntimeError(f"{op}: the function draws random numbers. Draw them before the call.")
    return found


def example(x: Any) -> Array:
    """Return an array or a tensor's numbers: of a `Dual` its value, of a `Batched` one example."""
    if isinstance(x, (np.ndarray, np.generic)):
        return np.asarray(x)
    if type(x) is Dual:
        return example(x.primal)
    if type(x) is Batched:
        array = example(x.inner)
        return array[0] if len(array) else np.zeros(array.shape[1:], array.dtype)
    return restore(x) if type(x) is not Tensor else x._array


class Replay(Interpreter):
    """Computes an inner program again in recorded operations, on tensors of any level."""

    def __init__(self, body: SubProgram) -> None:
        super().__init__(body.recording)
        self._body = body

    def __call__(self, *inputs: object) -> list[Any]:
        given = dict(zip(self._body.inputs, inputs, strict=True))
        numbers = {slot: self.recording.values[slot] for slot in self.program.scalars}
        self.run(given | numbers)
        return [self.values[slot] for slot in self.program.outputs]

    def operation(self, slot: int) -> Any:
        op, attrs = self.program.ops[slot], self.program.attrs[slot]
        operands = self.operands(slot)
        if op is PART:
            return operands[0][attrs["output"]]
        needs = self.program.needs
        ends = not needs[slot] and any(needs[i] for i in self.program.inputs[slot])
        call = ELEMENTWISE.get(op.name)
        with no_grad() if ends else nullcontext():
            return call(*operands) if call else apply(op, tuple(operands), dict(attrs))

    def derivatives(self, slot: int) -> dict[int, Any]:
        program = self.program
        backward = program.backward_of(slot)
        y, *seed = backward
        targets = [program.inputs[i][1] for i in program.gradients_of(backward)]

        def f(*points: object) -> Any:
            return self._again(dict(zip(targets, points, strict=True)), y)

        points = [self.values[i] for i in targets]
        value, pullback = vjp(f, *points)
        ones = as_leaf(np.ones(value.shape, value.dtype))
        grads = pullback(self.values[seed[0]] if seed else ones)
        found = grads if len(points) > 1 else (grads,)
        return dict(zip(targets, found, strict=True))

    def _again(self, targets: dict[int, Any], end: int) -> Any:
        values, changed = self.values, set(targets)
        self.values = list(values)
        for i, x in targets.items():
            self.values[i] = x
        for slot in range(end + 1):
            if slot not in targets and not changed.isdisjoint(self.program.inputs[slot]):
                self.values[slot] = self.operation(slot)
                changed.add(slot)
        result, self.values = self.values[end], values
        return result


# What rules of derivatives trace: `run` is a `Replay`, or another function of tensors


def cotangents(
    run: Fun, inputs: Sequence[object], seeds: Mapping[int, object], wanted: Sequence[int]
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
    run: Fun, inputs: Sequence[object], moving: Mapping[int, object]
) -> tuple[list[Any], list[Any]]:
    """Return the outputs and their tangents, given those of some inputs; None is zero."""
    tag = next_tag()
    outs = run(*(dual_of(x, moving[i], tag) if i in moving else x for i, x in enumerate(inputs)))
    pairs = [parts(x, tag) for x in outs]
    return [x for x, _ in pairs], [tangent for _, tangent in pairs]


def examples(
    run: Fun, inputs: Sequence[object], batched: Sequence[bool], size: int
) -> tuple[list[Any], list[bool]]:
    """Return the outputs of all examples, along the first axis, and which of them differ."""
    level = Level(next_tag(), size, "error")
    with entered(level):
        given = zip(inputs, batched, strict=True)
        outs = run(*(Batched(x, level.tag) if b else x for x, b in given))
        differ = [type(x) is Batched and x.tag == level.tag for x in outs]
        return [at_level(x, level).inner for x in outs], differ


def by_mask(mask: Any, xs: Sequence[Any], ys: Sequence[Any]) -> list[Any]:
    size = mask.shape[0]
    return [
        where(reshape(mask, (size, *(1,) * (x.ndim - 1))), x, y)
        for x, y in zip(xs, ys, strict=True)
    ]


def taker(values: Sequence[object]) -> Callable[[int], list[Any]]:
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
