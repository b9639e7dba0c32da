"""Log-likelihood of noisy positions under a Kalman filter that tracks position and velocity."""

import numpy as np

STEP = 0.5
MOTION = np.array([[1.0, STEP], [0.0, 1.0]])
SENSOR = np.array([[1.0, 0.0]])


def inputs(rng):
    positions = np.cumsum(rng.normal(loc=0.4, scale=0.2, size=8)) + rng.normal(scale=0.1, size=8)
    log_process_noise = np.array([-2.0, -1.5])
    log_sensor_noise = np.array(-2.0)
    return positions, log_process_noise, log_sensor_noise


def noise(log_process_noise, log_sensor_noise):
    return np.diag(np.exp(log_process_noise)), np.exp(log_sensor_noise) * np.eye(1)


def track(state, covariance, position, process_noise, sensor_noise):
    """State and covariance after one more position, and its log-likelihood."""
    state = MOTION @ state
    covariance = MOTION @ covariance @ MOTION.T + process_noise

    surprise = position - SENSOR @ state
    spread = SENSOR @ covariance @ SENSOR.T + sensor_noise
    gain = np.linalg.solve(spread, SENSOR @ covariance).T
    state = state + gain @ surprise
    covariance = (np.eye(2) - gain @ SENSOR) @ covariance

    log_det = np.linalg.slogdet(spread)[1]
    mahalanobis = np.dot(surprise, np.linalg.solve(spread, surprise))
    return state, covariance, -0.5 * (mahalanobis + log_det + np.log(2 * np.pi))


def program(positions, log_process_noise, log_sensor_noise):
    noises = noise(log_process_noise, log_sensor_noise)
    state, covariance = np.zeros(2), np.eye(2)
    total = 0.0
    for position in positions:
        state, covariance, likelihood = track(state, covariance, position, *noises)
        total = total + likelihood
    return total
