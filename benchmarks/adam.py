"""Adam by hand, for the libraries that bring none: PyTorch's formulas and defaults.

Each function takes the problem and ``loss(*weights, *data)`` in the library's own operations.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.protocol import ADAM_DECAY, Problem, Trainer
from benchmarks.trainers import Loss

BETA1, BETA2, EPS = ADAM_DECAY, 0.999, 1e-8


def jax(problem: Problem, loss: Loss) -> Trainer:
    import jax
    import jax.numpy as jnp
    import numpy as np

    weights = [jnp.array(w) for w in problem.weights]
    slots = [(jnp.zeros_like(w), jnp.zeros_like(w)) for w in weights]
    powers = jnp.ones(2)
    data = [jnp.array(a) for a in problem.data]

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def update(weights: list[Any], slots: list[Any], powers: Any, *data: Any) -> Any:
        value, grads = jax.value_and_grad(lambda weights: loss(*weights, *data))(weights)
        powers = powers * jnp.array([BETA1, BETA2])
        rate, root = problem.rate / (1 - powers[0]), jnp.sqrt(1 - powers[1])
        updated = []
        for i, (w, g) in enumerate(zip(weights, grads, strict=True)):
            mean = BETA1 * slots[i][0] + (1 - BETA1) * g
            square = BETA2 * slots[i][1] + (1 - BETA2) * g * g
            scale = jnp.sqrt(square) / root.astype(w.dtype) + EPS
            updated.append((w - rate.astype(w.dtype) * mean / scale, (mean, square)))
        return [w for w, _ in updated], [s for _, s in updated], powers, value

    def step() -> float:
        nonlocal weights, slots, powers
        weights, slots, powers, value = update(weights, slots, powers, *data)
        return float(value)

    return Trainer(step, lambda: [np.array(mean) for mean, _ in slots])


def tf_function(problem: Problem, loss: Loss, *, xla: bool) -> Trainer:
    import tensorflow as tf

    weights = [tf.Variable(w) for w in problem.weights]
    means, squares = ([tf.Variable(tf.zeros_like(w)) for w in weights] for _ in range(2))
    power1, power2 = (tf.Variable(1.0, dtype=tf.float64) for _ in range(2))
    data = [tf.constant(a) for a in problem.data]

    @tf.function(jit_compile=xla)
    def update(*data: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(*weights, *data)
        grads = tape.gradient(value, weights)
        rate = problem.rate / (1 - power1.assign(power1 * BETA1))
        root = tf.sqrt(1 - power2.assign(power2 * BETA2))
        for w, m, v, grad in zip(weights, means, squares, grads, strict=True):
            g = tf.convert_to_tensor(grad)
            mean = m.assign(BETA1 * m + (1 - BETA1) * g)
            square = v.assign(BETA2 * v + (1 - BETA2) * g * g)
            scale = tf.sqrt(square) / tf.cast(root, w.dtype) + EPS
            w.assign_sub(tf.cast(rate, w.dtype) * mean / scale)
        return value

    return Trainer(lambda: float(update(*data)), lambda: [m.numpy() for m in means])
