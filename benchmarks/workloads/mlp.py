"""A multi-layer perceptron: two large matrix products, and little else."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks import trainers
from benchmarks.protocol import Problem, Trainer

ABOUT = "float32, batch 256, 784-512-512-10, relu, softmax cross-entropy"
BATCH = 256
SIZES = (784, 512, 512, 10)


def problem() -> Problem:
    # Of forty seeds the one whose inputs of relu stay farthest from its kink in the steps that are
    # checked (3e-6): at a kink, rounding decides between two gradients.
    rng = np.random.default_rng(22)
    weights = []
    for fan_in, fan_out in zip(SIZES, SIZES[1:], strict=False):
        weights.append(rng.normal(0, (2 / fan_in) ** 0.5, (fan_in, fan_out)).astype(np.float32))
        weights.append(np.zeros(fan_out, np.float32))
    x = rng.random((BATCH, SIZES[0]), np.float32)
    labels = rng.integers(0, SIZES[-1], BATCH)
    return Problem(weights, [x, labels], rate=2**-4)


def with_tapegraph(problem: Problem, *, compiled: bool = False) -> Trainer:
    import tapegraph as tg

    def loss(w1, b1, w2, b2, w3, b3, x, labels):
        h = tg.relu(x @ w1 + b1)
        h = tg.relu(h @ w2 + b2)
        return tg.softmax_crossentropy(h @ w3 + b3, labels)

    return trainers.tapegraph(problem, loss, compiled=compiled)


def with_torch(problem: Problem) -> Trainer:
    import torch
    from torch.nn.functional import cross_entropy

    def loss(w1, b1, w2, b2, w3, b3, x, labels):
        h = torch.relu(x @ w1 + b1)
        h = torch.relu(h @ w2 + b2)
        return cross_entropy(h @ w3 + b3, labels)

    return trainers.torch(problem, loss)


def with_jax(problem: Problem) -> Trainer:
    import jax
    import jax.numpy as jnp

    def loss(w1, b1, w2, b2, w3, b3, x, labels):
        h = jax.nn.relu(x @ w1 + b1)
        h = jax.nn.relu(h @ w2 + b2)
        scores = jax.nn.log_softmax(h @ w3 + b3)
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))

    return trainers.jax(problem, loss)


def with_autograd(problem: Problem) -> Trainer:
    import autograd.numpy as anp
    from autograd.scipy.special import logsumexp

    def loss(w1, b1, w2, b2, w3, b3, x, labels):
        h = anp.maximum(x @ w1 + b1, 0)
        h = anp.maximum(h @ w2 + b2, 0)
        logits = h @ w3 + b3
        return anp.mean(logsumexp(logits, axis=1) - logits[np.arange(BATCH), labels])

    return trainers.autograd(problem, loss)


def with_mygrad(problem: Problem) -> Trainer:
    from mygrad.nnet.activations import relu
    from mygrad.nnet.losses import softmax_crossentropy

    def loss(w1, b1, w2, b2, w3, b3, x, labels):
        h = relu(x @ w1 + b1)
        h = relu(h @ w2 + b2)
        return softmax_crossentropy(h @ w3 + b3, labels)

    return trainers.mygrad(problem, loss)


def with_tf_function(problem: Problem, *, xla: bool = False, held: bool = True) -> Trainer:
    import tensorflow as tf

    def loss(w1, b1, w2, b2, w3, b3, x, labels):
        h = tf.nn.relu(x @ w1 + b1)
        h = tf.nn.relu(h @ w2 + b2)
        entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, h @ w3 + b3)
        return tf.reduce_mean(entropies)

    return trainers.tf_function(problem, loss, xla=xla, held=held)


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
