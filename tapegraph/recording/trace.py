"""From recorded objects to one `Program`: the only code that walks a graph."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from tapegraph.errors import line_of, user_line
from tapegraph.recording import node as nodes
from tapegraph.recording.node import Node
from tapegraph.recording.op import CLEARED, NO_ATTRS, PARAM, SCALAR
from tapegraph.recording.program import Program

_in_time_order = attrgetter("_seq")


def linearise(roots: Sequence[Node], *, differentiate: bool = True) -> Program:
    """Return everything that ``roots`` were computed from, in the order of recording.

    Parameters
    ----------
    roots : sequence of Node
        The results to reach; the last in time is the program's root.
    differentiate : bool
        Refuse what cannot be differentiated: cleared entries, and leaves changed since they were
        recorded.

    Raises
    ------
    RuntimeError
        An entry was cleared by ``tape_reset()``, or a leaf was changed after it was recorded.
    """
    cls = nodes.tensor_class
    found = list(roots)
    seen = set(map(id, found))
    for node in found:  # grows while it is walked: breadth first, no recursion
        for x in node._inputs:
            if type(x) is cls and id(x) not in seen:
                seen.add(id(x))
                found.append(x)
    found.sort(key=_in_time_order)

    program = Program()
    ops, inputs, attrs = program.ops, program.inputs, program.attrs
    values, needs, recorded = program.values, program.needs, program.nodes
    wanted, leaves = program.wanted, program.leaves
    slot_of: dict[int, int] = {}
    oldest = next((node._seq for node in found if node._inputs), 0)
    # Leaves changed after something here was recorded, and when: none, as a rule.
    changed: dict[int, int] = {}
    for node in found:
        slots = []
        for x in node._inputs:
            if type(x) is cls:
                slots.append(slot_of[id(x)])
                if changed and changed.get(id(x), 0) > node._seq:
                    raise _stale(x, node)
            else:
                slots.append(len(ops))
                leaves.append(len(ops))
                ops.append(SCALAR)
                inputs.append(())
                attrs.append(NO_ATTRS)
                values.append(x)
                needs.append(False)
                recorded.append(None)
        if not slots:
            leaves.append(len(ops))
            if differentiate and getattr(node, "_changed", 0) > oldest:
                changed[id(node)] = node._changed
        op = node._op
        if op is CLEARED and differentiate:
            raise _cleared(node)
        if node._requires_grad and (op is PARAM or getattr(node, "_retains", False)):
            wanted.append(len(ops))
        slot_of[id(node)] = len(ops)
        ops.append(op)
        inputs.append(tuple(slots))
        attrs.append(node._attrs)
        values.append(node._array)
        needs.append(node._requires_grad)
        recorded.append(node)
    program.root = len(ops) - 1
    return program


def _cleared(node: Node) -> RuntimeError:
    return RuntimeError(
        f"backward: a result of shape {node._array.shape} recorded at "
        f"{line_of(node._code, node._lasti)} was cleared by tape_reset(); call backward() before "
        f"tape_reset(), or run the forward again. (at {user_line()})"
    )


def _stale(leaf: Any, reader: Node) -> RuntimeError:
    label = f"'{leaf.name}'" if leaf.name else f"of shape {leaf._array.shape}"
    return RuntimeError(
        f"backward: {leaf._op.name} {label} was changed after the {reader._op.name} at "
        f"{line_of(reader._code, reader._lasti)} had recorded it, so the gradient would be "
        "wrong; call backward() before changing it, or run the forward again. "
        f"(at {user_line()})"
    )
