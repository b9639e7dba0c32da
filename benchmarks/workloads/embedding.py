"""A large table of which a step reads, and need only update, a few rows."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks import trainers
from benchmarks.protocol import Problem, Trainer

ABOUT = "float32, table 50,000x128, batch 1,024 ids, mean-square loss"
ROWS, WIDTH, BATCH = 50_000, 128, 1_024


def problem() -> Problem:
    rng = np.random.default_rng(0)
    table = rng.normal(0, 1, (ROWS, WIDTH)).astype(np.float32)
    ids = rng.integers(0, ROWS, BATCH)
    target = rng.normal(0, 1, (BATCH, WIDTH)).astype(np.float32)
    # The mean is over 131,072 numbers, so a row moves by a sixteenth of its distance.
    return Problem([table], [ids, target], rate=2.0**12)


def with_tapegraph(problem: Problem, *, compiled: bool = False) -> Trainer:
    import tapegraph as tg

    def loss(table, ids, target):
        return tg.mse_loss(tg.gather(table, ids), target)

    return trainers.tapegraph(problem, loss, compiled=compiled)


def with_torch(problem: Problem) -> Trainer:
    from torch.nn.functional import embedding, mse_loss

    def loss(table, ids, target):
        return mse_loss(embedding(ids, table, sparse=True), target)

    return trainers.torch(problem, loss)


def with_jax(problem: Problem) -> Trainer:
    import jax.numpy as jnp

    def loss(table, ids, target):
        return jnp.mean((table[ids] - target) ** 2)

    return trainers.jax(problem, loss)


def with_autograd(problem: Problem) -> Trainer:
    import autograd.numpy as anp

    def loss(table, ids, target):
        return anp.mean((table[ids] - target) ** 2)

    return trainers.autograd(problem, loss)


def with_mygrad(problem: Problem) -> Trainer:
    import mygrad as mg

    def loss(table, ids, target):
        return mg.mean((table[ids] - target) ** 2)

    return trainers.mygrad(problem, loss)


def with_tf_function(problem: Problem, *, xla: bool = False) -> Trainer:
    import tensorflow as tf

    def loss(table, ids, target):
        return tf.reduce_mean((tf.gather(table, ids) - target) ** 2)

    return trainers.tf_function(problem, loss, xla=xla)


CONTENDERS = {
    "tapegraph": with_tapegraph,
    "tapegraph compiled": partial(with_tapegraph, compiled=True),
    "torch sparse": with_torch,
    "jax": with_jax,
    "autograd": with_autograd,
    "mygrad": with_mygrad,
    "tf.function": with_tf_function,
    "tf.function xla": partial(with_tf_function, xla=True),
}
