"""A small convolutional network on images of the size of handwritten digits."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks import trainers
from benchmarks.protocol import Array, Problem, Trainer

ABOUT = (
    "float32, batch 64, 1x28x28, conv 5x5x16, relu, max-pool 2, conv 5x5x32, relu, max-pool 2, "
    "linear 10, softmax cross-entropy"
)
BATCH, CLASSES = 64, 10
FLAT = 32 * 4 * 4


def problem() -> Problem:
    rng = np.random.default_rng(0)

    def normal(fan_in: int, shape: tuple[int, ...]) -> Array:
        return rng.normal(0, (2 / fan_in) ** 0.5, shape).astype(np.float32)

    def zeros(*shape: int) -> Array:
        return np.zeros(shape, np.float32)

    weights = [
        *(normal(1 * 25, (16, 1, 5, 5)), zeros(16)),
        *(normal(16 * 25, (32, 16, 5, 5)), zeros(32)),
        *(normal(FLAT, (FLAT, CLASSES)), zeros(CLASSES)),
    ]
    x = rng.random((BATCH, 1, 28, 28), np.float32)
    labels = rng.integers(0, CLASSES, BATCH)
    return Problem(weights, [x, labels], rate=2**-5)


def with_tapegraph(problem: Problem, *, compiled: bool = False) -> Trainer:
    import tapegraph as tg

    def loss(k1, b1, k2, b2, w, b, x, labels):
        h = tg.max_pool2d(tg.relu(tg.conv2d(x, k1) + b1.reshape(16, 1, 1)), 2)
        h = tg.max_pool2d(tg.relu(tg.conv2d(h, k2) + b2.reshape(32, 1, 1)), 2)
        return tg.softmax_crossentropy(h.reshape(BATCH, FLAT) @ w + b, labels)

    return trainers.tapegraph(problem, loss, compiled=compiled)


def with_torch(problem: Problem) -> Trainer:
    from torch.nn.functional import conv2d, cross_entropy, max_pool2d, relu

    def loss(k1, b1, k2, b2, w, b, x, labels):
        h = max_pool2d(relu(conv2d(x, k1, b1)), 2)
        h = max_pool2d(relu(conv2d(h, k2, b2)), 2)
        return cross_entropy(h.flatten(1) @ w + b, labels)

    return trainers.torch(problem, loss)


def with_jax(problem: Problem) -> Trainer:
    import jax
    import jax.numpy as jnp
    from jax import lax

    def conv(x, k, b):
        return lax.conv(x, k, (1, 1), "VALID") + b[:, None, None]

    def max_pool(x):
        return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")

    def loss(k1, b1, k2, b2, w, b, x, labels):
        h = max_pool(jax.nn.relu(conv(x, k1, b1)))
        h = max_pool(jax.nn.relu(conv(h, k2, b2)))
        scores = jax.nn.log_softmax(h.reshape(BATCH, FLAT) @ w + b)
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=1))

    return trainers.jax(problem, loss)


def with_autograd(problem: Problem) -> Trainer:
    import autograd.numpy as anp
    from autograd.scipy.signal import convolve
    from autograd.scipy.special import logsumexp

    def conv(x, k, b):
        flipped = k[:, :, ::-1, ::-1]  # convolve() is a convolution, the others cross-correlate
        y = convolve(x, flipped, axes=([2, 3], [2, 3]), dot_axes=([1], [1]), mode="valid")
        return y + anp.reshape(b, (-1, 1, 1))

    def max_pool(x):
        n, c, h, w = x.shape
        return anp.max(anp.reshape(x, (n, c, h // 2, 2, w // 2, 2)), axis=(3, 5))

    def loss(k1, b1, k2, b2, w, b, x, labels):
        h = max_pool(anp.maximum(conv(x, k1, b1), 0))
        h = max_pool(anp.maximum(conv(h, k2, b2), 0))
        logits = anp.reshape(h, (BATCH, FLAT)) @ w + b
        return anp.mean(logsumexp(logits, axis=1) - logits[np.arange(BATCH), labels])

    return trainers.autograd(problem, loss)


def with_mygrad(problem: Problem) -> Trainer:
    from mygrad.nnet.activations import relu
    from mygrad.nnet.layers import conv_nd, max_pool
    from mygrad.nnet.losses import softmax_crossentropy

    def loss(k1, b1, k2, b2, w, b, x, labels):
        h = relu(conv_nd(x, k1, stride=1) + b1.reshape(16, 1, 1))
        h = max_pool(h, (2, 2), 2)
        h = relu(conv_nd(h, k2, stride=1) + b2.reshape(32, 1, 1))
        h = max_pool(h, (2, 2), 2)
        return softmax_crossentropy(h.reshape(BATCH, FLAT) @ w + b, labels)

    return trainers.mygrad(problem, loss)


def with_tf_function(problem: Problem, *, xla: bool = False, held: bool = True) -> Trainer:
    import tensorflow as tf

    def loss(k1, b1, k2, b2, w, b, x, labels):
        h = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, k1, 1, "VALID") + b1), 2, 2, "VALID")
        h = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(h, k2, 1, "VALID") + b2), 2, 2, "VALID")
        logits = tf.reshape(h, (BATCH, FLAT)) @ w + b
        entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_mean(entropies)

    trainer = trainers.tf_function(channels_last(problem), loss, xla=xla, held=held)
    return Trainer(trainer.step, lambda: channels_first(trainer.state()))


def channels_last(problem: Problem) -> Problem:
    """Return the same problem in TensorFlow's layout: NHWC images, HWIO kernels."""
    k1, b1, k2, b2, w, b = problem.weights
    x, labels = problem.data
    w = w.reshape(32, 4, 4, CLASSES).transpose(1, 2, 0, 3).reshape(FLAT, CLASSES)
    k1, k2 = k1.transpose(2, 3, 1, 0), k2.transpose(2, 3, 1, 0)
    return Problem([k1, b1, k2, b2, w, b], [x.transpose(0, 2, 3, 1), labels], problem.rate)


def channels_first(weights: list[Array]) -> list[Array]:
    """Undo `channels_last` for the weights."""
    k1, b1, k2, b2, w, b = weights
    w = w.reshape(4, 4, 32, CLASSES).transpose(2, 0, 1, 3).reshape(FLAT, CLASSES)
    return [k1.transpose(3, 2, 0, 1), b1, k2.transpose(3, 2, 0, 1), b2, w, b]


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
