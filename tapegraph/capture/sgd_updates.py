"""Find parameters that change only by ``p - scale * gradient``, so that rows suffice."""

from __future__ import annotations

import operator
from functools import partial
from operator import setitem
from typing import Any, NamedTuple

from tapegraph.arrays import RowSparse, is_shared, own
from tapegraph.recording.node import Node
from tapegraph.recording.op import GRADIENT
from tapegraph.recording.program import Program
from tapegraph.recording.values import Change, new_numbers
from tapegraph.typed import Fun


class SgdUpdate(NamedTuple):
    """One such update, by slots: the gradient, its scale, and both results."""

    gradient: int
    scale: int
    product: int
    difference: int


class RowUpdate(NamedTuple):
    """The change of a parameter: ``scale`` times the rows of a gradient."""

    rows: RowSparse
    scale: Any

    def of(self, leaf: Node) -> list[Change]:
        """Return a function that writes the rows in place; other holders keep the old numbers."""
        table = own(leaf._array) if is_shared(leaf) else leaf._array
        rows, moved = self.rows.moved(table, -self.scale)
        return [partial(setitem, table, rows, moved), *new_numbers(leaf, table)]


def sgd_updates(program: Program) -> dict[int, SgdUpdate]:
    """Return such updates that nothing else reads, by the parameter's slot."""
    readers, outputs = program.readers(), set(program.outputs)
    changes = [update.slot for update in program.updates]
    found = {}
    for leaf, difference in program.updates:
        if not _is(program, difference, operator.sub) or readers[difference]:
            continue
        minuend, product = program.inputs[difference]
        if minuend != leaf or not _is(program, product, operator.mul):
            continue
        inputs = program.inputs[product]
        gradients = [
            i for i in inputs if program.ops[i] is GRADIENT and program.inputs[i][1] == leaf
        ]
        scales = [i for i in inputs if program.shapes[i] == () and i not in gradients]
        if (
            len(gradients) == len(scales) == changes.count(difference) == 1
            and not {product, difference} & outputs
            and readers[product] == {difference}
            and readers[gradients[0]] == {product}
            and program.dtypes[product] == program.dtypes[leaf]
        ):
            found[leaf] = SgdUpdate(gradients[0], scales[0], product, difference)
    return found


def _is(program: Program, slot: int, forward: Fun) -> bool:
    return bool(program.inputs[slot]) and program.ops[slot].forward is forward
