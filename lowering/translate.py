"""From a program to TensorFlow nodes; and one operation by an eager kernel.

Layers of images compute channels last; element-wise operations, reductions and joins of their
results follow. Other readers get a transposed copy, once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from tapegraph.lowering.calls import to_tensorflow
from tapegraph.lowering.rows import (
    DRAWN,
    GUARDS,
    LOWERINGS,
    NO_ROW,
    TO_FIRST,
    TO_LAST,
    MetNaN,
    NotLowered,
    Result,
    Row,
    Rule,
    cast_to,
    channels_last,
    gap_among,
    graph_constant,
    known,
    reduced,
    reordered,
    reshaped,
    taped,
    with_strong_zeros,
)
from tapegraph.lowering.rows.elementwise import KERNELS
from tapegraph.lowering.rows.loops import EMITTED
from tapegraph.lowering.rows.nn import LAST_LOWERINGS, WHOLE_LOWERINGS
from tapegraph.lowering.runtime import GraphTensor, tf
from tapegraph.ops import rules_of_families
from tapegraph.recording.op import GRADIENT, PART, Attrs, Op, OpKind
from tapegraph.recording.program import (
    Interpreter,
    Program,
    Recording,
    SubProgram,
    subprograms,
    touches_complex,
)
from tapegraph.typed import Array, DType

# Every node takes these.
COMMON = {"float32", "float64", "int64"}

_rows = rules_of_families("tapegraph.lowering.rows", "LOWERINGS")
LOWERINGS.update((name, row if isinstance(row, Row) else Row(row)) for name, row in _rows.items())


def check_lowers(program: Program, *, whole: bool = False) -> None:
    for slot, op in enumerate(program.ops):
        if op is GRADIENT or not program.inputs[slot]:
            continue
        if op.name not in EMITTED:
            entry_rule(program, slot, whole=whole)
            continue
        gap = None if whole else gap_among([op], [program.attrs[slot]])
        inner = subprograms(program.attrs[slot])
        if gap or not (inner or op.name == DRAWN):  # a rule of a user's that runs in Python
            raise NotLowered(gap or f"{op.name} {NO_ROW}")
        for body in inner:
            check_lowers(body.program, whole=whole)


def row_of(op: Op, *, whole: bool = False) -> Row:
    row = LOWERINGS.get(op.name) or (WHOLE_LOWERINGS.get(op.name) if whole else None)
    if op.name in EMITTED:
        return Row(EMITTED[op.name])
    if op.rules is not None:
        row = None if op.rules.lowering is None else Row(op.rules.lowering)
    if row is None:
        raise NotLowered(gap_among([op], [{}]) or f"{op.name} {NO_ROW}")
    return row


def entry_rule(
    program: Program, slot: int, *, whole: bool = False, strong_zero: bool = False
) -> Rule:
    """Return the rule of an entry's operation for its dtypes.

    :raises MetNaN: Zeros are to be strong, and the rule cannot make them so.
    """
    op = program.ops[slot]
    if op.rules is None and touches_complex(program, slot):
        row = LOWERINGS.get(op.name)
        if row is None or row.complex is None:
            raise NotLowered(f"{op.name} has no lowering for complex numbers")
        rule, zeros = row.rule if row.complex is True else row.complex, "complex zeros"
    else:
        row, zeros = row_of(op, whole=whole), "its zeros"
        if strong_zero and op.rules is None:
            return with_strong_zeros(op.name, row)
        rule = (row.whole if whole else None) or row.rule
    if strong_zero:
        raise MetNaN(f"{op.name} met a NaN, and only the native engine keeps {zeros}")
    return rule


def specs(program: Program, fed: list[int], fed_scalars: int) -> list[GraphTensor]:
    """Return the input types of a program's gradient: fed slots, packed scalars, seeds."""
    named = [(slot, f"slot_{slot}") for slot in fed]
    named += [(slot, f"seed_{i}") for i, slot in enumerate(program.outputs)]
    found = [tf.TensorSpec(program.shapes[s], program.dtypes[s], name=name) for s, name in named]
    scalars = [tf.TensorSpec((fed_scalars,), tf.float64, name="scalars")] if fed_scalars else []
    return [*found[: len(fed)], *scalars, *found[len(fed) :]]


RANK = len(TO_LAST)


def _attrs_last(op: Op, attrs: Attrs) -> Attrs | None:
    """Return the attributes for images channels last; None where the result would not lie so."""
    axis = attrs.get("axis")
    if op.kind in (OpKind.ALONG, OpKind.SHAPE) and isinstance(axis, int):
        return {**attrs, "axis": TO_FIRST[axis]}
    if op.kind is OpKind.REDUCTION and isinstance(axis, tuple):
        left = [TO_FIRST[a] for a in range(RANK) if a not in axis]
        if attrs["keepdims"] or left == sorted(left):
            return {**attrs, "axis": tuple(sorted(TO_FIRST[a] for a in axis))}
    return None


