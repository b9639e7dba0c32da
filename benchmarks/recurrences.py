"""Loops inside of a function, to be timed: each is made in a process of its own."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peers
from benchmarks.contenders import Remote, Serving, quiet
from benchmarks.processes import Process
from benchmarks.protocol import Array, Trainer

# A loss in a library's operations, of which ``xp.scan(f, carry, xs, length)`` is one.
Loss = Callable[..., Any]


def rnn(xp: Any) -> Loss:
    """A recurrent network of 64 units, by its two matrices."""

    def loss(wh: Any, wx: Any, h: Any, x: Any) -> Any:
        last = xp.scan(lambda h, row: xp.tanh(h @ wh + row @ wx), h, x, x.shape[0])
        return xp.sum(last * last)

    return loss


def rnn_arrays(steps: int) -> list[Array]:
    """Two matrices, the first state and a batch of 16."""
    rng = np.random.default_rng(0)
    shapes = (64, 64), (64, 64), (16, 64), (steps, 16, 64)
    scales = 0.1, 0.1, 0.0, 1.0
    return [
        (a * rng.normal(size=s)).astype(np.float32) for a, s in zip(scales, shapes, strict=True)
    ]


def wave(xp: Any) -> Loss:
    """A thousand steps of the wave equation from rest, by where it starts."""

    def loss(u: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            u, before = carry
            across, along = (
                xp.roll(u, 1, 0) + xp.roll(u, -1, 0),
                xp.roll(u, 1, 1) + xp.roll(u, -1, 1),
            )
            return 2.0 * u - before + 0.1 * (across + along - 4.0 * u), u

        last, _ = xp.scan(step, (u, u), None, 1000)
        return xp.sum(last * last)

    return loss


def rk4(xp: Any, steps: int = 1000) -> Loss:
    """Steps of Runge and Kutta's for four unknowns, by the matrix and the start."""

    def loss(a: Any, y: Any) -> Any:
        last = _runge_kutta(xp, lambda y: xp.tanh(a @ y) - 0.1 * y, y, steps)
        return xp.sum(last * last)

    return loss


def rk4_by_numbers(xp: Any) -> Loss:
    """A thousand steps for a chain of three reactions, written number by number, by its rates."""

    def loss(k: Any, y: Any) -> Any:
        def slope(y: Any) -> Any:
            first, second, third = k[0] * y[0] * y[1], k[1] * y[1], k[2] * y[2] * y[3]
            return xp.stack([-first, first - second, second - third, third - k[3] * y[3]])

        last = _runge_kutta(xp, slope, y, 1000)
        return xp.sum(last * last)

    return loss


def _runge_kutta(xp: Any, slope: Callable[[Any], Any], y: Any, steps: int) -> Any:
    def step(y: Any, _: Any) -> Any:
        k1 = slope(y)
        k2 = slope(y + 0.005 * k1)
        k3 = slope(y + 0.005 * k2)
        k4 = slope(y + 0.01 * k3)
        return y + (0.01 / 6.0) * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

    return xp.scan(step, y, None, steps)


