"""autograd's optimizers and formulas: `rmsprop` starts from ones, `sgd` scales by ``1 - mass``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tapegraph.autograd.misc.flatten import flatten
from tapegraph.typed import Cotangent, Fun, Pytree

Gradient = Callable[[Any, int], Any]
Callback = Callable[[Any, int, Any], Any]


def unflatten_optimizer(optimize: Fun) -> Fun:
    """Let an optimizer of vectors take structures of arrays; also a decorator."""

    @functools.wraps(optimize)
    def of_structures(
        grad: Gradient,
        x0: Pytree,
        callback: Callback | None = None,
        *args: Pytree,
        **kwargs: object,
    ) -> Any:
        x, unflatten = flatten(x0)

        def flat_grad(x: Pytree, i: int) -> Pytree:
            return flatten(grad(unflatten(x), i))[0]

        def flat_callback(x: Pytree, i: int, g: Cotangent) -> None:
            if callback is not None:
                callback(unflatten(x), i, unflatten(g))

        return unflatten(optimize(flat_grad, x, flat_callback, *args, **kwargs))

    return of_structures


@unflatten_optimizer
def sgd(
    grad: Gradient,
    x: Pytree,
    callback: Callback,
    num_iters: int = 200,
    step_size: float = 0.1,
    mass: float = 0.9,
) -> Any:
    """Descend by ``v = mass v - (1 - mass) g``, ``x = x + step_size v``, and return the last ``x``.

    :param grad: ``grad(x, i)`` gives the gradient at step ``i``, in the structure of ``x``.
    :param x: The start: arrays and numbers, in dicts, lists and tuples.
    :param callback: ``callback(x, i, g)``, before every step.
    """
    velocity = np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        velocity = mass * velocity - (1.0 - mass) * g
        x = x + step_size * velocity
    return x


@unflatten_optimizer
def rmsprop(
    grad: Gradient,
    x: Pytree,
    callback: Callback,
    num_iters: int = 100,
    step_size: float = 0.1,
    gamma: float = 0.9,
    eps: float = 1e-8,
) -> Any:
    """Descend by ``g / sqrt(s)``, ``s = gamma s + (1 - gamma) g^2`` from ones, as `sgd` does."""
    mean_square = np.ones(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        mean_square = gamma * mean_square + (1 - gamma) * g**2
        x = x - step_size * g / (np.sqrt(mean_square) + eps)
    return x


@unflatten_optimizer
def adam(
    grad: Gradient,
    x: Pytree,
    callback: Callback,
    num_iters: int = 100,
    step_size: float = 0.001,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
) -> Any:
    """Descend by Adam (Kingma and Ba, 2015); parameters as `sgd`."""
    first, second = np.zeros(len(x)), np.zeros(len(x))
    for i in range(num_iters):
        g = grad(x, i)
        callback(x, i, g)
        first = b1 * first + (1 - b1) * g
        second = b2 * second + (1 - b2) * g**2
        unbiased = first / (1 - b1 ** (i + 1))
        scale = np.sqrt(second / (1 - b2 ** (i + 1))) + eps
        x = x - step_size * unbiased / scale
    return x
