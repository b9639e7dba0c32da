"""`CapturedHistory`: the graph between targets and results of a captured program."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tapegraph.errors import sentence
from tapegraph.recording.linearize import History, linearize
from tapegraph.recording.node import Node
from tapegraph.recording.op import CLEARED, PARAM
from tapegraph.recording.program import between
from tapegraph.recording.scopes import recorder
from tapegraph.recording.values import cleared


class CapturedHistory(History):
    """The graph between targets, by default the parameters, and results of a captured program."""

    def __init__(
        self,
        ys: Sequence[Node],
        targets: Sequence[Node] | None = None,
        since: int = 0,
        ends: Collection[Node] = (),
    ) -> None:
        capture = recorder().capture
        apart = set(map(id, ends))

        def reads(node: Node) -> tuple[Any, ...]:
            if node._seq <= since or id(node) in apart:
                return ()  # a leaf here, however long its own history
            if node._op is CLEARED:
                raise cleared(node)
            return capture.history(node)

        recording = linearize(ys, reads=reads)
        program, nodes = recording.program, recording.nodes
        leaves = [slot for slot in program.leaves if program.needs[slot]]
        slot_of = {id(node): slot for slot, node in enumerate(nodes)}
        if targets is None:
            slots = [slot for slot in leaves if _is_outer(capture, capture.leaf_of(nodes[slot]))]
        else:
            self.targets = targets = [capture.latest(x) for x in targets]
            slots = [slot_of[id(x)] for x in targets if id(x) in slot_of]
        program.needs[:] = between(program, program.outputs, slots)
        program.wanted[:] = [slot for slot in dict.fromkeys(slots) if program.needs[slot]]
        self.ys = list(ys)
        self.wanted = [nodes[slot] for slot in program.wanted]
        self.outside = [nodes[slot] for slot in leaves if slot not in slots]
        self.entries = [x for x, given in zip(nodes, program.inputs, strict=True) if given][::-1]
        self.length = len(program)
        self._recording = recording
        self.kept = True
        for slot, node in zip(program.wanted, self.wanted, strict=True):
            if targets is None and node._inputs and capture.is_state(node):
                text = (
                    f"{recording.describe(slot)} was computed outside the compiled step. Compute "
                    "it inside, or write tensor.detach() to go on without its gradient."
                )
                raise RuntimeError(sentence("backward", text))


def _is_outer(capture: Any, leaf: Node) -> bool:
    if not getattr(leaf, "_requires_grad", False):
        return False
    return leaf._op is PARAM or (bool(leaf._inputs) and bool(capture.is_state(leaf)))
