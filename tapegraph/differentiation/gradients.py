"""`gradients`: derivatives as results, which can be recorded and differentiated again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tapegraph.arrays.row_sparse import dense_copy
from tapegraph.differentiation.backward import (
    ask_for,
    cotangent_of,
    differentiated,
    record_derivative,
)
from tapegraph.engines import registry
from tapegraph.engines.backend import LAST
from tapegraph.errors import kind_of, message
from tapegraph.ops.shape import alias
from tapegraph.recording.linearize import NEEDS_GRADIENT, History, entry_name, linearize
from tapegraph.recording.node import Node, as_leaf, next_seq, tape_entry
from tapegraph.recording.op import CLEARED, GRADIENT, JACOBIAN, Op
from tapegraph.recording.program import Recording
from tapegraph.recording.scopes import RECORDING, Scope, no_grad, recorder
from tapegraph.recording.values import cleared
from tapegraph.typed import Array, ArrayLike, Tensor


def gradients(
    y: Tensor,
    xs: Tensor | Sequence[Tensor],
    seed: ArrayLike | None = None,
    *,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of ``y`` with respect to some tensors; no ``.grad`` is written.

    :param y: The output to differentiate, of any shape.
    :param xs: What to differentiate with respect to: parameters, or results that ``y`` was computed
        from.
    :param seed: Array_like of y's shape. The cotangent of ``y``; ones where not given.
    :param create_graph: Record what computes the gradients, so that they can be differentiated
        again.
    :param allow_unused: Give None for what ``y`` does not depend on, which is an error otherwise.
    :returns: Tuple of Tensor. One per ``x``, of its shape and dtype.
    :raises RuntimeError: ``y`` does not depend on one of ``xs``, its entries were cleared, or a
        leaf was changed after it was recorded.
    :raises ValueError: The seed's shape differs from ``y``'s.
    :raises TypeError: ``y`` or one of ``xs`` is no tensor, or the seed is not numeric.
    :raises NotImplementedError: Under ``create_graph``: an operation has no gradient that can be
        recorded.

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
        raise TypeError(message("gradients", f"{kind_of(y)} for 'y'", "a Tensor", fix))
    targets: list[Any] = [xs] if isinstance(xs, Node) else list(xs)
    for i, x in enumerate(targets):
        if not isinstance(x, Node):
            raise TypeError(message("gradients", f"{kind_of(x)} for xs[{i}]", "a Tensor"))
    found = Region([y], targets).gradients([seed], record=create_graph)
    for i, (x, grad) in enumerate(zip(targets, found, strict=True)):
        if grad is None and not allow_unused:
            fix = "Leave it out, or write allow_unused=True to get None for it."
            entry = tape_entry(x)
            received = f"xs[{i}], {entry_name(entry._op, entry)}, on which y does not depend"
            raise RuntimeError(message("gradients", received, "what y was computed from", fix))
    return tuple(found)


class Region:
    """What lies between some tensors and results that were computed from them.

    ``since`` is when the targets began, in the order of entries: where given, what is older is a
    leaf, and no gradient flows on from one target to another. ``outside`` are the other leaves that
    need a gradient.
    """

    def __init__(
        self, ys: Sequence[Any], targets: Sequence[Any], *, since: int | None = None
    ) -> None:
        capture = recorder().capture
        targets = [x._entry or x for x in targets]
        ends: set[Any] = set() if since is None else set(targets)
        if since is None:
            since = min((x._seq for x in targets), default=next_seq())
        if capture is not None:
            targets = [capture.latest(x) for x in targets]
        self._ys = ys
        self._targets = targets
        self._history: History | None = None
        self._captured: Recording | None = None
        self.wanted: list[Any] = []  # the targets that the results were computed from
        self.outside: list[Any] = []
        if not any(map(NEEDS_GRADIENT, ys)):
            return
        if capture is None:
            self._history = history = History(ys, targets, since, ends)
            self.wanted, self.outside = history.wanted, history.outside
        else:
            self._captured = made = linearize(ys, reads=_since(capture, since, set(map(id, ends))))
            self.outside = ask_for(made, targets)
            self.wanted = [made.nodes[slot] for slot in made.program.wanted]

    def keep(self) -> None:
        """Remember the numbers of now, for gradients that are asked for later."""
        if self._history is not None:
            self._history.keep()

    @property
    def varies(self) -> bool:
        """Whether results or gradients depend on something else that needs a gradient."""
        if self.outside:
            return True
        for x in self._targets:
            for i in x._inputs:
                if getattr(i, "_requires_grad", False):
                    return True
        return False

    def gradients(self, seeds: Sequence[Any], *, record: bool, natively: bool = False) -> list[Any]:
        """Return the gradient by each target as a Tensor; None where the results do not depend.

        ``natively`` runs the native engine, and leaves the report of the last backward alone.
        """
        given: list[Any] = [
            s if s is None or isinstance(s, Node) else as_leaf(cotangent_of(y, s))
            for y, s in zip(self._ys, seeds, strict=True)
        ]
        arrays = [
            cotangent_of(y, None if s is None else s._array)
            for y, s in zip(self._ys, given, strict=True)
        ]
        history = self._history
        if not self.wanted:
            found: list[Any] = []
        elif record:
            starts = [
                as_leaf(a) if s is None else s if s.dtype == a.dtype else s.astype(a.dtype)
                for s, a in zip(given, arrays, strict=True)
            ]
            with Scope(RECORDING, True):
                found = registry.engine(registry.NATIVE).recorded(self.recording, starts)
        elif recorder().capture is not None:
            grads = registry.engine(registry.NATIVE).run(self.recording, arrays).grads
            found = self._entries(GRADIENT, grads, *(s for s in given if s is not None))
        else:
            if history is None:
                grads = registry.engine(registry.NATIVE).run(self.recording, arrays).grads
            elif natively:
                grads = registry.engine(registry.NATIVE).differentiate(history, arrays).grads
            else:
                grads, report = differentiated(history, arrays)
                LAST.set(report)
            # Both operands of a + b receive the same array; each result must be its own.
            found = [as_leaf(dense_copy(g)) for g in grads]
        return self._by_target(found)

    def arrays(self) -> list[Array | None]:
        """Return the same of ones as arrays of their own: neither recorded nor captured."""
        history = self._history
        if history is None or not history.wanted:
            return [None] * len(self._targets)
        grads, report = differentiated(history, [cotangent_of(y, None) for y in self._ys])
        LAST.set(report)
        return self._by_target(list(map(dense_copy, grads)))

    def jacobian(self) -> list[Any]:
        """Return the Jacobian of the one result by each target, its elements first; None as above.

        It comes from sweeps over arrays, and is not differentiated: outside a capture it is
        arrays, inside one entry a target.
        """
        found: list[Any] = []
        if self.wanted and recorder().capture is not None:
            rows = registry.engine(registry.NATIVE).jacobian(self.recording).grads
            found = self._entries(JACOBIAN, rows)
        elif self.wanted and self._history is not None:
            blocks, report = differentiated(self._history, None)
            LAST.set(report)
            found = list(map(as_leaf, blocks))
        return self._by_target(found)

    def _entries(self, op: Op, found: Sequence[Any], *seed: Any) -> list[Any]:
        """Return derivatives of the one result as entries of the captured program."""
        capture, program = recorder().capture, self.recording.program
        (y,) = self._ys
        # Engines end a backward at what it is differentiated by. It is told from others by its y.
        apart = any(program.needs[i] for slot in program.wanted for i in program.inputs[slot])
        with no_grad():
            root = alias(y)
            return [
                record_derivative(
                    capture, op, dense_copy(array), (alias(y) if apart else root, x, *seed)
                )
                for x, array in zip(self.wanted, found, strict=True)
            ]

    @property
    def recording(self) -> Any:
        """What lies between as columns; None where there is nothing."""
        return self._captured if self._history is None else self._history.recording

    def _by_target(self, found: list[Any]) -> list[Any]:
        if len(self._targets) == len(found) == 1:
            return found
        by = dict(zip(self.wanted, found, strict=bool(found)))
        return [by.get(x) for x in self._targets]


def _since(capture: Any, since: int, ends: set[int]) -> Callable[[Node], tuple[Any, ...]]:
    """Return what entries read, as far back as anything can depend on what was made at ``since``.

    What is older is a leaf here, however long its own history; so are ``ends``, by id.
    """

    def reads(node: Node) -> tuple[Any, ...]:
        if node._seq <= since or id(node) in ends:
            return ()
        if node._op is CLEARED:
            raise cleared(node)
        return capture.history(node)  # type: ignore[no-any-return]

    return reads
