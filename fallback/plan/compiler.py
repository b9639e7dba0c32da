"""From a captured program to the instructions of a plan: forwards, and the backwards in it."""

from __future__ import annotations

from operator import add, getitem
from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import RowSparse, has_nan
from tapegraph.capture.sgd_updates import RowUpdate, sgd_updates
from tapegraph.fallback.plan.codegen import Source
from tapegraph.fallback.plan.interpreter import Backward, JacobianRows, RecomputeStrong
from tapegraph.fallback.plan.ir import Builder, Constant, Feed, Instr, NanCheck, Var, live
from tapegraph.fallback.plan.memory import by_lifetime
from tapegraph.fallback.plan.tracer import Untraceable, trace
from tapegraph.fallback.rules import VJPS, Joint
from tapegraph.fallback.sweep import own_row, unbroadcast
from tapegraph.recording.op import DERIVATIVES, JACOBIAN, Op
from tapegraph.recording.program import Recording
from tapegraph.recording.record import ELEMENTWISE

# What a plan calls a value until the text is written: a slot's number follows.
VALUE, SAVED, GRAD, FOUND = "v", "s", "g", "d"


def compile_plan(recording: Recording) -> Source:
    """Return the plan of a captured program, made by running it on the recorded values."""
    return _Compiler(recording).compile()


