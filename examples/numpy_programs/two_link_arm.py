"""How far the hand of a two-link arm stays from its targets, given the angles of its joints."""

import numpy as np


def inputs(rng):
    angles = rng.uniform(0.2, 1.2, size=(6, 2))
    lengths = np.array([1.0, 0.7])
    targets = rng.uniform(0.5, 1.5, size=(6, 2))
    return angles, lengths, targets


def hand(angles, lengths):
    heading = np.cumsum(angles, axis=1)
    links = np.stack([np.cos(heading), np.sin(heading)], axis=-1) * lengths[:, None]
    return np.sum(links, axis=1)


def program(angles, lengths, targets):
    miss = np.linalg.norm(hand(angles, lengths) - targets, axis=1)
    turn = np.diff(angles, axis=0)
    return np.mean(miss) + 0.1 * np.sum(np.square(turn))
