"""From a program to TensorFlow nodes; and one operation by an eager kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from tapegraph.lowering.calls import to_tensorflow
from tapegraph.lowering.layouts import LaidOut, emitted_last
from tapegraph.lowering.rows import elementwise
from tapegraph.lowering.rows.graph_tracer import with_strong_zeros
from tapegraph.lowering.rows.loops import EMITTED
from tapegraph.lowering.rows.nn import WHOLE_LOWERINGS
from tapegraph.lowering.rows.rules import (
    DRAWN,
    GUARDS,
    LOWERINGS,
    NO_ROW,
    MetNaN,
    NotLowered,
    Result,
    Row,
    Rule,
    cast_to,
    gap_among,
    graph_constant,
    known,
    reduced,
)
from tapegraph.lowering.runtime import GraphTensor, tensorflow
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
    """Raise NotLowered for an operation without a rule."""
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
    """Return an operation's lowering: ours from the table, or a user's own."""
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
    tf = tensorflow()

    def spec(slot: int, name: str) -> Any:
        return tf.TensorSpec(program.shapes[slot], program.dtypes[slot], name=name)

    result = [spec(slot, f"slot_{slot}") for slot in fed]
    if fed_scalars:
        result.append(tf.TensorSpec((fed_scalars,), tf.float64, name="scalars"))
    return result + [spec(slot, f"seed_{i}") for i, slot in enumerate(program.outputs)]


class Translator(Interpreter):
    """Emits a program's nodes in the graph that is being traced; numbers become constants.

    :param strong_zero: Zero cotangents absorb any factor.
    :param whole: Operations may have rules that only whole programs use.
    """

    def __init__(
        self, recording: Recording, *, strong_zero: bool = False, whole: bool = False
    ) -> None:
        super().__init__(recording)
        self._strong_zero = strong_zero
        self._whole = whole

    def operation(self, slot: int) -> Any:
        """Emit an operation, and return its graph tensor."""
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
            out, rule, attrs = emitted_last(op, out, rule, attrs)
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
        return InnerTranslator(inner, strong_zero=self._strong_zero, whole=self._whole)

    @property
    def with_xla(self) -> bool:
        return False

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
        self._xla = xla
        self._careful = xla and careful
        # Those that change by their rows, by the slot of the parameter: gradients come as rows.
        self._tables: Mapping[int, Any] = {}
        # Tensors fed in place of numbers in inner programs, by the keys of `fed_numbers`.
        self._numbers: Mapping[Any, Any] = {}

    @property
    def with_xla(self) -> bool:
        return self._xla

    def emit(self, leaves: Mapping[int, GraphTensor]) -> None:
        tf, program = tensorflow(), self.program
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
        """Return the collector of conditions for valid numbers."""
        return self._guards

    def no_values(self) -> LaidOut:
        """Return a container of tensors in which images may lie channels last."""
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
        if self._xla and program.ops[slot].name == "within":  # places out of range have become -1
            with self._tape.stop_recording():
                self.check(tensorflow().reduce_all(result >= 0))
        return result

    def derivatives(self, slot: int) -> dict[int, GraphTensor]:
        tf, program, tape = tensorflow(), self.program, self._tape
        source, _, *seed = program.inputs[slot]
        slots = program.gradients_of(program.backward_of(slot))
        targets = [program.inputs[s][1] for s in slots]
        y = self.values[source]  # transposed, if need be, on the tape
        with tape.stop_recording():
            sources = [self.values.as_made(target) for target in targets]
            found = tape.gradient(
                y,
                sources,
                output_gradients=self.values[seed[0]] if seed else None,
                unconnected_gradients=tf.UnconnectedGradients.ZERO,
            )
            grads = {}
            for target, grad in zip(targets, found, strict=True):
                self._look_at(grad.values if isinstance(grad, tf.IndexedSlices) else grad)
                by_rows = target in self._tables
                grads[target] = grad if by_rows else tf.convert_to_tensor(grad)
        return grads

    def body(self, inner: SubProgram) -> InnerTranslator:
        made = InnerTranslator(
            inner,
            strong_zero=self._strong_zero,
            whole=self._whole,
            xla=self._xla,
            careful=self._careful,
        )
        made._numbers = self._numbers
        return made

    def apart(self, tensors: Sequence[GraphTensor]) -> list[GraphTensor]:
        stop = tensorflow().stop_gradient
        return list(map(stop, tensors)) if self._targets else list(tensors)

    def check(self, right: GraphTensor) -> None:
        self._guards.append(right)

    def _look_at(self, gradient: GraphTensor) -> None:
        """Keep the sum of a gradient in float64, which shows a NaN."""
        self._sums.append(cast_to(reduced("Sum", gradient), tensorflow().float64))

    def stands(self) -> GraphTensor:
        """Return whether no gradient holds a NaN, and XLA gives the same."""
        tf, guards = tensorflow(), list(self._guards)
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
        self.checks = _checks(inner.program, self._xla)

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
            constant = self.constant(number, self.program.dtypes[slot]) if value is None else value
            outputs.append(constant)
        return outputs, [self.stands()] if self.checks else []

    def guards(self) -> list[GraphTensor] | None:
        """Return None: a layer branches by itself."""
        return None

    def operation(self, slot: int) -> Any:
        """Emit an operation; a loop's own gradient also flows where the recording lets it."""
        program, result = self.program, super().operation(slot)
        if program.needs[slot] or not any(program.needs[i] for i in program.inputs[slot]):
            return result
        return stopped(result)


def stopped(result: object) -> Any:
    """Return a tensor, or a list of tensors, through which no gradient flows."""
    if isinstance(result, (list, tuple)):
        return [None if x is None else stopped(x) for x in result]
    return tensorflow().stop_gradient(result)


def fed_numbers(recording: Recording) -> dict[int, tuple[Any, Array]]:
    """Return the Python numbers that XLA is fed, by slot, so that it fuses no two of them.

    Each has a key, which equal ones share, and its own tensor in its readers' dtype: XLA would
    fetch a vector's element, or convert, for every element computed with it. Exponents stay
    constants.
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
        dtype = dtypes.pop() if len(dtypes) == 1 else None
        if dtype not in (np.float32, np.float64):
            dtype = np.dtype(np.float64)
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
    each = op.kind is OpKind.ELEMENTWISE and op.name in elementwise.LOWERINGS and not attrs
    if op.rules is not None or row is None or not (row.shape or each):
        return None
    try:
        lengths = (row.shape or np.broadcast_shapes)(*map(np.shape, arrays), **attrs)
    except ValueError:
        return None
    dtype = np.result_type(*arrays)
    if dtype.kind == "c":
        return None
    tf = tensorflow()
    kinds = [a.dtype if isinstance(a, np.ndarray) else a for a in arrays]
    operands = [
        to_tensorflow(a.astype(wanted or a.dtype, copy=False))
        if isinstance(a, np.ndarray)
        else tf.constant(a, wanted or dtype)
        for a, wanted in zip(arrays, op.converts(kinds, dtype), strict=True)
    ]
    return np.array(row.rule(Result(lengths, dtype.name), *operands, **attrs))
