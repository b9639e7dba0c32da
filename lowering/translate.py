"""A `Program` to TensorFlow nodes, one entry after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tapegraph.lowering.layouts import emitted_last
from tapegraph.lowering.rows.complex import COMPLEX
from tapegraph.lowering.rows.nn import WHOLE_LOWERINGS
from tapegraph.lowering.rows.rules import (
    LOWERINGS,
    Result,
    Row,
    Rule,
    cast_to,
    graph_constant,
    known,
    own_gradient,
)
from tapegraph.lowering.rows.strong_zero import with_strong_zeros
from tapegraph.lowering.unsupported import GAPS, MetNaN, NotLowered
from tapegraph.ops import rules_of_families
from tapegraph.recording.op import ALL_REDUCE, DERIVATIVES, SCALAR, Attrs, Op
from tapegraph.recording.program import Program, touches_complex

_rows = rules_of_families("tapegraph.lowering.rows", "LOWERINGS")
LOWERINGS.update((name, row if isinstance(row, Row) else Row(row)) for name, row in _rows.items())


def check_lowers(program: Program, *, whole: bool = False) -> None:
    """Refuse a program that holds an operation or a dtype without lowering."""
    has_complex = any(dtype.kind == "c" for dtype in program.dtypes if dtype is not None)
    for slot, op in enumerate(program.ops):
        if op in (*DERIVATIVES, ALL_REDUCE) or not program.inputs[slot]:
            continue
        if has_complex and op.rules is None and touches_complex(program, slot):
            if op.name not in COMPLEX:
                raise NotLowered(f"{op.name} has no lowering for complex numbers")
        elif op.name not in LOWERINGS:
            row_of(op, whole=whole)


def row_of(op: Op, *, whole: bool = False) -> Row:
    """Return the lowering of an operation: ours from the table, or a user's own."""
    if op.rules is None:
        row = LOWERINGS.get(op.name)
        if row is None and whole and op.name in WHOLE_LOWERINGS:
            row = Row(WHOLE_LOWERINGS[op.name])
    else:
        row = None if op.rules.lowering is None else Row(op.rules.lowering)
    if row is None:
        raise NotLowered(f"{op.name} {GAPS.get(op.name, 'has no lowering')}")
    return row


def _rule(op: Op, *, strong_zero: bool, whole: bool) -> Rule:
    rule = row_of(op, whole=whole).rule
    if not strong_zero:
        return rule
    if op.rules is not None:
        raise MetNaN(f"{op.name} met a NaN, and only the native engine keeps its zeros")
    return with_strong_zeros(op.name, rule)


def specs(tf: Any, program: Program, fed: Sequence[int], fed_scalars: int) -> list[Any]:
    """Return the input types of a program's gradient: fed slots, packed scalars, seeds."""

    def spec(slot: int, name: str) -> Any:
        return tf.TensorSpec(program.shapes[slot], program.dtypes[slot], name=name)

    result = [spec(slot, f"slot_{slot}") for slot in fed]
    if fed_scalars:
        result.append(tf.TensorSpec((fed_scalars,), tf.float64, name="scalars"))
    result += [spec(slot, f"seed_{i}") for i, slot in enumerate(program.outputs)]
    return result


def emit(
    tf: Any,
    program: Program,
    tensors: list[Any],
    constants: Mapping[int, float],
    *,
    stand_ins: Mapping[int, Any] = MappingProxyType({}),
    strong_zero: bool = False,
    whole: bool = False,
    emitted: Callable[[int], None] = lambda slot: None,
    describe: Callable[[int], str] | None = None,
) -> None:
    """Fill in the graph tensor of every slot; those of fed leaves are there already.

    ``stand_ins`` are results that are fed: readers and gradients see these, and what nothing needs
    recomputed is pruned. ``emitted`` is called with each slot once its nodes are there.
    """
    for slot, op in enumerate(program.ops):
        if op is SCALAR:
            continue  # constants are emitted with the reader's dtype
        if not program.inputs[slot]:
            emitted(slot)
            continue
        result = emit_entry(
            tf,
            program,
            slot,
            tensors,
            constants,
            strong_zero=strong_zero,
            whole=whole,
            emitted=emitted,
            describe=describe,
        )
        fed = stand_ins.get(slot)
        tensors[slot] = result if fed is None else _standing_in(tf, result, fed)
        emitted(slot)


