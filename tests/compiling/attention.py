"""A step that trains a block of attention: products, softmax, normalisation, gelu, a rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tapegraph as tg


def attention(dtype: Any, optimizer: Callable[..., Any]) -> tuple[Any, list[Any]]:
    """Return what makes a step and its state, and the arguments of five calls."""
    rng = np.random.default_rng(0)
    shapes = [(64, 64), (64, 64), (64, 64), (64, 256), (256,), (256, 64), (64,), (64,)]
    start = [rng.normal(0, 0.1, shape).astype(dtype) for shape in shapes]

    def make():
        params = [tg.param(w) for w in start]
        update = optimizer(params)
        q, k, v, w1, c1, w2, gain, bias = params

        def step(x, target, past):
            h = tg.layer_norm(x, gain, bias)
            scores = (h @ q) @ (h @ k).transpose(0, 2, 1) * 0.125
            h = x + tg.softmax(tg.where(past, scores, -1e9)) @ (h @ v)
            centred = h - tg.mean(h, axis=-1, keepdims=True)
            spread = tg.sqrt(tg.mean(centred * centred, axis=-1, keepdims=True) + 1e-5)
            h = h + tg.gelu(centred / spread @ w1 + c1) @ w2
            update.zero_grad()
            loss = tg.mean((h - target) ** 2)
            loss.backward()
            update.step()
            return loss, h

        return step, [*params, update]

    def batch():
        x, target = rng.normal(size=(2, 32, 64, 64)).astype(dtype)
        return x, target, np.tril(np.ones((64, 64), bool))

    return make, [batch() for _ in range(5)]
