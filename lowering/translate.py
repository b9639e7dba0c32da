"""From a program to TensorFlow nodes; and one operation by an eager kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.lowering.calls import to_tensorflow
from tapegraph.lowering.layouts import emitted_last
from tapegraph.lowering.rows import elementwise
from tapegraph.lowering.rows.graph_tracer import with_strong_zeros
from tapegraph.lowering.rows.nn import WHOLE_LOWERINGS
from tapegraph.lowering.rows.rules import (
    LOWERINGS,
    MetNaN,
    NotLowered,
    Result,
    Row,
    Rule,
    cast_to,
    graph_constant,
    known,
    without_row,
)
from tapegraph.lowering.runtime import tensorflow
from tapegraph.ops import rules_of_families
from tapegraph.recording.interpreter import Interpreter
from tapegraph.recording.op import DERIVATIVES, Attrs, Op, OpKind
from tapegraph.recording.program import Program, Recording, touches_complex
from tapegraph.typed import Array

_rows = rules_of_families("tapegraph.lowering.rows", "LOWERINGS")
LOWERINGS.update((name, row if isinstance(row, Row) else Row(row)) for name, row in _rows.items())


def check_lowers(program: Program, *, whole: bool = False) -> None:
    """Refuse a program that holds an operation or a dtype without lowering."""
    has_complex = any(dtype.kind == "c" for dtype in program.dtypes if dtype is not None)
    for slot, op in enumerate(program.ops):
        if op in DERIVATIVES or not program.inputs[slot]:
            continue
        if has_complex and op.rules is None and touches_complex(program, slot):
            _complex_rule(op)
        elif op.name not in LOWERINGS:
            row_of(op, whole=whole)


def row_of(op: Op, *, whole: bool = False) -> Row:
    """Return the lowering of an operation: ours from the table, or a user's own."""
    row = LOWERINGS.get(op.name) or (WHOLE_LOWERINGS.get(op.name) if whole else None)
    if op.rules is not None:
        row = None if op.rules.lowering is None else Row(op.rules.lowering)
    if row is None:
        raise without_row(op)
    return row


def specs(program: Program, fed: list[int], fed_scalars: int) -> list[Any]:
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

    :param strong_zero: Zero cotangents absorb what they meet.
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
        """Return the graph tensor of an operation of ``tensors``, which holds its inputs by slot.

        Where ``last``, images lie channels last, in ``tensors`` and in the result.
        """
        program = self.program
        op = program.ops[slot]
        attrs: Attrs = program.attrs[slot]
        out = Result(program.shapes[slot], program.dtypes[slot].name)
        operands, rule = self.converted(slot, tensors), self._rule(slot)
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

    def _rule(self, slot: int) -> Rule:
        op = self.program.ops[slot]
        if op.rules is None and touches_complex(self.program, slot):
            rule, zeros = _complex_rule(op), "complex zeros"
        else:
            row = row_of(op, whole=self._whole)
            if self._strong_zero and op.rules is None:
                return with_strong_zeros(op.name, row)
            rule, zeros = row.rule, "its zeros"
            if self._whole and row.whole is not None:
                rule = row.whole
        if self._strong_zero:
            raise MetNaN(f"{op.name} met a NaN, and only the native engine keeps {zeros}")
        return rule

    def constant(self, number: Any, dtype: Any) -> Any:
        """Return a number as a constant of the graph."""
        return graph_constant(number, dtype)

    def cast(self, value: Any, dtype: Any) -> Any:
        """Return a graph tensor in another dtype."""
        return cast_to(value, dtype)


def _complex_rule(op: Op) -> Rule:
    row = LOWERINGS.get(op.name)
    if row is None or row.complex is None:
        raise NotLowered(f"{op.name} has no lowering for complex numbers")
    return row.rule if row.complex is True else row.complex


def forward(op: Op, arrays: tuple[Any, ...], attrs: Attrs) -> Array | None:
    """Return an operation's result by TensorFlow's eager kernels.

    None where it is neither element by element nor a product: NumPy is to compute it, or refuse it.
    """
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
