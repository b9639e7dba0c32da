"""A small language model of characters, trained by Adam: many layers of middling size.

No bias stands before the attention, for its gradient by the keys is zero but for rounding, which
Adam makes a step of full length. "torch fused" takes PyTorch's fused attention, and "torch
compiled" is that by ``torch.compile``.
"""

from __future__ import annotations

import math
import shutil
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from benchmarks import adam, trainers
from benchmarks.protocol import Problem, Trainer, Unavailable

ABOUT = (
    "float32, 4 layers, width 128, 4 heads, context 64, batch 16, 65 characters, feed-forward 512 "
    "with tanh-gelu, softmax cross-entropy, Adam"
)
HEADS = 4
EPS = 1e-5
HIDDEN = -1e9  # the score of a token in the future
COMPILERS = ("c++", "g++", "clang++", "cl")


class Sizes(NamedTuple):
    """How large the model and the batch are."""

    layers: int = 4
    width: int = 128
    context: int = 64
    batch: int = 16
    characters: int = 65


class Layer(NamedTuple):
    """The weights of one layer, in any library's arrays."""

    gain1: Any
    bias1: Any
    query: Any
    key: Any
    value: Any
    out: Any
    gain2: Any
    bias2: Any
    up: Any
    up_bias: Any
    down: Any
    down_bias: Any


FULL = Sizes()


def problem(sizes: Sizes = FULL) -> Problem:
    rng = np.random.default_rng(0)
    layers, width, context, batch, characters = sizes

    def matrix(rows: int, columns: int, deviation: float = 0.0) -> np.ndarray:
        deviation = deviation or rows**-0.5
        return rng.normal(0, deviation, (rows, columns)).astype(np.float32)

    def norm() -> tuple[np.ndarray, np.ndarray]:
        return np.ones(width, np.float32), np.zeros(width, np.float32)

    weights = [matrix(characters, width, 0.1), matrix(context, width, 0.1)]
    for _ in range(layers):
        weights += [*norm(), *(matrix(width, width) for _ in range(4)), *norm()]
        weights += [matrix(width, 4 * width), np.zeros(4 * width, np.float32)]
        weights += [matrix(4 * width, width), np.zeros(width, np.float32)]
    weights += [*norm(), matrix(width, characters)]
    text = rng.integers(0, characters, (batch, context + 1))
    past = np.tril(np.ones((context, context), bool))
    ids, following = np.ascontiguousarray(text[:, :-1]), text[:, 1:].reshape(-1)
    return Problem(weights, [ids, following, past], rate=2**-10, optimizer="Adam")


def parts(given: list[Any]) -> tuple[Any, Any, list[Layer], Any, Any, Any]:
    """Return embeddings of characters and places, layers, last gain and bias, and the head."""
    token, place, *rest, gain, bias, head = given
    count = len(Layer._fields)
    layers = [Layer(*rest[i : i + count]) for i in range(0, len(rest), count)]
    return token, place, layers, gain, bias, head


