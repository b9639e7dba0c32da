"""`SGD`: stochastic gradient descent."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np

from tapegraph.arrays.buffers import is_shared, own
from tapegraph.arrays.quietly import quietly
from tapegraph.arrays.row_sparse import RowSparse
from tapegraph.differentiation import stored
from tapegraph.errors import explain
from tapegraph.optim.groups import Group, Params, Rate
from tapegraph.optim.leaves import fitting
from tapegraph.optim.optimizer import Optimizer
from tapegraph.optim.options import Flag, Number
from tapegraph.recording.changes import Change, make, new_numbers, set_changed
from tapegraph.recording.descents import RowUpdate
from tapegraph.recording.node import Node, next_seq
from tapegraph.scalars.state import DATA
from tapegraph.tensors.value import Value


class SGD(Optimizer):
    """Stochastic gradient descent, ``p -= lr * p.grad``; with momentum too.

    With weight decay ``g = p.grad + weight_decay * p``, and with momentum, as PyTorch has it::

        m = g                                      (first step)
        m = momentum * m + (1 - dampening) * g     (later)
        p = p - lr * m                             (nesterov: p - lr * (g + momentum * m))

    Without momentum and weight decay, a row-sparse gradient updates its rows alone.

    Parameters
    ----------
    params : iterable or dict of Tensor or Value, or iterable of dict
        The leaves to update; one with no gradient yet is left alone. See `Optimizer`.
    lr : float or callable
        Learning rate, finite and not negative; may be changed at any time. Or a schedule.
    momentum, dampening : float
        At least 0.
    nesterov : bool
        Takes momentum, and no dampening.
    weight_decay : float
        L2 regularisation.

    Raises
    ------
    TypeError
        Something in ``params`` is not a leaf, or an option is no number.
    ValueError
        A parameter is given more than once, or an option is out of its range.

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

    elementwise = True
    momentum = Number()
    dampening = Number()
    nesterov = Flag()

    def __init__(
        self,
        params: Params,
        lr: Rate,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        self.momentum = momentum
        self.dampening = dampening
        self.nesterov = nesterov
        if self.nesterov and (not self.momentum or self.dampening):
            received = f"nesterov with momentum={momentum} and dampening={dampening}"
            raise ValueError(explain("SGD", received, "momentum above 0 and no dampening"))
        super().__init__(params, lr, weight_decay)

    @property
    def by_rows(self) -> bool:
        """Whether there is no momentum, which moves every row, and the rule is this one."""
        return not self.momentum and type(self).update is SGD.update

    def init(self, p: Any) -> dict[str, Any]:
        """Return the momentum, and with dampening the number of steps: the first has none."""
        if not self.momentum:
            return {}
        slots = {"momentum": np.zeros_like(p)}
        return slots | {"step": np.zeros(())} if self.dampening else slots

    def update(self, p: Any, g: Any, state: dict[str, Any], lr: Any) -> tuple[Any, dict[str, Any]]:
        """Return the new parameter, momentum and number of steps."""
        if not self.momentum:
            return p - lr * g, state
        m = self.momentum * state["momentum"] + (1.0 - self.dampening) * g
        slots = {"momentum": m}
        if self.dampening:
            m = np.where(state["step"] == 0.0, g, m)
            slots = {"momentum": m, "step": state["step"] + 1.0}
        return p - lr * (g + self.momentum * m if self.nesterov else m), slots

    def _changes(self, group: Group, lr: float) -> Iterable[Change]:
        """Return the changes of a group, in place where the rule is a descent and nothing more."""
        if not self.by_rows or group.weight_decay:
            return super()._changes(group, lr)
        changes: list[Change] = []
        values: list[Value] = []
        moved: list[Node] = []  # in place
        arrays, steps = [], []
        for p in group.params:
            if isinstance(p, Value):
                values.append(p)
                continue
            held = stored.held(p)
            if isinstance(held, RowSparse):
                changes += RowUpdate(held, lr).of(p)
            elif held is not None and held is not stored.ZERO:
                step = fitting(p, held) * lr
                if is_shared(p):  # whoever else holds the array keeps the old numbers
                    changes += new_numbers(p, own(quietly(np.subtract, p._array, step)))
                    continue
                moved.append(p)
                arrays.append(p._array)
                steps.append(step)
        if moved:
            changes.append(partial(make, map(np.subtract, arrays, steps, arrays)))
            changes.append(partial(make, map(set_changed, moved, repeat(next_seq()))))
        if values:  # leaves: what their setters check holds
            data = [p._data - lr * p._grad for p in values]
            changes.append(partial(make, map(setattr, values, repeat(DATA), data)))
        return changes
