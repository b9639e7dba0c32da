"""Reuse of a plan's memory: results take the buffers of values that have died."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tapegraph.arrays import own
from tapegraph.fallback.plan.ir import Instr, root_ids
from tapegraph.fallback.plan.tracer import Var
from tapegraph.typed import Array

# From this many bytes on memory is worth planning.
LARGE = 1 << 14


def last_reads(instrs: list[Instr]) -> dict[int, int]:
    """Return the place after which nobody reads the memory of each value that owns some."""
    last: dict[int, int] = {}
    for number, instr in enumerate(instrs):
        for var in (*instr.reads, *instr.results):
            for root in var.roots:
                last[id(root)] = number
    return last


def written_over(instrs: list[Instr], results: Iterable[Var]) -> dict[int, Var]:
    """Return operands whose memory a plan's result may take, by the result's id.

    They are the plan's own arrays without later readers. Without it ``p - rate * g`` takes 1.3
    times as long on arrays of 8 MB.
    """
    outside = root_ids(results)
    last, over = last_reads(instrs), dict[int, Var]()
    filled = [(n, instr, instr.results[0]) for n, instr in enumerate(instrs) if instr.takes_out]
    made = {id(result) for _, _, result in filled} - outside.keys()
    for number, instr, result in filled:
        for var in instr.reads if id(result) in outside else ():
            free = id(var) in made and last[id(var)] == number and var.owns
            lying = [v for v in instr.reads if any(root is var for root in v.roots)]  # in it
            if free and all(map(instr.may_overwrite, lying)):
                over[id(result)] = var
                made.discard(id(var))
                break
    return over


class Buffers:
    """The buffers of a plan by the id of each value; results that leave it have none."""

    def __init__(self, instrs: list[Instr], results: Iterable[Var]) -> None:
        self.of: dict[int, Array] = {}
        self._free: dict[int, list[Array]] = {}  # memory that nobody uses, by its size
        self._blocks: dict[int, Array] = {}  # of the values that are in use
        self._views: dict[tuple[object, ...], Array] = {}
        given = [var for instr in instrs if instr.opaque for var in instr.reads]
        outside = root_ids((*results, *given))
        last = last_reads(instrs)
        for number, instr in enumerate(instrs):
            dying: dict[int, list[Var]] = {}  # operands, by whose memory they lie in
            for var in instr.reads:
                for root in var.roots:
                    if last[id(root)] == number:
                        dying.setdefault(id(root), []).append(var)
            if instr.takes_out:
                over = [gone for gone, vs in dying.items() if all(map(instr.may_overwrite, vs))]
                self._release(over)
                if id(instr.results[0]) not in outside:
                    self._take(instr.results[0])
            self._release(dying)
            self._release(id(v) for v in instr.results if last[id(v.roots[0])] == number)

    def _take(self, var: Var) -> None:
        array = var.value
        if not is_dense(array):
            return
        free = self._free.setdefault(array.nbytes, [])
        block = free.pop() if free else own(np.empty(array.nbytes, np.uint8))
        self._blocks[id(var)] = block
        key = (id(block), array.dtype, array.shape, array.strides)
        if key not in self._views:
            self._views[key] = as_strided(block.view(array.dtype), array.shape, array.strides)
        self.of[id(var)] = self._views[key]

    def _release(self, gone: Iterable[int]) -> None:
        for var in gone:
            block = self._blocks.pop(var, None)
            if block is not None:
                self._free[block.nbytes].append(block)

    @property
    def nbytes(self) -> int:
        return sum(block.nbytes for free in self._free.values() for block in free)


def is_dense(array: Array) -> bool:
    """Return whether an array's elements fill its memory, in any order of the axes."""
    step = array.itemsize
    for length, stride in sorted(zip(array.shape, array.strides, strict=True), key=lambda x: x[1]):
        if length != 1 and stride != step:
            return False
        step *= length
    return math.prod(array.shape) > 0
