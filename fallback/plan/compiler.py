# ruff: noqa: D102 - what `Arrays` says of a part of the arithmetic holds of those that replace it
"""From a captured program to the instructions of a plan: forwards, and the backwards in it.

After a NaN a plan runs parts of the program again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from operator import add, getitem
from typing import Any

import numpy as np

from tapegraph.differentiation.slopes import Y
from tapegraph.engines.engine import RowUpdate, sgd_updates
from tapegraph.fallback.plan.codegen import Source
from tapegraph.fallback.plan.ir import Builder, Constant, Feed, Instr, NanCheck, Var, live
from tapegraph.fallback.rules import JointVJP
from tapegraph.fallback.sweep import Arrays, gradients, strong_gradients
from tapegraph.ops.index import GETITEM, basic_key
from tapegraph.recording.op import INPUT, Attrs, OpKind, Outputs
from tapegraph.recording.program import Interpreter, Program, Recording, between
from tapegraph.recording.record import ELEMENTWISE
from tapegraph.row_sparse import RowSparse, conjugated, has_nan
from tapegraph.typed import Array, Fun

# These keep a NaN, but for those that prefer numbers to a NaN or choose by what may be one.
_OF_KIND = (OpKind.ELEMENTWISE, OpKind.SHAPE, OpKind.CONTRACTION)
_KEEP_NAN = frozenset("sum mean getitem tensor_slice gather index scatter".split())
_DROP_NAN = frozenset(("fmax", "fmin"))


class NaNInPlan(Exception):
    """A result may be NaN where a zero absorbs infinity or NaN."""


def check_for_nan(x: Any) -> None:
    if has_nan(x):
        raise NaNInPlan


class Compiler(Interpreter):
    """Compiles one captured program by running it on the recorded values.

    :param looks: Who runs it computes it again in NumPy where it raises `NaNInPlan`.
    :param places: The leaves that are the same in every run, by default those of `fixed_places`.
    """

    def __init__(
        self, recording: Recording, *, looks: bool = False, places: Sequence[int] | None = None
    ) -> None:
        super().__init__(recording)
        self._looks = looks
        self._looked_at = looked_at(self.program) if looks else set()
        self.builder = Builder()
        self.numbers = {slot: recording.values[slot] for slot in self.program.scalars}
        self.saved: dict[int, Any] = {}
        moves = sgd_updates(self.program).values()
        self._moves = {slot: move for move in moves for slot in (move.product, move.difference)}
        self._readers = self.program.readers()
        places = fixed_places(self.program) if places is None else places
        self.fixed = {slot: recording.values[slot] for slot in places}

    def compile(self) -> Source:
        program, values = self.program, self.recording.values
        feeds = {slot: Feed(self.builder, values[slot], f"v{slot}") for slot in program.fed}
        self.run({**self.numbers, **feeds, **self.fixed})
        outputs = [self.values[slot] for slot in program.outputs]
        updates = [self.values[update.slot] for update in program.updates]
        results = [*outputs, *updates]
        instrs = live(self.builder.instrs, results)
        return Source(self.builder, instrs, list(feeds.values()), outputs, updates)

    def operation(self, slot: int) -> Any:
        self._begin(slot)
        move = self._moves.get(slot)
        if move is None or not isinstance(self.values[move.gradient].value, RowSparse):
            return self._forward(slot)
        if slot == move.product:
            return None  # which the difference alone reads
        update = Instr(RowUpdate, (self.values[move.gradient], self.values[move.scale]))
        return self.builder.emit(update, f"v{slot}")

    def _begin(self, slot: int) -> None:
        self.builder.op = self.program.ops[slot].name
        self.builder.place = self.recording.where(slot)

    def derivatives(self, slot: int) -> dict[int, Var]:
        self._begin(slot)
        key = self.program.backward_of(slot)
        # Of those only a descent reads the gradients, or nobody: they may stay rows.
        rows = {
            self.program.inputs[entry][1]
            for entry in self.program.gradients_of(key)
            if self._readers[entry] <= self._moves.keys()
        }
        return PlanSweep(self, Backward(self.program, key, rows)).gradients()

    def _forward(self, slot: int) -> Any:
        op, attrs, hint = self.program.ops[slot], self.program.attrs[slot], f"v{slot}"
        given = tuple(self.operands(slot))
        if op.name not in ELEMENTWISE:
            given = self._apart(self.program.inputs[slot], given)
        if op is GETITEM and isinstance(given[1], np.ndarray):
            key = *basic_key(given[1], attrs["plan"]), ...  # of one element too it is a view
            return self.builder.emit(Instr(getitem, (given[0], key)), hint)
        opaque = op.rules is not None
        hints: Any = (hint, f"s{slot}") if op.saves else hint
        if op.several:
            hints = tuple(f"{hint}_{i}" for i in range(len(self.program.dtypes[slot].descr)))
        plain = op.plain if self._looks else None
        forward, attrs = (op.forward, attrs) if plain is None else (plain, {})
        known = self.recording.values[slot] if opaque and not op.saves else None
        known = known if isinstance(known, (np.ndarray, Outputs)) else None
        out = self.builder.computed(forward, given, attrs, op.name, opaque, hints, known)
        if op.several:
            return tuple(map(self.builder.array, out))
        if op.saves:
            out, self.saved[slot] = out
        value = _named(self.builder.array(out), hint)
        if slot in self._looked_at:
            self.builder.emit(Instr(check_for_nan, (value,), may_raise=True))
        return value

    def _apart(self, slots: tuple[int, ...], given: tuple[object, ...]) -> tuple[Any, ...]:
        """Return operands in separate memory if they are separate in eager code.

        NumPy multiplies an array with its own transpose in another way, with other rounding.
        """
        arrays, seen = self.recording.values, dict[int, int]()
        found = []
        for slot, var in zip(slots, given, strict=True):
            roots = var.roots if isinstance(var, Var) else ()
            others = [seen[id(root)] for root in roots if id(root) in seen]
            if any(not np.may_share_memory(arrays[slot], arrays[other]) for other in others):
                var = self.builder.emit(Instr(np.copy, (var, "K")))
            seen.update((id(root), slot) for root in roots)
            found.append(var)
        return tuple(found)


def fixed_places(program: Program, leaves: Collection[int] = ()) -> list[int]:
    """Return the leaves that only basic indices read, as places: nobody else holds those arrays."""
    fixed = {slot for slot in program.fed if program.ops[slot] is not INPUT} | {*leaves}
    readers, ops, inputs = program.readers(), program.ops, program.inputs
    return [
        slot
        for slot in fixed - {*program.outputs, *program.wanted}
        if readers[slot] and all(ops[i] is GETITEM and slot != inputs[i][0] for i in readers[slot])
    ]


def looked_at(program: Program) -> set[int]:
    """Return the slots at which a plan looks for the NaN that a zero should have absorbed.

    A plan computes products with strong zeros as plain ones. Each element is then right, or a NaN;
    so is all that operations that keep a NaN compute from it. The last of these results are looked
    at: if they are not right, the program runs in NumPy.
    """
    readers = program.readers()
    kept = {*program.outputs, *(update.slot for update in program.updates)}
    unsure: set[int] = set()
    for slot, op in enumerate(program.ops):
        known = op.name in _KEEP_NAN or (op.kind in _OF_KIND and op.name not in _DROP_NAN)
        keeps_nan = op.rules is None and known and program.dtypes[slot].kind in "fc"
        if op.plain or (keeps_nan and not unsure.isdisjoint(program.inputs[slot])):
            unsure.add(slot)
    return {slot for slot in unsure if slot in kept or not readers[slot] <= unsure}


class PlanSweep(Arrays):
    """The sweep of one backward, whose arithmetic notes the rules' calls."""

    def __init__(self, compiler: Compiler, backward: Any) -> None:
        whole = compiler.recording
        super().__init__(Recording(backward.region, whole.values, whole.nodes))
        self.compiler = compiler
        self.builder = compiler.builder
        self.backward = backward

    def gradients(self) -> dict[int, Var]:
        backward, values = self.backward, self.compiler.values
        ones = np.ones_like(values[backward.y].value)
        seed = self.builder.constant(ones) if backward.seed is None else values[backward.seed]
        swept = list(zip(backward.targets, self.swept([seed]), strict=True))
        self.builder.op = self.builder.place = ""
        grads = {slot: self._found(slot, grad) for slot, grad in swept}
        if all(isinstance(g, Constant) and not has_nan(g.value) for g in grads.values()):
            return grads
        program, numbers = self.compiler.program, self.compiler.numbers
        end = max(backward.y, -1 if backward.seed is None else backward.seed) + 1
        leaves = [slot for slot in program.fed if slot < end]

        def strong_zeros(*arrays: Array) -> list[Any]:
            again = InNumPy(program)
            again.run(numbers | dict(zip(leaves, arrays, strict=True)), end)
            found = backward.gradients(again.values, again.saved, strong_gradients)
            return list(found.values())

        hints = [f"d{slot}" for slot in backward.targets]
        given = [values[slot] for slot in leaves]
        check = NanCheck(strong_zeros, given, list(grads.values()), hints)
        self.builder.instrs.append(check)
        return dict(zip(backward.targets, check.results, strict=True))

    def _found(self, slot: int, grad: Var) -> Var:
        if not isinstance(grad.value, RowSparse):
            return self.builder.array(grad)
        return grad if slot in self.backward.rows else self.builder.emit(Instr("dense", (grad,)))

    def parts(self, slot: int, g: Var) -> Iterator[tuple[int, Any]]:
        self.builder.op = f"backward of {self.program.ops[slot].name}"
        self.builder.place = self.recording.where(slot)
        return super().parts(slot, g)

    def called(
        self, slot: int, rule: Any, given: tuple[object, ...], attrs: Attrs, place: object = ""
    ) -> Any:
        op, joint = self.program.ops[slot], place == ""
        rule, opaque = rule.rule if joint else rule, joint and op.rules is not None
        name = f"{op.name}_vjp{place}"
        found = self.builder.computed(rule, given, dict(attrs), name, opaque)
        if isinstance(found, Var) and isinstance(found.value, (tuple, list)):
            return [
                None if x is None else self.builder.emit(Instr(getitem, (found, i)))
                for i, x in enumerate(found.value)
            ]
        return found

    def saved(self, slot: int) -> Any:
        return self.compiler.saved[slot]

    def operand(self, slot: int) -> Any:
        return self.compiler.values[slot]

    def result(self, slot: int) -> Any:
        reads_result = any(reads & Y for reads in self.program.ops[slot].reads)
        reads_result = reads_result or not isinstance(self.row(slot), JointVJP)
        return self.operand(slot) if reads_result else None

    def fitted(self, slot: int, part: Var) -> Var:
        if isinstance(part.value, RowSparse):
            if not self.program.inputs[slot]:
                return part
            part = self.builder.emit(Instr("dense", (part,)))
        return super().fitted(slot, part)

    def conjugated(self, g: Var) -> Var:
        if isinstance(g.value, RowSparse) and g.dtype.kind == "c":
            return self.builder.emit(Instr(conjugated, (g,)))
        return super().conjugated(g)

    def total(self, slot: int, held: Var, part: Var) -> Var:
        if isinstance(held.value, RowSparse) or isinstance(part.value, RowSparse):
            total = self.builder.emit(Instr(add, (held, part), name="plus"), f"g{slot}")
        else:
            call = Instr(np.add, (held, part), takes_out=True, elementwise=True)
            like = held if slot in self._ours and type(held.value) is np.ndarray else None
            total = self.builder.emit(call, f"g{slot}", like)
        if type(total.value) is np.ndarray:
            self._ours.add(slot)
        return total

    def zeros(self, slot: int) -> Var:
        return self.builder.constant(np.zeros_like(self.compiler.values[slot].value))

    def _add(self, held: dict[int, Any], slot: int, part: Var) -> None:
        super()._add(held, slot, part)
        if not isinstance(held[slot].value, RowSparse):
            _named(held[slot], f"g{slot}")


