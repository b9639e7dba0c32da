"""Log-likelihood of points under a mixture of Gaussians with diagonal covariances."""

import numpy as np


def inputs(rng):
    points = rng.normal(size=(12, 2)) + rng.choice([-2.0, 2.0], size=(12, 1))
    weight_logits = rng.normal(size=3)
    means = rng.normal(size=(3, 2))
    log_scales = rng.normal(scale=0.3, size=(3, 2))
    return points, weight_logits, means, log_scales


def logsumexp(x, axis):
    top = np.max(x, axis=axis, keepdims=True)
    return np.squeeze(top, axis) + np.log(np.sum(np.exp(x - top), axis=axis))


def program(points, weight_logits, means, log_scales):
    log_weights = weight_logits - logsumexp(weight_logits, axis=0)
    z = (points[:, np.newaxis, :] - means) / np.exp(log_scales)
    log_density = -0.5 * np.sum(z**2 + 2 * log_scales + np.log(2 * np.pi), axis=-1)
    return np.sum(logsumexp(log_weights + log_density, axis=1))
