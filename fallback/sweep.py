"""The reverse sweep: cotangents from the root to the leaves, one rule an entry."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.fallback.absorbing import absorbing, plain
from tapegraph.fallback.rules import VJPS
from tapegraph.ir import Array, Program


def gradients(program: Program, seed: Array) -> list[Array]:
    """Return the gradients of a program's root with respect to its wanted slots.

    Parameters
    ----------
    program : Program
        What was recorded.
    seed : ndarray
        The cotangent of the root, of its shape.

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
    with np.errstate(all="ignore"):
        grads = _sweep(program, seed)
        if any(_has_nan(g) for g in grads):
            grads = [plain(g) for g in _sweep(program, seed, exact_zeros=True)]
    return grads


def _has_nan(array: Array) -> bool:
    # A NaN survives a sum, at the speed of one pass; inf - inf only costs a second sweep.
    return bool(np.isnan(np.sum(array)))


def _sweep(program: Program, seed: Array, exact_zeros: bool = False) -> list[Array]:
    ops, inputs, values = program.ops, program.inputs, program.values
    needs, all_attrs = program.needs, program.attrs
    root = program.root
    cotangents: list[Any] = [None] * len(ops)
    cotangents[root] = seed
    # Whether a cotangent's buffer was made here and is read by nobody else.
    ours = [False] * len(ops)
    wanted = set(program.wanted)
    rows = VJPS

    for slot in range(root, -1, -1):
        g = cotangents[slot]
        slots = inputs[slot]
        if g is None or not slots:
            continue
        if slot not in wanted:
            cotangents[slot] = None
        if exact_zeros:
            g = absorbing(g)
        op = ops[slot]
        try:
            row = rows[op.name]
        except KeyError:
            raise NotImplementedError(
                f"backward: no gradient rule for {program.describe(slot)}"
            ) from None
        y = values[slot]
        arrays = [values[i] for i in slots]
        attrs = all_attrs[slot]
        if op.saves:
            attrs = {**attrs, "saved": program.nodes[slot]._saved}
        if type(row) is tuple:
            for i, rule in zip(slots, row, strict=False):
                if needs[i] and rule is not None:
                    part = rule(g, y, *arrays, **attrs) if attrs else rule(g, y, *arrays)
                    _accumulate(cotangents, ours, i, part, values[i])
        else:
            parts = row.rule([needs[i] for i in slots], g, y, *arrays, **attrs)  # type: ignore[union-attr]
            for i, part in zip(slots, parts, strict=False):
                if needs[i] and part is not None:
                    _accumulate(cotangents, ours, i, part, values[i])
    return [
        np.zeros_like(values[slot]) if cotangents[slot] is None else cotangents[slot]
        for slot in program.wanted
    ]


def _accumulate(cotangents: list[Any], ours: list[bool], i: int, part: Any, value: Array) -> None:
    if part.shape != value.shape:
        part = _unbroadcast(part, value.shape)
    if part.dtype != value.dtype:
        part = part.astype(value.dtype)
    held = cotangents[i]
    if held is None:
        cotangents[i] = part
    elif ours[i]:
        held += part
    else:
        total = held + part
        cotangents[i] = total
        ours[i] = type(total) is np.ndarray


def _unbroadcast(g: Any, shape: tuple[int, ...]) -> Any:
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
