"""`SGD`: stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import is_shared, own
from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.differentiation import stored
from tapegraph.errors import explain, kind_of
from tapegraph.recording import concretization
from tapegraph.recording.no_grad import no_grad
from tapegraph.recording.node import Node, mark_changed, real
from tapegraph.tensors.tensor import Tensor
from tapegraph.tensors.value import Value


class SGD:
    """Stochastic gradient descent, ``p -= lr * p.grad``.

    Parameters
    ----------
    params : iterable of Tensor or Value
        The leaves to update; one with no gradient yet is left alone.
    lr : float
        Learning rate, finite and not negative; may be changed at any time, for schedules.

    Attributes
    ----------
    params : list
        The leaves.
    lr : float
        The learning rate of the next step.

    Raises
    ------
    TypeError
        Something in ``params`` is not a leaf, or the learning rate is no number.
    ValueError
        A parameter is given more than once, or the learning rate is negative, infinite or NaN.

    Examples
    --------
    >>> import tapegraph as tg
    >>> x = tg.param(2.0)
    >>> optimizer = tg.SGD([x], lr=0.25)
    >>> (x * x).backward()
    >>> optimizer.step()
    >>> x.item()
    1.0
    """

    def __init__(self, params: Iterable[Tensor | Value], lr: float) -> None:
        if isinstance(params, Node):
            raise TypeError(explain("SGD", kind_of(params), "a list of parameters", "Write [w]."))
        self.params = list(params)
        self.lr = lr
        for p in self.params:
            leaf = p._requires_grad and not p._inputs if isinstance(p, Node) else _is_scalar(p)
            if not leaf:
                raise TypeError(
                    explain("SGD", kind_of(p), "parameters made by tg.param or tg.Value")
                )
        if len(set(map(id, self.params))) < len(self.params):
            raise ValueError(
                explain("SGD", "a parameter more than once", "each once", "It would step twice.")
            )

    @property
    def lr(self) -> float:
        """The learning rate of the next step."""
        return self._lr

    @lr.setter
    def lr(self, value: float) -> None:
        lr = real(value, "SGD", "lr")
        if not 0.0 <= lr < np.inf:
            expected = "a learning rate that is finite and not negative"
            raise ValueError(explain("SGD", f"lr={value}", expected))
        self._lr = lr

    def step(self) -> None:
        """Update every parameter by its gradient."""
        lr, whole = self._lr, concretization.current()
        for p in self.params:
            if whole is not None:
                self._record(whole, p)
            elif isinstance(p, Node):
                _descend(p, lr)
            else:
                p.data -= lr * p.grad

    def _record(self, whole: Any, p: Any) -> None:
        """Record the update of one parameter in a program that is recorded whole."""
        grad = whole.gradient(p)
        if grad is not None:
            with no_grad():
                p.assign(p - grad * whole.reading(lambda: self._lr, p.dtype))

    def zero_grad(self) -> None:
        """Set every parameter's gradient to zero."""
        for p in self.params:
            p.zero_grad()


def _is_scalar(p: Any) -> bool:
    return isinstance(p, Value) and not p.args


def _descend(p: Node, lr: float) -> None:
    held = getattr(p, "_grad", None)
    if held is None or held is stored.ZERO:
        return
    if isinstance(held, RowSparse):
        if is_shared(p):
            p._array = own(p._array)
        held.add_to(p._array, -lr)
    elif is_shared(p):  # whoever else holds the array keeps the old numbers
        p._array = own(p._array - held * lr)
    else:
        np.subtract(p._array, held * lr, out=p._array)
    mark_changed(p)
