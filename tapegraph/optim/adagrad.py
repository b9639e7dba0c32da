"""`Adagrad`: gradients divided by the root of the sum of all their squares."""

from __future__ import annotations

from typing import Any

import numpy as np

from tapegraph.optim.groups import Params, Rate
from tapegraph.optim.optimizer import Optimizer
from tapegraph.optim.options import Number


class Adagrad(Optimizer):
    """Adagrad: the gradient over the root of the sum of its squares so far.

    With ``g = p.grad + weight_decay * p``, in the step ``t = 1, 2, ...`` of a parameter::

        v = v + g**2
        p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(v) + eps)

    Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011, with PyTorch's defaults. Without
    weight decay, a row-sparse gradient updates its rows alone.

    Parameters
    ----------
    params : iterable or dict of Tensor or Value, or iterable of dict
        The leaves to update; one with no gradient yet is left alone. See `Optimizer`.
    lr : float or callable
        Learning rate, or a schedule.
    lr_decay : float
        How the learning rate decays.
    weight_decay : float
        L2 regularisation.
    initial_accumulator_value : float
        What the sum of squares starts from.
    eps : float
        Added to the denominator.

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
    >>> optimizer = tg.Adagrad([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.data
    array([ 1.5, -7.5])
    """

    elementwise = True
    lr_decay = Number()
    initial_accumulator_value = Number()
    eps = Number()

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        self.lr_decay = lr_decay
        self.initial_accumulator_value = initial_accumulator_value
        self.eps = eps
        super().__init__(params, lr, weight_decay)

    @property
    def by_rows(self) -> bool:
        """Whether the rule is this one, in which a gradient of zero changes nothing."""
        return type(self).update is Adagrad.update

    def init(self, p: Any) -> dict[str, Any]:
        """Return the sum of squares, and the number of steps where the learning rate decays."""
        slots = {"square": np.full_like(p, self.initial_accumulator_value)}
        return slots | {"step": np.zeros(())} if self.lr_decay else slots

    def update(self, p: Any, g: Any, state: dict[str, Any], lr: Any) -> tuple[Any, dict[str, Any]]:
        """Return the new parameter, sum of squares and number of steps."""
        slots = {"square": state["square"] + g * g}
        if self.lr_decay:
            slots["step"] = state["step"] + 1.0
            lr = lr / (1.0 + state["step"] * self.lr_decay).astype(p.dtype)
        return p - lr * (g / (np.sqrt(slots["square"]) + self.eps)), slots
