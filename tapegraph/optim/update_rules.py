"""The update rules `SGD`, `Adam`, `AdamW`, `RMSprop`, `Adagrad` and `Lion`.

Defaults and formulas are PyTorch's. All take ``params``, ``lr`` and ``weight_decay``, and raise, as
`Optimizer` does.
"""

# ruff: noqa: D102 - what `Optimizer` says of init and update holds of each rule
from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import repeat
from typing import Any, NoReturn

import numpy as np

from tapegraph.arrays import is_shared, own
from tapegraph.engines.engine import RowUpdate
from tapegraph.errors import message
from tapegraph.numpy_warnings import quietly
from tapegraph.optim.optimizer import Optimizer, Slots
from tapegraph.optim.options import Group, Option, Params, Rate, flag, fraction, fractions, number
from tapegraph.recording.node import Node, next_seq
from tapegraph.recording.tape import ZERO, fitting_gradient, held_gradient
from tapegraph.recording.values import Change, make, new_numbers, set_changed
from tapegraph.recording.watchers import is_watched
from tapegraph.row_sparse import RowSparse
from tapegraph.scalars.recorder import DATA
from tapegraph.tensors.value import Value
from tapegraph.typed import Array


class SGD(Optimizer):
    """Stochastic gradient descent, ``p -= lr * p.grad``; with momentum too.

    With weight decay ``g = p.grad + weight_decay * p``, and with momentum, as PyTorch has it::

        m = g                                      (first step)
        m = momentum * m + (1 - dampening) * g     (later)
        p = p - lr * m                             (nesterov: p - lr * (g + momentum * m))

    Without momentum and weight decay, a row-sparse gradient updates its rows alone.

    :param params, lr, weight_decay: As in `Optimizer`.
    :param momentum, dampening: At least 0.
    :param nesterov: Takes momentum, and no dampening.

    >>> x = tg.param(2.0)
    >>> optimizer = tg.SGD([x], lr=0.25)
    >>> (x * x).backward()
    >>> optimizer.step()
    >>> x.item()
    1.0
    """

    elementwise = True
    momentum, dampening, nesterov = Option(number), Option(number), Option(flag)

    def __init__(
        self,
        params: Params,
        lr: Rate,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        **others: NoReturn,
    ) -> None:
        self.momentum, self.dampening, self.nesterov = momentum, dampening, nesterov
        if self.nesterov and (not self.momentum or self.dampening):
            received = f"nesterov with momentum={momentum} and dampening={dampening}"
            raise ValueError(message("SGD", received, "momentum above 0 and no dampening"))
        super().__init__(params, lr, weight_decay, **others)

    @property
    def by_rows(self) -> bool:
        """Whether this rule runs without momentum, which moves every row."""
        return not self.momentum and type(self).update is SGD.update

    def init(self, p: Array) -> Slots:
        if not self.momentum:
            return {}
        slots = {"momentum": np.zeros_like(p)}
        return slots | {"step": np.zeros(())} if self.dampening else slots  # the first has none

    def update(self, p: Array, g: Array, state: Slots, lr: float) -> tuple[Array, Slots]:
        if not self.momentum:
            return p - lr * g, state
        m = self.momentum * state["momentum"] + (1.0 - self.dampening) * g
        slots = {"momentum": m}
        if self.dampening:
            m = np.where(state["step"] == 0.0, g, m)
            slots = {"momentum": m, "step": state["step"] + 1.0}
        return p - lr * (g + self.momentum * m if self.nesterov else m), slots

    def _changes(self, group: Group, lr: float, missed: list[int]) -> Iterable[Change]:
        """Return the changes of a group, in place if the rule is plain descent."""
        if not self.by_rows or group.weight_decay or is_watched():
            return super()._changes(group, lr, missed)
        changes: list[Change] = []
        values: list[Value] = []
        moved: list[Node] = []  # in place
        arrays, steps = [], []
        for p in group.params:
            if isinstance(p, Value):
                values.append(p)
                continue
            if not p._requires_grad:  # frozen: it is passed by, as in every other rule
                continue
            held = held_gradient(p)
            if isinstance(held, RowSparse):
                changes += RowUpdate(held, lr).of(p)
            elif held is not None and held is not ZERO:
                step = fitting_gradient(self._kind, p, held) * lr
                if is_shared(p):  # whoever else holds the array keeps the old numbers
                    changes += new_numbers(p, own(quietly(np.subtract, p._array, step)))
                    continue
                moved.append(p)
                arrays.append(p._array)
                steps.append(step)
        if moved:
            changes.append(partial(make, map(np.subtract, arrays, steps, arrays)))
            changes.append(partial(make, map(set_changed, moved, repeat(next_seq()))))
        if values:  # leaves: the checks of their setters hold
            data = [p._data - lr * p._grad for p in values]
            changes.append(partial(make, map(setattr, values, repeat(DATA), data)))
        return changes