class LaidOut:
    """The tensor of each slot in its readers' layouts; as a list, channels first."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._first: list[Any] = [None] * len(program)
        self._last: dict[int, GraphTensor] = {}
        self._made_last: set[int] = set()

    def __getitem__(self, slot: int) -> GraphTensor:
        if self._first[slot] is None and slot in self._made_last:
            self._first[slot] = reordered(self._last[slot], TO_FIRST)
        return self._first[slot]

    def __setitem__(self, slot: int, tensor: GraphTensor) -> None:
        """Set the tensor of a slot, in the layout of `runs_last`."""
        if len(self._program.shapes[slot]) == RANK and self.runs_last(slot):
            self._last[slot] = tensor
            self._made_last.add(slot)
        else:
            self._first[slot] = tensor

    def as_made(self, slot: int) -> GraphTensor:
        """Return a slot's tensor in its original layout."""
        return self._last[slot] if slot in self._made_last else self._first[slot]

    def runs_last(self, slot: int) -> bool:
        """Return whether an entry is emitted channels last; a gradient as its target."""
        program, inputs = self._program, self._program.inputs[slot]
        if not inputs:
            return False
        (first, *rest), op = inputs, program.ops[slot]
        if op is GRADIENT:
            return rest[0] in self._made_last
        if op.name in LAST_LOWERINGS:
            return first not in rest  # the image is no kernel
        if op.name in KERNELS:
            images = len(program.shapes[slot]) == RANK
            return images and not self._made_last.isdisjoint((first, *rest))
        return (
            self._made_last.issuperset((first, *rest))
            and _attrs_last(op, program.attrs[slot]) is not None
        )

    def read_by(self, slot: int, *, last: bool) -> dict[int, GraphTensor]:
        """Return the tensors that an operation reads, by slot, in the layouts that it wants."""
        inputs = self._program.inputs[slot]
        if not last:
            return {i: self[i] for i in inputs}
        if self._program.ops[slot].name not in LAST_LOWERINGS:
            return {i: self._beside_last(i) for i in inputs}
        return {inputs[0]: self._laid_last(inputs[0]), **{i: self[i] for i in inputs[1:]}}

    def _laid_last(self, slot: int) -> GraphTensor:
        if slot not in self._last:
            self._last[slot] = reordered(self._first[slot], TO_LAST)
        return self._last[slot]

    def _beside_last(self, slot: int) -> GraphTensor:
        """Return a tensor for channels-last images that broadcast to channels-first ones."""
        size = self._program.shapes[slot]
        if slot in self._made_last or self._first[slot] is None or not size:
            return self.as_made(slot)
        batch, channels, *pixels = full = (1,) * (RANK - len(size)) + size
        if all(n == 1 for n in (batch, *pixels)):  # as TensorFlow's biases are
            return reshaped(self._first[slot], (channels,))
        if size == full:
            return self._laid_last(slot)
        return reordered(reshaped(self._first[slot], full), TO_LAST)


class Translator(Interpreter):
    """Emits a program's nodes in the graph that is being traced; numbers become constants.

    :param strong_zero: Zero cotangents absorb any factor.
    :param whole: Operations may have rules that only whole programs use.
    """

    with_xla = False

    def __init__(
        self, recording: Recording, *, strong_zero: bool = False, whole: bool = False
    ) -> None:
        super().__init__(recording)
        self._strong_zero, self._whole = strong_zero, whole
        self._options = {"strong_zero": strong_zero, "whole": whole}  # of inner programs too

    def operation(self, slot: int) -> Any:
        return self.emitted(slot, self.values)

    def emitted(self, slot: int, tensors: Any, *, last: bool = False) -> Any:
        """Return the graph tensor, or list, of an operation, its inputs in ``tensors`` by slot."""
        program = self.program
        op = program.ops[slot]
        attrs: Attrs = program.attrs[slot]
        if op.name in EMITTED:
            parts = (i for i in program.readers()[slot] if program.ops[i] is PART)
            read = {program.attrs[i]["output"] for i in parts}
            operands = [tensors[i] for i in program.inputs[slot]]
            return EMITTED[op.name](self, read, *operands, **attrs)
        out = Result(program.shapes[slot], program.dtypes[slot].name)
        operands = self.converted(slot, tensors)
        rule = entry_rule(program, slot, whole=self._whole, strong_zero=self._strong_zero)
        if last:
            rule, attrs = LAST_LOWERINGS.get(op.name, rule), _attrs_last(op, attrs) or attrs
            if len(out.shape) == RANK:
                out = Result(channels_last(out.shape), out.dtype)
        result = rule(out, *operands, **attrs)
        if op.several:
            return result
        shape = known(out.shape)
        if None in shape and result.shape.is_compatible_with(shape):
            result.set_shape(shape)
        if tuple(result.shape) != shape or result.dtype != out.dtype:
            raise TypeError(
                f"the lowering of {op.name} gives {result.dtype.name} {tuple(result.shape)} where "
                f"the tape has {out.dtype} {out.shape}: {self.recording.describe(slot)}"
            )
        return result

    def body(self, inner: SubProgram) -> InnerTranslator:
        return InnerTranslator(inner, **self._options)

    def apart(self, tensors: Sequence[GraphTensor]) -> list[GraphTensor]:
        """Return the tensors for nodes with their own gradient to read."""
        return list(tensors)

    def check(self, right: GraphTensor) -> None:
        """Record whether numbers are valid: in a plain backward they are."""

    def constant(self, number: float | Array, dtype: DType) -> GraphTensor:
        return graph_constant(number, dtype)

    def cast(self, value: GraphTensor, dtype: DType) -> GraphTensor:
        return cast_to(value, dtype)


