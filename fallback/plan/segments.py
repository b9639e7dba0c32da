"""A plan's calls as records: in segments, each one line that runs a table in C."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import getitem
from typing import Any, NamedTuple

import numpy as np

from tapegraph.engines.engine import LoopRows
from tapegraph.fallback.plan import records
from tapegraph.fallback.plan.ir import (
    Constant,
    Feed,
    Instr,
    NanCheck,
    Var,
    concrete,
    is_dense,
    root_ids,
    vars_in,
)
from tapegraph.fallback.plan.records import Records, address_of, records_of
from tapegraph.typed import Array

# Fewer records than these are no gain, unless they are large.
_FEWEST = 2
# After about so many elements, some milliseconds, Python runs: it may have a signal to handle.
_MOST_WORK, _MOST_RECORDS = 1 << 22, 1 << 13
# A record takes as long as about so many elements, be they few.
_CALL = 16


class _Place(NamedTuple):
    """The place of a value: an offset in bytes into the plan's array, or into a value."""

    base: Any
    offset: int = 0

    def moved(self, offset: int) -> _Place:
        return _Place(self.base, self.offset + offset)


@dataclass(eq=False)
class Segment:
    """Consecutive instructions that run as a table.

    :ivar start, stop: Their range among the plan's instructions.
    :ivar table: The function that runs it, from ``inputs`` to ``outputs``.
    :ivar scalars: 0-d results that are read outside, and the arrays that hold them.
    :ivar fixed: Results read outside that lie in the same array in every run.
    :ivar same: Results read outside that lie in another value's array.
    :ivar views: The instructions whose results are views that are read outside.
    """

    start: int
    stop: int
    table: Any = None
    inputs: list[Var] = field(default_factory=list)
    outputs: list[Var] = field(default_factory=list)
    scalars: list[tuple[Var, Array]] = field(default_factory=list)
    fixed: list[tuple[Var, Array]] = field(default_factory=list)
    same: list[tuple[Var, Var]] = field(default_factory=list)
    views: list[Instr] = field(default_factory=list)


