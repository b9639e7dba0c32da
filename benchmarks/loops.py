"""Many steps in one call, to be timed: each contender is made in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peers
from benchmarks.contenders import Remote, Serving, quiet
from benchmarks.processes import Process
from benchmarks.protocol import Array, Problem, Trainer
from benchmarks.workloads import tiny

Loss = Callable[..., Any]

# A workload's data have a row for each step of a call.


def tiny_problem() -> Problem:
    """The chain of `tiny`, 200 steps a call."""
    problem = tiny.problem()
    rows = np.random.default_rng(1).normal(1, 0.1, (200, 4, 4))
    return Problem(problem.weights, [rows], problem.rate)


def tiny_loss(xp: Any) -> Loss:
    """The chain in a library's operations."""

    def loss(scale, shift, h):
        for _ in range(tiny.OPS // 3):
            h = xp.tanh(h * scale + shift)
        return xp.sum(h)

    return loss


def digits_problem() -> Problem:
    """The network of `examples/digits.py`, an epoch of 44 batches of 32 a call."""
    rng, widths = np.random.default_rng(0), (64, 128, 64, 10)
    weights = []
    for n, m in zip(widths, widths[1:], strict=False):
        weights.append(rng.normal(0, (2 / n) ** 0.5, (n, m)).astype(np.float32))
        weights.append(np.zeros(m, np.float32))
    images = rng.random((44, 32, widths[0]), np.float32)
    return Problem(weights, [images, rng.integers(0, 10, (44, 32))], rate=2**-6)


def digits_loss(xp: Any) -> Loss:
    """The mean cross-entropy."""

    def loss(w1, b1, w2, b2, w3, b3, x, labels):
        h = xp.relu(x @ w1 + b1)
        h = xp.relu(h @ w2 + b2)
        return xp.crossentropy(h @ w3 + b3, labels)

    return loss


class Workload(NamedTuple):
    """What is trained."""

    problem: Callable[[], Problem]
    loss: Callable[[Any], Loss]


WORKLOADS = {
    "tiny by scan": Workload(tiny_problem, tiny_loss),
    "digits' network by scan": Workload(digits_problem, digits_loss),
}

# Of each library: a call, which returns the losses of its steps, and what it has trained.


def with_tapegraph(problem: Problem, loss: Callable[[Any], Loss], *, xla: bool | None) -> Any:
    import tapegraph as tg

    function = loss(
        SimpleNamespace(
            tanh=tg.tanh, sum=tg.sum, relu=tg.relu, crossentropy=tg.softmax_crossentropy
        )
    )
    weights = [tg.param(w) for w in problem.weights]
    optimizer = tg.SGD(weights, lr=problem.rate)

    @tg.compile(xla=xla)
    def step(*data: Any) -> Any:
        optimizer.zero_grad()
        value = function(*weights, *data)
        value.backward()
        optimizer.step()
        return value

    return lambda: step.scan(*problem.data).numpy(), lambda: [w.numpy() for w in weights]


def with_jax(problem: Problem, loss: Callable[[Any], Loss]) -> Any:
    import jax
    import jax.numpy as jnp

    def crossentropy(logits, labels):
        return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1))

    function = loss(
        SimpleNamespace(tanh=jnp.tanh, sum=jnp.sum, relu=jax.nn.relu, crossentropy=crossentropy)
    )
    weights = [jnp.array(w) for w in problem.weights]
    data = [jnp.array(a) for a in problem.data]

    def step(weights: Any, rows: Any) -> Any:
        value, grads = jax.value_and_grad(lambda weights: function(*weights, *rows))(weights)
        return [w - problem.rate * g for w, g in zip(weights, grads, strict=True)], value

    @partial(jax.jit, donate_argnums=0)
    def epoch(weights: Any, *data: Any) -> Any:
        return jax.lax.scan(step, weights, data)

    def call() -> Array:
        nonlocal weights
        weights, losses = epoch(weights, *data)
        return np.asarray(losses)

    return call, lambda: [np.array(w) for w in weights]


