"""Functions of batches of any size, whose lengths follow the batch in many ways."""

from __future__ import annotations

import numpy as np

import tapegraph as tg

RNG = np.random.default_rng(0)
W = tg.param(RNG.normal(size=(4, 3)), name="W")
EYE = np.eye(3)

# Functions of floats of shape (n, 4), and of classes from 0 to 2.
PROGRAMS = {
    "max-along-the-batch": lambda x, y: np.max(x @ W, axis=0) + np.min(x),
    "prod-along-the-batch": lambda x, y: np.prod(x @ W, axis=0),
    "mean-along-the-batch": lambda x, y: np.mean(x @ W, axis=0, keepdims=True) - x @ W,
    "logsumexp": lambda x, y: tg.special.logsumexp(x @ W, axis=0),
    "cumsum-along-the-batch": lambda x, y: np.cumsum(x @ W, axis=0),
    "cumprod": lambda x, y: np.cumprod(x @ W, axis=1),
    "var": lambda x, y: np.var(x @ W, axis=1),
    "sort-along-the-batch": lambda x, y: np.sort(x @ W, axis=0),
    "sort": lambda x, y: np.sort(x @ W, axis=1),
    "take-along-axis": lambda x, y: np.take_along_axis(x @ W, y[:, None], axis=1),
    "one-of-each-row": lambda x, y: (x @ W)[np.arange(len(x)), y],
    "rows-of-a-table": lambda x, y: W[y] + tg.gather(W, y),
    "elements-of-a-table": lambda x, y: W[y, y],
    "columns-of-a-table": lambda x, y: W[:, y],
    "last-row": lambda x, y: (x @ W)[-1],
    "backwards": lambda x, y: (x @ W)[::-1],
    "columns": lambda x, y: (x @ W)[:, :2] * x[:, 1:3] + x[:, -1:],
    "repeat": lambda x, y: np.repeat(x @ W, 2, axis=0),
    "tile": lambda x, y: np.tile(x @ W, (2, 1)),
    "pad": lambda x, y: np.pad(x @ W, ((1, 1), (0, 0))),
    "roll": lambda x, y: np.roll(x @ W, 1, axis=0),
    "split": lambda x, y: np.split(x @ W, 3, axis=1)[1],
    "concat": lambda x, y: np.concatenate([x @ W, W, x @ W]),
    "stack": lambda x, y: np.stack([x @ W, x @ W * 2.0], axis=1),
    "ravel": lambda x, y: np.ravel(x @ W),
    "transpose": lambda x, y: (x @ W).T,
    "pairs": lambda x, y: np.exp(-(((x @ W)[:, None] - (x @ W)[None]) ** 2).sum(axis=-1)),
    "broadcast": lambda x, y: np.broadcast_to(W[0], (len(x), 3)) * x[:, :1],
    "equal-rows": lambda x, y: (
        (x @ W) * np.full((len(x), 3), -0.5) + (y + np.ones(len(y), int))[:, None]
    ),
    "equal-rows-and-columns": lambda x, y: np.full((len(x), len(x)), 3.0) @ (x @ W),
    "maximum": lambda x, y: np.maximum(x @ W, W[0]),
    "where": lambda x, y: np.where(x @ W > 0, x @ W, -1.0),
    "clip": lambda x, y: np.clip(x @ W, -0.1, 0.1),
    "by-slopes": lambda x, y: np.hypot(x @ W, W[0]) + np.exp2(x @ W),
    "gelu": lambda x, y: tg.gelu(x @ W) + tg.special.erf(x @ W),
    "softmax-along-the-batch": lambda x, y: tg.softmax(x @ W, axis=0),
    "crossentropy": lambda x, y: tg.softmax_crossentropy(x @ W, y),
    "mse": lambda x, y: tg.mse_loss(x @ W, x[:, :3]),
    "products": lambda x, y: np.einsum("ij,jk,lk->il", x, W, W) + (x @ W) @ (x @ W).T @ x,
    "vectors": lambda x, y: x[:, 0] @ (x @ W),
    "outer": lambda x, y: np.outer(x[:, 0], x[:, 1]) * W[0, 0],
    "matrices": lambda x, y: np.linalg.inv((x @ W)[:, :, None] * EYE * 0.1 + EYE),
    "outputs": lambda x, y: np.stack(np.linalg.slogdet((x @ W)[:, :, None] * EYE + EYE), axis=1),
    "determinants": lambda x, y: np.linalg.det((x @ W)[:, :, None] * EYE + EYE),
    "solve": lambda x, y: np.linalg.solve(x.T @ x + np.eye(4), x.T @ (x @ W)),
    "norm": lambda x, y: np.linalg.norm(x @ W, axis=1) + np.linalg.norm(x @ W),
    "layer-norm": lambda x, y: tg.layer_norm(x @ W, W[0], W[1]),
    "checkpoint": lambda x, y: tg.checkpoint(lambda z: tg.tanh(z @ W))(x),
    "dilated-convolution": lambda x, y: tg.conv2d(
        tg.reshape(x, (len(x), 1, 2, 2)), tg.reshape(W, (3, 1, 2, 2)), pad=1, dilation=2
    ),
    "pooling": lambda x, y: tg.avg_pool2d(tg.reshape(x * W[0, 0], (-1, 1, 2, 2)), 2, pad=1),
}
