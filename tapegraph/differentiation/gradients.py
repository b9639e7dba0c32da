"""`gradients`: derivatives as results, which can be recorded and differentiated again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tapegraph.arrays.row_sparse import dense_copy
from tapegraph.differentiation.seeds import cotangent_of
from tapegraph.engines import registry
from tapegraph.engines.backend import LAST
from tapegraph.engines.run import differentiate
from tapegraph.errors import kind_of, message, sentence
from tapegraph.recording.linearize import NEEDS_GRADIENT, History, entry_name
from tapegraph.recording.node import Node, as_leaf, next_seq, tape_entry
from tapegraph.recording.op import GRADIENT, JACOBIAN
from tapegraph.recording.scopes import RECORDING, Scope, recorder
from tapegraph.typed import Array, ArrayLike, Tensor


def gradients(
    y: Tensor,
    xs: Tensor | Sequence[Tensor],
    seed: ArrayLike | None = None,
    *,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of ``y`` with respect to some tensors, without writing ``.grad``.

    :param y: The output to differentiate, of any shape.
    :param xs: The tensors to differentiate with respect to: parameters or intermediate results.
    :param seed: Array_like of y's shape. The cotangent of ``y``; ones if not given.
    :param create_graph: Record the gradients' computation, so that they can be differentiated
        again.
    :param allow_unused: Return None for tensors that ``y`` does not depend on, instead of raising.
    :returns: Tuple of Tensor. One per ``x``, of its shape and dtype.
    :raises RuntimeError: ``y`` does not depend on one of ``xs``, its entries were cleared, or a
        leaf was changed after it was recorded.
    :raises ValueError: The seed's shape differs from ``y``'s.
    :raises TypeError: ``y`` or one of ``xs`` is no tensor, or the seed is not numeric.
    :raises NotImplementedError: With ``create_graph``: an operation has no recorded gradient.

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
    targets = [xs] if isinstance(xs, Node) else list(xs)
    for i, x in enumerate(targets):
        if not isinstance(x, Node):
            raise TypeError(message("gradients", f"{kind_of(x)} for xs[{i}]", "a Tensor"))
    found = Region([y], targets).gradients([seed], record=create_graph)
    for i, (x, grad) in enumerate(zip(targets, found, strict=True)):
        if grad is None and not allow_unused:
            entry = tape_entry(x)
            text = (
                f"y does not depend on xs[{i}], {entry_name(entry._op, entry)}. Leave it out, or "
                "write allow_unused=True to get None for it."
            )
            raise RuntimeError(sentence("gradients", text))
    return tuple(found)


class Region:
    """The graph between some tensors and results computed from them.

    ``since`` is the targets' time on the clock of entries: older nodes are leaves, and no gradient
    flows on from one target to another. ``outside`` are the other leaves that need a gradient.
    """

    def __init__(
        self, ys: Sequence[Any], targets: Sequence[Any], *, since: int | None = None
    ) -> None:
        targets = [x._entry or x for x in targets]
        ends = set() if since is None else set(targets)
        if since is None:
            since = min((x._seq for x in targets), default=next_seq())
        self._ys = ys
        self._targets = targets
        self._history: History | None = None
        self.wanted: list[Any] = []  # the targets that the results depend on
        self.outside: list[Any] = []
        if any(map(NEEDS_GRADIENT, ys)):
            self._history = history = recorder().between(ys, targets, since, ends)
            self._targets = history.targets
            self.wanted, self.outside = history.wanted, history.outside

    def keep(self) -> None:
        """Snapshot the present values, for gradients computed later."""
        if self._history is not None:
            self._history.keep()

    @property
    def varies(self) -> bool:
        """Whether results or gradients depend on another leaf that needs a gradient."""
        if self.outside:
            return True
        for x in self._targets:
            for i in x._inputs:
                if getattr(i, "_requires_grad", False):
                    return True
        return False

    def gradients(self, seeds: Sequence[Any], *, record: bool, natively: bool = False) -> list[Any]:
        """Return the gradient with respect to each target as a Tensor; None if independent.

        ``natively`` runs the native engine, and leaves the report of the last backward unchanged.
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
        if history is None or not self.wanted:
            found: list[Any] = []
        elif record:
            starts = [
                as_leaf(a) if s is None else s if s.dtype == a.dtype else s.astype(a.dtype)
                for s, a in zip(given, arrays, strict=True)
            ]
            with Scope(RECORDING, True):
                found = registry.engine(registry.NATIVE).recorded(history.recording, starts)
        else:
            if natively:
                grads = registry.engine(registry.NATIVE).differentiate(history, arrays).grads
            else:
                grads, report = differentiate(history, arrays)
                LAST.set(report)
            seed = [s for s in given if s is not None]
            # Both operands of a + b receive the same array; each result must be its own.
            own = list(map(dense_copy, grads))
            found = recorder().derivatives(GRADIENT, history, own, seed)
        return self._by_target(found)

    def arrays(self) -> list[Array | None]:
        """Return the gradients for a seed of ones as arrays: neither recorded nor captured."""
        history = self._history
        if history is None or not history.wanted:
            return [None] * len(self._targets)
        grads, report = differentiate(history, [cotangent_of(y, None) for y in self._ys])
        LAST.set(report)
        return self._by_target(list(map(dense_copy, grads)))

    def of_examples(self, seed: object, *, record: bool) -> list[Any]:
        """Return the gradients of the one result for a seed of many examples (`tg.vmap`)."""
        if self._history is None or not self.wanted:
            return self._by_target([])
        native = registry.engine(registry.NATIVE)
        with Scope(RECORDING, record):
            return self._by_target(native.recorded(self._history.recording, [seed]))

    def jacobian(self) -> list[Any]:
        """Return the Jacobian for each target, output axes first; None if independent.

        Outside a capture it is arrays, which cannot be differentiated; inside, one entry per
        target.
        """
        if self._history is None or not self.wanted:
            return self._by_target([])
        blocks, report = differentiate(self._history, None)
        LAST.set(report)
        return self._by_target(recorder().derivatives(JACOBIAN, self._history, blocks))

    @property
    def recording(self) -> Any:
        """The graph as a recording; None if it is empty."""
        return None if self._history is None else self._history.recording

    def _by_target(self, found: list[Any]) -> list[Any]:
        if len(self._targets) == len(found) == 1:
            return found
        by = dict(zip(self.wanted, found, strict=bool(found)))
        return [by.get(x) for x in self._targets]
