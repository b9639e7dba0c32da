"""The programs that loop, with `tg.scan` in place of the loop: one entry of the tape.

Each takes the program's module, whose function for one turn it uses as it is: a turn needs NumPy
alone, only the loop around it is tapegraph's.
"""

from __future__ import annotations

import numpy as np

import tapegraph as tg

__all__ = ["SCANS"]


def kalman_filter(module, positions, log_process_noise, log_sensor_noise):
    noises = module.noise(log_process_noise, log_sensor_noise)

    def turn(belief, position):
        state, covariance, likelihood = module.track(*belief, position, *noises)
        return (state, covariance), likelihood

    _, likelihoods = tg.scan(turn, (np.zeros(2), np.eye(2)), positions)
    return np.sum(likelihoods)


def spring_mass(module, start, stiffness, damping):
    def turn(chain, _):
        return module.move(*chain, stiffness, damping), None

    (position, _), _ = tg.scan(turn, (start, np.zeros_like(start)), length=module.STEPS)
    return position


SCANS = {"kalman_filter": kalman_filter, "spring_mass": spring_mass}