class Adam(Optimizer):
    """Adam: each element's step is scaled by a running mean of its squared gradients.

    With ``g = p.grad + weight_decay * p``, in the step ``t = 1, 2, ...`` of a parameter::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2         (amsgrad: the largest v so far below)
        p = p - lr / (1 - beta1**t) * m / (sqrt(v) / sqrt(1 - beta2**t) + eps)

    Kingma and Ba, "Adam: a method for stochastic optimization", 2015; AMSGrad by Reddi, Kale and
    Kumar, 2018. Defaults and the place of ``eps`` are PyTorch's. Row-sparse gradients are made
    dense, for the means move without a gradient too.

    :param params, lr, weight_decay: As in `Optimizer`; `AdamW` has the decoupled weight decay.
    :param betas: The share of the means to keep in each step, at least 0 and below 1.
    :param eps: Added to the denominator.
    :param amsgrad: Divide by the largest mean of squares so far.

    >>> x = tg.param([2.0, -8.0])
    >>> optimizer = tg.Adam([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.data.round(6)
    array([ 1.5, -7.5])
    """

    elementwise = True
    betas, eps, amsgrad = Option(fractions), Option(number), Option(flag)

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        **others: NoReturn,
    ) -> None:
        self.betas, self.eps, self.amsgrad = betas, eps, amsgrad
        super().__init__(params, lr, weight_decay, **others)

    def init(self, p: Array) -> Slots:
        names = ("mean", "square", "largest") if self.amsgrad else ("mean", "square")
        return {name: np.zeros_like(p) for name in names}

    def numbers(self, lr: float, step: int) -> dict[str, float]:
        beta1, beta2 = self.betas
        # sqrt(v) / root + eps is written as (sqrt(v) + eps * root) / root: a pass less.
        root = math.sqrt(1.0 - beta2**step)
        return {"size": lr / (1.0 - beta1**step) * root, "least": self.eps * root}

    def counted(self, step: int) -> dict[str, Any]:
        return {f"beta{i}_power": np.array(beta**step) for i, beta in enumerate(self.betas, 1)}

    def count_of(self, held: Mapping[str, Any], steps: int) -> int:
        for beta, name in reversed(list(zip(self.betas, self.counted(0), strict=True))):
            power = float(held[name])
            if beta and 0.0 < power <= 1.0:  # neither has shrunk to zero
                return round(math.log(power) / math.log(beta))
        return steps

    def update(self, p: Array, g: Array, state: Slots, lr: float) -> tuple[Array, Slots]:
        beta1, beta2 = self.betas
        mean = beta1 * state["mean"] + (1.0 - beta1) * g
        square = beta2 * state["square"] + (1.0 - beta2) * (g * g)
        slots = {"mean": mean, "square": square}
        if self.amsgrad:
            slots["largest"] = square = np.maximum(state["largest"], square)
        return p - state["size"] * mean / (np.sqrt(square) + state["least"]), slots