class Segments:
    """The segments of a plan.

    :param results: The results of the plan.
    :param buffers: The buffer of each value that has one, by id.
    :param over: The operand that a result is written over, by id.
    :ivar found: The segments by their start.
    :ivar nbytes: Their memory besides buffers.
    """

    def __init__(
        self,
        instrs: Sequence[Instr],
        results: Iterable[Var],
        buffers: dict[int, Array],
        over: dict[int, Var],
    ) -> None:
        self._instrs = instrs
        self._buffers, self._over = buffers, over
        results = list(results)
        given = [var for instr in instrs if instr.opaque for var in instr.reads]
        self._outside = root_ids((*results, *given, *over.values()))
        self.found: dict[int, Segment] = {}
        self.nbytes = 0
        self._records: dict[int, Records] = {}
        self._views: set[int] = set()
        if records.off():
            return
        for number, instr in enumerate(instrs):
            if is_view(instr):
                self._views.add(number)
            elif (found := self._records_of(instr)) is not None:
                self._records[number] = found
        self._cut()
        self._read = {id(var) for var in results}  # the values that Python reads by name
        for number in reversed(range(len(instrs))):
            instr = instrs[number]
            if number not in self._inside:
                self._read.update(map(id, instr.reads))
            elif (result := id(instr.results[0])) in self._read:
                if number in self._views:
                    self._read.update(map(id, instr.reads))
                elif result in over:
                    self._read.add(id(over[result]))
        self._places: dict[int, _Place] = {}
        self._make()

    def _records_of(self, instr: Instr) -> Records | None:
        """Return an instruction's records; its operands have the same layout in every run."""
        if isinstance(instr, NanCheck) or instr.opaque or len(instr.results) != 1:
            return None
        (result,) = instr.results
        value, of_keywords = result.value, vars_in(instr.kwargs)
        if of_keywords or not result.owns or not all(map(_lies_as_known, instr.reads)):
            return None
        if isinstance(value, np.ndarray) and not is_dense(value):
            return None
        return records_of(instr.function, concrete(instr.args), concrete(instr.kwargs), value)

    def _cut(self) -> None:
        start, count, work = 0, 0, 0
        for number in range(len(self._instrs) + 1):
            mine = self._records.get(number)
            inside = mine is not None or number in self._views
            if not inside or work > _MOST_WORK or count > _MOST_RECORDS:
                if count >= _FEWEST:
                    self.found[start] = Segment(start, number)
                start = number if inside else number + 1
                count = work = 0
            if mine is not None:
                count += _FEWEST if mine.large else len(mine.records)
                work += mine.work
        self._inside = {n for s in self.found.values() for n in range(s.start, s.stop)}

    def _make(self) -> None:
        segment: Segment | None = None
        for number, instr in enumerate(self._instrs):
            segment = self.found.get(number, segment)
            if number not in self._inside:
                for var in instr.results:
                    self._places[id(var)] = _Place(self._buffers.get(id(var), var))
            elif number not in self._views:
                self._settle(segment, instr.results[0])
            if number in self._views:
                self._look(instr)
                if number in self._inside and id(instr.results[0]) in self._read:
                    segment.views.append(instr)  # type: ignore[union-attr]
            if segment is not None and number + 1 == segment.stop:
                self._tabulate(segment)

    def _place(self, var: Var) -> _Place:
        if id(var) not in self._places:
            base = np.asarray(var.value) if isinstance(var, Constant) else var
            self._places[id(var)] = _Place(base)
        return self._places[id(var)]

    def _look(self, instr: Instr) -> None:
        (seen,), (var,) = instr.reads, instr.results
        base, offset = self._place(seen)
        if isinstance(seen.value, np.ndarray):
            offset += address_of(var.value) - address_of(seen.value)
        self._places[id(var)] = _Place(base, offset)

    def _settle(self, segment: Any, var: Var) -> None:
        number = id(var)
        is_read = number in self._read
        if number in self._over:
            self._places[number] = self._place(self._over[number])
            if is_read:
                segment.same.append((var, self._over[number]))
            return
        array = self._buffers.get(number)
        scalar = not isinstance(var.value, np.ndarray)
        if array is None and number in self._outside and not scalar:
            self._places[number] = _Place(var)
            segment.outputs.append(var)
            return
        if array is None:
            array = np.empty_like(var.value, subok=False) if not scalar else np.array(var.value)
            self.nbytes += array.nbytes
        self._places[number] = _Place(array)
        if is_read:
            (segment.scalars if scalar else segment.fixed).append((var, array))

    def _tabulate(self, segment: Segment) -> None:
        rows: list[_Row] = []
        for number in range(segment.start, segment.stop):
            if number in self._records:
                instr = self._instrs[number]
                operands = list(map(self._place, (*vars_in(instr.args), instr.results[0])))
                rows += _placed(self._records[number], operands)
        made = set(map(id, segment.outputs))
        bases = {id(p.base): p.base for _, places in rows for p in places if id(p.base) not in made}
        segment.inputs = [base for base in bases.values() if isinstance(base, Var)]
        segment.table = _table(rows, segment.inputs, segment.outputs)

    def iterations(self, leaves: Sequence[Var], results: Sequence[Var]) -> Iterations | None:
        """Return the plan as a loop in C; None if a part of it is no record.

        Each iteration reads its leaves and writes its results where the caller says, after all
        else, so that the next may read them, and a leaf may lie where a result does. An iteration
        that finds a NaN where the plan would look again writes nothing.
        """
        if records.off() or not all(map(self._is_in_c, range(len(self._instrs)))):
            return None
        # An iteration's results in C order would have another layout in the Python loop.
        if not all(records.may_copy(v.value) and v.value.flags.c_contiguous for v in results):
            return None
        found = np.zeros((), np.bool_)
        moved: dict[int, _Place] = {}  # of each value that lies elsewhere than in a call: where

        def place(var: Var) -> _Place:
            base, offset = self._place(var)
            return moved[id(base)].moved(offset) if id(base) in moved else _Place(base, offset)

        rows: list[_Row] = []
        work = sum(var.size for var in results)
        for number, instr in enumerate(self._instrs):
            if isinstance(instr, NanCheck):
                for grad, same in zip(instr.grads, instr.results, strict=True):
                    moved[id(same)] = place(grad)
                    rows += _placed(records.looks(grad.value, found), [place(grad), _Place(found)])
            elif number in self._records:
                result, mine = instr.results[0], self._records[number]
                if self._place(result).base is result:
                    moved[id(result)] = _Place(np.empty_like(result.value, subok=False))
                rows += _placed(mine, [place(x) for x in (*vars_in(instr.args), result)])
                work += mine.work + _CALL * len(mine.records)
        sources = []
        for var in results:
            source = place(var)
            if isinstance(source.base, Var):  # a leaf, which may lie where another result does
                source = _Place(np.empty(var.shape, var.dtype))
                rows += _placed(records.copies(var.value, source.base), [place(var), source])
            sources.append(source)
        written = [Var(var.builder, np.empty(var.shape, var.dtype)) for var in results]
        looked = len(rows)
        for var, source, target in zip(results, sources, written, strict=True):
            rows += _placed(records.copies(var.value, target.value), [source, _Place(target)])
        return Iterations(_table(rows, leaves, written), work, looked, found)

    def _is_in_c(self, number: int) -> bool:
        """Return whether an instruction is a record or a view, or looks for a NaN."""
        instr = self._instrs[number]
        if isinstance(instr, NanCheck):
            return all(g.dtype.kind in "fc" and records.may_look(g.value) for g in instr.grads)
        return number in self._records or number in self._views


