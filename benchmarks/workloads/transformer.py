"""One pre-norm transformer block: products, softmax, and much element-wise work between.

Layer normalisation is written out in elementary operations, the same for everybody; "torch fused"
takes PyTorch's fused layer_norm and attention instead.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from benchmarks import trainers
from benchmarks.protocol import Problem, Trainer

ABOUT = (
    "float32, one pre-norm block, batch 8, 128 tokens, width 256, 4 heads, feed-forward 1024 with "
    "tanh-gelu, causal mask, mean-square loss"
)
BATCH, TOKENS, WIDTH, HEADS, INNER = 8, 128, 256, 4, 1024
EPS = 1e-5
HIDDEN = -1e9  # the score of a token in the future
SPLIT = (BATCH, TOKENS, HEADS, WIDTH // HEADS)
SCALE = 1 / math.sqrt(WIDTH // HEADS)
GELU = math.sqrt(2 / math.pi)


def problem() -> Problem:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)

    def vector(length: int, value: float) -> np.ndarray:
        return np.full(length, value, np.float32)

    weights = [
        *(vector(WIDTH, 1), vector(WIDTH, 0)),  # gain and bias of the first normalisation
        *(matrix(WIDTH, WIDTH) for _ in range(4)),  # query, key, value, output
        *(vector(WIDTH, 1), vector(WIDTH, 0)),
        *(matrix(WIDTH, INNER), vector(INNER, 0)),
        *(matrix(INNER, WIDTH), vector(WIDTH, 0)),
    ]
    x, target = rng.normal(size=(2, BATCH, TOKENS, WIDTH)).astype(np.float32)
    past = np.tril(np.ones((TOKENS, TOKENS), bool))
    return Problem(weights, [x, target, past], rate=1.0)


def with_tapegraph(problem: Problem, *, compiled: bool = False, xla: bool | None = None) -> Trainer:
    import tapegraph as tg

    def normalise(x, gain, bias):
        centred = x - tg.mean(x, axis=-1, keepdims=True)
        variance = tg.mean(centred * centred, axis=-1, keepdims=True)
        return centred / tg.sqrt(variance + EPS) * gain + bias

    def heads(x):
        return x.reshape(SPLIT).transpose(0, 2, 1, 3)

    def loss(g1, b1, wq, wk, wv, wo, g2, b2, w1, c1, w2, c2, x, target, past):
        h = normalise(x, g1, b1)
        q, k, v = heads(h @ wq), heads(h @ wk), heads(h @ wv)
        scores = tg.where(past, q @ k.transpose(0, 1, 3, 2) * SCALE, HIDDEN)
        mixed = tg.softmax(scores) @ v
        x = x + mixed.transpose(0, 2, 1, 3).reshape(BATCH, TOKENS, WIDTH) @ wo
        h = normalise(x, g2, b2)
        x = x + tg.gelu(h @ w1 + c1) @ w2 + c2
        return tg.mean((x - target) ** 2)

    return trainers.tapegraph(problem, loss, compiled=compiled, xla=xla)


def with_torch(problem: Problem) -> Trainer:
    import torch
    from torch.nn.functional import gelu

    def normalise(x, gain, bias):
        centred = x - torch.mean(x, dim=-1, keepdim=True)
        variance = torch.mean(centred * centred, dim=-1, keepdim=True)
        return centred / torch.sqrt(variance + EPS) * gain + bias

    def heads(x):
        return x.reshape(SPLIT).transpose(1, 2)

    def loss(g1, b1, wq, wk, wv, wo, g2, b2, w1, c1, w2, c2, x, target, past):
        h = normalise(x, g1, b1)
        q, k, v = heads(h @ wq), heads(h @ wk), heads(h @ wv)
        scores = torch.where(past, q @ k.transpose(2, 3) * SCALE, HIDDEN)
        mixed = torch.softmax(scores, dim=-1) @ v
        x = x + mixed.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH) @ wo
        h = normalise(x, g2, b2)
        x = x + gelu(h @ w1 + c1, approximate="tanh") @ w2 + c2
        return torch.mean((x - target) ** 2)

    return trainers.torch(problem, loss)


def with_torch_fused(problem: Problem) -> Trainer:
    from torch.nn.functional import gelu, layer_norm, mse_loss, scaled_dot_product_attention

    def heads(x):
        return x.reshape(SPLIT).transpose(1, 2)

    def loss(g1, b1, wq, wk, wv, wo, g2, b2, w1, c1, w2, c2, x, target, past):
        h = layer_norm(x, (WIDTH,), g1, b1, EPS)
        q, k, v = heads(h @ wq), heads(h @ wk), heads(h @ wv)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.transpose(1, 2).reshape(BATCH, TOKENS, WIDTH) @ wo
        h = layer_norm(x, (WIDTH,), g2, b2, EPS)
        x = x + gelu(h @ w1 + c1, approximate="tanh") @ w2 + c2
        return mse_loss(x, target)

    return trainers.torch(problem, loss)


def with_jax(problem: Problem) -> Trainer:
    import jax
    import jax.numpy as jnp

    def normalise(x, gain, bias):
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
        return centred / jnp.sqrt(variance + EPS) * gain + bias

    def heads(x):
        return x.reshape(SPLIT).transpose(0, 2, 1, 3)

    def loss(g1, b1, wq, wk, wv, wo, g2, b2, w1, c1, w2, c2, x, target, past):
        h = normalise(x, g1, b1)
        q, k, v = heads(h @ wq), heads(h @ wk), heads(h @ wv)
        scores = jnp.where(past, q @ k.transpose(0, 1, 3, 2) * SCALE, HIDDEN)
        mixed = jax.nn.softmax(scores) @ v
        x = x + mixed.transpose(0, 2, 1, 3).reshape(BATCH, TOKENS, WIDTH) @ wo
        h = normalise(x, g2, b2)
        x = x + jax.nn.gelu(h @ w1 + c1, approximate=True) @ w2 + c2
        return jnp.mean((x - target) ** 2)

    return trainers.jax(problem, loss)


def with_autograd(problem: Problem) -> Trainer:
    import autograd.numpy as anp

    def normalise(x, gain, bias):
        centred = x - anp.mean(x, axis=-1, keepdims=True)
        variance = anp.mean(centred * centred, axis=-1, keepdims=True)
        return centred / anp.sqrt(variance + EPS) * gain + bias

    def heads(x):
        return anp.transpose(anp.reshape(x, SPLIT), (0, 2, 1, 3))

    def softmax(x):
        odds = anp.exp(x - anp.max(x, axis=-1, keepdims=True))
        return odds / anp.sum(odds, axis=-1, keepdims=True)

    def gelu(x):
        return 0.5 * x * (1 + anp.tanh(GELU * (x + 0.044715 * x * x * x)))

    def loss(g1, b1, wq, wk, wv, wo, g2, b2, w1, c1, w2, c2, x, target, past):
        h = normalise(x, g1, b1)
        q, k, v = heads(h @ wq), heads(h @ wk), heads(h @ wv)
        scores = q @ anp.transpose(k, (0, 1, 3, 2)) * SCALE
        mixed = softmax(anp.where(past, scores, np.float32(HIDDEN))) @ v
        mixed = anp.reshape(anp.transpose(mixed, (0, 2, 1, 3)), (BATCH, TOKENS, WIDTH))
        x = x + mixed @ wo
        h = normalise(x, g2, b2)
        x = x + gelu(h @ w1 + c1) @ w2 + c2
        return anp.mean((x - target) ** 2)

    return trainers.autograd(problem, loss)


def with_mygrad(problem: Problem) -> Trainer:
    import mygrad as mg
    from mygrad.nnet.activations import softmax

    def normalise(x, gain, bias):
        centred = x - mg.mean(x, axis=-1, keepdims=True)
        variance = mg.mean(centred * centred, axis=-1, keepdims=True)
        return centred / mg.sqrt(variance + EPS) * gain + bias

    def heads(x):
        return x.reshape(SPLIT).transpose(0, 2, 1, 3)

    def gelu(x):
        return 0.5 * x * (1 + mg.tanh(GELU * (x + 0.044715 * x * x * x)))

    def loss(g1, b1, wq, wk, wv, wo, g2, b2, w1, c1, w2, c2, x, target, past):
        h = normalise(x, g1, b1)
        q, k, v = heads(h @ wq), heads(h @ wk), heads(h @ wv)
        scores = q @ k.transpose(0, 1, 3, 2) * SCALE
        mixed = softmax(mg.where(past, scores, np.float32(HIDDEN))) @ v
        x = x + mixed.transpose(0, 2, 1, 3).reshape(BATCH, TOKENS, WIDTH) @ wo
        h = normalise(x, g2, b2)
        x = x + gelu(h @ w1 + c1) @ w2 + c2
        return mg.mean((x - target) ** 2)

    return trainers.mygrad(problem, loss)


def with_tf_function(problem: Problem, *, xla: bool = False) -> Trainer:
    import tensorflow as tf

    def normalise(x, gain, bias):
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
        return centred / tf.sqrt(variance + EPS) * gain + bias

    def heads(x):
        return tf.transpose(tf.reshape(x, SPLIT), (0, 2, 1, 3))

    def loss(g1, b1, wq, wk, wv, wo, g2, b2, w1, c1, w2, c2, x, target, past):
        h = normalise(x, g1, b1)
        q, k, v = heads(h @ wq), heads(h @ wk), heads(h @ wv)
        scores = tf.where(past, tf.matmul(q, k, transpose_b=True) * SCALE, HIDDEN)
        mixed = tf.transpose(tf.nn.softmax(scores) @ v, (0, 2, 1, 3))
        x = x + tf.reshape(mixed, (BATCH, TOKENS, WIDTH)) @ wo
        h = normalise(x, g2, b2)
        x = x + tf.nn.gelu(h @ w1 + c1, approximate=True) @ w2 + c2
        return tf.reduce_mean((x - target) ** 2)

    return trainers.tf_function(problem, loss, xla=xla)


CONTENDERS = {
    "tapegraph": with_tapegraph,
    "tapegraph compiled": partial(with_tapegraph, compiled=True),
    "tapegraph compiled xla": partial(with_tapegraph, compiled=True, xla=True),
    "torch": with_torch,
    "torch fused": with_torch_fused,
    "jax": with_jax,
    "autograd": with_autograd,
    "mygrad": with_mygrad,
    "tf.function": with_tf_function,
    "tf.function xla": partial(with_tf_function, xla=True),
}
