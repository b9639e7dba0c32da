"""What a principal component analysis with two components loses of its data."""

import numpy as np


def inputs(rng):
    return (rng.normal(size=(9, 4)) * np.array([4.0, 2.5, 1.0, 0.5]),)


def program(x):
    centred = x - np.mean(x, axis=0)
    squares = np.linalg.svd(centred, compute_uv=False) ** 2
    # The best two components leave out the other singular values (Eckart and Young, 1936).
    lost = np.sum(squares[2:]) / x.shape[0]
    return lost - np.log(np.sum(squares[:2]) / np.sum(squares))
