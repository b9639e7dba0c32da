"""Many operations on arrays of nearly no size: what one operation costs, and nothing else."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks import trainers
from benchmarks.protocol import Problem, Trainer

ABOUT = "float64, 4x4 arrays, 300 element-wise ops in a chain"
OPS = 300


def problem() -> Problem:
    rng = np.random.default_rng(0)
    scale, shift, x = rng.normal(1, 0.1, (3, 4, 4))
    return Problem([scale, shift], [x], rate=2**-10)


def with_tapegraph(problem: Problem, *, compiled: bool = False) -> Trainer:
    import tapegraph as tg

    def loss(scale, shift, h):
        for _ in range(OPS // 3):
            h = tg.tanh(h * scale + shift)
        return tg.sum(h)

    return trainers.tapegraph(problem, loss, compiled=compiled)


def with_torch(problem: Problem) -> Trainer:
    import torch

    def loss(scale, shift, h):
        for _ in range(OPS // 3):
            h = torch.tanh(h * scale + shift)
        return torch.sum(h)

    return trainers.torch(problem, loss)


def with_jax(problem: Problem) -> Trainer:
    import jax.numpy as jnp

    def loss(scale, shift, h):
        for _ in range(OPS // 3):
            h = jnp.tanh(h * scale + shift)
        return jnp.sum(h)

    return trainers.jax(problem, loss)


def with_autograd(problem: Problem) -> Trainer:
    import autograd.numpy as anp

    def loss(scale, shift, h):
        for _ in range(OPS // 3):
            h = anp.tanh(h * scale + shift)
        return anp.sum(h)

    return trainers.autograd(problem, loss)


def with_mygrad(problem: Problem) -> Trainer:
    import mygrad as mg

    def loss(scale, shift, h):
        for _ in range(OPS // 3):
            h = mg.tanh(h * scale + shift)
        return mg.sum(h)

    return trainers.mygrad(problem, loss)


def with_tf_function(problem: Problem, *, xla: bool = False) -> Trainer:
    import tensorflow as tf

    def loss(scale, shift, h):
        for _ in range(OPS // 3):
            h = tf.tanh(h * scale + shift)
        return tf.reduce_sum(h)

    return trainers.tf_function(problem, loss, xla=xla)


CONTENDERS = {
    "tapegraph": with_tapegraph,
    "tapegraph compiled": partial(with_tapegraph, compiled=True),
    "torch": with_torch,
    "jax": with_jax,
    "autograd": with_autograd,
    "mygrad": with_mygrad,
    "tf.function": with_tf_function,
    "tf.function xla": partial(with_tf_function, xla=True),
}
