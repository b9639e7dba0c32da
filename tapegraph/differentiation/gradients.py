"""`gradients`: derivatives as results, which can be recorded and differentiated again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.differentiation import engines
from tapegraph.differentiation.backward import cotangent_of, differentiated
from tapegraph.differentiation.recorded_backward import record_gradients
from tapegraph.differentiation.report import LAST
from tapegraph.errors import explain, kind_of, line_of
from tapegraph.recording import concretization
from tapegraph.recording.no_grad import no_grad
from tapegraph.recording.node import Node, constant
from tapegraph.recording.program import Program
from tapegraph.recording.scopes import RECORDING, Scope
from tapegraph.recording.trace import linearise, stale
from tapegraph.typed import ArrayLike

if TYPE_CHECKING:
    from tapegraph.tensors.tensor import Tensor


def gradients(
    y: Tensor,
    xs: Tensor | Sequence[Tensor],
    seed: ArrayLike | None = None,
    *,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of ``y`` with respect to some tensors; no ``.grad`` is written.

    Parameters
    ----------
    y : Tensor
        The output to differentiate, of any shape.
    xs : Tensor or sequence of Tensor
        By what: parameters, or results that ``y`` was computed from.
    seed : array_like of y's shape, optional
        The cotangent of ``y``; ones where not given.
    create_graph : bool
        Record what computes the gradients, so that they can be differentiated again.
    allow_unused : bool
        Give None for what ``y`` does not depend on, which is an error otherwise.

    Returns
    -------
    tuple of Tensor
        One per ``x``, of its shape and dtype.

    Raises
    ------
    RuntimeError
        ``y`` does not depend on one of ``xs``, its entries were cleared, or a leaf was changed
        after it was recorded.
    ValueError
        The seed's shape differs from ``y``'s.
    TypeError
        ``y`` or one of ``xs`` is no tensor, or the seed is not numeric.
    NotImplementedError
        Under ``create_graph``: an operation has no gradient that can be recorded.

    Examples
    --------
    >>> import tapegraph as tg
    >>> x = tg.param([1.0, 2.0])
    >>> (slope,) = tg.gradients(tg.sum(x**3), [x], create_graph=True)
    >>> slope.data
    array([ 3., 12.])
    >>> tg.gradients(slope, x)[0].data
    array([ 6., 12.])
    """
    if not isinstance(y, Node):
        fix = ""
        if hasattr(type(y), "__tapegraph_apply__"):
            fix = "A Value is differentiated by its own backward(), a Dual by tg.grad or tg.jvp."
        raise TypeError(explain("gradients", f"{kind_of(y)} for 'y'", "a Tensor", fix))
    targets: list[Any] = [xs] if isinstance(xs, Node) else list(xs)
    for i, x in enumerate(targets):
        if not isinstance(x, Node):
            raise TypeError(explain("gradients", f"{kind_of(x)} for xs[{i}]", "a Tensor"))
    found = differentiate(y, targets, seed, record=create_graph)
    for i, (x, grad) in enumerate(zip(targets, found, strict=True)):
        if grad is None and not allow_unused:
            fix = "Leave it out, or write allow_unused=True to get None for it."
            received = f"xs[{i}], {_described(x)}, on which y does not depend"
            raise RuntimeError(explain("gradients", received, "what y was computed from", fix))
    return tuple(found)


def _described(x: Node) -> str:
    label = f"{x._op.name} '{x.name}'" if x.name else f"{x._op.name} of shape {x._array.shape}"
    code = getattr(x, "_code", None)
    return label if code is None else f"{label} recorded at {line_of(code, x._lasti)}"


def differentiate(
    y: Any, targets: Sequence[Any], seed: Any = None, *, record: bool | None = None
) -> list[Any]:
    """Return the gradients of ``y`` as Tensors; None for what it does not depend on.

    Parameters
    ----------
    y : Tensor
        The output.
    targets : sequence of Tensor
        By what.
    seed : array_like, optional
        The cotangent of ``y``; ones where not given.
    record : bool, optional
        Record what computes them; where not given, where they depend on something else that needs
        a gradient.
    """
    whole = concretization.current()
    if whole is not None:
        targets = [whole.latest(x) for x in targets]
    given = seed if seed is None or isinstance(seed, Node) else constant(cotangent_of(y, seed))
    cotangent = cotangent_of(y, None if given is None else given._array)
    if not y._requires_grad or not targets:
        return [None] * len(targets)
    recording = linearise([y], reads=_since(min(x._seq for x in targets)))
    slot_of = {id(node): slot for slot, node in enumerate(recording.nodes)}
    slots = [slot_of.get(id(x)) for x in targets]
    program = recording.program
    others = _ask_for(program, [slot for slot in slots if slot is not None])
    if not program.needs[program.outputs[0]]:
        return [None] * len(targets)
    if record is None:
        record = RECORDING.value() and (
            others
            or any(getattr(i, "_requires_grad", False) for x in targets for i in x._inputs)
            or (given is not None and given._requires_grad)
        )
    if record:
        start = constant(cotangent) if given is None else given
        if start.dtype != y.dtype:
            start = start.astype(y.dtype)
        with Scope(RECORDING, True):
            found = engines.engine(engines.NATIVE).recorded(recording, [start])
    elif whole is not None:
        with no_grad():
            found = record_gradients(y, recording, given, cotangent)
    else:
        grads, report = differentiated(recording, [cotangent])
        # Both operands of a + b receive the same array; each result must be its own.
        found = [constant(g.dense() if isinstance(g, RowSparse) else np.array(g)) for g in grads]
        LAST.set(report)
    by_slot = dict(zip(program.wanted, found, strict=True))
    return [None if slot is None else by_slot.get(slot) for slot in slots]


def _since(start: int) -> Callable[[Node], tuple[Any, ...]]:
    """Return what entries read, as far back as anything can depend on what was made at ``start``.

    What is older is a constant here, however long its own history.
    """
    whole = concretization.current()
    if whole is None:
        return lambda node: node._inputs if node._seq > start else ()

    def reads(node: Node) -> tuple[Any, ...]:
        if node._seq <= start or whole.leaf_of(node) is not node:
            return ()
        for x in node._inputs:
            if whole.changed_after(x, node):
                raise stale(x, node)
        return whole.reads(node)  # type: ignore[no-any-return]

    return reads


def _ask_for(program: Program, slots: Sequence[int]) -> bool:
    """Let gradients flow to some slots alone; tell whether one could flow to another leaf."""
    wanted, before = set(slots), program.needs
    needs = [slot in wanted for slot in range(len(program))]
    others = False
    for slot, inputs in enumerate(program.inputs):
        if inputs and before[slot]:
            flows = program.ops[slot].differentiable
            needs[slot] = needs[slot] or any(
                needs[i] and (flows is None or (place < len(flows) and flows[place]))
                for place, i in enumerate(inputs)
            )
        elif not inputs and before[slot] and slot not in wanted:
            others = True
    program.needs[:] = needs
    reached = set(program.outputs)
    for slot in range(len(program) - 1, -1, -1):
        if slot in reached and needs[slot]:
            reached.update(i for i in program.inputs[slot] if needs[i])
    program.wanted[:] = [slot for slot in dict.fromkeys(slots) if slot in reached]
    return others
