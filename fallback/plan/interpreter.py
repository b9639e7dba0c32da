"""A program run again from its leaves, entry by entry: what a plan does after a NaN."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.fallback.batch import jacobian
from tapegraph.fallback.sweep import gradients, strong_gradients
from tapegraph.recording.op import DERIVATIVES, JACOBIAN
from tapegraph.recording.program import Program, Recording
from tapegraph.typed import Array

Sweep = Callable[[Recording, Sequence[Array]], list[Array]]


class Run(Recording):
    """The values of a program in one run, without recorded objects."""

    __slots__ = ("_saved",)

    def __init__(self, program: Program, values: list[Any], saved: dict[int, Any]) -> None:
        super().__init__(program, values, [None] * len(values))
        self._saved = saved

    def saved(self, slot: int) -> Any:
        """Return what the slot's operation saved for its gradient."""
        return self._saved[slot]

    def of(self, program: Program) -> Run:
        """Return the same values of a part of the program."""
        return Run(program, self.values, self._saved)


class Backward:
    """One backward in a program: the gradients of a result with respect to some slots.

    ``flows`` says of each slot whether a gradient flows from ``y`` through it to a target; ``rows``
    are the targets whose gradient may be `RowSparse`; ``region`` is the program up to ``y``, of
    which the targets are leaves.
    """

    def __init__(self, program: Program, key: tuple[int, ...], rows: Collection[int] = ()) -> None:
        self.rows = set(rows)
        self.y, self.seed = key[0], (key[1] if len(key) > 1 else None)
        found = (program.inputs[slot][1] for slot in program.gradients_of(key))
        self.targets = list(dict.fromkeys(found))
        end, wanted = self.y + 1, set(self.targets)
        inputs = [() if slot in wanted else program.inputs[slot] for slot in range(end)]
        flows = [False] * end
        for slot in range(end):
            flows[slot] = slot in wanted or (
                program.needs[slot]
                and program.ops[slot] not in DERIVATIVES
                and any(flows[i] for i in inputs[slot])
            )
        reached = {self.y}
        for slot in range(self.y, -1, -1):
            if slot in reached:
                reached.update(i for i in inputs[slot] if flows[i])
        self.flows = [flow and slot in reached for slot, flow in enumerate(flows)]
        self.region = Program(
            program.ops[:end],
            inputs,
            program.attrs[:end],
            program.shapes[:end],
            program.dtypes[:end],
            self.flows,
            [slot for slot in program.leaves if slot < end],
            (self.y,),
            [slot for slot in self.targets if slot < end],
        )

    def gradients(self, run: Run, sweep: Sweep = gradients) -> dict[int, Any]:
        """Return the gradient of each target."""
        values = run.values
        seed = np.ones_like(values[self.y]) if self.seed is None else values[self.seed]
        swept = sweep(run.of(self.region), [seed])
        found = dict(zip(self.region.wanted, swept, strict=True))
        return {slot: self._read(slot, found.get(slot), values) for slot in self.targets}

    def _read(self, slot: int, grad: Any, values: list[Any]) -> Any:
        if grad is None:
            return np.zeros_like(values[slot])
        if isinstance(grad, RowSparse):
            return grad if slot in self.rows else grad.dense()
        return np.asarray(grad)

    def jacobian(self, run: Run) -> dict[int, Any]:
        """Return the Jacobian by each target, all of which come before ``y``."""
        rows = dict(zip(self.region.wanted, jacobian(run.of(self.region)), strict=True))
        return {slot: rows[slot] for slot in self.targets}


def interpret(program: Program, leaves: Mapping[int, Any], end: int | None = None) -> Run:
    """Compute a program's slots, or those up to an end, in NumPy."""
    values: list[Any] = [None] * len(program)
    saved: dict[int, Any] = {}
    run = Run(program, values, saved)
    grads: dict[tuple[int, ...], dict[int, Any]] = {}
    for slot, op in enumerate(program.ops[:end]):
        inputs = program.inputs[slot]
        if not inputs:
            values[slot] = leaves[slot]
        elif op in DERIVATIVES:
            key = program.backward_of(slot)
            if key not in grads:
                backward = Backward(program, key)
                grads[key] = (backward.jacobian if op is JACOBIAN else backward.gradients)(run)
            values[slot] = np.array(grads[key][inputs[1]])
        else:
            out = op.forward(*(values[i] for i in inputs), **program.attrs[slot])
            if op.saves:
                out, saved[slot] = out
            values[slot] = np.asarray(out)
    return run


class RecomputeStrong:
    """Computes the gradients of one backward from the leaves of the program, with strong zeros.

    A plan calls it where it has met a NaN, which may be 0 * inf: the sweep that follows gives zero
    there. What the plan computed on the way is gone by then, so that it is computed once more.
    """

    def __init__(self, program: Program, numbers: dict[int, Any], backward: Backward) -> None:
        self._program = program
        self._numbers = numbers
        self._backward = backward
        self._end = max(backward.y, -1 if backward.seed is None else backward.seed) + 1
        self.leaves = [slot for slot in program.fed if slot < self._end]

    def __call__(self, *arrays: Array) -> list[Any]:
        """Return the gradients, one a target."""
        leaves = self._numbers | dict(zip(self.leaves, arrays, strict=True))
        run = interpret(self._program, leaves, self._end)
        return list(self._backward.gradients(run, strong_gradients).values())


class JacobianRows:
    """Computes the Jacobian of one result from the values of the program, many rows at a time.

    It takes the values of the slots ``reads``, and then what the operations of ``saves`` saved; it
    is ``opaque`` where a user's own operation is among them.
    """

    def __init__(self, numbers: dict[int, Any], backward: Backward) -> None:
        self._backward = backward
        self._numbers = numbers
        region = backward.region
        swept = [slot for slot, flows in enumerate(backward.flows) if flows and region.inputs[slot]]
        read = {i for slot in swept for i in (slot, *region.inputs[slot])} | {backward.y}
        self.reads = sorted(read - numbers.keys())
        self.saves = [slot for slot in swept if region.ops[slot].saves]
        self.opaque = any(region.ops[slot].rules is not None for slot in swept)

    def __call__(self, *given: Any) -> list[Array]:
        """Return the Jacobian by each target."""
        region = self._backward.region
        known = self._numbers | dict(zip(self.reads, given, strict=False))
        values = [known.get(slot) for slot in range(len(region))]
        saved = dict(zip(self.saves, given[len(self.reads) :], strict=True))
        return list(self._backward.jacobian(Run(region, values, saved)).values())