class Whole(Translator):
    """Emits a program with its gradients, and a check that its numbers are valid."""

    def __init__(
        self, recording: Recording, *, xla: bool = False, careful: bool = False, **options: bool
    ) -> None:
        super().__init__(recording, **options)
        self.with_xla = xla
        self._careful = xla and careful
        self._options |= {"xla": xla, "careful": careful}
        # Those that change by their rows, by the slot of the parameter: gradients come as rows.
        self._tables: Mapping[int, Any] = {}
        # Tensors fed in place of numbers in inner programs, by the keys of `fed_numbers`.
        self._numbers: Mapping[Any, Any] = {}

    def emit(self, leaves: Mapping[int, GraphTensor]) -> None:
        program = self.program
        self._sums: list[GraphTensor] = []
        self._guards: list[GraphTensor] = []
        self._targets = targets = {
            i[1] for op, i in zip(program.ops, program.inputs, strict=True) if op is GRADIENT
        }
        token = GUARDS.set(self.guards())
        try:
            with tf.GradientTape(persistent=True, watch_accessed_variables=False) as self._tape:
                for slot in self.walk(leaves):
                    if slot in targets:
                        self._tape.watch(self.values.as_made(slot))
        finally:
            GUARDS.reset(token)
        del self._tape

    def guards(self) -> list[GraphTensor] | None:
        return self._guards

    def no_values(self) -> LaidOut:
        return LaidOut(self.program)

    def operation(self, slot: int) -> Any:
        program, values = self.program, self.values
        last = values.runs_last(slot)
        # Others may read its transposed operands: before the tape stops recording.
        tensors = values.read_by(slot, last=last)
        try:
            with nullcontext() if program.needs[slot] else self._tape.stop_recording():
                result = self.emitted(slot, tensors, last=last)
        except TypeError as error:
            kinds = {program.dtypes[i].name for i in program.inputs[slot]}
            if kinds <= COMMON:
                raise
            names = " and ".join(sorted(kinds))
            raise NotLowered(
                f"{self.recording.describe(slot)} has no node of {names} in TensorFlow"
            ) from error
        if (
            self.with_xla and program.ops[slot].name == "within"
        ):  # places out of range have become -1
            with self._tape.stop_recording():
                self.check(tf.reduce_all(result >= 0))
        return result

    def derivatives(self, slot: int) -> dict[int, GraphTensor]:
        program, tape = self.program, self._tape
        source, _, *seed = program.inputs[slot]
        slots = program.gradients_of(program.backward_of(slot))
        targets = [program.inputs[s][1] for s in slots]
        y = self.values[source]  # transposed, if need be, on the tape
        with tape.stop_recording():
            sources = [self.values.as_made(target) for target in targets]
            found = taped(tape, y, sources, self.values[seed[0]] if seed else None)
            grads = {}
            for target, grad in zip(targets, found, strict=True):
                self._look_at(grad.values if isinstance(grad, tf.IndexedSlices) else grad)
                grads[target] = grad if target in self._tables else tf.convert_to_tensor(grad)
        return grads

    def body(self, inner: SubProgram) -> InnerTranslator:
        made = super().body(inner)
        made._numbers = self._numbers
        return made

    def apart(self, tensors: Sequence[GraphTensor]) -> list[GraphTensor]:
        stop = tf.stop_gradient
        return list(map(stop, tensors)) if self._targets else list(tensors)

    def check(self, right: GraphTensor) -> None:
        self._guards.append(right)

    def _look_at(self, gradient: GraphTensor) -> None:
        """Keep the sum of a gradient in float64, which shows a NaN."""
        self._sums.append(cast_to(reduced("Sum", gradient), tf.float64))

    def stands(self) -> GraphTensor:
        """Return whether no gradient holds a NaN, and XLA gives the same."""
        guards = list(self._guards)
        if self._sums:
            # With XLA a sum of products that overflow may be infinite where it is no number.
            stands = tf.math.is_finite if self._careful else lambda x: ~tf.math.is_nan(x)
            guards.append(stands(tf.add_n(self._sums)))
        return tf.reduce_all(tf.stack(guards)) if guards else tf.constant(True)


