"""Reverse mode from a result to leaves of a level: what `grad`, `vjp` and `jacobian` share.

A result may carry outer levels of forward mode. Then so do its gradients: the tangent of a gradient
is the gradient of the tangent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapegraph.differentiation.gradients import Region
from tapegraph.differentiation.jvps import added
from tapegraph.errors import message
from tapegraph.ops import elementwise, shape
from tapegraph.recording.capture_mode import capturing
from tapegraph.recording.linearize import RECORDED_AT
from tapegraph.recording.lost_gradients import DIFFERENTIATING, raise_cause
from tapegraph.recording.node import as_leaf
from tapegraph.recording.scopes import RECORDING
from tapegraph.tensors.dual import Dual, dual_of, parts
from tapegraph.typed import Array


class recording:
    """Differentiate a function inside: it records under ``no_grad`` too, and drops no gradient."""

    __slots__ = ()

    def __enter__(self) -> None:
        try:
            if not RECORDING.value():  # in a scope every operation asks
                RECORDING.enter(self, True)
            DIFFERENTIATING.enter(self, True)
        except BaseException:  # a signal's, which came between the two
            self._leave()
            raise

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._leave()
        if isinstance(error, ValueError):
            raise_cause(error)

    def _leave(self) -> None:
        try:
            DIFFERENTIATING.leave(self)
        finally:
            RECORDING.leave(self)


class Pullback:
    """From the cotangent of a result to those of a level's leaves.

    :param out: The result.
    :param targets: The leaves.
    """

    def __init__(self, out: Any, targets: Sequence[Any]) -> None:
        self._targets = targets
        self._out = out
        if type(out) is Dual:
            self._primal, self._tangent = (
                Pullback(part, targets) for part in (out.primal, out.tangent)
            )
        else:
            # The leaves of a level are not computed from each other.
            since = min(map(RECORDED_AT, targets), default=None)
            self._region = Region([out], targets, since=since)

    @property
    def value(self) -> Any:
        """The result, without the level that ends here."""
        out = self._out
        if type(out) is Dual:
            return dual_of(self._primal.value, self._tangent.value, out.tag)
        return out.detach() if out._requires_grad and not self._records() else out

    def keep(self) -> Pullback:
        """Return the same, for cotangents that come later: numbers that change do not change it."""
        for part in (self._primal, self._tangent) if type(self._out) is Dual else ():
            part.keep()
        if type(self._out) is not Dual:
            self._region.keep()
        return self

    def _records(self) -> bool:
        return self._region.varies and RECORDING.value()

    def arrays(self) -> list[Array] | None:
        """Return the gradient by each leaf as an array of its own, zeros where there is none.

        None is returned where a gradient is more than its numbers: it is recorded or captured, or
        it carries a tangent.
        """
        if type(self._out) is Dual or capturing() is not None or self._records():
            return None
        found = self._region.arrays()
        return [
            np.zeros(x.shape, x.dtype) if grad is None else grad
            for grad, x in zip(found, self._targets, strict=True)
        ]

    def __call__(self, seed: Any = None) -> list[Any]:
        """Return the cotangent of each leaf, zeros where the result does not depend on it."""
        return summed([self.found(seed)], self._targets)

    def derivatives(self, op: str) -> list[Any]:
        """Return the derivative of the sum of a holomorphic result by each leaf.

        :raises TypeError: The result or a leaf is real.
        """
        check_holomorphic(op, self._out, self._targets)
        ones = as_leaf(np.ones(self._out.shape, self._out.dtype))
        return list(map(elementwise.conj, self(ones)))

    def jacobian(self) -> list[Any]:
        """Return the Jacobian of the result by each leaf, the result's elements along one axis."""
        out = self._out
        lengths = [(out.size, *x.shape) for x in self._targets]
        if type(out) is Dual or self._records():
            dtype = out.dtype if out.dtype.kind in "fc" else np.dtype(np.float64)
            units = np.eye(out.size, dtype=dtype).reshape(-1, *out.shape)
            rows = [self(as_leaf(unit)) for unit in units]
            return [
                shape.reshape(shape.stack([row[i] for row in rows], 0), lengths[i])
                if rows
                else as_leaf(np.zeros(lengths[i], x.dtype))
                for i, x in enumerate(self._targets)
            ]
        return [
            as_leaf(np.zeros(n, x.dtype)) if block is None else block
            for block, n, x in zip(self._region.jacobian(), lengths, self._targets, strict=True)
        ]

    def found(self, seed: Any = None) -> list[Any]:
        """Return the same, and None where the result does not depend on a leaf."""
        out = self._out
        tag = max((x.tag for x in (out, seed) if type(x) is Dual), default=None)
        if tag is None:
            record = self._records() or (
                RECORDING.value() and seed is not None and seed._requires_grad
            )
            return self._region.gradients([seed], record=record)
        seed_primal, seed_tangent = (None, None) if seed is None else parts(seed, tag)
        if type(out) is Dual and out.tag == tag:
            primal = self._primal.found(seed_primal)
            tangent = self._tangent.found(seed_primal)
            if seed_tangent is not None:
                tangent = list(map(added, tangent, self._primal.found(seed_tangent)))
        else:
            primal, tangent = self.found(seed_primal), self.found(seed_tangent)
        return [
            self._dual(p, t, x, tag) for p, t, x in zip(primal, tangent, self._targets, strict=True)
        ]

    @staticmethod
    def _dual(primal: Any, tangent: Any, target: Any, tag: int) -> Any:
        if tangent is None:
            return primal
        if primal is None:
            primal = as_leaf(np.zeros(target.shape, target.dtype))
        return dual_of(primal, tangent, tag)


def check_holomorphic(op: str, out: Any, targets: Sequence[Any]) -> None:
    """Refuse to take a function for a holomorphic one that gives or takes real numbers."""
    for x, what in ((out, "a result"), *((x, "an argument") for x in targets)):
        if x.dtype.kind != "c":
            received = f"holomorphic=True and {what} of dtype {x.dtype}"
            raise TypeError(message(op, received, "complex numbers", "Leave holomorphic= away."))


def summed(found: Sequence[Sequence[Any]], targets: Sequence[Any]) -> list[Any]:
    """Return the sum of gradients by each leaf, zeros where there is none."""
    grads: list[Any] = [None] * len(targets)
    for more in found:
        grads = list(map(added, grads, more))
    return [
        as_leaf(np.zeros(x.shape, x.dtype)) if grad is None else grad
        for x, grad in zip(targets, grads, strict=True)
    ]
