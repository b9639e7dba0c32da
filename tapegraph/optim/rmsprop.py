"""`RMSprop`: gradients divided by the root of a running mean of their squares."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.optim.groups import Params, Rate
from tapegraph.optim.optimizer import Optimizer
from tapegraph.optim.options import Flag, Number


class RMSprop(Optimizer):
    """RMSprop: the gradient over the root of a running mean of its square.

    With ``g = p.grad + weight_decay * p``::

        v = alpha * v + (1 - alpha) * g**2
        d = sqrt(v) + eps                          (centered: sqrt(v - a**2) + eps,
                                                    a = alpha * a + (1 - alpha) * g)
        p = p - lr * g / d                         (momentum: p - lr * m, m = momentum * m + g / d)

    Tieleman and Hinton, lecture 6.5 of "Neural networks for machine learning", 2012; centered by
    Graves, 2013. Defaults and the place of ``eps``, outside the root, are PyTorch's. Row-sparse
    gradients are made dense, for the mean moves without a gradient too.

    Parameters
    ----------
    params : iterable or dict of Tensor or Value, or iterable of dict
        The leaves to update; one with no gradient yet is left alone. See `Optimizer`.
    lr : float or callable
        Learning rate, or a schedule.
    alpha : float
        How much of the mean is kept in each step, at least 0 and below 1.
    eps : float
        Added to the denominator.
    weight_decay : float
        L2 regularisation.
    momentum : float
        At least 0.
    centered : bool
        Divide by the root of the variance in place of the mean square.

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
    >>> optimizer = tg.RMSprop([x], lr=0.25, alpha=0.75)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.data.round(6)
    array([ 1.5, -7.5])
    """

    elementwise = True
    alpha = Number(below=1.0)
    eps = Number()
    momentum = Number()
    centered = Flag()

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
    ) -> None:
        self.alpha = alpha
        self.eps = eps
        self.momentum = momentum
        self.centered = centered
        super().__init__(params, lr, weight_decay)

    def init(self, p: Any) -> dict[str, Any]:
        """Return the mean square, and the mean and momentum where there are any."""
        names = ["square"]
        names += ["mean"] if self.centered else []
        names += ["momentum"] if self.momentum else []
        return {name: np.zeros_like(p) for name in names}

    def update(self, p: Any, g: Any, state: dict[str, Any], lr: Any) -> tuple[Any, dict[str, Any]]:
        """Return the new parameter and means."""
        alpha = self.alpha
        slots = {"square": alpha * state["square"] + (1.0 - alpha) * (g * g)}
        variance = slots["square"]
        if self.centered:
            slots["mean"] = mean = alpha * state["mean"] + (1.0 - alpha) * g
            variance = variance - mean * mean
        step = g / (np.sqrt(variance) + self.eps)
        if self.momentum:
            slots["momentum"] = step = self.momentum * state["momentum"] + step
        return p - lr * step, slots
