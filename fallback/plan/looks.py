"""Where a plan looks for the NaN that a zero should have absorbed.

A plan computes products with strong zeros as plain ones. Each element of such a product is then
right, or a NaN; so is all that is computed from it by operations that keep a NaN. A look at the
last of these results shows whether all are right. If not, the program runs in NumPy.
"""

from __future__ import annotations

from typing import Any

from tapegraph.arrays.row_sparse import has_nan
from tapegraph.recording.op import OpKind
from tapegraph.recording.program import Program


class NaNInPlan(Exception):
    """A result may be NaN where a zero absorbs infinity or NaN."""


def check_for_nan(x: Any) -> None:
    """Raise `NaNInPlan` if an array holds a NaN."""
    if has_nan(x):
        raise NaNInPlan


# Not those that prefer numbers to a NaN, or choose by what may be one.
_DROP_NAN = frozenset(("fmax", "fmin"))
_KEEP_NAN = frozenset("sum mean getitem tensor_slice gather index scatter".split())
_OF_KIND = (OpKind.ELEMENTWISE, OpKind.SHAPE, OpKind.CONTRACTION)


def looked_at(program: Program) -> set[int]:
    """Return the slots at which a plan looks."""
    readers = program.readers()
    kept = {*program.outputs, *(update.slot for update in program.updates)}
    unsure: set[int] = set()
    for slot, op in enumerate(program.ops):
        known = op.name in _KEEP_NAN or (op.kind in _OF_KIND and op.name not in _DROP_NAN)
        keeps_nan = op.rules is None and known and program.dtypes[slot].kind in "fc"
        if op.plain or (keeps_nan and not unsure.isdisjoint(program.inputs[slot])):
            unsure.add(slot)
    return {slot for slot in unsure if slot in kept or not readers[slot] <= unsure}