def with_tapegraph(problem: Problem, *, compiled: bool = False, xla: bool | None = None) -> Trainer:
    import tapegraph as tg

    def heads(x):
        batch, context, width = x.shape
        return x.reshape(batch, context, HEADS, width // HEADS).transpose(0, 2, 1, 3)

    def attention(h, layer, past):
        q, k, v = heads(h @ layer.query), heads(h @ layer.key), heads(h @ layer.value)
        scores = q @ k.transpose(0, 1, 3, 2) * (1 / math.sqrt(q.shape[-1]))
        mixed = tg.softmax(tg.where(past, scores, HIDDEN)) @ v
        return mixed.transpose(0, 2, 1, 3).reshape(h.shape) @ layer.out

    def loss(*given):
        *weights, ids, following, past = given
        token, place, layers, gain, bias, head = parts(weights)
        x = tg.gather(token, ids) + place
        for layer in layers:
            x = x + attention(tg.layer_norm(x, layer.gain1, layer.bias1, EPS), layer, past)
            h = tg.layer_norm(x, layer.gain2, layer.bias2, EPS)
            x = x + tg.gelu(h @ layer.up + layer.up_bias) @ layer.down + layer.down_bias
        logits = tg.layer_norm(x, gain, bias, EPS) @ head
        return tg.softmax_crossentropy(logits.reshape(-1, head.shape[1]), following)

    return trainers.tapegraph(problem, loss, compiled=compiled, xla=xla)


def torch_loss(*, fused: bool) -> trainers.Loss:
    import torch
    from torch.nn import functional as F

    def heads(x):
        batch, context, width = x.shape
        return x.reshape(batch, context, HEADS, width // HEADS).transpose(1, 2)

    def attention(h, layer, past):
        q, k, v = heads(h @ layer.query), heads(h @ layer.key), heads(h @ layer.value)
        if fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(2, 3) * (1 / math.sqrt(q.shape[-1]))
            mixed = torch.softmax(torch.where(past, scores, HIDDEN), dim=-1) @ v
        return mixed.transpose(1, 2).reshape(h.shape) @ layer.out

    def loss(*given):
        *weights, ids, following, past = given
        token, place, layers, gain, bias, head = parts(weights)
        x = F.embedding(ids, token) + place
        for layer in layers:
            h = F.layer_norm(x, x.shape[-1:], layer.gain1, layer.bias1, EPS)
            x = x + attention(h, layer, past)
            h = F.layer_norm(x, x.shape[-1:], layer.gain2, layer.bias2, EPS)
            h = F.gelu(h @ layer.up + layer.up_bias, approximate="tanh")
            x = x + h @ layer.down + layer.down_bias
        logits = F.layer_norm(x, x.shape[-1:], gain, bias, EPS) @ head
        return F.cross_entropy(logits.reshape(-1, head.shape[1]), following)

    return loss


def with_torch(problem: Problem) -> Trainer:
    return trainers.torch(problem, torch_loss(fused=False))


def with_torch_fused(problem: Problem) -> Trainer:
    return trainers.torch(problem, torch_loss(fused=True))


def with_torch_compiled(problem: Problem) -> Trainer:
    import torch

    if not any(map(shutil.which, COMPILERS)):
        raise Unavailable("torch.compile needs a C++ compiler, and none is installed")
    return trainers.torch(problem, torch.compile(torch_loss(fused=True)))


def with_jax(problem: Problem) -> Trainer:
    import jax
    import jax.numpy as jnp

    def normalise(x, gain, bias):
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean(centred * centred, axis=-1, keepdims=True)
        return centred / jnp.sqrt(variance + EPS) * gain + bias

    def heads(x):
        batch, context, width = x.shape
        return x.reshape(batch, context, HEADS, width // HEADS).transpose(0, 2, 1, 3)

    def attention(h, layer, past):
        q, k, v = heads(h @ layer.query), heads(h @ layer.key), heads(h @ layer.value)
        scores = q @ k.transpose(0, 1, 3, 2) * (1 / math.sqrt(q.shape[-1]))
        mixed = jax.nn.softmax(jnp.where(past, scores, HIDDEN)) @ v
        return mixed.transpose(0, 2, 1, 3).reshape(h.shape) @ layer.out

    def loss(*given):
        *weights, ids, following, past = given
        token, place, layers, gain, bias, head = parts(weights)
        x = token[ids] + place
        for layer in layers:
            x = x + attention(normalise(x, layer.gain1, layer.bias1), layer, past)
            h = normalise(x, layer.gain2, layer.bias2)
            h = jax.nn.gelu(h @ layer.up + layer.up_bias, approximate=True)
            x = x + h @ layer.down + layer.down_bias
        logits = (normalise(x, gain, bias) @ head).reshape(-1, head.shape[1])
        scores = jax.nn.log_softmax(logits)
        return -jnp.mean(jnp.take_along_axis(scores, following[:, None], axis=1))

    return adam.jax(problem, loss)


def with_tf_function(problem: Problem, *, xla: bool = False) -> Trainer:
    import tensorflow as tf

    def normalise(x, gain, bias):
        centred = x - tf.reduce_mean(x, axis=-1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, axis=-1, keepdims=True)
        return centred / tf.sqrt(variance + EPS) * gain + bias

    def heads(x):
        batch, context, width = x.shape
        return tf.transpose(tf.reshape(x, (batch, context, HEADS, width // HEADS)), (0, 2, 1, 3))

    def attention(h, layer, past):
        q, k, v = heads(h @ layer.query), heads(h @ layer.key), heads(h @ layer.value)
        scores = tf.matmul(q, k, transpose_b=True) * (1 / math.sqrt(q.shape[-1]))
        mixed = tf.nn.softmax(tf.where(past, scores, HIDDEN)) @ v
        return tf.reshape(tf.transpose(mixed, (0, 2, 1, 3)), h.shape) @ layer.out

    def loss(*given):
        *weights, ids, following, past = given
        token, place, layers, gain, bias, head = parts(weights)
        x = tf.gather(token, ids) + place
        for layer in layers:
            x = x + attention(normalise(x, layer.gain1, layer.bias1), layer, past)
            h = normalise(x, layer.gain2, layer.bias2)
            h = tf.nn.gelu(h @ layer.up + layer.up_bias, approximate=True)
            x = x + h @ layer.down + layer.down_bias
        logits = tf.reshape(normalise(x, gain, bias) @ head, (-1, head.shape[1]))
        entropies = tf.nn.sparse_softmax_cross_entropy_with_logits(following, logits)
        return tf.reduce_mean(entropies)

    return adam.tf_function(problem, loss, xla=xla)


CONTENDERS = {
    "tapegraph": with_tapegraph,
    "tapegraph compiled": partial(with_tapegraph, compiled=True),
    "tapegraph compiled xla": partial(with_tapegraph, compiled=True, xla=True),
    "torch": with_torch,
    "torch fused": with_torch_fused,
    "torch compiled": with_torch_compiled,
    "jax": with_jax,
    "tf.function": with_tf_function,
    "tf.function xla": partial(with_tf_function, xla=True),
}
