"""Which calls of a plan write into buffers of its own, and when each buffer is free again."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tapegraph.arrays.buffers import own
from tapegraph.fallback.plan.ir import Call, Held, root_ids
from tapegraph.typed import Array

# From this many bytes on memory is worth planning.
LARGE = 1 << 14


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


def written_over(lines: list[Call], results: Iterable[Held]) -> dict[int, Held]:
    """Return operands whose memory can leave a plan as a result's, by that one's id.

    Nobody reads them later, and they are arrays that the plan makes.
    """
    outside = root_ids(results)
    last, over = last_reads(lines), dict[int, Held]()
    made = {id(held) for call in lines if call.into for held in call.results} - outside.keys()
    for number, call in enumerate(lines):
        for place, result in enumerate(call.results if call.into else ()):
            for held in call.reads if id(result) in outside else ():
                free = id(held) in made and last[id(held)] == number and held.roots == (held,)
                if free and call.may_overwrite(held, place):
                    over[id(result)] = held
                    made.discard(id(held))
                    break
    return over


class Buffers:
    """The buffers of a plan.

    Parameters
    ----------
    lines : list of Call
        The plan.
    results : iterable of Held
        What leaves it: never in a buffer.
    free : dict of int to list of ndarray, optional
        Memory that nobody uses, by its size, to begin with; in the end it holds all.

    Attributes
    ----------
    of : dict of int to ndarray
        The buffer of each value that has one, by id.
    """

    def __init__(
        self,
        lines: list[Call],
        results: Iterable[Held],
        free: dict[int, list[Array]] | None = None,
    ) -> None:
        self.of: dict[int, Array] = {}
        self._free: dict[int, list[Array]] = {} if free is None else free
        self._blocks: dict[int, Array] = {}  # of the values that are in use
        self._views: dict[tuple[object, ...], Array] = {}
        given = [held for call in lines if call.users for held in call.reads]
        outside = root_ids((*results, *given))
        last = last_reads(lines)
        for number, call in enumerate(lines):
            dying: dict[int, list[Held]] = {}  # operands, by whose memory they lie in
            for held in call.reads:
                for root in held.roots:
                    if last[id(root)] == number:
                        dying.setdefault(id(root), []).append(held)
            for place, result in enumerate(call.results if call.into else ()):
                for gone, operands in [*dying.items()]:
                    if all(call.may_overwrite(held, place) for held in operands):
                        self._release({gone})
                        del dying[gone]
                if id(result) not in outside:
                    self._take(result)
            self._release({*dying})
            self._release({id(h) for h in call.results if last[id(h.roots[0])] == number})

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


def _is_dense(array: Array) -> bool:
    """Tell whether an array's elements fill its memory, in any order of the axes."""
    step = array.itemsize
    for length, stride in sorted(zip(array.shape, array.strides, strict=True), key=lambda x: x[1]):
        if length != 1 and stride != step:
            return False
        step *= length
    return math.prod(array.shape) > 0
