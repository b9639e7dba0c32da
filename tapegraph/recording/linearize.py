"""Walk the graph of recorded results, as no other code does: for a sweep, or as a program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from itertools import compress
from operator import attrgetter
from typing import Any

import numpy as np

from tapegraph.errors import line_of
from tapegraph.recording import node as nodes
from tapegraph.recording.node import Node
from tapegraph.recording.op import CLEARED, CONSTANT, INPUT, NO_ATTRS, PARAM, SCALAR, Op
from tapegraph.recording.program import Key, Program, Recording, Update
from tapegraph.recording.values import RECORDED_AT, cleared, stale

NEEDS_GRADIENT = attrgetter("_requires_grad")
OP_OF = attrgetter("_op")
ATTRS_OF = attrgetter("_attrs")
# NumPy's dtypes of Python numbers.
DTYPES = {kind: np.dtype(kind) for kind in (bool, int, float)}


class History:
    """The graph between outputs and the inputs to differentiate with respect to.

    :param ys: The outputs.
    :param targets: The inputs to differentiate by; by default parameters and retained results.
    :param since, ends: Nodes recorded by that time are leaves, and so are those nodes.
    :ivar entries, leaves: The entries, the newest first, and what they were computed from.
    :ivar wanted, outside: The targets that the outputs depend on, and other leaves with a gradient.
    :ivar flows: The nodes that a gradient flows to: None for all that need one.
    :ivar length, kept: The number of slots of the program, and whether values are snapshotted.
    :raises RuntimeError: An entry was cleared by ``tape_reset()``, or a leaf was changed after it
        was recorded.
    """

    def __init__(
        self,
        ys: Sequence[Node],
        targets: Sequence[Node] | None = None,
        since: int = 0,
        ends: Collection[Node] = (),
    ) -> None:
        tensor_class = nodes.tensor_class
        ys = [y._entry or y for y in ys]
        found = list(dict.fromkeys(ys))
        seen = set(found)
        entries: list[Node] = []
        leaves: list[Node] = []
        numbers = 0
        for node in found:  # grows while it is walked: breadth first, no recursion
            inputs = node._inputs
            if not inputs or node._seq <= since or node in ends:
                leaves.append(node)
                continue
            entries.append(node)
            for x in inputs:
                kind = type(x)
                if kind is not Node and kind is not tensor_class and kind in DTYPES:
                    numbers += 1
                elif x not in seen:
                    seen.add(x)
                    found.append(x)
        entries.sort(key=RECORDED_AT, reverse=True)
        self.ys = ys
        self.targets = targets
        self.entries = entries
        self.ends = ends
        self.flows: set[Node] | None = None
        self._since = since
        self.length = len(found) + numbers
        self._recording: Recording | None = None
        self.kept = False
        reached: dict[Node, None] = {}
        carried = True
        for x in targets or ():
            if x in seen:
                reached[x] = None
                carried = carried and x._requires_grad
        self.wanted = list(reached)
        self.leaves = leaves
        self.outside: list[Node] = []
        oldest = entries[-1]._seq if entries else 0
        changed: set[Any] = set()
        for leaf in leaves:
            op = leaf._op
            if op is CLEARED and leaf._seq > since and leaf not in ends:
                raise cleared(leaf)
            if getattr(leaf, "_changed", 0) > oldest:
                changed.add(leaf)
            if not leaf._requires_grad or leaf in reached:
                continue
            if targets is not None:
                self.outside.append(leaf)
            elif op is PARAM:
                self.wanted.append(leaf)
        if changed:
            for node in reversed(entries):
                for x in node._inputs:
                    if isinstance(x, Node) and x in changed and x._changed > node._seq:
                        raise stale(x, node)
        if targets is None:
            self.wanted += [x for x in entries if x._retains]
        elif self.outside or not carried:
            self._only_to_targets()

    def _only_to_targets(self) -> None:
        """Let gradients flow only to the targets, and drop targets that none can reach."""
        self.flows = flows = set(self.wanted)
        for node in reversed(self.entries):
            carries = node._op.differentiable
            inputs = node._inputs if carries is None else compress(node._inputs, carries)
            if any(isinstance(x, Node) and x in flows for x in inputs):
                flows.add(node)
        reached = flows.intersection(self.ys)
        for node in self.entries:
            if node in reached:
                reached.update(x for x in node._inputs if isinstance(x, Node) and x in flows)
        self.wanted = [x for x in self.wanted if x in reached]

    def keep(self) -> None:
        self.kept = self.recording is not None

    @property
    def key(self) -> Key:
        return self.recording.program.key

    @property
    def recording(self) -> Recording:
        """The program with its present values; the wanted slots are in the order of `wanted`."""
        if self._recording is None:
            since, ends = self._since, self.ends

            def reads(node: Node) -> tuple[Any, ...]:
                return () if node._seq <= since or node in ends else node._inputs

            recording = linearize(self.ys, reads=reads if since or ends else None)
            slot_of = {id(node): slot for slot, node in enumerate(recording.nodes)}
            recording.program.wanted[:] = [slot_of[id(x)] for x in self.wanted]
            if self.flows is not None:
                flows = set(map(id, self.flows))
                recording.program.needs[:] = [id(node) in flows for node in recording.nodes]
            self._recording = recording
        return self._recording


def linearize(
    roots: Sequence[Node],
    *,
    reads: Callable[[Node], tuple[Any, ...]] | None = None,
    updates: Sequence[tuple[Node, Node]] = (),
) -> Recording:
    """Return the recording of everything that ``roots`` depend on, in the order of recording."""
    roots = [root._entry or root for root in roots]
    found = list({id(node): node for node in (*roots, *itertools.chain(*updates))}.values())
    seen = set(map(id, found))
    for node in found:  # grows while it is walked: breadth first, no recursion
        for x in node._inputs if reads is None else reads(node):
            if x.__class__ not in DTYPES and id(x) not in seen:
                seen.add(id(x))
                found.append(x)
    found.sort(key=RECORDED_AT)

    # The columns of a program slot by slot, and a value and its object.
    rows: list[tuple[Any, ...]] = []
    leaves: list[int] = []
    wanted: list[int] = []
    slot_of: dict[int, int] = {}
    for node in found:
        slots = []
        for x in node._inputs if reads is None else reads(node):
            if x.__class__ not in DTYPES:
                slots.append(slot_of[id(x)])
            else:
                slots.append(len(rows))
                leaves.append(len(rows))
                rows.append((SCALAR, (), NO_ATTRS, (), DTYPES[type(x)], False, x, None))
        if not slots:
            leaves.append(len(rows))
        op = node._op
        if reads is not None and not slots and op not in (INPUT, PARAM):
            op = CONSTANT  # whatever made it
        flows = node._requires_grad
        if flows and (op is PARAM or node._retains):
            wanted.append(len(rows))
        slot_of[id(node)] = len(rows)
        x = node if node._array is None else node._array
        rows.append((op, tuple(slots), node._attrs, x.shape, x.dtype, flows, x, node))
    columns = [*map(list, zip(*rows, strict=True))] or [[] for _ in range(8)]
    ops, inputs, attrs, shapes, dtypes, needs, values, recorded = columns
    outputs = tuple(slot_of[id(root)] for root in roots)
    changes = tuple(Update(slot_of[id(leaf)], slot_of[id(value)]) for leaf, value in updates)
    program = Program(ops, inputs, attrs, shapes, dtypes, needs, leaves, outputs, wanted, changes)
    return Recording(program, values, recorded)


def entry_name(op: Op, node: Any) -> str:
    if node is None:
        return op.name
    code = getattr(node, "_code", None)
    label = f"{op.name} {node.name!r}" if node.name else f"{op.name} of shape {node.shape}"
    return label if code is None else f"{label} recorded at {line_of(code, node._lasti)}"
