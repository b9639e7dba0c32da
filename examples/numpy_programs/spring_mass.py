"""Where a chain of masses on springs is after 100 steps of symplectic Euler."""

import numpy as np

STEPS, TIME_STEP = 100, 0.05


def inputs(rng):
    start = np.arange(5.0) + rng.normal(scale=0.2, size=5)
    stiffness = rng.uniform(2.0, 4.0, size=4)
    damping = np.array(0.3)
    return start, stiffness, damping


def move(position, velocity, stiffness, damping):
    """The chain one step later."""
    pull = stiffness * (np.diff(position) - 1.0)
    force = np.concatenate([pull, [0.0]]) - np.concatenate([[0.0], pull])
    velocity = velocity + TIME_STEP * (force - damping * velocity)
    return position + TIME_STEP * velocity, velocity


def program(start, stiffness, damping):
    position, velocity = start, np.zeros_like(start)
    for _ in range(STEPS):
        position, velocity = move(position, velocity, stiffness, damping)
    return position
