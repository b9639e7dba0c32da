"""`gradients`: derivatives as results, which can be recorded and differentiated again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tapegraph.arrays.row_sparse import dense_copy
from tapegraph.differentiation.backward import cotangent_of, differentiated, jacobian
from tapegraph.differentiation.recorded_backward import record_gradients, record_jacobian
from tapegraph.engines import registry
from tapegraph.engines.backend import LAST
from tapegraph.errors import explain, kind_of, line_of
from tapegraph.recording import capture_mode
from tapegraph.recording.linearize import cleared, linearize
from tapegraph.recording.node import Node, constant, next_seq
from tapegraph.recording.op import CLEARED
from tapegraph.recording.program import Program, Recording
from tapegraph.recording.scopes import RECORDING, Scope, no_grad
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
    found = Region([y], targets).gradients([seed], record=create_graph)
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


class Region:
    """What lies between some tensors and results that were computed from them.

    Parameters
    ----------
    ys : sequence of Tensor
        The results.
    targets : sequence of Tensor
        By what they are differentiated.
    since : int, optional
        When they began, in the order of entries: where given, what is older is a leaf, and no
        gradient flows on from one target to another that it was computed from.

    Attributes
    ----------
    outside : list of Tensor
        The leaves, other than the targets, that need a gradient.
    """

    def __init__(
        self, ys: Sequence[Any], targets: Sequence[Any], *, since: int | None = None
    ) -> None:
        capture = capture_mode.capturing()
        if since is None:
            since, ends = min((x._seq for x in targets), default=next_seq()), set[int]()
        else:
            ends = set(map(id, targets))
        if capture is not None:
            targets = [capture.latest(x) for x in targets]
        self._ys = ys
        self._targets = targets
        self._recording: Recording | None = None
        self._slots: list[int | None] = [None] * len(targets)
        self.outside: list[Any] = []
        if not any(y._requires_grad for y in ys):
            return
        reads = _since(since, ends)
        self._recording = linearize(ys, differentiate=capture is None, reads=reads)
        nodes, program = self._recording.nodes, self._recording.program
        slot_of = {id(node): slot for slot, node in enumerate(nodes)}
        self._slots = [slot_of.get(id(x)) for x in targets]
        found = [slot for slot in self._slots if slot is not None]
        leaves = {slot for slot in program.leaves if program.needs[slot]}
        self.outside = [nodes[slot] for slot in sorted(leaves - set(found))]
        _ask_for(program, found)

    @property
    def varies(self) -> bool:
        """Whether results or gradients depend on something else that needs a gradient."""
        return bool(self.outside) or any(
            getattr(i, "_requires_grad", False) for x in self._targets for i in x._inputs
        )

    def gradients(self, seeds: Sequence[Any], *, record: bool, natively: bool = False) -> list[Any]:
        """Return the gradient by each target as a Tensor; None where the results do not depend.

        Parameters
        ----------
        seeds : sequence of Tensor or array_like or None
            The cotangent of each result; ones for None.
        record : bool
            Record what computes them.
        natively : bool
            Run the native engine, and leave the report of the last backward alone.
        """
        pairs = list(zip(self._ys, seeds, strict=True))
        given: list[Any] = [
            s if s is None or isinstance(s, Node) else constant(cotangent_of(y, s))
            for y, s in pairs
        ]
        arrays = [
            cotangent_of(y, None if s is None else s._array)
            for y, s in zip(self._ys, given, strict=True)
        ]
        recording = self._recording
        if recording is None or not recording.program.wanted:
            return [None] * len(self._slots)
        if record:
            starts = [constant(a) if s is None else s for s, a in zip(given, arrays, strict=True)]
            starts = [
                s if s.dtype == a.dtype else s.astype(a.dtype)
                for s, a in zip(starts, arrays, strict=True)
            ]
            with Scope(RECORDING, True):
                found = registry.engine(registry.NATIVE).recorded(recording, starts)
        elif (capture := capture_mode.capturing()) is not None:
            (y,), (seed,), (cotangent,) = self._ys, given, arrays
            with no_grad():
                found = record_gradients(capture, y, recording, seed, cotangent)
        else:
            if natively:
                grads = registry.engine(registry.NATIVE).run(recording, arrays).grads
            else:
                grads, report = differentiated(recording, arrays)
                LAST.set(report)
            # Both operands of a + b receive the same array; each result must be its own.
            found = [constant(dense_copy(g)) for g in grads]
        by_slot = dict(zip(recording.program.wanted, found, strict=True))
        return [None if slot is None else by_slot.get(slot) for slot in self._slots]

    def jacobian(self) -> list[Any]:
        """Return the Jacobian of the one result by each target, its elements first; None as above.

        It comes from sweeps over arrays, and is not differentiated: outside a capture it is
        arrays, inside one entry a target.
        """
        recording = self._recording
        if recording is None or not recording.program.wanted:
            return [None] * len(self._slots)
        found: list[Any]
        if (capture := capture_mode.capturing()) is not None:
            with no_grad():
                found = record_jacobian(capture, self._ys[0], recording)
        else:
            found = [constant(block) for block in jacobian(recording)]
        by_slot = dict(zip(recording.program.wanted, found, strict=True))
        return [None if slot is None else by_slot.get(slot) for slot in self._slots]


def _since(since: int, ends: set[int]) -> Callable[[Node], tuple[Any, ...]]:
    """Return what entries read, as far back as anything can depend on what was made at ``since``.

    What is older is a leaf here, however long its own history; so are ``ends``, by id.
    """
    capture = capture_mode.capturing()

    def reads(node: Node) -> tuple[Any, ...]:
        if node._seq <= since or id(node) in ends:
            return ()
        if node._op is CLEARED:
            raise cleared(node)
        return node._inputs if capture is None else capture.history(node)

    return reads


def _ask_for(program: Program, slots: Sequence[int]) -> None:
    """Let gradients flow to some slots alone, and ask for those that one can flow to."""
    wanted, before = set(slots), program.needs
    needs = [slot in wanted for slot in range(len(program))]
    for slot, inputs in enumerate(program.inputs):
        if inputs and before[slot]:
            flows = program.ops[slot].differentiable
            needs[slot] = needs[slot] or any(
                needs[i] and (flows is None or (place < len(flows) and flows[place]))
                for place, i in enumerate(inputs)
            )
    program.needs[:] = needs
    reached = set(program.outputs)
    for slot in range(len(program) - 1, -1, -1):
        if slot in reached and needs[slot]:
            reached.update(i for i in program.inputs[slot] if needs[i])
    program.wanted[:] = [slot for slot in dict.fromkeys(slots) if slot in reached]