def emit_entry(
    tf: Any,
    program: Program,
    slot: int,
    tensors: Any,
    constants: Mapping[int, float],
    *,
    strong_zero: bool = False,
    whole: bool = False,
    last: bool = False,
    emitted: Callable[[int], None] = lambda slot: None,
    describe: Callable[[int], str] | None = None,
) -> Any:
    """Return the graph tensor of one operation, whose inputs have theirs; as in `emit`.

    Where ``last``, images lie channels last, in ``tensors`` and in the result.
    """
    op = program.ops[slot]
    attrs: Attrs = program.attrs[slot]
    out = Result(program.shapes[slot], program.dtypes[slot].name)
    operands = _operands(tf, program, slot, tensors, constants, out, emitted)
    if op.rules is None and touches_complex(program, slot):
        if strong_zero:
            raise MetNaN(f"{op.name} met a NaN, and only the native engine keeps complex zeros")
        rule = COMPLEX[op.name]
    else:
        rule = _rule(op, strong_zero=strong_zero, whole=whole)
    if last:
        out, rule, attrs = emitted_last(op.name, out, rule, attrs)
    result = rule(out, *operands, **attrs)
    shape = known(out.shape)
    if None in shape and result.shape.is_compatible_with(shape):
        result.set_shape(shape)
    if tuple(result.shape) != shape or result.dtype != out.dtype:
        raise TypeError(
            f"the lowering of {op.name} gives {result.dtype.name} {tuple(result.shape)} where "
            f"the tape has {out.dtype} {out.shape}: {(describe or program.describe)(slot)}"
        )
    return result


def _standing_in(tf: Any, result: Any, fed: Any) -> Any:
    """Return the fed value of a result; its gradient goes where the result's own would."""

    def stand_in(result: Any) -> Any:
        return tf.identity(fed), lambda g: g

    return own_gradient(stand_in, result)


def _takes_complex(program: Program, slot: int) -> bool:
    dtypes = (program.dtypes[i] for i in program.inputs[slot])
    return any(dtype is not None and dtype.kind == "c" for dtype in dtypes)


def _operands(
    tf: Any,
    program: Program,
    slot: int,
    tensors: Any,
    constants: Mapping[int, float],
    out: Result,
    emitted: Callable[[int], None],
) -> list[Any]:
    """Return an entry's input tensors, in the result's dtype where NumPy converts them."""
    op = program.ops[slot]
    wanted = np.dtype(out.dtype)
    if op.differentiable == ():  # a result of another kind: operands are compared as NumPy does
        kinds = [program.dtypes[i] for i in program.inputs[slot] if program.ops[i] is not SCALAR]
        wanted = np.result_type(
            *kinds, *(constants[i] for i in program.inputs[slot] if i in constants)
        )
    if op.rules is not None and wanted.kind == "c" and not _takes_complex(program, slot):
        wanted = np.finfo(wanted).dtype  # of the result's parts
    operands = []
    for position, i in enumerate(program.inputs[slot]):
        tensor = tensors[i]
        if tensor is None:
            tensor = tensors[i] = graph_constant(constants[i], wanted)
            emitted(i)
        converts = op.promotes and (op.differentiable is None or op.differentiable[position])
        if op.rules is not None:  # NumPy has promoted its inexact numbers among each other
            inexact = tensor.dtype.is_floating or (wanted.kind == "c" and tensor.dtype.is_complex)
            converts = inexact and wanted.kind in "fc"
        if op.differentiable == () and len(program.inputs[slot]) > 1:
            converts = True
        if converts:
            tensor = cast_to(tensor, wanted)
        operands.append(tensor)
    return operands
