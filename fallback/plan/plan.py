"""A captured program as straight-line NumPy: one call a line, in the order of the program.

The plan is made by running it once: what has to be summed back or converted, what is a view of
what, and how everything lies in memory is found then, and the lines say so. It computes bit for
bit what the eager engine does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import keep_freed_memory
from tapegraph.arrays.row_sparse import RowSparse, has_nan
from tapegraph.capture.sgd_updates import RowUpdate, sgd_updates
from tapegraph.fallback.plan.blocks import by_blocks
from tapegraph.fallback.plan.codegen import Source
from tapegraph.fallback.plan.ir import ITEM, METHOD, Call, Calls, Check, Constant, Held, Leaf
from tapegraph.fallback.plan.memory import live
from tapegraph.fallback.plan.nan_recovery import Again, Backward, Rows
from tapegraph.fallback.plan.schedule import by_lifetime
from tapegraph.fallback.plan.tracer import Untraceable, written
from tapegraph.fallback.rules import VJPS, Joint
from tapegraph.fallback.sweep import own_row, unbroadcast
from tapegraph.numpy_warnings import quietly
from tapegraph.recording.op import DERIVATIVES, JACOBIAN, Op
from tapegraph.recording.program import Recording
from tapegraph.recording.record import ELEMENTWISE

# What a plan calls a value until the text is written: a slot's number follows.
VALUE, SAVED, GRAD, FOUND = "v", "s", "g", "d"


as_array: Any = np.asarray  # NumPy's types do not know an order that varies


class Plan:
    """A function of the values of a program's leaves, as readable Python.

    It owns the buffers it writes into, so that one thread at a time may run it; what it returns
    is never written to again.

    Attributes
    ----------
    source : str
        Its text.
    leaves : list of int
        The slots whose values it takes, in order: all but Python numbers.
    nbytes : int
        The memory of its buffers.
    chains : int
        How many chains of calls it makes block by block.
    """

    keeps_state = False
    compile_seconds = 0.0
    variant = ""

    def __init__(self, recording: Recording) -> None:
        keep_freed_memory()
        self.leaves = recording.program.fed
        values = [recording.values[slot] for slot in self.leaves]
        # How a sum is rounded depends on the order in memory; a real call takes arguments in C's.
        self._types = [(v.dtype, "C" if v.flags.c_contiguous else "K") for v in values]
        with np.errstate(all="ignore"):
            source = _Writer(recording).write()
        self.source, self.nbytes, self.chains = source.text, source.nbytes, source.chains
        exec(compile(self.source, "<tapegraph plan>", "exec"), source.names)
        plan = source.names["plan"]
        self._run: Callable[..., Any] = (lambda *a: next(plan(*a))) if source.long else plan

    def try_variant(self, limit: float) -> bool:
        """Tell that there is but one."""
        return False

    def run(self, values: list[Any], changes: Any = None) -> tuple[list[Any], list[Any]]:
        """Return the outputs, and the new values of the state that changes."""
        typed = zip(values, self._types, strict=True)
        arrays = [as_array(v, dtype, order) for v, (dtype, order) in typed]
        return quietly(self._run, *arrays)  # type: ignore[no-any-return]


class _Writer:
    """Writes the calls of a plan, making each on the recorded values."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.program = recording.program
        self.calls = Calls()
        self.numbers = {slot: recording.values[slot] for slot in self.program.scalars}
        # A value of the plan per slot, or a Python number; and what operations saved.
        self.of: list[Any] = [None] * len(self.program)
        self.saved: dict[int, Any] = {}
        for slot in self.program.leaves:
            value = recording.values[slot]
            number = slot in self.numbers
            self.of[slot] = value if number else Leaf(value, hint=f"{VALUE}{slot}")
        self._gradients: dict[tuple[int, ...], dict[int, Held]] = {}
        moving = sgd_updates(self.program).values()
        self._products = {d.product: d for d in moving}
        self._differences = {d.difference: d for d in moving}
        self._readers = self.program.readers()

    def write(self) -> Source:
        """Write every slot."""
        program = self.program
        for slot, op in enumerate(program.ops):
            if not program.inputs[slot]:
                continue
            self.calls.place = self.recording.where(slot)
            if op in DERIVATIVES:
                key = program.backward_of(slot)
                if key not in self._gradients:
                    self._gradients[key] = self._derivatives(op, key)
                self.of[slot] = self._gradients[key][program.inputs[slot][1]]
            elif slot in self._products and self._is_rows(self._products[slot].gradient):
                continue  # its only reader is the next
            elif slot in self._differences and self._is_rows(self._differences[slot].gradient):
                gradient, scale = (self.of[i] for i in self._differences[slot][:2])
                call = Call(RowUpdate, RowUpdate.__name__, (gradient, scale), {})
                self.of[slot] = self.calls.make(call, f"{VALUE}{slot}")
            else:
                self._forward(slot)
        outputs = [self.of[slot] for slot in program.outputs]
        updates = [self.of[update.slot] for update in program.updates]
        results = [*outputs, *updates]
        lines, scratch = by_blocks(live(self.calls.lines, results), results)
        leaves = [self.of[slot] for slot in program.fed]
        lines = by_lifetime(live(lines, results), results)
        return Source(lines, leaves, outputs, updates, scratch)

    def _derivatives(self, op: Op, key: tuple[int, ...]) -> dict[int, Held]:
        """Write one backward, and return what it gives by target."""
        if op is not JACOBIAN:
            backward = Backward(self.program, key, self._may_stay_rows(key))
            return _Reverse(self, backward).gradients()
        backward = Backward(self.program, key)
        rows = Rows(self.program, self.numbers, backward)
        given = [*(self.of[i] for i in rows.reads), *(self.saved[i] for i in rows.saves)]
        call = Call(rows, "jacobian", tuple(given), {}, kept=True, users=rows.users)
        known = {self.program.inputs[slot][1]: slot for slot in self.program.gradients_of(key)}
        found = [self.recording.values[known[target]] for target in backward.targets]
        several = self.calls.make(call, given=found)
        return dict(zip(backward.targets, self._items(several), strict=True))

    def _items(self, several: Held) -> list[Any]:
        """Return each of what a call gives as a list."""
        return [
            None if x is None else self.calls.make(Call(None, "item", (several, i), {}, form=ITEM))
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
        want = None
        if not op.saves:
            values = [g.value if isinstance(g, Held) else g for g in given]
            want = op.forward(*values, **attrs)
            if want.dtype != program.dtypes[slot]:
                want = None
                given = tuple(self._converted(g, program.dtypes[slot]) for g in given)
        try:
            if op.rules is not None:
                raise Untraceable("a user's own function")
            out = written(self.calls, op.forward, given, attrs, want)
        except Untraceable:
            call = Call(op.forward, op.name, given, attrs, kept=True, users=op.rules is not None)
            if op.saves:
                out = self.calls.make_all(call, (hint, f"{SAVED}{slot}"))
            else:
                out = self.calls.make(call, hint)
        if op.saves:
            out, self.saved[slot] = out
        self.of[slot] = self._named(self.calls.array(out), hint)

    def _apart(self, slots: tuple[int, ...], given: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return operands in memory of their own where they are that when run eagerly.

        What the user computed twice is computed once here; and of one array NumPy computes the
        product with its transpose in another way, which is rounded otherwise.
        """
        arrays, seen = self.recording.values, dict[int, int]()
        found = []
        for slot, held in zip(slots, given, strict=True):
            roots = held.roots if isinstance(held, Held) else ()
            others = [seen[id(root)] for root in roots if id(root) in seen]
            if any(not np.may_share_memory(arrays[slot], arrays[other]) for other in others):
                held = self.calls.make(Call(np.copy, "copy", (held, "K"), {}))
            seen.update((id(root), slot) for root in roots)
            found.append(held)
        return tuple(found)

    def _converted(self, given: Any, dtype: np.dtype[Any]) -> Held:
        if not isinstance(given, Held):
            return self.calls.constant(np.asarray(given, dtype))
        return self.calls.make(Call(np.asarray, "asarray", (given, dtype), {}))

    @staticmethod
    def _named(held: Held, hint: str) -> Held:
        if held.hint == "t":
            held.hint = hint
        return held


class _Reverse:
    """Writes one backward."""

    def __init__(self, writer: _Writer, backward: Backward) -> None:
        self.writer = writer
        self.calls = writer.calls
        self.program = writer.program
        self.backward = backward
        self.targets = set(backward.targets)
        self.held: dict[int, Held] = {}
        self.ours: set[int] = set()  # slots whose cotangent was added up here

    def gradients(self) -> dict[int, Held]:
        """Return the gradient of each target, as an array of its own name."""
        program, backward = self.program, self.backward
        y, seed = self.writer.of[backward.y], backward.seed
        self.held[backward.y] = (
            self.calls.constant(np.ones_like(y.value)) if seed is None else self.writer.of[seed]
        )
        for slot in range(backward.y, -1, -1):
            if slot not in self.held or not program.inputs[slot] or slot in self.targets:
                continue
            if backward.flows[slot]:
                self.calls.place = self.writer.recording.where(slot)
                self._rule(slot)
        self.calls.place = ""
        grads = {slot: self._found(slot) for slot in backward.targets}
        if all(isinstance(g, Constant) and not has_nan(g.value) for g in grads.values()):
            return grads
        again = Again(program, self.writer.numbers, backward)
        leaves = [self.writer.of[slot] for slot in again.leaves]
        hints = [f"{FOUND}{slot}" for slot in backward.targets]
        check = Check(again, leaves, list(grads.values()), hints)
        self.calls.lines.append(check)
        return dict(zip(backward.targets, check.results, strict=True))

    def _found(self, slot: int) -> Held:
        """Return the cotangent that a target was left with, as an array."""
        grad = self.held.get(slot)
        if grad is None:
            return self.calls.constant(np.zeros_like(self.writer.of[slot].value))
        if not isinstance(grad.value, RowSparse):
            return self.calls.array(grad)
        return grad if slot in self.backward.rows else self._dense(grad)

    def _rule(self, slot: int) -> None:
        program, flows, of = self.program, self.backward.flows, self.writer.of
        op, slots = program.ops[slot], program.inputs[slot]
        row: Any = VJPS.get(op.name) or own_row(self.writer.recording, slot)
        attrs = dict(program.attrs[slot])
        if op.saves:
            attrs["saved"] = self.writer.saved[slot]
        joint = isinstance(row, Joint)
        y = of[slot] if not joint or row.reads_result else None
        given = (self.held[slot], y, *(of[i] for i in slots))
        if joint:
            needed = [flows[i] for i in slots]
            own = op.rules is not None
            parts = self._called(row.rule, f"{op.name}_vjp", (needed, *given), attrs, own)
            for i, wanted, part in zip(slots, needed, parts, strict=False):
                if wanted and part is not None:
                    self._add(i, part)
            return
        for position, (i, rule) in enumerate(zip(slots, row, strict=False)):
            if flows[i] and rule is not None:
                name = f"{op.name}_vjp{position}"
                self._add(i, self._called(rule, name, given, attrs, False))

    def _called(
        self, rule: Any, name: str, given: tuple[Any, ...], attrs: dict[str, Any], users: bool
    ) -> Any:
        """Write a rule; return its result, or of a joint rule its results."""
        if not users:
            try:
                return written(self.calls, rule, given, attrs)
            except Untraceable:
                pass
        whole = self.calls.make(Call(rule, name, given, attrs, kept=True, users=users))
        if not isinstance(whole.value, (tuple, list)):
            return whole
        return self.writer._items(whole)

    def _add(self, i: int, part: Held) -> None:
        """Add to the cotangent of a slot, as the sweep does."""
        program, before = self.program, self.held.get(i)
        if isinstance(part.value, RowSparse):
            if program.inputs[i] and i not in self.targets:
                part = self._dense(part)
            else:
                self.held[i] = part if before is None else self._sum(i, before, part)
                return
        if part.value.shape != program.shapes[i]:
            part = written(self.calls, unbroadcast, (part, program.shapes[i]), {})
        if part.value.dtype != program.dtypes[i]:
            part = written(self.calls, _as_dtype, (part, program.dtypes[i]), {})
        self.held[i] = part if before is None else self._sum(i, before, part)
        self.writer._named(self.held[i], f"{GRAD}{i}")

    def _sum(self, i: int, before: Held, part: Held) -> Held:
        if isinstance(before.value, RowSparse) or isinstance(part.value, RowSparse):
            total = self.calls.make(Call(_plus, "plus", (before, part), {}), f"{GRAD}{i}")
            if isinstance(total.value, np.ndarray):
                self.ours.add(i)
            return total
        call = Call(np.add, np.add.__name__, (before, part), {}, into=True, elementwise=True)
        like = before if i in self.ours and type(before.value) is np.ndarray else None
        total = self.calls.make(call, f"{GRAD}{i}", like)
        if type(total.value) is np.ndarray:
            self.ours.add(i)
        return total

    def _dense(self, rows: Held) -> Held:
        return self.calls.make(Call(None, "dense", (rows,), {}, form=METHOD))


def _as_dtype(x: Any, dtype: np.dtype[Any]) -> Any:
    return x.astype(dtype)


def _plus(a: Any, b: Any) -> Any:
    return a + b
