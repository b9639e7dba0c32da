"""A backward of a program computed from values: again with strong zeros, or all rows at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.fallback.batch_sweep import jacobian
from tapegraph.fallback.sweep import gradients, strong_gradients
from tapegraph.recording.op import DERIVATIVES, JACOBIAN, Op
from tapegraph.recording.program import Program, Recording
from tapegraph.typed import Array


class Backward:
    """One backward in a program: the gradients of a result with respect to some slots.

    Attributes
    ----------
    y : int
        The slot that is differentiated.
    seed : int or None
        The slot that is its cotangent, which is ones where there is none.
    targets : list of int
        What it is differentiated by, each once.
    flows : list of bool
        Whether a gradient flows through a slot to a target, up to ``y``.
    rows : set of int
        The targets whose gradient may be `RowSparse`.
    """

    def __init__(self, program: Program, key: tuple[int, ...], rows: Collection[int] = ()) -> None:
        self.rows = set(rows)
        self.y, self.seed = key[0], (key[1] if len(key) > 1 else None)
        found = (program.inputs[slot][1] for slot in program.gradients_of(key))
        self.targets = list(dict.fromkeys(found))
        wanted = set(self.targets)
        self.flows = [False] * (self.y + 1)
        for slot in range(self.y + 1):
            self.flows[slot] = slot in wanted or (
                program.needs[slot]
                and program.ops[slot] not in DERIVATIVES
                and any(self.flows[i] for i in program.inputs[slot])
            )

    def region(self, program: Program) -> Program:
        """Return the program up to ``y``, of which the targets are leaves."""
        end = self.y + 1
        inputs = program.inputs[:end]
        for slot in self.targets:
            if slot < end:
                inputs[slot] = ()
        return Program(
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


def forward(program: Program, slot: int, arrays: Sequence[Any]) -> tuple[Any, Any]:
    """Return what an operation gives, as an array, and what it saves."""
    op, attrs, dtype = program.ops[slot], program.attrs[slot], program.dtypes[slot]
    if op.saves:
        out, saved = op.forward(*arrays, **attrs)
        return np.asarray(out), saved
    out = op.forward(*arrays, **attrs)
    if out.dtype != dtype:  # NumPy answers small integers in float16
        out = op.forward(*(np.asarray(a, dtype) for a in arrays), **attrs)
    return np.asarray(out), None


class Again:
    """Computes the gradients of one backward from the leaves of the program.

    A plan calls it where it has met a NaN, which may be 0 * inf: the sweep that follows gives zero
    there. What the plan computed on the way is gone by then, so that it is computed once more.

    Parameters
    ----------
    program : Program
        The program.
    numbers : dict of int to number
        Its scalars.
    backward : Backward
        What to differentiate.
    """

    def __init__(self, program: Program, numbers: dict[int, Any], backward: Backward) -> None:
        self._program = program
        self._numbers = numbers
        self._backward = backward
        end = max(backward.y, -1 if backward.seed is None else backward.seed) + 1
        self.leaves = [slot for slot in program.fed if slot < end]
        self._end = end

    def __call__(self, *arrays: Array) -> list[Any]:
        """Return the gradients, one a target."""
        program = self._program
        values: list[Any] = [None] * self._end
        saved: dict[int, Any] = {}
        grads: dict[tuple[int, ...], dict[int, Any]] = {}
        for slot, number in self._numbers.items():
            if slot < self._end:
                values[slot] = number
        for slot, array in zip(self.leaves, arrays, strict=True):
            values[slot] = array
        for slot in range(self._end):
            inputs = program.inputs[slot]
            if program.ops[slot] in DERIVATIVES:
                key = program.backward_of(slot)
                if key not in grads:
                    grads[key] = self._derivatives(program.ops[slot], key, values, saved)
                values[slot] = np.array(grads[key][inputs[1]])
            elif inputs:
                given = [values[i] for i in inputs]
                values[slot], saved[slot] = forward(program, slot, given)
        found = _swept(strong_gradients, program, self._backward, values, saved)
        return [found[slot] for slot in self._backward.targets]

    def _derivatives(
        self, op: Op, key: tuple[int, ...], values: list[Any], saved: dict[int, Any]
    ) -> dict[int, Any]:
        """Return what another backward gave on the way, by target."""
        backward = Backward(self._program, key)
        if op is not JACOBIAN:
            return _swept(gradients, self._program, backward, values, saved)
        rows = Rows(self._program, self._numbers, backward)
        given = [*(values[slot] for slot in rows.reads), *(saved[slot] for slot in rows.saves)]
        return dict(zip(backward.targets, rows(*given), strict=True))


class Rows:
    """Computes the Jacobian of one result from the values of the program, many rows at a time.

    Parameters
    ----------
    program : Program
        The program.
    numbers : dict of int to number
        Its scalars.
    backward : Backward
        What to differentiate.

    Attributes
    ----------
    reads : list of int
        The slots whose values it takes, in order.
    saves : list of int
        Those of which it takes what their operation saved, after the values.
    users : bool
        A user's own operation is among them.
    """

    def __init__(self, program: Program, numbers: dict[int, Any], backward: Backward) -> None:
        self._program = region = backward.region(program)
        self._numbers = {slot: x for slot, x in numbers.items() if slot < len(region)}
        self._targets = backward.targets
        reached = {backward.y}
        for slot in range(backward.y, -1, -1):
            if slot in reached:
                reached.update(i for i in region.inputs[slot] if backward.flows[i])
        region.needs[:] = [slot in reached for slot in range(len(region))]
        swept = [slot for slot in sorted(reached) if region.inputs[slot]]
        read = {i for slot in swept for i in (slot, *region.inputs[slot])} | {backward.y}
        self.reads = sorted(read - numbers.keys())
        self.saves = [slot for slot in swept if program.ops[slot].saves]
        self.users = any(program.ops[slot].rules is not None for slot in swept)

    def __call__(self, *given: Any) -> list[Array]:
        """Return the Jacobian by each target."""
        region = self._program
        values: list[Any] = [None] * len(region)
        for slot, number in self._numbers.items():
            values[slot] = number
        for slot, value in zip(self.reads, given, strict=False):
            values[slot] = value
        saved = dict(zip(self.saves, given[len(self.reads) :], strict=True))
        rows = jacobian(_Values(region, values, saved))
        found = dict(zip(region.wanted, rows, strict=True))
        return [found[slot] for slot in self._targets]


def _swept(
    sweep: Callable[[Recording, Sequence[Array]], list[Array]],
    program: Program,
    backward: Backward,
    values: list[Any],
    saved: dict[int, Any],
) -> dict[int, Any]:
    region = backward.region(program)
    y = values[backward.y]
    seed = np.ones_like(y) if backward.seed is None else values[backward.seed]
    grads = sweep(_Values(region, values, saved), [seed])
    found = dict(zip(region.wanted, grads, strict=True))
    return {
        slot: _read(found[slot], slot in backward.rows)
        if slot in found
        else np.zeros_like(values[slot])
        for slot in backward.targets
    }


def _read(grad: Any, rows: bool) -> Any:
    if isinstance(grad, RowSparse):
        return grad if rows else grad.dense()
    return np.asarray(grad)


class _Values(Recording):
    """A recording without recorded objects."""

    __slots__ = ("_saved",)

    def __init__(self, program: Program, values: list[Any], saved: dict[int, Any]) -> None:
        super().__init__(program, values, [None] * len(values))
        self._saved = saved

    def saved(self, slot: int) -> Any:
        return self._saved[slot]