class Iterations:
    """A plan of records alone, run many times by one call.

    :param looked: After how many records it looks whether a NaN has been ``found``.
    """

    def __init__(self, table: Any, work: int, looked: int, found: Array) -> None:
        self._table = table
        self._most = max(1, _MOST_WORK // max(work, 1))
        self._looked, self._found = looked, found

    def __call__(self, count: int, leaves: Sequence[LoopRows], results: Sequence[LoopRows]) -> int:
        """Run many iterations; every few milliseconds Python can handle a signal.

        An iteration may write a row that the next reads: a carry is a row of an array, and the next
        row is written.

        :returns: How many iterations there were before one with a NaN.
        :raises Mismatch: An array has another layout than in the plan; no iteration has run.
        """
        rows, done = [*leaves, *results], 0
        while done < count:
            given = tuple((r.array, r.first + done * r.by, r.by) for r in rows)
            most = min(self._most, count - done)
            stood = self._table.iterations(most, given, self._looked, self._found)
            done += stood
            if stood < most:
                break
        return done


_Row = tuple[Any, "list[_Place]"]


def _placed(found: Records, operands: Sequence[_Place]) -> list[_Row]:
    where = [*operands, *map(_Place, found.held)]
    return [(r, [where[i].moved(at) for i, at in r.places]) for r in found.records]


def _table(rows: Sequence[_Row], inputs: Sequence[Var], outputs: Sequence[Var]) -> Any:
    bases = {id(p.base): p.base for _, places in rows for p in places}
    fixed = [base for base in bases.values() if isinstance(base, np.ndarray)]
    numbers = {id(base): i for i, base in enumerate([*fixed, *inputs, *outputs])}
    return records.table(
        [(r, [(numbers[id(p.base)], p.offset) for p in places]) for r, places in rows],
        fixed,
        [var.value for var in inputs],
        [var.value for var in outputs],
    )


def is_view(instr: Instr) -> bool:
    """Return whether an instruction only views its operands, in the same way in every run."""
    if instr.takes_out or instr.may_raise or len(instr.reads) != 1:
        return False
    (seen,), (var,) = instr.reads, instr.results
    if instr.function is np.asarray:
        return True
    if isinstance(seen.value, np.generic):  # which lies in an array, as one element
        return instr.function in (np.broadcast_to, np.expand_dims, getitem, np.reshape.__name__)
    both = isinstance(seen.value, np.ndarray) and isinstance(var.value, np.ndarray)
    return both and list(map(id, var.roots)) == list(map(id, seen.roots))


def _lies_as_known(var: Var) -> bool:
    """Return whether a value's layout is the same in every run, or it is a number."""
    if not isinstance(var.value, (np.ndarray, np.generic)) or not var.value.flags.aligned:
        return False
    feeds = (r.value for r in var.roots if isinstance(r, Feed))
    return all(isinstance(v, np.ndarray) and v.flags.c_contiguous for v in feeds)
