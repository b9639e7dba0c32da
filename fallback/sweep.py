"""The reverse sweep: cotangents from the root to the leaves, one VJP rule per entry."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import keep_freed_memory
from tapegraph.arrays.row_sparse import RowSparse, has_nan
from tapegraph.fallback.rules import VJPS, Joint
from tapegraph.fallback.strong_zero import plain, strong_zeros
from tapegraph.numpy_warnings import quietly
from tapegraph.recording.program import Recording
from tapegraph.typed import Array


def gradients(recording: Recording, seeds: Sequence[Array]) -> list[Array]:
    """Return the gradients of a program's outputs with respect to its wanted slots.

    Parameters
    ----------
    recording : Recording
        What was recorded.
    seeds : sequence of ndarray
        A cotangent per output, of its shape.

    Returns
    -------
    list of ndarray
        One a wanted slot, of that slot's shape and dtype.

    Raises
    ------
    NotImplementedError
        An operation has no gradient rule.

    Notes
    -----
    The first sweep is plain NumPy. A NaN in its result may be 0 * inf: then a second sweep runs
    in which a zero cotangent absorbs whatever it meets.
    """
    keep_freed_memory()
    return quietly(_gradients, recording, seeds)  # type: ignore[no-any-return]


def _gradients(recording: Recording, seeds: Sequence[Array]) -> list[Array]:
    grads = _sweep(recording, seeds)
    if any(has_nan(g) for g in grads):
        grads = _strong(recording, seeds)
    return grads


def strong_gradients(recording: Recording, seeds: Sequence[Array]) -> list[Array]:
    """Return the same by the second sweep alone."""
    return quietly(_strong, recording, seeds)  # type: ignore[no-any-return]


def _strong(recording: Recording, seeds: Sequence[Array]) -> list[Array]:
    return [plain(g) for g in _sweep(recording, seeds, strong_zero=True)]


def _sweep(recording: Recording, seeds: Sequence[Array], strong_zero: bool = False) -> list[Array]:
    program, values = recording.program, recording.values
    ops, inputs, needs, all_attrs = program.ops, program.inputs, program.needs, program.attrs
    shapes, dtypes = program.shapes, program.dtypes
    cotangents: list[Any] = [None] * len(ops)
    # Slots whose cotangent is a buffer made here that nobody else reads.
    ours: set[int] = set()
    wanted = set(program.wanted)

    def add(i: int, part: Any) -> None:
        if part.shape != shapes[i]:
            part = unbroadcast(part, shapes[i])
        dtype = dtypes[i]
        if part.dtype is not dtype and part.dtype != dtype:
            part = part.astype(dtype)
        held = cotangents[i]
        if held is None:
            cotangents[i] = part
        elif i in ours:
            held += part
        else:
            cotangents[i] = total = held + part
            if type(total) is np.ndarray:
                ours.add(i)

    def add_rows(i: int, part: RowSparse) -> None:
        if inputs[i]:
            add(i, part.dense())  # only a leaf's gradient stays sparse: rules take arrays
        elif cotangents[i] is None:
            cotangents[i] = part
        else:
            cotangents[i] = cotangents[i] + part

    for slot, seed in zip(program.outputs, seeds, strict=True):
        add(slot, seed)
    for slot in range(len(ops) - 1, -1, -1):
        g = cotangents[slot]
        if g is None:
            continue
        slots = inputs[slot]
        if not slots:
            continue
        if slot not in wanted:
            cotangents[slot] = None
        if strong_zero:
            g = strong_zeros(g)
        op = ops[slot]
        row: Any = VJPS.get(op.name) or own_row(recording, slot)
        y = values[slot]
        attrs = all_attrs[slot]
        if type(row) is Joint or attrs or op.saves or len(slots) > 2:
            for i, part in parts_of(recording, slot, row, g):
                if type(part) is RowSparse:
                    add_rows(i, part)
                else:
                    add(i, part)
        elif len(slots) == 1:  # one input and no attributes, and two: the hot path
            (i,) = slots
            add(i, row[0](g, y, values[i]))
        else:
            i, j = slots
            a, b = values[i], values[j]
            if needs[i]:
                add(i, row[0](g, y, a, b))
            if needs[j]:
                add(j, row[1](g, y, a, b))
    return [
        np.zeros_like(values[slot]) if cotangents[slot] is None else cotangents[slot]
        for slot in program.wanted
    ]


def own_row(recording: Recording, slot: int) -> Joint:
    """Return the row of an operation that is not in the library's table.

    Raises
    ------
    NotImplementedError
        It brings none along.
    """
    rules = recording.program.ops[slot].rules
    if rules is None:
        name = recording.describe(slot)
        raise NotImplementedError(f"backward: no gradient rule for {name}")
    return Joint(rules.vjp)


def parts_of(recording: Recording, slot: int, row: Any, g: Any) -> Iterator[tuple[int, Any]]:
    """Yield the gradient of each input that needs one."""
    program, values = recording.program, recording.values
    slots, attrs = program.inputs[slot], program.attrs[slot]
    needed = [program.needs[i] for i in slots]
    arrays = [values[i] for i in slots]
    if program.ops[slot].saves:
        attrs = {**attrs, "saved": recording.saved(slot)}
    y = values[slot]
    if isinstance(row, Joint):
        for i, wanted, part in zip(slots, needed, row.rule(needed, g, y, *arrays, **attrs)):  # noqa: B905
            if wanted and part is not None:
                yield i, part
    else:
        for i, wanted, rule in zip(slots, needed, row):  # noqa: B905
            if wanted and rule is not None:
                yield i, rule(g, y, *arrays, **attrs)


def unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum a gradient over the axes along which its operand was broadcast."""
    extra = g.ndim - len(shape)
    if extra > 0:
        g = g.sum(axis=tuple(range(extra)))
    stretched = tuple(i for i, n in enumerate(shape) if n == 1 and g.shape[i] != 1)
    if stretched:
        g = g.sum(axis=stretched, keepdims=True)
    if g.shape != shape:
        g = np.broadcast_to(g, shape)
    return g
