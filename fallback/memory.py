"""Which calls of a plan write into buffers of its own, and when each buffer is free again."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tapegraph.arrays.buffers import own
from tapegraph.fallback.calls import Call, Held
from tapegraph.typed import Array


def live(lines: list[Call], results: Iterable[Held]) -> list[Call]:
    """Return the calls that somebody reads, or that may raise."""
    read = {id(held) for held in results}
    kept = []
    for call in reversed(lines):
        if call.kept or any(id(held) in read for held in call.results):
            kept.append(call)
            read.update(id(held) for held in call.reads)
    return kept[::-1]


def last_reads(lines: list[Call]) -> dict[int, int]:
    """Return the line after which nobody reads the memory of each value that owns some."""
    last: dict[int, int] = {}
    for number, call in enumerate(lines):
        for held in (*call.reads, *call.results):
            for root in held.roots:
                last[id(root)] = number
    return last


class Buffers:
    """The buffers of a plan.

    Parameters
    ----------
    lines : list of Call
        The plan.
    results : iterable of Held
        What leaves it: never in a buffer.

    Attributes
    ----------
    of : dict of int to ndarray
        The buffer of each value that has one, by id.
    """

    def __init__(self, lines: list[Call], results: Iterable[Held]) -> None:
        self.of: dict[int, Array] = {}
        self._free: dict[int, list[Array]] = {}
        self._blocks: dict[int, Array] = {}  # of the values that are in use
        self._views: dict[tuple[object, ...], Array] = {}
        given = [held for call in lines if call.users for held in call.reads]
        outside = {id(root) for held in (*results, *given) for root in held.roots}
        last = last_reads(lines)
        for number, call in enumerate(lines):
            dying = {id(r) for held in call.reads for r in held.roots if last[id(r)] == number}
            overwritten = {i for i in dying if self._may_overwrite(call, i)}
            self._release(overwritten)
            if call.into and id(call.results[0]) not in outside:
                self._take(call.results[0])
            self._release(dying - overwritten)
            self._release({id(h) for h in call.results if last[id(h.roots[0])] == number})

    def _may_overwrite(self, call: Call, root: int) -> bool:
        """Tell whether a call may write over an operand, read by nobody else, as it goes along."""
        if not call.elementwise:
            return False
        result = call.results[0].value
        operands = [h for h in call.reads if any(id(r) == root for r in h.roots)]
        return all(_is_whole(h) and _same_layout(h.value, result) for h in operands)

    def _take(self, held: Held) -> None:
        array = held.value
        if not _is_dense(array):
            return
        free = self._free.setdefault(array.nbytes, [])
        block = free.pop() if free else own(np.empty(array.nbytes, np.uint8))
        self._blocks[id(held)] = block
        key = (id(block), array.dtype, array.shape, array.strides)
        if key not in self._views:
            self._views[key] = as_strided(block.view(array.dtype), array.shape, array.strides)
        self.of[id(held)] = self._views[key]

    def _release(self, gone: set[int]) -> None:
        for held in gone:
            block = self._blocks.pop(held, None)
            if block is not None:
                self._free[block.nbytes].append(block)

    @property
    def nbytes(self) -> int:
        """How much memory they take."""
        return sum(block.nbytes for free in self._free.values() for block in free)


def _is_whole(held: Held) -> bool:
    """Tell whether a value is all of the memory it lies in, as a reshaped array is."""
    root = held.roots[0].value
    if len(held.roots) > 1 or not isinstance(root, np.ndarray):
        return False
    return bool(root.nbytes == held.value.nbytes and root.ctypes.data == held.value.ctypes.data)


def _same_layout(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.strides == b.strides and a.dtype == b.dtype


def _is_dense(array: Array) -> bool:
    """Tell whether an array's elements fill its memory, in any order of the axes."""
    step = array.itemsize
    for length, stride in sorted(zip(array.shape, array.strides, strict=True), key=lambda x: x[1]):
        if length != 1 and stride != step:
            return False
        step *= length
    return math.prod(array.shape) > 0
