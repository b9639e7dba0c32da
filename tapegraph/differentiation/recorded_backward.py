"""`backward` inside a capture: one entry per gradient, which engines differentiate."""

from __future__ import annotations

from typing import Any

from tapegraph.arrays.row_sparse import dense_copy
from tapegraph.capture.capture import Capture
from tapegraph.differentiation.precision import warn_of_float64
from tapegraph.engines import registry
from tapegraph.errors import message
from tapegraph.ops.elementwise import add
from tapegraph.ops.shape import alias
from tapegraph.recording.linearize import linearize
from tapegraph.recording.node import Node
from tapegraph.recording.op import GRADIENT, JACOBIAN, NO_ATTRS, PARAM, Op
from tapegraph.recording.program import Program, Recording
from tapegraph.recording.record import remember
from tapegraph.recording.scopes import no_grad
from tapegraph.typed import Array


def _reached(program: Program) -> set[int]:
    """Return the slots that a gradient flows to: not those that are compared, or used as places."""
    reached = set(program.outputs)
    for slot in range(len(program) - 1, -1, -1):
        if slot in reached:
            flows = program.ops[slot].differentiable
            for position, i in enumerate(program.inputs[slot]):
                carries = flows is None or (position < len(flows) and flows[position])
                if carries and program.needs[i]:
                    reached.add(i)
    return reached


def _is_outer(capture: Capture, leaf: Node) -> bool:
    """Return whether a leaf is a parameter, or a result from before the recording."""
    return leaf._op is PARAM or (bool(leaf._inputs) and capture.is_state(leaf))


def record_backward(capture: Capture, y: Node, seed: Any, cotangent: Array) -> None:
    """Add the gradients of ``y`` to those of the parameters, as entries of the program."""
    recording = linearize([y], reads=capture.history)
    program = recording.program
    # A version of a parameter stands for it: where it was computed, no gradient flowed.
    for slot in program.leaves:
        node = recording.nodes[slot]
        leaf = capture.leaf_of(node)
        program.needs[slot] = leaf is not None and leaf._requires_grad and _is_outer(capture, leaf)
    reached = _reached(program)
    targets = [slot for slot in program.leaves if slot in reached]
    for slot in targets:
        if recording.nodes[slot]._inputs and capture.is_state(recording.nodes[slot]):
            raise RuntimeError(
                message(
                    "backward",
                    f"{recording.describe(slot)}, outside the captured program",
                    "results that were computed inside",
                    "Compute it inside, or write tensor.detach() to go on without its gradient.",
                )
            )
    program.wanted[:] = targets
    entries = [x for x, reads in zip(recording.nodes, program.inputs, strict=True) if reads]
    warn_of_float64(y, entries[::-1], [recording.nodes[slot] for slot in targets])
    grads = registry.engine(registry.NATIVE).run(recording, [cotangent]).grads
    for slot, grad in zip(targets, grads, strict=True):
        node = recording.nodes[slot]
        leaf = capture.leaf_of(node)
        entry = _entry(capture, y, node, seed, grad)
        held = capture.added_up(leaf)
        with no_grad():
            capture.set_gradient(leaf, entry if held is None else add(held, entry))


def _entry(capture: Capture, y: Node, x: Node, seed: Any, grad: Any) -> Any:
    inputs = (y, x) if seed is None else (y, x, seed)
    return _derivative(capture, GRADIENT, dense_copy(grad), inputs)


def _derivative(capture: Capture, op: Op, array: Array, inputs: tuple[Any, ...]) -> Any:
    capture.differentiated_by(inputs[1])
    entry = remember(type(inputs[0]), op, array, inputs, NO_ATTRS)
    entry._requires_grad = False
    return entry


def record_gradients(
    capture: Capture, y: Node, recording: Recording, seed: Any, cotangent: Array
) -> list[Any]:
    """Return the gradients of the wanted slots, as entries of the program."""
    grads = registry.engine(registry.NATIVE).run(recording, [cotangent]).grads
    roots = _roots(y, recording)
    return [
        _entry(capture, root, recording.nodes[slot], seed, grad)
        for root, slot, grad in zip(roots, recording.program.wanted, grads, strict=True)
    ]


def record_jacobian(capture: Capture, y: Node, recording: Recording) -> list[Any]:
    """Return the Jacobian by each wanted slot, as an entry of the program."""
    found = registry.engine(registry.NATIVE).jacobian(recording).grads
    roots = _roots(y, recording)
    return [
        _derivative(capture, JACOBIAN, rows, (root, recording.nodes[slot]))
        for root, slot, rows in zip(roots, recording.program.wanted, found, strict=True)
    ]


def _roots(y: Node, recording: Recording) -> list[Any]:
    """Return what is differentiated by each wanted slot: a name of ``y`` for one backward."""
    program = recording.program
    # Engines end a backward at what it is differentiated by. It is told from others by its y.
    apart = any(program.needs[i] for slot in program.wanted for i in program.inputs[slot])
    root = alias(y)
    return [alias(y) if apart else root for _ in program.wanted]