class _Compiler:
    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.program = recording.program
        self.builder = Builder()
        self.numbers = {slot: recording.values[slot] for slot in self.program.scalars}
        # A value of the plan per slot, or a Python number; and what operations saved.
        self.of: list[Any] = [None] * len(self.program)
        self.saved: dict[int, Any] = {}
        for slot in self.program.leaves:
            value = recording.values[slot]
            number = slot in self.numbers
            self.of[slot] = value if number else Feed(value, hint=f"{VALUE}{slot}")
        self._gradients: dict[tuple[int, ...], dict[int, Var]] = {}
        moving = sgd_updates(self.program).values()
        self._products = {d.product: d for d in moving}
        self._differences = {d.difference: d for d in moving}
        self._readers = self.program.readers()

    def compile(self) -> Source:
        program = self.program
        for slot, op in enumerate(program.ops):
            if not program.inputs[slot]:
                continue
            self.builder.place = self.recording.where(slot)
            if op in DERIVATIVES:
                key = program.backward_of(slot)
                if key not in self._gradients:
                    self._gradients[key] = self._derivatives(op, key)
                self.of[slot] = self._gradients[key][program.inputs[slot][1]]
            elif slot in self._products and self._is_rows(self._products[slot].gradient):
                continue  # its only reader is the next
            elif slot in self._differences and self._is_rows(self._differences[slot].gradient):
                gradient, scale = (self.of[i] for i in self._differences[slot][:2])
                update = Instr(RowUpdate, (gradient, scale))
                self.of[slot] = self.builder.emit(update, f"{VALUE}{slot}")
            else:
                self._forward(slot)
        outputs = [self.of[slot] for slot in program.outputs]
        updates = [self.of[update.slot] for update in program.updates]
        results = [*outputs, *updates]
        instrs = by_lifetime(live(self.builder.instrs, results), results)
        return Source(instrs, [self.of[slot] for slot in program.fed], outputs, updates)

    def _derivatives(self, op: Op, key: tuple[int, ...]) -> dict[int, Var]:
        """Compile one backward, and return what it gives by target."""
        if op is not JACOBIAN:
            backward = Backward(self.program, key, self._may_stay_rows(key))
            return _Reverse(self, backward).gradients()
        backward = Backward(self.program, key)
        rows = JacobianRows(self.numbers, backward)
        given = (*(self.of[i] for i in rows.reads), *(self.saved[i] for i in rows.saves))
        call = Instr(rows, given, name="jacobian", may_raise=True, opaque=rows.opaque)
        known = {self.program.inputs[slot][1]: slot for slot in self.program.gradients_of(key)}
        found = [self.recording.values[known[target]] for target in backward.targets]
        several = self.builder.emit(call, given=found)
        return dict(zip(backward.targets, self.items(several), strict=True))

    def items(self, several: Var) -> list[Any]:
        """Return each of what an instruction gives as a list."""
        return [
            None if x is None else self.builder.emit(Instr(getitem, (several, i)))
            for i, x in enumerate(several.value)
        ]

    def _may_stay_rows(self, key: tuple[int, ...]) -> set[int]:
        """Return the targets of a backward whose gradients only a descent reads, or nobody."""
        program = self.program
        return {
            program.inputs[slot][1]
            for slot in program.gradients_of(key)
            if self._readers[slot] <= self._products.keys()
        }

    def _is_rows(self, slot: int) -> bool:
        return isinstance(self.of[slot].value, RowSparse)

    def _forward(self, slot: int) -> None:
        program, op, attrs = self.program, self.program.ops[slot], self.program.attrs[slot]
        given = tuple(self.of[i] for i in program.inputs[slot])
        hint = f"{VALUE}{slot}"
        if op.name not in ELEMENTWISE:
            given = self._apart(program.inputs[slot], given)
        try:
            if op.rules is not None:
                raise Untraceable("a user's own function")
            out = trace(self.builder, op.forward, given, attrs)
        except Untraceable:
            opaque = op.rules is not None
            call = Instr(op.forward, given, attrs, op.name, may_raise=True, opaque=opaque)
            if op.saves:
                out = self.builder.emit_all(call, (hint, f"{SAVED}{slot}"))
            else:
                out = self.builder.emit(call, hint)
        if op.saves:
            out, self.saved[slot] = out
        self.of[slot] = named(self.builder.array(out), hint)

    def _apart(self, slots: tuple[int, ...], given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return operands in memory of their own where they are that when run eagerly.

        What the user computed twice is computed once here; and of one array NumPy computes the
        product with its transpose in another way, which is rounded otherwise.
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


class _Reverse:
    """Compiles one backward."""

    def __init__(self, compiler: _Compiler, backward: Backward) -> None:
        self.compiler = compiler
        self.builder = compiler.builder
        self.program = compiler.program
        self.backward = backward
        self.targets = set(backward.targets)
        self.cotangents: dict[int, Var] = {}
        self.ours: set[int] = set()  # slots whose cotangent was added up here

    def gradients(self) -> dict[int, Var]:
        """Return the gradient of each target, as an array of its own name."""
        program, backward = self.program, self.backward
        y, seed = self.compiler.of[backward.y], backward.seed
        self.cotangents[backward.y] = (
            self.builder.constant(np.ones_like(y.value)) if seed is None else self.compiler.of[seed]
        )
        for slot in range(backward.y, -1, -1):
            if slot not in self.cotangents or not program.inputs[slot] or slot in self.targets:
                continue
            if backward.flows[slot]:
                self.builder.place = self.compiler.recording.where(slot)
                self._rule(slot)
        self.builder.place = ""
        grads = {slot: self._found(slot) for slot in backward.targets}
        if all(isinstance(g, Constant) and not has_nan(g.value) for g in grads.values()):
            return grads
        recompute = RecomputeStrong(program, self.compiler.numbers, backward)
        leaves = [self.compiler.of[slot] for slot in recompute.leaves]
        hints = [f"{FOUND}{slot}" for slot in backward.targets]
        check = NanCheck(recompute, leaves, list(grads.values()), hints)
        self.builder.instrs.append(check)
        return dict(zip(backward.targets, check.results, strict=True))

    def _found(self, slot: int) -> Var:
        """Return the cotangent that a target was left with, as an array."""
        grad = self.cotangents.get(slot)
        if grad is None:
            return self.builder.constant(np.zeros_like(self.compiler.of[slot].value))
        if not isinstance(grad.value, RowSparse):
            return self.builder.array(grad)
        return grad if slot in self.backward.rows else self._dense(grad)

    def _rule(self, slot: int) -> None:
        program, flows, of = self.program, self.backward.flows, self.compiler.of
        op, slots = program.ops[slot], program.inputs[slot]
        row: Any = VJPS.get(op.name) or own_row(self.compiler.recording, slot)
        attrs = dict(program.attrs[slot])
        if op.saves:
            attrs["saved"] = self.compiler.saved[slot]
        joint = isinstance(row, Joint)
        y = of[slot] if not joint or row.reads_result else None
        given = (self.cotangents[slot], y, *(of[i] for i in slots))
        if joint:
            needed = [flows[i] for i in slots]
            opaque = op.rules is not None
            parts = self._called(row.rule, f"{op.name}_vjp", (needed, *given), attrs, opaque)
            for i, wanted, part in zip(slots, needed, parts, strict=False):
                if wanted and part is not None:
                    self._add(i, part)
            return
        for position, (i, rule) in enumerate(zip(slots, row, strict=False)):
            if flows[i] and rule is not None:
                self._add(i, self._called(rule, f"{op.name}_vjp{position}", given, attrs))

    def _called(
        self,
        rule: Any,
        name: str,
        given: tuple[Any, ...],
        attrs: dict[str, Any],
        opaque: bool = False,
    ) -> Any:
        """Compile a rule; return its result, or of a joint rule its results."""
        if not opaque:
            try:
                return trace(self.builder, rule, given, attrs)
            except Untraceable:
                pass
        call = Instr(rule, given, attrs, name, may_raise=True, opaque=opaque)
        whole = self.builder.emit(call)
        if not isinstance(whole.value, (tuple, list)):
            return whole
        return self.compiler.items(whole)

    def _add(self, i: int, part: Var) -> None:
        """Add to the cotangent of a slot, as the sweep does."""
        program, before = self.program, self.cotangents.get(i)
        if isinstance(part.value, RowSparse):
            if program.inputs[i] and i not in self.targets:
                part = self._dense(part)
            else:
                self.cotangents[i] = part if before is None else self._sum(i, before, part)
                return
        shape, dtype = program.shapes[i], program.dtypes[i]
        if part.value.shape != shape or part.value.dtype != dtype:
            part = trace(self.builder, _fitted, (part, shape, dtype), {})
        self.cotangents[i] = part if before is None else self._sum(i, before, part)
        named(self.cotangents[i], f"{GRAD}{i}")

    def _sum(self, i: int, before: Var, part: Var) -> Var:
        if isinstance(before.value, RowSparse) or isinstance(part.value, RowSparse):
            total = self.builder.emit(Instr(add, (before, part), name="plus"), f"{GRAD}{i}")
        else:
            call = Instr(np.add, (before, part), takes_out=True, elementwise=True)
            like = before if i in self.ours and type(before.value) is np.ndarray else None
            total = self.builder.emit(call, f"{GRAD}{i}", like)
        if type(total.value) is np.ndarray:
            self.ours.add(i)
        return total

    def _dense(self, rows: Var) -> Var:
        return self.builder.emit(Instr("dense", (rows,)))


def _fitted(g: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    g = unbroadcast(g, shape)
    return g if g.dtype == dtype else g.astype(dtype)


def named(var: Var, hint: str) -> Var:
    """Return a value, called so where it has no name yet."""
    if var.hint == "t":
        var.hint = hint
    return var
