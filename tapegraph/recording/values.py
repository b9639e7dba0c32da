"""The numbers of entries: kept for derivatives, or freed and computed again for other readers."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np

from tapegraph.errors import line_of, sentence
from tapegraph.numpy_warnings import quietly
from tapegraph.recording import node as nodes
from tapegraph.recording.node import Node, new
from tapegraph.recording.op import CLEARED, Outputs
from tapegraph.recording.remote import RemoteArray
from tapegraph.typed import Array

RECORDED_AT = attrgetter("_seq")


def value_of(x: Any) -> Array:
    """Return the numbers of an entry; freed ones are computed again and kept, or raise if stale."""
    if x._array is None:
        found = {x: None}
        pending = [x]
        for entry in pending:  # grows while it is walked
            if entry._op is CLEARED:
                raise cleared(entry)
            for i in entry._inputs:
                if isinstance(i, Node) and i._array is None and i not in found:
                    found[i] = None
                    pending.append(i)
        quietly(_compute, sorted(found, key=RECORDED_AT))
    return x._array


def _compute(entries: list[Node]) -> None:
    for entry in entries:
        arrays = []
        for x in entry._inputs:
            if getattr(x, "_changed", 0) > entry._seq:
                raise stale(x, entry)
            arrays.append(x._array if isinstance(x, Node) else x)
        out = entry._op.forward(*arrays, **entry._attrs)
        if entry._op.several:
            entry._array = Outputs(map(np.asarray, out))
        else:
            entry._array = np.asarray(out[0] if entry._op.saves else out)


def handle_of(x: object) -> Any:
    """Return a tensor of an entry, which computes its numbers when read; others unchanged."""
    if type(x) is not Node:
        return x
    handle = new(nodes.tensor_class if x._array is not None else nodes.remote_class)
    handle._held = RemoteArray(partial(value_of, x)) if x._array is None else x._array
    handle._entry = x
    handle._requires_grad = True
    return handle


def cleared(entry: Node) -> RuntimeError:
    return RuntimeError(
        sentence(
            "backward",
            f"a result of shape {entry.shape} recorded at {line_of(entry._code, entry._lasti)} was "
            "cleared by tape_reset(); call backward() before tape_reset(), or run the forward "
            "again.",
        )
    )


def stale(leaf: Node, reader: Node) -> RuntimeError:
    """Return the error of a leaf that was changed after an entry had read it."""
    label = f"{leaf.name!r}" if leaf.name else f"of shape {leaf.shape}"
    return RuntimeError(
        sentence(
            "backward",
            f"{leaf._op.name} {label} was changed after the {reader._op.name} at "
            f"{line_of(reader._code, reader._lasti)} had recorded it, so the gradient would be "
            "wrong; call backward() before changing it, or run the forward again.",
        )
    )
