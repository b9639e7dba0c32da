"""Validation error of a ridge regression, as a function of its data and its penalty."""

import numpy as np


def inputs(rng):
    x = rng.normal(size=(14, 3))
    y = x @ np.array([1.0, -2.0, 0.5]) + rng.normal(scale=0.1, size=14)
    log_penalty = np.array(-1.0)
    return x, y, log_penalty


def program(x, y, log_penalty):
    train, held_out = slice(0, 10), slice(10, None)
    gram = x[train].T @ x[train] + np.exp(log_penalty) * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, x[train].T @ y[train])
    return np.mean((x[held_out] @ weights - y[held_out]) ** 2)
