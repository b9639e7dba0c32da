"""From recorded objects to one `Recording`: the only code that walks a graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from tapegraph.errors import line_of, user_line
from tapegraph.recording import node as nodes
from tapegraph.recording.node import Node
from tapegraph.recording.op import CLEARED, CONSTANT, INPUT, NO_ATTRS, PARAM, SCALAR, Op
from tapegraph.recording.program import Program, Recording, Update

_in_time_order = attrgetter("_seq")
# What NumPy makes of a Python number.
_WEAK = {kind: np.dtype(kind) for kind in (bool, int, float)}


def linearize(
    roots: Sequence[Node],
    *,
    differentiate: bool = True,
    reads: Callable[[Node], tuple[Any, ...]] | None = None,
    updates: Sequence[tuple[Node, Node]] = (),
) -> Recording:
    """Return everything that ``roots`` were computed from, in the order of recording.

    Parameters
    ----------
    roots : sequence of Node
        The outputs.
    differentiate : bool
        Refuse what cannot be differentiated: cleared entries, and leaves changed since they were
        recorded.
    reads : callable, optional
        What an entry reads, where that is not its inputs.
    updates : sequence of (Node, Node)
        State, and the values it takes.

    Raises
    ------
    RuntimeError
        An entry was cleared by ``tape_reset()``, or a leaf was changed after it was recorded.
    """
    cls = nodes.tensor_class  # asked for first, as it is what is met most
    found = list({id(node): node for node in (*roots, *itertools.chain(*updates))}.values())
    seen = set(map(id, found))
    for node in found:  # grows while it is walked: breadth first, no recursion
        for x in node._inputs if reads is None else reads(node):
            if (type(x) is cls or type(x) not in _WEAK) and id(x) not in seen:
                seen.add(id(x))
                found.append(x)
    found.sort(key=_in_time_order)

    ops: list[Op] = []
    inputs: list[tuple[int, ...]] = []
    attrs: list[dict[str, Any]] = []
    shapes: list[tuple[int, ...]] = []
    dtypes: list[Any] = []
    needs: list[bool] = []
    leaves: list[int] = []
    wanted: list[int] = []
    values: list[Any] = []
    recorded: list[Any] = []
    slot_of: dict[int, int] = {}
    oldest = next((node._seq for node in found if node._inputs), 0)
    # Leaves changed after something here was recorded, and when: none, as a rule.
    changed: dict[int, int] = {}
    for node in found:
        slots = []
        for x in node._inputs if reads is None else reads(node):
            if type(x) is cls or type(x) not in _WEAK:
                slots.append(slot_of[id(x)])
                if changed and changed.get(id(x), 0) > node._seq:
                    raise stale(x, node)
            else:
                slots.append(len(ops))
                leaves.append(len(ops))
                ops.append(SCALAR)
                inputs.append(())
                attrs.append(NO_ATTRS)
                shapes.append(())
                dtypes.append(_WEAK[type(x)])
                needs.append(False)
                values.append(x)
                recorded.append(None)
        if not slots:
            leaves.append(len(ops))
            if differentiate and getattr(node, "_changed", 0) > oldest:
                changed[id(node)] = node._changed
        op = node._op
        if reads is not None and not slots and op not in (INPUT, PARAM):
            op = CONSTANT  # whatever made it
        if op is CLEARED and differentiate:
            raise cleared(node)
        if node._requires_grad and (op is PARAM or node._retains):
            wanted.append(len(ops))
        slot_of[id(node)] = len(ops)
        value = node._array
        ops.append(op)
        inputs.append(tuple(slots))
        attrs.append(node._attrs)
        shapes.append(value.shape)
        dtypes.append(value.dtype)
        needs.append(node._requires_grad)
        values.append(value)
        recorded.append(node)
    outputs = tuple(slot_of[id(root)] for root in roots)
    changes = tuple(Update(slot_of[id(leaf)], slot_of[id(value)]) for leaf, value in updates)
    program = Program(ops, inputs, attrs, shapes, dtypes, needs, leaves, outputs, wanted, changes)
    return Recording(program, values, recorded)


def cleared(node: Node) -> RuntimeError:
    """Return the error of an entry that ``tape_reset()`` has cleared."""
    return RuntimeError(
        f"backward: a result of shape {node._array.shape} recorded at "
        f"{line_of(node._code, node._lasti)} was cleared by tape_reset(); call backward() before "
        f"tape_reset(), or run the forward again. (at {user_line()})"
    )


def stale(leaf: Any, reader: Node) -> RuntimeError:
    """Return the error of a leaf that was changed after an entry had read it."""
    label = f"'{leaf.name}'" if leaf.name else f"of shape {leaf._array.shape}"
    return RuntimeError(
        f"backward: {leaf._op.name} {label} was changed after the {reader._op.name} at "
        f"{line_of(reader._code, reader._lasti)} had recorded it, so the gradient would be "
        "wrong; call backward() before changing it, or run the forward again. "
        f"(at {user_line()})"
    )
