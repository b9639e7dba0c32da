"""Models to export: their parameters, the function of arrays, and a function that makes a batch."""

from __future__ import annotations

import numpy as np

import tapegraph as tg


def weights(rng, dtype, **shapes):
    return {
        name: tg.param(rng.normal(0, 0.5, shape), dtype=dtype, name=name)
        for name, shape in shapes.items()
    }


# Each is a function of the generator and the dtype.


def mlp(rng, dtype):
    p = weights(rng, dtype, W=(4, 8), b=(8,), V=(8, 3))

    def model(x):
        hidden = tg.gelu(x @ p["W"] + p["b"])
        return {"logits": hidden @ p["V"], "odds": tg.softmax(hidden @ p["V"])}

    return p, model, lambda n: {"x": rng.normal(size=(n, 4)).astype(dtype)}


def mlp_loss(rng, dtype):
    p = weights(rng, dtype, W=(4, 8), b=(8,), V=(8, 3))

    def loss(x, y):
        return tg.softmax_crossentropy(tg.tanh(x @ p["W"] + p["b"]) @ p["V"], y)

    return (
        p,
        loss,
        lambda n: {
            "x": rng.normal(size=(n, 4)).astype(dtype),
            "y": rng.integers(0, 3, n),
        },
    )


def conv_net(rng, dtype):
    p = weights(rng, dtype, K=(3, 1, 3, 3), c=(3, 1, 1), W=(12, 5))

    def model(images):
        maps = tg.max_pool2d(tg.relu(tg.conv2d(images, p["K"], pad=1) + p["c"]), 2)
        means = tg.avg_pool2d(maps, 2)
        return np.reshape(means, (len(means), -1)) @ p["W"]

    return p, model, lambda n: {"images": rng.normal(size=(n, 1, 8, 8)).astype(dtype)}


def attention(rng, dtype):
    p = weights(rng, dtype, Q=(8, 8), K=(8, 8), V=(8, 8), gain=(8,), shift=(8,), W=(8, 8))

    def heads(x):
        return np.transpose(np.reshape(x, (*x.shape[:2], 2, 4)), (0, 2, 1, 3))

    def block(x):
        normal = tg.layer_norm(x, p["gain"], p["shift"])
        q, k, v = (heads(normal @ p[name]) for name in "QKV")
        scores = q @ np.swapaxes(k, -1, -2) / 2.0
        scores = np.where(np.tril(np.ones((5, 5), bool)), scores, -1e9)
        mixed = np.transpose(tg.softmax(scores) @ v, (0, 2, 1, 3))
        return x + np.reshape(mixed, x.shape) @ p["W"]

    return p, block, lambda n: {"x": rng.normal(size=(n, 5, 8)).astype(dtype)}


def embedding(rng, dtype):
    p = weights(rng, dtype, table=(11, 6), W=(6, 11))

    def loss(tokens, following):
        logits = tg.gather(p["table"], tokens) @ p["W"]
        return tg.softmax_crossentropy(logits, following)

    return (
        p,
        loss,
        lambda n: {
            "tokens": rng.integers(0, 11, (n, 4)),
            "following": rng.integers(0, 11, (n, 4)),
        },
    )


def embedded(rng, dtype):
    """Rows of a table, and a block of attention over them."""
    p, block, _ = attention(rng, dtype)
    p = {**p, **weights(rng, dtype, table=(11, 8))}
    return (
        p,
        lambda tokens: block(p["table"][tokens]),
        lambda n: {"tokens": rng.integers(0, 11, (n, 5))},
    )


def kinks(rng, dtype):
    """Operations whose gradient is not TensorFlow's own, at ties and at zero, along the batch."""
    p = weights(rng, dtype, w=(3,))

    def model(x):
        parts = [
            np.maximum(x, 0.0) * p["w"],
            np.abs(x).max(axis=0, keepdims=True) + x,
            x - x.mean(axis=0),
            np.exp2(x) * np.cosh(x) + np.expm1(x),
            np.cumsum(x, axis=0) + np.prod(x * 0.1 + 1.0, axis=1, keepdims=True),
            x[::-1] * p["w"] + x[-1],
            np.concatenate([x[1:], x[:1]]),
            np.linalg.norm(x, axis=1, keepdims=True) + np.hypot(x, p["w"]),
            np.broadcast_to(p["w"], x.shape) ** 2 + x[:, [2, 0, 0]],
            np.stack([x, x * 2.0]).sum(axis=0) + np.einsum("ij,kj->i", x, x)[:, None],
        ]
        return sum(parts[1:], parts[0])

    def batch(n):
        x = rng.integers(-2, 3, (n, 3)).astype(dtype)
        x[0] = 0.0
        return {"x": x}

    return p, model, batch