class InnerTranslator(Whole):
    """Emits an inner program: a round of a loop, a branch."""

    def __init__(self, inner: SubProgram, **options: bool) -> None:
        super().__init__(inner.recording, **options)
        self.inner = inner
        self.checks = _checks(inner.program, self.with_xla)

    def __call__(
        self, inputs: Sequence[GraphTensor]
    ) -> tuple[list[GraphTensor], list[GraphTensor]]:
        """Return the outputs, and with ``checks`` whether they are valid."""
        leaves = dict(zip(self.inner.inputs, inputs, strict=True))
        if self._numbers:
            fed = fed_numbers(self.recording).items()
            leaves |= {slot: self._numbers[key] for slot, (key, _) in fed}
        self.emit(leaves)
        outputs = []
        for slot in self.inner.outputs:
            value, number = self.values[slot], self.recording.values[slot]
            made = self.constant(number, self.program.dtypes[slot]) if value is None else value
            outputs.append(made)
        return outputs, [self.stands()] if self.checks else []

    def guards(self) -> list[GraphTensor] | None:
        return None  # a layer branches by itself

    def operation(self, slot: int) -> Any:
        """Emit an operation; a loop's own gradient also flows where the recording lets it."""
        program, result = self.program, super().operation(slot)
        if program.needs[slot] or not any(program.needs[i] for i in program.inputs[slot]):
            return result
        return stopped(result)


def stopped(result: object) -> Any:
    if isinstance(result, (list, tuple)):
        return [None if x is None else stopped(x) for x in result]
    return tf.stop_gradient(result)


def fed_numbers(recording: Recording) -> dict[int, tuple[Any, Array]]:
    """Return the Python numbers that XLA is fed, by slot, so that it fuses no two of them.

    Each has a key, which equal ones share, and its own tensor in its readers' dtype: a vector's
    element XLA would fetch for every element computed with it. Exponents stay constants.
    """
    program = recording.program
    readers = program.readers()
    steps = zip(program.ops, program.inputs, strict=True)
    exponents = {inputs[1] for op, inputs in steps if op.name == "pow"}
    found = {}
    for slot in program.scalars:
        value = recording.values[slot]
        is_float64 = value != value or float(value) == value
        if slot in exponents or isinstance(value, (bool, np.bool_)) or not is_float64:
            continue
        dtypes = {program.dtypes[reader] for reader in readers[slot]}
        dtype = np.dtype(np.float32 if dtypes == {np.dtype(np.float32)} else np.float64)
        with np.errstate(all="ignore"):
            number = np.asarray(value, dtype)
        # By their text 0.0 and -0.0 differ.
        found[slot] = (repr(float(value)), dtype), number
    return found


def _checks(program: Program, xla: bool) -> bool:
    return any(
        op is GRADIENT
        or (xla and op.name == "within")
        or any(_checks(body.program, xla) for body in subprograms(attrs))
        for op, attrs in zip(program.ops, program.attrs, strict=True)
    )


def forward(op: Op, arrays: tuple[Any, ...], attrs: Attrs) -> Array | None:
    """Return an operation's result by TensorFlow's eager kernels, None if it has none here."""
    row = LOWERINGS.get(op.name)
    each = op.kind is OpKind.ELEMENTWISE and op.name in KERNELS and not attrs
    if op.rules is not None or row is None or not (row.shape or each):
        return None
    try:
        lengths = (row.shape or np.broadcast_shapes)(*map(np.shape, arrays), **attrs)
    except ValueError:
        return None
    dtype = np.result_type(*arrays)
    if dtype.kind == "c":
        return None
    kinds = [a.dtype if isinstance(a, np.ndarray) else a for a in arrays]
    operands = [
        to_tensorflow(a.astype(wanted or a.dtype, copy=False))
        if isinstance(a, np.ndarray)
        else tf.constant(a, wanted or dtype)
        for a, wanted in zip(arrays, op.converts(kinds, dtype), strict=True)
    ]
    return np.array(row.rule(Result(lengths, dtype.name), *operands, **attrs))