def with_tf_function(problem: Problem, loss: Callable[[Any], Loss]) -> Any:
    import tensorflow as tf

    def crossentropy(logits, labels):
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return tf.reduce_mean(losses)

    function = loss(
        SimpleNamespace(tanh=tf.tanh, sum=tf.reduce_sum, relu=tf.nn.relu, crossentropy=crossentropy)
    )
    weights = [tf.Variable(w) for w in problem.weights]
    data = [tf.constant(a) for a in problem.data]
    steps = len(problem.data[0])

    @tf.function(jit_compile=True)
    def epoch(*data: Any) -> Any:
        def body(i: Any, weights: Any, losses: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(weights)
                value = function(*weights, *(tf.gather(rows, i) for rows in data))
            grads = tape.gradient(value, weights)
            weights = [w - problem.rate * g for w, g in zip(weights, grads, strict=True)]
            return i + 1, weights, losses.write(i, value)

        losses = tf.TensorArray(weights[0].dtype, steps, element_shape=())
        start = tf.constant(0), [w.read_value() for w in weights], losses
        _, trained, losses = tf.while_loop(
            lambda i, *_: i < steps, body, start, maximum_iterations=steps
        )
        for w, new in zip(weights, trained, strict=True):
            w.assign(new)
        return losses.stack()

    return lambda: epoch(*data).numpy(), lambda: [w.numpy() for w in weights]


def with_torch(problem: Problem, loss: Callable[[Any], Loss]) -> Any:
    import torch
    from torch.nn.functional import cross_entropy

    function = loss(
        SimpleNamespace(tanh=torch.tanh, sum=torch.sum, relu=torch.relu, crossentropy=cross_entropy)
    )
    weights = [torch.tensor(w, requires_grad=True) for w in problem.weights]
    data = [torch.tensor(a) for a in problem.data]
    optimizer = torch.optim.SGD(weights, lr=problem.rate)

    def epoch() -> Array:
        losses = []
        for rows in zip(*data, strict=True):
            optimizer.zero_grad()
            value = function(*weights, *rows)
            value.backward()
            optimizer.step()
            losses.append(value.item())
        return np.array(losses)

    return epoch, lambda: [w.detach().numpy() for w in weights]


def with_autograd(problem: Problem, loss: Callable[[Any], Loss]) -> Any:
    import autograd.numpy as anp
    from autograd import value_and_grad
    from autograd.scipy.special import logsumexp

    def crossentropy(logits, labels):
        return anp.mean(logsumexp(logits, axis=1) - logits[np.arange(len(labels)), labels])

    function = loss(
        SimpleNamespace(
            tanh=anp.tanh,
            sum=anp.sum,
            relu=lambda x: anp.maximum(x, 0),
            crossentropy=crossentropy,
        )
    )
    weights = [w.copy() for w in problem.weights]
    of_step = value_and_grad(lambda weights, rows: function(*weights, *rows))

    def epoch() -> Array:
        losses = []
        for rows in zip(*problem.data, strict=True):
            value, grads = of_step(weights, rows)
            for w, g in zip(weights, grads, strict=True):
                w -= problem.rate * g
            losses.append(value)
        return np.array(losses)

    return epoch, lambda: weights


OURS = {
    "tapegraph native": ("native", False),
    "tapegraph tensorflow": ("tensorflow", None),
    "tapegraph tensorflow, xla=True": ("tensorflow", True),
}
THEIRS = {
    "jax lax.scan": with_jax,
    "tf.function xla, tf.while_loop": with_tf_function,
    "torch loop": with_torch,
    "autograd loop": with_autograd,
}


class Loops(Serving):
    """A contender of which a step is a call of many."""

    def first(self) -> float:
        """Return the processor seconds from the start of this process to the end of a call."""
        self.step()
        return time.process_time()


def serving(workload: str, how: str) -> Loops:
    """Import a library and make what runs again and again in this process."""
    quiet()
    problem, loss = WORKLOADS[workload].problem(), WORKLOADS[workload].loss
    if how in OURS:
        import tapegraph as tg

        engine, xla = OURS[how]
        if engine == "tensorflow":
            peers.prepare(1, ("tf.function",))
        tg.set_backend(engine)
        make: Any = partial(with_tapegraph, xla=xla)
    else:
        peers.prepare(1, (peers.peer_of(how),))
        make = THEIRS[how]
    call, weights = make(problem, loss)
    losses: list[Array] = []

    def step() -> float:
        losses[:] = [call()]
        return float(losses[0][-1])

    return Loops(how, lambda: Trainer(step, lambda: [*losses, *weights()]))


# In the process that measures


class Timed(Remote):
    """What one such process runs."""

    def __init__(self, workload: str, how: str) -> None:
        self.name = how
        self._process = Process(f"{__name__}:serving", workload, how)

    def first(self) -> float:
        """Return the seconds that importing, compiling and a call take."""
        return self._process.ask("first")  # type: ignore[no-any-return]
