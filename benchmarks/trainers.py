"""A training loop's step, as a user of each library writes it around a loss.

Each function takes the problem and ``loss(*weights, *data)`` in the library's own operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.protocol import Problem, Trainer

Loss = Callable[..., Any]


def tapegraph(
    problem: Problem, loss: Loss, *, compiled: bool = False, xla: bool | None = None
) -> Trainer:
    import tapegraph as tg

    weights = [tg.param(w) for w in problem.weights]
    optimizer = getattr(tg, problem.optimizer)(weights, lr=problem.rate)

    def update(*data: Any) -> Any:
        optimizer.zero_grad()
        value = loss(*weights, *data)
        value.backward()
        optimizer.step()
        return value

    # A compiled step takes arrays as its arguments; an eager loop makes tensors of them once.
    data = problem.data
    if compiled:
        options = {} if xla is None else {"xla": xla}  # which checkouts from before it have not
        update = tg.compile(update, **options)
    else:
        data = [tg.tensor(a) if a.dtype.kind == "f" else a for a in data]

    def state() -> list[Any]:
        if problem.optimizer == "Adam":
            return [slots["mean"].numpy() for slots in optimizer.state.values()]
        return [w.numpy() for w in weights]

    return Trainer(lambda: update(*data).item(), state)


def torch(problem: Problem, loss: Loss) -> Trainer:
    import torch

    weights = [torch.tensor(w, requires_grad=True) for w in problem.weights]
    data = [torch.tensor(a) for a in problem.data]
    optimizer = getattr(torch.optim, problem.optimizer)(weights, lr=problem.rate)

    def step() -> float:
        optimizer.zero_grad()
        value = loss(*weights, *data)
        value.backward()
        optimizer.step()
        return value.item()

    def state() -> list[Any]:
        if problem.optimizer == "Adam":
            return [optimizer.state[w]["exp_avg"].numpy() for w in weights]
        return [w.detach().numpy() for w in weights]

    return Trainer(step, state)


def jax(problem: Problem, loss: Loss) -> Trainer:
    from functools import partial

    import jax
    import numpy as np

    weights = [jax.numpy.array(w) for w in problem.weights]
    data = [jax.numpy.array(a) for a in problem.data]

    @partial(jax.jit, donate_argnums=0)
    def update(weights: list[Any], *data: Any) -> Any:
        value, grads = jax.value_and_grad(lambda weights: loss(*weights, *data))(weights)
        return [w - problem.rate * g for w, g in zip(weights, grads, strict=True)], value

    def step() -> float:
        nonlocal weights
        weights, value = update(weights, *data)
        return float(value)

    return Trainer(step, lambda: [np.array(w) for w in weights])


def autograd(problem: Problem, loss: Loss) -> Trainer:
    from autograd import value_and_grad

    weights = [w.copy() for w in problem.weights]
    loss_and_gradients = value_and_grad(lambda weights: loss(*weights, *problem.data))

    def step() -> float:
        value, grads = loss_and_gradients(weights)
        for w, g in zip(weights, grads, strict=True):
            w -= problem.rate * g
        return float(value)

    return Trainer(step, lambda: weights)


def mygrad(problem: Problem, loss: Loss) -> Trainer:
    import mygrad as mg

    weights = [mg.tensor(w) for w in problem.weights]

    def step() -> float:
        value = loss(*weights, *problem.data)
        value.backward()
        for w in weights:
            w.data -= problem.rate * w.grad
        return float(value.item())

    return Trainer(step, lambda: [w.data for w in weights])


def tf_function(problem: Problem, loss: Loss, *, xla: bool, held: bool = True) -> Trainer:
    """Hold the data as tensors, or have NumPy's copied in every step."""
    import tensorflow as tf

    weights = [tf.Variable(w) for w in problem.weights]
    data = [tf.constant(a) if held else a for a in problem.data]

    @tf.function(jit_compile=xla)
    def update(*data: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(*weights, *data)
        for w, g in zip(weights, tape.gradient(value, weights), strict=True):
            if isinstance(g, tf.IndexedSlices):  # the rows that were looked up
                w.scatter_sub(tf.IndexedSlices(problem.rate * g.values, g.indices))
            else:
                w.assign_sub(problem.rate * g)
        return value

    return Trainer(lambda: float(update(*data)), lambda: [w.numpy() for w in weights])