class AdamW(Adam):
    """Adam with decoupled weight decay: ``p - lr * weight_decay * p`` before Adam's own step.

    Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, with PyTorch's defaults.

    :param params, lr, betas, eps, amsgrad: As in `Adam`.
    :param weight_decay: The share of the parameter to subtract in each step, times ``lr``.

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
        **others: NoReturn,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, **others)


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

    :param params, lr, weight_decay: As in `Optimizer`.
    :param alpha: The share of the mean to keep in each step, at least 0 and below 1.
    :param eps: Added to the denominator.
    :param momentum: At least 0.
    :param centered: Divide by the root of the variance in place of the mean square.

    >>> x = tg.param([2.0, -8.0])
    >>> optimizer = tg.RMSprop([x], lr=0.25, alpha=0.75)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.data.round(6)
    array([ 1.5, -7.5])
    """

    elementwise = True
    alpha, eps = Option(fraction), Option(number)
    momentum, centered = Option(number), Option(flag)

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        **others: NoReturn,
    ) -> None:
        self.alpha, self.eps, self.momentum, self.centered = alpha, eps, momentum, centered
        super().__init__(params, lr, weight_decay, **others)

    def init(self, p: Array) -> Slots:
        used = {"square": True, "mean": self.centered, "momentum": self.momentum}
        return {name: np.zeros_like(p) for name, is_used in used.items() if is_used}

    def update(self, p: Array, g: Array, state: Slots, lr: float) -> tuple[Array, Slots]:
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


class Adagrad(Optimizer):
    """Adagrad: the gradient over the root of the sum of its squares so far.

    With ``g = p.grad + weight_decay * p``, in the step ``t = 1, 2, ...`` of a parameter::

        v = v + g**2
        p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(v) + eps)

    Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011, with PyTorch's defaults. Without
    weight decay, a row-sparse gradient updates its rows alone.

    :param params, lr, weight_decay: As in `Optimizer`.
    :param lr_decay: The decay of the learning rate.
    :param initial_accumulator_value: The initial sum of squares.
    :param eps: Added to the denominator.

    >>> x = tg.param([2.0, -8.0])
    >>> optimizer = tg.Adagrad([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.data
    array([ 1.5, -7.5])
    """

    elementwise = True
    lr_decay, initial_accumulator_value, eps = Option(number), Option(number), Option(number)

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **others: NoReturn,
    ) -> None:
        self.lr_decay, self.eps = lr_decay, eps
        self.initial_accumulator_value = initial_accumulator_value
        super().__init__(params, lr, weight_decay, **others)

    @property
    def by_rows(self) -> bool:
        """Whether this rule runs, in which a gradient of zero changes nothing."""
        return type(self).update is Adagrad.update

    def init(self, p: Array) -> Slots:
        slots = {"square": np.full_like(p, self.initial_accumulator_value)}
        return slots | {"step": np.zeros(())} if self.lr_decay else slots

    def update(self, p: Array, g: Array, state: Slots, lr: object) -> tuple[Array, Slots]:
        slots = {"square": state["square"] + g * g}
        if self.lr_decay:
            slots["step"] = state["step"] + 1.0
            lr = lr / (1.0 + state["step"] * self.lr_decay).astype(p.dtype)
        return p - lr * (g / (np.sqrt(slots["square"]) + self.eps)), slots


class Lion(Optimizer):
    """Lion: every element moves by ``lr``, in the direction of a running mean of gradients.

    With decoupled weight decay::

        p = p - lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * p)
        m = beta2 * m + (1 - beta2) * g

    Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2, whose betas
    these are. It wants a learning rate 3 to 10 times smaller than Adam's, and a weight decay as
    many times larger. Row-sparse gradients are made dense, for the mean moves every row.

    :param params, lr: As in `Optimizer`.
    :param betas: The share of the mean in the step, and the share of it to keep.
    :param weight_decay: The share of the parameter to subtract in each step, times ``lr``.

    >>> x = tg.param([2.0, -8.0])
    >>> optimizer = tg.Lion([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.data
    array([ 1.75, -7.75])
    """

    decoupled = True
    elementwise = True
    betas = Option(fractions)

    def __init__(
        self,
        params: Params,
        lr: Rate = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **others: NoReturn,
    ) -> None:
        self.betas = betas
        super().__init__(params, lr, weight_decay, **others)

    def init(self, p: Array) -> Slots:
        return {"mean": np.zeros_like(p)}

    def update(self, p: Array, g: Array, state: Slots, lr: float) -> tuple[Array, Slots]:
        beta1, beta2 = self.betas
        mean = state["mean"]
        step = np.sign(beta1 * mean + (1.0 - beta1) * g)
        return p - lr * step, {"mean": beta2 * mean + (1.0 - beta2) * g}