def _named(var: Var, hint: str) -> Var:
    if var.hint == "t":
        var.hint = hint
    return var


# Parts of a program, run again


class Run(Recording):
    """The values of a program in one run, without recorded objects."""

    def __init__(self, program: Program, values: list[Any], saved: dict[int, Any]) -> None:
        super().__init__(program, values, [None] * len(values))
        self._saved = saved

    def saved(self, slot: int) -> Any:
        return self._saved[slot]


class Backward:
    """One backward in a program; ``rows`` are the targets whose gradient may be `RowSparse`."""

    def __init__(self, program: Program, key: tuple[int, ...], rows: Collection[int] = ()) -> None:
        self.rows = set(rows)
        self.y, self.seed = key[0], (key[1] if len(key) > 1 else None)
        found = (program.inputs[slot][1] for slot in program.gradients_of(key))
        self.targets = list(dict.fromkeys(found))
        ends = set(self.targets)
        inputs = [() if slot in ends else read for slot, read in enumerate(program.inputs)]
        flows = between(program, (self.y,), self.targets, inputs)
        self.region = replace(
            program, inputs=inputs, needs=flows, outputs=(self.y,), wanted=self.targets, updates=()
        )

    def gradients(
        self, values: list[Any], saved: dict[int, Any], sweep: Fun = gradients
    ) -> dict[int, Any]:
        seed = np.ones_like(values[self.y]) if self.seed is None else values[self.seed]
        swept = sweep(Run(self.region, values, saved), [seed])
        return {
            slot: (grad if slot in self.rows else grad.dense())
            if isinstance(grad, RowSparse)
            else np.asarray(grad)
            for slot, grad in zip(self.targets, swept, strict=True)
        }


class InNumPy(Interpreter):
    """Computes a program again in NumPy."""

    def __init__(self, program: Program) -> None:
        super().__init__(Recording(program, [], []))
        self.saved: dict[int, Any] = {}

    def operation(self, slot: int) -> Any:
        op = self.program.ops[slot]
        out = op.forward(*self.operands(slot), **self.program.attrs[slot])
        if op.saves:
            out, self.saved[slot] = out
        return Outputs(map(np.asarray, out)) if op.several else np.asarray(out)

    def derivatives(self, slot: int) -> dict[int, Array]:
        backward = Backward(self.program, self.program.backward_of(slot))
        found = backward.gradients(self.values, self.saved)
        return {target: np.array(grad) for target, grad in found.items()}
