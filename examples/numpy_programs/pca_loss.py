"""What a principal component analysis with two components loses of its data."""

import numpy as np


def inputs(rng):
    return (rng.normal(size=(9, 4)) * np.array([4.0, 2.5, 1.0, 0.5]),)


def program(x):
    centred = x - np.mean(x, axis=0)
    _, singular_values, components = np.linalg.svd(centred, full_matrices=False)
    kept = components[:2]
    lost = np.mean((centred - centred @ kept.T @ kept) ** 4)
    explained = np.sum(singular_values[:2] ** 2) / np.sum(singular_values**2)
    return lost - np.log(explained)
