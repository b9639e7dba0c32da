"""Inner programs as plans: the body of a loop and its backward, a branch and its backward."""

# ruff: noqa: D102 - what `Arrays` says of a part of the arithmetic holds of those that replace it
from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from tapegraph.engines.engine import Inner, Iteration, LoopRows, Reverse
from tapegraph.fallback.plan import Plan
from tapegraph.fallback.plan.codegen import Source
from tapegraph.fallback.plan.compiler import Compiler, InNumPy, PlanSweep, Run, fixed_places
from tapegraph.fallback.plan.ir import Feed, live
from tapegraph.fallback.plan.records import Mismatch
from tapegraph.fallback.sweep import StrongArrays
from tapegraph.numpy_warnings import quietly
from tapegraph.recording.program import Program, Recording, SubProgram, between
from tapegraph.row_sparse import RowSparse

# The places of indices for which plans are made; a body with more of them has one plan for all.
MOST_PLACES = 16


class NativeInner(Inner):
    """An inner program in NumPy; each plan is lent to one loop at a time, as it owns buffers."""

    def __init__(self, body: SubProgram) -> None:
        self._body = body
        self._program = body.program
        self._order = [body.inputs.index(slot) for slot in self._program.fed]  # as plans take them
        self._idle: dict[Any, list[Plan]] = {}
        self._places = fixed_places(self._program, body.inputs)

    def forward(self, inputs: Sequence[object]) -> AbstractContextManager[Iteration]:
        def compiled(places: Sequence[int]) -> Plan:
            recording = self._recording(inputs)
            return Plan(recording, Compiler(recording, places=places))

        return self._lent("forward", compiled, inputs)

    def pullback(
        self, kind: Reverse, inputs: Sequence[object], seeds: Sequence[object]
    ) -> AbstractContextManager[Iteration]:
        def compiled(places: Sequence[int]) -> Plan:
            recording = self._recording(inputs[: len(self._body.inputs)])
            compiler = ReverseCompiler(recording, self._region(kind), seeds, kind.kept, places)
            return Plan(recording, compiler)

        return self._lent(kind, compiled, inputs, len(inputs) + len(seeds))

    def strong_pullback(self, kind: Reverse) -> Iteration:
        return _StrongIteration(self, kind)

    def failing(self, inputs: Sequence[object]) -> int | None:
        done = 0
        try:
            for slot in InNumPy(self._program).walk(self._leaves(inputs)):
                done = slot + 1
        except Exception:
            return done
        return None

    @contextmanager
    def _lent(
        self,
        key: object,
        compiled: Callable[[Sequence[int]], Plan],
        inputs: Sequence[Any],
        arrays: int = 0,
    ) -> Iterator[_PlanIteration]:
        """Lend a plan, made for the places at which this call's indices are."""
        places = self._places
        fixed = [(i, inputs[i]) for i in map(self._body.inputs.index, places)]
        of = (key, *(x.tobytes() for _, x in fixed))
        if of not in self._idle and len(self._idle) >= MOST_PLACES:
            of, places, fixed = (key,), [], []
        idle = self._idle.setdefault(of, [])
        try:
            plan = idle.pop()
        except IndexError:
            plan = compiled(places)
        order = [*self._order, *range(len(self._body.inputs), arrays)]
        yield _PlanIteration(plan, order, fixed, partial(compiled, ()))
        idle.append(plan)

    def _computed(self, inputs: Sequence[object]) -> InNumPy:
        again = InNumPy(self._program)
        again.run(self._leaves(inputs))
        return again

    def _leaves(self, inputs: Sequence[object]) -> dict[int, Any]:
        numbers = {slot: self._body.recording.values[slot] for slot in self._program.scalars}
        return numbers | dict(zip(self._body.inputs, inputs, strict=True))

    def _recording(self, inputs: Sequence[object]) -> Recording:
        values = quietly(self._computed, inputs).values
        return Recording(self._program, values, self._body.recording.nodes)

    def _region(self, kind: Reverse) -> Program:
        program = self._program
        flows = between(program, kind.seeded, kind.wanted)
        wanted = list(kind.wanted)
        return replace(program, needs=flows, outputs=kind.seeded, wanted=wanted, updates=())


class _PlanIteration(Iteration):
    """A plan as an iteration.

    :param order: The number of each leaf's array.
    :param fixed: The arrays that the plan was made for, by number; ``anew`` makes one for any.
    """

    def __init__(
        self, plan: Plan, order: list[int], fixed: list[tuple[int, Any]], anew: Callable[[], Plan]
    ) -> None:
        self._plan, self._order, self._fixed, self._anew = plan, order, fixed, anew

    def __call__(self, arrays: Sequence[object]) -> list[Any]:
        if any(arrays[i] is not x for i, x in self._fixed):
            self._plan, self._fixed = self._anew(), []
        given = [arrays[i] for i in self._order]
        try:
            return self._plan._run(*given)[0]
        except Mismatch:
            return self._plan.in_python()(*given)[0]

    def many(self, count: int, reads: Sequence[LoopRows], writes: Sequence[LoopRows]) -> bool:
        iterations = self._plan.iterations
        if iterations is None or any(reads[i].array is not x for i, x in self._fixed):
            return False
        try:
            return iterations(count, [reads[i] for i in self._order], writes) == count
        except Mismatch:
            return False


class _StrongIteration(Iteration):
    def __init__(self, inner: NativeInner, kind: Reverse) -> None:
        self._inner, self._region = inner, inner._region(kind)
        self._kept = len(kind.kept)  # which it computes again

    def __call__(self, arrays: Sequence[object]) -> list[Any]:
        count = len(self._inner._body.inputs)
        again = self._inner._computed(arrays[:count])
        run = Run(self._region, again.values, again.saved)
        return _Strong(run).swept(arrays[count + self._kept :])


class ReverseCompiler(Compiler):
    """Compiles the backward of an inner program, which computes again what was not kept."""

    def __init__(
        self,
        recording: Recording,
        region: Program,
        seeds: Sequence[object],
        kept: Sequence[int],
        places: Sequence[int],
    ) -> None:
        super().__init__(recording, places=places)
        self.region = region
        self.rows: set[int] = set()
        self._seeds = seeds
        values = recording.values
        self._kept = {slot: Feed(self.builder, values[slot], f"v{slot}") for slot in kept}

    def operation(self, slot: int) -> Any:
        return self._kept[slot] if slot in self._kept else super().operation(slot)

    def compile(self) -> Source:
        program, values = self.program, self.recording.values
        feeds = {slot: Feed(self.builder, values[slot], f"v{slot}") for slot in program.fed}
        seeds = [Feed(self.builder, seed, f"g{i}") for i, seed in enumerate(self._seeds)]
        self.run({**self.numbers, **feeds, **self.fixed})
        found = _InnerSweep(self, self).gradients_of(seeds)
        instrs = live(self.builder.instrs, found)
        given = [*feeds.values(), *self._kept.values(), *seeds]
        return Source(self.builder, instrs, given, found, [])


class _InnerSweep(PlanSweep):
    """The sweep of a backward whose cotangents come from another sweep and go on to it."""

    def gradients_of(self, seeds: Sequence[object]) -> list[Any]:
        swept = zip(self.program.wanted, self.swept(seeds), strict=True)
        return [self._found(slot, grad) for slot, grad in swept]

    def conjugated(self, g: object) -> Any:
        return g


class _Strong(StrongArrays):
    def conjugated(self, g: object) -> Any:
        return g

    def fitted(self, slot: int, part: object) -> Any:
        return super().fitted(slot, part.dense() if type(part) is RowSparse else part)
