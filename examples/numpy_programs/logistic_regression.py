"""Penalised negative log-likelihood of a logistic regression, without overflow."""

import numpy as np


def inputs(rng):
    x = rng.normal(size=(20, 3))
    sign = rng.choice([-1.0, 1.0], size=20)
    return x, sign, rng.normal(size=3), np.array(0.2)


def program(x, sign, weights, intercept):
    margin = sign * (np.dot(x, weights) + intercept)
    return np.mean(np.logaddexp(0.0, -margin)) + 0.01 * np.inner(weights, weights)
