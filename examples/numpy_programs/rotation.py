"""How well a rotation about an axis lays one cloud of points on another, by einsum."""

import numpy as np

# The sign of the permutation (i, j, k), 0 where two are equal.
LEVI_CIVITA = np.zeros((3, 3, 3))
LEVI_CIVITA[[0, 1, 2], [1, 2, 0], [2, 0, 1]] = 1.0
LEVI_CIVITA[[0, 1, 2], [2, 0, 1], [1, 2, 0]] = -1.0


def inputs(rng):
    return np.array([0.3, -0.5, 0.8]), rng.normal(size=(7, 3)), rng.normal(size=(7, 3))


def rotation(vector):
    """Rodrigues' formula: the matrix that turns about a vector, by its length in radians."""
    angle = np.sqrt(np.einsum("i,i->", vector, vector))
    axis = vector / angle
    cross = np.einsum("ikj,k->ij", LEVI_CIVITA, axis)
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def program(vector, points, targets):
    turned = np.einsum("ij,nj->ni", rotation(vector), points)
    return np.einsum("ni,ni->", turned - targets, turned - targets) / len(points)
