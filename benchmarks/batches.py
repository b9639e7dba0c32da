"""Many examples at once: `tg.vmap` beside JAX's, PyTorch's and the loop that it replaces.

    python -m benchmarks --only batches [--rounds 15]

Contenders agree first; they are in processes of their own, with one thread, and take turns.
Printed is the median over rounds of a contender's processor time for a call, and of ours, compiled
natively, over each other's with the quartiles, as Markdown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from benchmarks import peers
from benchmarks.contenders import Remote, Serving, quiet
from benchmarks.processes import Process
from benchmarks.protocol import (
    TOLERANCE,
    Array,
    Disagreement,
    Trainer,
    ratio,
    spread,
    time_in_turns,
)
from benchmarks.report import as_markdown, quoted, significant

OURS = "tapegraph compiled"
SETTLING_SECONDS = 0.5


class Workload(NamedTuple):
    """What runs on many examples.

    :ivar arrays: What a call takes.
    :ivar function: Of a library's functions and transforms, what a call runs.
    """

    arrays: Callable[[np.random.Generator], list[Array]]
    function: Callable[[Any], Callable[..., Any]]


def perceptron_arrays(rng: np.random.Generator) -> list[Array]:
    weights = [rng.normal(0, 0.05, (784, 128)), np.zeros(128), rng.normal(0, 0.1, (128, 10))]
    arrays = [
        *weights,
        np.zeros(10),
        rng.random((128, 784)),
        np.eye(10)[rng.integers(10, size=128)],
    ]
    return [x.astype(np.float32) for x in arrays]


def perceptron(xp: Any) -> Callable[..., Any]:
    def loss(w, b, v, c, x, target):
        scores = xp.tanh(x @ w + b) @ v + c
        return xp.logsumexp(scores) - xp.sum(scores * target)

    return xp.vmap(xp.grad(loss, (0, 1, 2, 3)), (None, None, None, None, 0, 0))


def ensemble_arrays(rng: np.random.Generator) -> list[Array]:
    shapes = ((50, 8, 32), (50, 32), (50, 32, 1), (50, 1), (64, 8), (64, 1))
    return [rng.normal(0, 0.5, shape).astype(np.float32) for shape in shapes]


def ensemble(xp: Any) -> Callable[..., Any]:
    def loss(w, b, v, c, x, y):
        return xp.mean((xp.tanh(x @ w + b) @ v + c - y) ** 2)

    return xp.vmap(xp.grad(loss, (0, 1, 2, 3)), (0, 0, 0, 0, None, None))


def kernel(xp: Any) -> Callable[..., Any]:
    def of(a, b):
        return xp.exp(-xp.sum((a - b) ** 2))

    return xp.vmap(xp.vmap(of, (None, 0)), (0, None))


def newton(xp: Any) -> Callable[..., Any]:
    def system(z):
        return z**3 + 0.5 * z[::-1] - 1.0 if xp.name != "torch" else z**3 + 0.5 * z.flip(0) - 1.0

    return xp.vmap(lambda z: z - xp.solve(xp.jacobian(system)(z), system(z)), (0,))


def rows(xp: Any) -> Callable[..., Any]:
    return lambda x, w, v: xp.jacobian(lambda x: xp.tanh(v @ xp.tanh(w @ x)))(x)


WORKLOADS = {
    "gradients of 128 examples, 784-128-10": Workload(perceptron_arrays, perceptron),
    "gradients of 50 networks, 8-32-1": Workload(ensemble_arrays, ensemble),
    "kernel matrix, 200x200": Workload(lambda rng: [rng.random((200, 4))] * 2, kernel),
    "Newton's step for 500 systems of 6": Workload(
        lambda rng: [1.0 + 0.1 * rng.random((500, 6))], newton
    ),
    "Jacobian, R^100 to R^500": Workload(
        lambda rng: [rng.normal(0, 0.1, n) for n in (100, (300, 100), (500, 300))], rows
    ),
}


# Of each library: what a call of a function of some arrays is, which returns arrays


def with_tapegraph(workload: Workload, arrays: list[Array], how: str) -> Callable[[], Any]:
    import tapegraph as tg

    def loop(f: Any, axes: Any) -> Any:
        """Return what `vmap` stands for."""

        def run(*xs: Any) -> Any:
            sizes = (len(x) for x, axis in zip(xs, axes, strict=True) if axis is not None)
            found = [
                f(*(x if axis is None else x[i] for x, axis in zip(xs, axes, strict=True)))
                for i in range(next(sizes))
            ]
            if isinstance(found[0], tuple):
                return tuple(np.stack(part) for part in zip(*found, strict=True))
            return np.stack(found)

        return run

    xp = SimpleNamespace(
        name="tapegraph",
        vmap=loop if how == "loop" else tg.vmap,
        grad=tg.grad,
        jacobian=tg.jacobian,
        solve=np.linalg.solve,
        logsumexp=tg.logsumexp,
        **{name: getattr(np, name) for name in ("tanh", "exp", "sum", "mean")},
    )
    function = workload.function(xp)
    if how == "compiled":
        function = tg.compile(function)
    return partial(function, *arrays)


def with_jax(workload: Workload, arrays: list[Array], how: str) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    xp = SimpleNamespace(
        name="jax",
        vmap=jax.vmap,
        grad=jax.grad,
        jacobian=jax.jacfwd,  # the quicker way in all of these
        solve=jnp.linalg.solve,
        logsumexp=jax.nn.logsumexp,
        **{name: getattr(jnp, name) for name in ("tanh", "exp", "sum", "mean")},
    )
    function = jax.jit(workload.function(xp))
    given = [jnp.array(x) for x in arrays]
    return lambda: jax.block_until_ready(function(*given))


def with_torch(workload: Workload, arrays: list[Array], how: str) -> Callable[[], Any]:
    import torch
    from torch import func

    xp = SimpleNamespace(
        name="torch",
        vmap=func.vmap,
        grad=func.grad,
        jacobian=func.jacfwd,
        solve=torch.linalg.solve,
        logsumexp=lambda x: torch.logsumexp(x, 0),
        **{name: getattr(torch, name) for name in ("tanh", "exp", "sum", "mean")},
    )
    function = workload.function(xp)
    return partial(function, *map(torch.tensor, arrays))


CONTENDERS: dict[str, Callable[..., Callable[[], Any]]] = {
    OURS: with_tapegraph,
    "tapegraph eager": with_tapegraph,
    "tapegraph loop": with_tapegraph,
    "jax jit": with_jax,
    "torch func": with_torch,
}


def serving(workload: str, name: str) -> Serving:
    """Import a library and make what runs again and again in this process."""
    quiet()
    library, how = name.split()
    if library == "tapegraph":
        import tapegraph as tg

        tg.set_backend("native")
    else:
        peers.prepare(1, (library,))
    chosen = WORKLOADS[workload]
    call = CONTENDERS[name](chosen, chosen.arrays(np.random.default_rng(0)), how)
    found: list[Any] = []

    def step() -> float:
        found[:] = [call()]
        return 0.0

    def state() -> list[Array]:
        (results,) = found
        return [np.asarray(x) for x in (results if isinstance(results, tuple) else (results,))]

    return Serving(name, lambda: Trainer(step, state), settling_seconds=SETTLING_SECONDS)


# In the process that measures


class Timed(Remote):
    """What one such process runs."""

    def __init__(self, workload: str, name: str) -> None:
        self.name = name
        self._process = Process(f"{__name__}:serving", workload, name)


def contest(workload: str, rounds: int) -> list[str]:
    """Return a table of everybody who is installed, as Markdown."""
    present = [
        name
        for name in CONTENDERS
        if name.startswith("tapegraph") or not peers.missing(peers.peer_of(name))
    ]
    every = [Timed(workload, name) for name in present]
    try:
        check(every)
        turns = time_in_turns(every, rounds=rounds, warmups=1)
    finally:
        for one in every:
            one.end()
    seconds = {name: [turn.cpu for turn in taken] for name, taken in turns.items()}
    table = [[workload, "ms a call", f"{OURS}, times as fast"]]
    for name in present:
        compared = "" if name == OURS else quoted(ratio(seconds[name], seconds[OURS]))
        table.append([name, significant(1e3 * spread(seconds[name]).median), compared])
    return as_markdown(table)


def check(every: list[Any]) -> None:
    """Raise unless all results agree, of the third call too."""
    for one in every:
        for _ in range(3):
            one.step()
    first, *others = every
    for other in others:
        for mine, its in zip(first.state(), other.state(), strict=True):
            error, scale = np.abs(mine - its).max(), np.abs(its).max()
            if not (mine.dtype == its.dtype and error <= TOLERANCE[its.dtype] * scale):
                raise Disagreement(
                    f"{first.name} and {other.name} differ by {error:.3g} of {scale:.3g}"
                )


def main(rounds: int | None) -> int:
    """Print the tables."""
    for workload in WORKLOADS:
        print("\n".join(contest(workload, rounds or 15)), end="\n\n", flush=True)
    return 0
