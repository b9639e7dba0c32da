"""A run of one engine's program: its inputs, and its effect on state."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tapegraph.arrays import RowSparse
from tapegraph.capture.sgd_updates import RowUpdate
from tapegraph.compiling.inputs import GradientBefore
from tapegraph.compiling.scan import CallBlock
from tapegraph.compiling.trace import Trace
from tapegraph.engines.engine import Many, WholeProgram
from tapegraph.recording.values import (
    Change,
    RemoteArray,
    all_new_numbers,
    make,
    new_numbers_away,
    together,
)


class Runner:
    """Runs a program in place of the function that was traced."""

    def __init__(self, trace: Trace, program: WholeProgram) -> None:
        self.program: Any = program
        self._trace = trace
        places = list(enumerate(program.leaves))
        self._sources = [(i, trace.sources[slot]) for i, slot in places if slot in trace.sources]
        self._state = [(i, trace.state[slot]) for i, slot in places if slot in trace.state]
        self._constants = [(i, slot) for i, slot in places if slot in trace.constants]
        self._fed = [i for i, _ in (*self._sources, *self._constants)]
        self._updated = [trace.state[u.leaf] for u in trace.recording.program.updates]

    def run(self, given: list[Any], read: list[Any], variant: str, then: list[Change]) -> Any:
        """Run it, write state and make the changes of ``then`` in one; return the results."""
        if self.program.keeps_state:
            left = partial(self._left, then)
            outputs = self.program.run(self._values(given, read), left, variant)
            return self._trace.result([out() for out in outputs[: self._trace.count]])
        values = self._values(given, read)
        result, changes = self._found(self.program.run(values), values)
        make(together([*changes, *then]))
        return result

    def run_many(
        self, block: CallBlock, runs: int, many: Many, variant: str, then: list[Change]
    ) -> Any:
        """Run it several times, with `run`'s writes after the last; return results in rows."""
        values = self._rows(block, runs)
        if self.program.keeps_state:
            left = partial(self._left, then)
            outputs = self.program.run_many(values, runs, many, left, variant)
            return self._trace.result([out()[:runs] for out in outputs[: self._trace.count]])
        results, changes = self._found(self.program.run_many(values, runs, many), values)
        make(together([*changes, *then]))
        return results

    def computed(self, given: list[Any], read: list[Any]) -> tuple[Any, list[Change]]:
        """Return the function's results, and a function that writes the state that changed."""
        values = self._values(given, read)
        return self._found(self.program.run(values), values)

    def _found(
        self, found: tuple[list[Any], list[Any]], values: list[Any]
    ) -> tuple[Any, list[Change]]:
        trace, (outputs, updates) = self._trace, found
        results = [o.dense() if isinstance(o, RowSparse) else o for o in outputs[: trace.count]]
        gradients = outputs[trace.count :]
        # Nobody else may hold the arrays: not their givers, and none is returned twice.
        seen, owned = set(map(id, values)), []
        for array in (*results, *gradients, *updates):
            if isinstance(array, RowSparse):
                array = array.apart([values[i] for i in self._fed])
            elif not isinstance(array, RowUpdate):
                if id(array) in seen or array.base is not None:
                    array = array.copy()
                seen.add(id(array))
            owned.append(array)
        arrays = iter(owned)
        values.clear()  # who else holds a parameter's array decides where it is written
        results = [next(arrays) for _ in results]
        changes = trace.gradients_stored([next(arrays) for _ in gradients])
        leaves = []
        numbers = []
        for leaf, new in zip(self._updated, arrays, strict=True):
            if isinstance(new, RowUpdate):
                changes += new.of(leaf)
            else:
                leaves.append(leaf)
                numbers.append(new)
        if leaves:
            changes += all_new_numbers(leaves, numbers)
        return trace.result(results), changes

    def _values(self, given: list[Any], read: list[Any]) -> list[Any]:
        values = self._kept()
        for i, source in self._sources:
            values[i] = source(given, read)
        return values

    def _rows(self, block: CallBlock, runs: int) -> list[Any]:
        read, values = self._trace.read_ahead(runs, block.row), self._kept()
        for i, source in self._sources:
            first = isinstance(source, GradientBefore)
            values[i] = source([], []) if first else block.column(source, read, runs)
        return values

    def _kept(self) -> list[Any]:
        """Return the values that stay from run to run: constants, and state as it is now."""
        values: list[Any] = [None] * len(self.program.leaves)
        keeps_state, constants = self.program.keeps_state, self._trace.constants
        for i, leaf in self._state:
            values[i] = leaf if keeps_state else leaf._array
        for i, slot in self._constants:
            values[i] = constants[slot]
        return values

    def _left(
        self, then: list[Change], outputs: list[Any], updates: list[RemoteArray]
    ) -> Iterator[Any]:
        """Return what is written in one with the engine's own change of state."""
        changes = self._trace.gradients_stored(outputs[self._trace.count :])
        return together([*changes, *new_numbers_away(self._updated, updates), *then])