def leapfrog(xp: Any) -> Loss:
    """Fifty leapfrogs of 200 particles in a potential of fourth order, by where they start."""

    def loss(q: Any, p: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            q, p = carry
            p = p - 0.05 * (q + q * q * q)
            q = q + 0.1 * p
            return q, p - 0.05 * (q + q * q * q)

        q, p = xp.scan(step, (q, p), None, 50)
        return xp.sum(q * q + p * p)

    return loss


def normal(*shapes: tuple[int, ...]) -> list[Array]:
    """Return normal numbers."""
    rng = np.random.default_rng(1)
    return [0.5 * rng.normal(size=shape) for shape in shapes]


of_rk4 = partial(normal, (4, 4), (4, 1))


class Workload(NamedTuple):
    """A loss, what it takes, and by how many of these it is differentiated."""

    loss: Callable[[Any], Loss]
    arrays: Callable[[], list[Array]]
    by: int


WORKLOADS = {
    "rnn 500": Workload(rnn, partial(rnn_arrays, 500), 2),
    "rnn 2,000": Workload(rnn, partial(rnn_arrays, 2000), 2),
    "wave": Workload(wave, partial(normal, (64, 64)), 1),
    "rk4": Workload(rk4, of_rk4, 2),
    "rk4 by numbers": Workload(rk4_by_numbers, partial(normal, (4,), (4,)), 2),
    "leapfrog": Workload(leapfrog, partial(normal, (200, 10), (200, 10)), 2),
}
# What is made with few and with many rounds.
FEW, MANY = 100, 3000
MADE = {
    "rnn": lambda rounds: Workload(rnn, partial(rnn_arrays, rounds), 2),
    "rk4": lambda rounds: Workload(partial(rk4, steps=rounds), of_rk4, 2),
}

# Of each library: a call, which returns the value and the gradients.
Call = Callable[[], "list[Array]"]


def with_tapegraph(work: Workload, *, xla: Any) -> Call:
    import tapegraph as tg

    def scan(f: Any, carry: Any, xs: Any, length: int) -> Any:
        return tg.scan(lambda carry, x: (f(carry, x), None), carry, xs, length)[0]

    loss = work.loss(
        SimpleNamespace(scan=scan, tanh=tg.tanh, sum=tg.sum, roll=np.roll, stack=np.stack)
    )
    step = tg.compile(tg.value_and_grad(loss, tuple(range(work.by))), xla=xla)
    arrays = work.arrays()

    def call() -> list[Array]:
        value, grads = step(*arrays)
        return [np.asarray(value), *grads]

    return call


def with_jax(work: Workload) -> Call:
    import jax
    import jax.numpy as jnp

    def scan(f: Any, carry: Any, xs: Any, length: int) -> Any:
        return jax.lax.scan(lambda carry, x: (f(carry, x), None), carry, xs, length)[0]

    xp = SimpleNamespace(scan=scan, tanh=jnp.tanh, sum=jnp.sum, roll=jnp.roll, stack=jnp.stack)
    loss = work.loss(xp)
    step = jax.jit(jax.value_and_grad(loss, tuple(range(work.by))))
    arrays = list(map(jnp.asarray, work.arrays()))

    def call() -> list[Array]:
        value, grads = step(*arrays)
        return list(map(np.asarray, (value, *grads)))

    return call


def with_tf_function(work: Workload, *, xla: bool) -> Call:
    import tensorflow as tf

    def scan(f: Any, carry: Any, xs: Any, length: int) -> Any:
        def body(i: Any, carry: Any) -> Any:
            return i + 1, f(carry, None if xs is None else tf.gather(xs, i))

        start = tf.constant(0), carry
        return tf.while_loop(lambda i, _: i < length, body, start, maximum_iterations=length)[1]

    xp = SimpleNamespace(scan=scan, tanh=tf.tanh, sum=tf.reduce_sum, roll=tf.roll, stack=tf.stack)
    loss = work.loss(xp)
    arrays = list(map(tf.constant, work.arrays()))

    @tf.function(jit_compile=True if xla else None, autograph=False)
    def step(*arrays: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(arrays[: work.by])
            value = loss(*arrays)
        return value, tape.gradient(value, arrays[: work.by])

    def call() -> list[Array]:
        value, grads = step(*arrays)
        return [value.numpy(), *(g.numpy() for g in grads)]

    return call


def with_torch(work: Workload) -> Call:
    import torch

    def scan(f: Any, carry: Any, xs: Any, length: int) -> Any:
        for i in range(length):
            carry = f(carry, None if xs is None else xs[i])
        return carry

    xp = SimpleNamespace(
        scan=scan, tanh=torch.tanh, sum=torch.sum, roll=torch.roll, stack=torch.stack
    )
    loss = work.loss(xp)
    arrays = list(map(torch.tensor, work.arrays()))
    for leaf in arrays[: work.by]:
        leaf.requires_grad_()

    def call() -> list[Array]:
        value = loss(*arrays)
        grads = torch.autograd.grad(value, arrays[: work.by])
        return [value.detach().numpy(), *(g.numpy() for g in grads)]

    return call


OURS = {
    "tapegraph native": ("native", False),
    "tapegraph tensorflow": ("tensorflow", False),
    "tapegraph tensorflow, xla=True": ("tensorflow", True),
}
THEIRS: dict[str, Callable[[Workload], Call]] = {
    "jax lax.scan": with_jax,
    "tf.function tf.while_loop": partial(with_tf_function, xla=False),
    "tf.function xla, tf.while_loop": partial(with_tf_function, xla=True),
    "torch loop": with_torch,
}


class First(Serving):
    """A contender that says what its first calls took."""

    def first(self) -> float:
        """Return the processor seconds from the start of this process to the end of three calls.

        The third call of a compiled function is the first that a graph or a plan makes.
        """
        self._three()
        return time.process_time()

    def making(self) -> tuple[float, float, int]:
        """Return the processor seconds of three calls, of three later ones, and the peak of memory.

        The peak, in bytes, is that of the first three over what the process took before.
        """
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        first = self._three()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        return first, min(self._three() for _ in range(5)), 1024 * peak

    def _three(self) -> float:
        start = time.process_time()
        for _ in range(3):
            self.step()
        return time.process_time() - start


def serving(workload: str, how: str, rounds: int | None = None) -> First:
    """Import a library and make what runs again and again in this process."""
    quiet()
    work = WORKLOADS[workload] if rounds is None else MADE[workload](rounds)
    if how in OURS:
        import tapegraph as tg

        engine, xla = OURS[how]
        if engine == "tensorflow":
            peers.prepare(1, ("tf.function",))
        tg.set_backend(engine)
        call = with_tapegraph(work, xla=xla)
    else:
        peers.prepare(1, (peers.peer_of(how),))
        call = THEIRS[how](work)
    found: list[Array] = []

    def step() -> float:
        found[:] = call()
        return float(found[0])

    return First(how, partial(Trainer, step, lambda: found))


# In the process that measures


class Timed(Remote):
    """What one such process runs."""

    def __init__(self, workload: str, how: str, rounds: int | None = None) -> None:
        self.name = how
        self._process = Process(f"{__name__}:serving", workload, how, rounds)

    def first(self) -> float:
        """Return the seconds that importing and the first three calls take."""
        return self._process.ask("first")  # type: ignore[no-any-return]

    def making(self) -> tuple[float, float, int]:
        """Return the seconds of three calls, of three later ones, and the peak of memory."""
        return self._process.ask("making")  # type: ignore[no-any-return]


def contest(name: str, rounds: int) -> list[list[str]]:
    """Return a table of everybody who is installed: they agree first, and then take turns."""
    from benchmarks.protocol import ratio, spread, time_in_turns
    from benchmarks.report import quoted, significant
    from benchmarks.scans import check

    without = peers.missing("tf.function")
    ours = [how for how in OURS if not (without and "tensorflow" in how)]
    theirs = [how for how in THEIRS if not peers.missing(peers.peer_of(how))]
    every: dict[str, Timed] = {}
    try:
        for how in (*ours, *theirs):
            every[how] = Timed(name, how)
        firsts = {how: one.first() for how, one in every.items()}
        check(every)
        turns = time_in_turns(list(every.values()), rounds=rounds, warmups=2)
    finally:
        for one in every.values():
            one.end()
    seconds = {how: [turn.cpu for turn in turns[how]] for how in every}
    rows = [[name, "first calls, s", "ms a call", *(f"{how} ÷ this" for how in ours)]]
    for how in every:
        ratios = [quoted(ratio(seconds[one], seconds[how])) for one in ours]
        compared = ratios if how in theirs else [""] * len(ours)
        call = significant(1e3 * spread(seconds[how]).median)
        rows.append([how, significant(firsts[how]), call, *compared])
    return rows


def making(name: str) -> list[list[str]]:
    """Return a table of what the first three calls take, with few rounds and with many."""
    from benchmarks.report import significant

    without = peers.missing("tf.function")
    every = [*(how for how in OURS if not (without and "tensorflow" in how)), "jax lax.scan"]
    head = [f"{name}: first three calls, s", "less three warm ones", "peak, MB"]
    rows = [["", *(f"{of}, {n:,} rounds" for of in head for n in (FEW, MANY))]]
    for how in every:
        if how in THEIRS and peers.missing(peers.peer_of(how)):
            continue
        found = []
        for rounds in (FEW, MANY):
            one = Timed(name, how, rounds)
            first, warm, peak = one.making()
            one.end()
            found.append((first, max(first - warm, 0.0), peak / 1e6))
        rows.append([how, *(significant(x) for pair in zip(*found, strict=True) for x in pair)])
    return rows


def main(rounds: int) -> int:
    """Print a table a workload, as Markdown; return an exit status."""
    from benchmarks.report import as_markdown

    tables = [partial(contest, name, rounds) for name in WORKLOADS]
    for table in (*tables, *(partial(making, name) for name in MADE)):
        print("\n".join(as_markdown(table())), end="\n\n", flush=True)
    return 0
