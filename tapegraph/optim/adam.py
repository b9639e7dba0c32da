"""`Adam` and `AdamW`: steps scaled by running means of the gradient and of its square."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.optim.groups import Params, Rate
from tapegraph.optim.optimizer import Optimizer
from tapegraph.optim.options import Flag, Number, Numbers


class Adam(Optimizer):
    """Adam: each element's step is scaled by a running mean of its squared gradients.

    With ``g = p.grad + weight_decay * p``, in the step ``t = 1, 2, ...`` of a parameter::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2         (amsgrad: the largest v so far below)
        p = p - lr / (1 - beta1**t) * m / (sqrt(v) / sqrt(1 - beta2**t) + eps)

    Kingma and Ba, "Adam: a method for stochastic optimization", 2015; AMSGrad by Reddi, Kale and
    Kumar, 2018. Defaults and the place of ``eps`` are PyTorch's. Row-sparse gradients are made
    dense, for the means move without a gradient too.

    Parameters
    ----------
    params : iterable or dict of Tensor or Value, or iterable of dict
        The leaves to update; one with no gradient yet is left alone. See `Optimizer`.
    lr : float or callable
        Learning rate, or a schedule.
    betas : tuple of two floats
        How much of the means is kept in each step, at least 0 and below 1.
    eps : float
        Added to the denominator.
    weight_decay : float
        L2 regularisation, through the gradient; `AdamW` has the decoupled one.
    amsgrad : bool
        Divide by the largest mean of squares so far.

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
    >>> optimizer = tg.Adam([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.data.round(6)
    array([ 1.5, -7.5])
    """

    elementwise = True
    betas = Numbers(2)
    eps = Number()
    amsgrad = Flag()

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
    ) -> None:
        self.betas = betas
        self.eps = eps
        self.amsgrad = amsgrad
        super().__init__(params, lr, weight_decay)

    def init(self, p: Any) -> dict[str, Any]:
        """Return the two means, and the powers of the betas.

        The powers are products, in float64: they are the same bits in every engine.
        """
        slots = {"mean": np.zeros_like(p), "square": np.zeros_like(p)}
        if self.amsgrad:
            slots["largest"] = np.zeros_like(p)
        return slots | {"beta1_power": np.ones(()), "beta2_power": np.ones(())}

    def update(self, p: Any, g: Any, state: dict[str, Any], lr: Any) -> tuple[Any, dict[str, Any]]:
        """Return the new parameter, means and powers."""
        beta1, beta2 = self.betas
        mean = beta1 * state["mean"] + (1.0 - beta1) * g
        square = beta2 * state["square"] + (1.0 - beta2) * (g * g)
        power1, power2 = beta1 * state["beta1_power"], beta2 * state["beta2_power"]
        slots = {"mean": mean, "square": square, "beta1_power": power1, "beta2_power": power2}
        if self.amsgrad:
            slots["largest"] = square = np.maximum(state["largest"], square)
        # sqrt(v) / root + eps is written as (sqrt(v) + eps * root) / root: a pass less.
        root = np.sqrt(1.0 - power2).astype(p.dtype)
        size = lr / (1.0 - power1).astype(p.dtype) * root
        return p - size * mean / (np.sqrt(square) + self.eps * root), slots


class AdamW(Adam):
    """Adam with decoupled weight decay: ``p - lr * weight_decay * p`` before Adam's own step.

    Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, with PyTorch's defaults.

    Parameters
    ----------
    params : iterable or dict of Tensor or Value, or iterable of dict
        The leaves to update; one with no gradient yet is left alone. See `Optimizer`.
    lr : float or callable
        Learning rate, or a schedule.
    betas : tuple of two floats
        How much of the means is kept in each step, at least 0 and below 1.
    eps : float
        Added to the denominator.
    weight_decay : float
        How much of the parameter goes in each step, times ``lr``.
    amsgrad : bool
        Divide by the largest mean of squares so far.

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
    >>> optimizer = tg.AdamW([x], lr=0.5, weight_decay=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.data.round(6)
    array([ 1.25, -6.5 ])
    """

    decoupled = True

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad)
