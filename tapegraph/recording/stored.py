"""Storage of gradients: read, zero, and commit those of one backward at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import setitem
from typing import Any, NamedTuple

import numpy as np

from tapegraph.arrays import RowSparse, quietly
from tapegraph.errors import message
from tapegraph.interrupts import Lock
from tapegraph.recording.node import Node
from tapegraph.recording.tape import Tape
from tapegraph.recording.values import Change, make, set_gradient, together
from tapegraph.typed import Array


class DeferredGradient(NamedTuple):
    """A gradient that an engine holds until it is read."""

    dense: Callable[[], Array]


# A zeroed gradient that was not read: the next backward stores instead of adding.
ZERO = object()
_commit = Lock()


def read(node: Node) -> Array | None:
    """Return a node's gradient, also one that a handler or thread just stored; None if none."""
    while True:
        grad = getattr(node, "_grad", None)
        if grad is None or type(grad) is np.ndarray:
            return grad
        array = np.zeros(node.shape, node.dtype) if grad is ZERO else grad.dense()
        if node._grad is grad:
            node._grad = array


def held(node: Node) -> Any:
    """Return a node's gradient as it is stored: an array, a `RowSparse`, ``ZERO`` or None."""
    grad = getattr(node, "_grad", None)
    return read(node) if type(grad) is DeferredGradient else grad


def write(tape: Tape, nodes: Sequence[Node], grads: Sequence[object]) -> None:
    """Add one backward's gradients, all checked; raise for a ``.grad`` that the user reshaped."""
    handed_out: set[int] = set()
    changes: list[Change] = []
    sums, parts = [], []  # in place
    with _commit.held:
        for node, given in zip(nodes, grads, strict=True):
            array = node if node._array is None else node._array
            grad: Any = given if type(given) in (np.ndarray, RowSparse) else np.asarray(given)
            if grad.shape != array.shape:
                leaf = f"a leaf of {array.shape}"
                raise RuntimeError(f"backward: gradient of shape {grad.shape} for {leaf}")
            # Both operands of a + b receive the same array; each leaf must own its own. What is
            # sparse was made for this leaf alone, unless it holds a seed, which is only borrowed.
            if type(grad) is RowSparse:
                if not grad.values.flags.writeable:
                    grad = RowSparse(grad.rows, grad.values.copy(), grad.shape)
            else:
                if grad.base is not None or grad.dtype != array.dtype or id(grad) in handed_out:
                    grad = np.array(grad, dtype=array.dtype)
                handed_out.add(id(grad))
            before = getattr(node, "_grad", None)
            if before is None or before is ZERO:
                changes.append(partial(set_gradient, node, grad))
                continue
            if type(before) is DeferredGradient:
                before = read(node)
            if type(before) is np.ndarray:
                if before.shape != array.shape or before.dtype != array.dtype:
                    raise _unfitting("backward", node, before)
                if before.flags.writeable:
                    if type(grad) is RowSparse:
                        changes.append(partial(setitem, before, *grad.moved(before)))
                    else:
                        sums.append(before)
                        parts.append(grad)
                    continue
            changes.append(partial(set_gradient, node, before + grad))
        tape.add_params(nodes)
        if sums:  # an overflow must not stop half-way
            changes.append(partial(make, map(np.add, sums, parts, sums)))
            quietly(make, together(changes))
        else:
            make(together(changes))


def fitting(op: str, node: Node, grad: Any) -> Any:
    """Return a node's gradient; raise if the user changed its shape or dtype in place."""
    array = node if node._array is None else node._array
    if grad.shape == array.shape and grad.dtype == array.dtype:
        return grad
    raise _unfitting(op, node, grad)


def _unfitting(op: str, node: Node, grad: Any) -> RuntimeError:
    array = node if node._array is None else node._array
    label = f"{node.name!r}" if node.name else f"of shape {array.shape}"
    received = f"a .grad of shape {grad.shape} and dtype {grad.dtype} on {node._op.name} {label}"
    fix = "Reshape a copy, tensor.grad.copy(), or set tensor.grad = None."
    return RuntimeError(message(op, received, f"shape {array.shape} and dtype {array.dtype}", fix))
