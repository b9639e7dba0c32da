"""`Lion`: steps of one size, in the direction of the sign of a running mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.optim.groups import Params, Rate
from tapegraph.optim.optimizer import Optimizer
from tapegraph.optim.options import Numbers


class Lion(Optimizer):
    """Lion: every element moves by ``lr``, to the side that a running mean of gradients tells.

    With decoupled weight decay::

        p = p - lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)
        m = beta2 * m + (1 - beta2) * g

    Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2, whose betas
    these are. It wants a learning rate 3 to 10 times smaller than Adam's, and a weight decay as
    many times larger. Row-sparse gradients are made dense, for the mean moves every row.

    Parameters
    ----------
    params : iterable or dict of Tensor or Value, or iterable of dict
        The leaves to update; one with no gradient yet is left alone. See `Optimizer`.
    lr : float or callable
        Learning rate, or a schedule.
    betas : tuple of two floats
        How much of the mean counts in the step, and how much of it is kept.
    weight_decay : float
        How much of the parameter goes in each step, times ``lr``.

    Raises
    ------
    TypeError
        Something in ``params`` is not a leaf, or an option is no number.
    ValueError
        A parameter is given more than once, or an option is out of its range.

    Examples
    --------
    >>> import tapegraph as tg
    >>> x = tg.param([2.0, -8.0])
    >>> optimizer = tg.Lion([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.data
    array([ 1.75, -7.75])
    """

    decoupled = True
    elementwise = True
    betas = Numbers(2)

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        self.betas = betas
        super().__init__(params, lr, weight_decay)

    def init(self, p: Any) -> dict[str, Any]:
        """Return the mean."""
        return {"mean": np.zeros_like(p)}

    def update(self, p: Any, g: Any, state: dict[str, Any], lr: Any) -> tuple[Any, dict[str, Any]]:
        """Return the new parameter and mean."""
        beta1, beta2 = self.betas
        mean = state["mean"]
        step = np.sign(beta1 * mean + (1.0 - beta1) * g)
        return p - lr * step, {"mean": beta2 * mean + (1.0 - beta2) * g}
