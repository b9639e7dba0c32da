"""Functions of few operations on few numbers, as a minimiser calls them thousands of times.

Value and gradient of 3, 10 and 30 operations on 8 numbers against autograd's, by
`tg.value_and_grad`, by the drop-in and compiled; `sum(w * x)` with its ``backward()`` against
PyTorch's; and what `auto` takes of native time, which without TensorFlow has nothing to choose.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.contenders import Remote, Serving, quiet
from benchmarks.processes import Failed, Process
from benchmarks.protocol import Figure, Problem, Trainer, ratio, spread, time_in_turns

ABOUT = "float64, value and gradient of functions of 8 numbers; processor time over a peer's"


# Functions, in the NumPy of a library


def three(np: Any, x: Any) -> Any:
    return np.sum(np.tanh(x) ** 2)


def ten(np: Any, x: Any) -> Any:
    """Rosenbrock's."""
    left = x[:-1]
    return np.sum(100.0 * (x[1:] - left**2) ** 2 + (1.0 - left) ** 2)


def thirty(np: Any, x: Any) -> Any:
    h = x
    for _ in range(9):
        h = np.tanh(h * x + 0.5)
    return np.sum(0.5 * h**2)


FUNCTIONS = {"3 operations": three, "10 operations": ten, "30 operations": thirty}
WEIGHTED = "sum(w * x) and backward()"


# Under `auto` and natively


def weighted_natively() -> Callable[[], Any]:
    return weighted("tapegraph")


def normalised() -> Callable[[], Any]:
    """Return layer_norm and its gradients, to be called."""
    import tapegraph as tg

    rng = np.random.default_rng(0)
    x, scale, offset = (tg.param(rng.normal(size=shape)) for shape in ((4, 8), (8,), (8,)))

    def run() -> tuple[Any, ...]:
        tg.zero_grad([x, scale, offset])
        tg.sum(tg.layer_norm(x, scale, offset) ** 2).backward()
        return x.grad, scale.grad, offset.grad

    return run


def network() -> Callable[[], Any]:
    """Return a step of the README's network, eagerly, to be called."""
    import tapegraph as tg

    rng = np.random.default_rng(0)
    points = rng.normal(size=(400, 2))
    inside = (np.hypot(*points.T) < 1.2).astype(int)
    w1, b1 = tg.param(rng.normal(size=(2, 16))), tg.param(np.zeros(16))
    w2, b2 = tg.param(rng.normal(size=(16, 2)) / 4), tg.param(np.zeros(2))
    optimizer = tg.Adam([w1, b1, w2, b2], lr=0.05)

    def run() -> tuple[Any, ...]:
        loss = tg.softmax_crossentropy(np.tanh(points @ w1 + b1) @ w2 + b2, inside)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item(), w1.numpy()

    return run


def sampler() -> Callable[[], Any]:
    """Return a sample of Hamiltonian Monte Carlo by the drop-in, of ten leapfrogs, to be called."""
    from tapegraph.autograd import grad
    from tapegraph.autograd import numpy as anp

    slope = grad(lambda q: -anp.sum(0.5 * q**2 + 0.1 * anp.cos(q)))
    rng, places = np.random.default_rng(0), [np.ones(8)]

    def run() -> tuple[Any, ...]:
        q, p = places[0], rng.normal(size=8)
        p = p + 0.05 * slope(q)
        for _ in range(10):
            q = q + 0.1 * p
            p = p + 0.1 * slope(q)
        places[0] = q
        return (q,)

    return run


CHOSEN = {
    "sum(w * x)": weighted_natively,
    "layer_norm": normalised,
    "a network's step": network,
    "a sample by HMC": sampler,
}
# By title: the peer, and who is measured against it.
CONTESTS = {
    **dict.fromkeys(FUNCTIONS, ("autograd", ("tapegraph", "drop-in", "compiled"))),
    WEIGHTED: ("torch", ("tapegraph",)),
    **dict.fromkeys(CHOSEN, ("native", ("auto",))),
}


def point() -> Any:
    return np.random.default_rng(0).normal(size=8)


def value_and_gradient(title: str, how: str) -> Callable[[], Any]:
    """Return a function's value and gradient by a library, to be called."""
    f, x = FUNCTIONS[title], point()
    if how == "autograd":
        autograd, anp = (importlib.import_module(m) for m in ("autograd", "autograd.numpy"))
        return partial(autograd.value_and_grad(partial(f, anp)), x)
    import tapegraph as tg

    if how == "drop-in":
        from tapegraph import autograd as dropped_in
        from tapegraph.autograd import numpy as anp

        return partial(dropped_in.value_and_grad(partial(f, anp)), x)
    ours = tg.value_and_grad(partial(f, np))
    if how == "tapegraph":
        return partial(ours, x)
    return partial(tg.compile(ours), x)


def weighted(how: str) -> Callable[[], Any]:
    """Return ``sum(w * x)`` and its gradient by ``backward()``, to be called."""
    numbers = point()
    if how == "torch":
        import torch

        w, x = torch.tensor(numbers, requires_grad=True), torch.tensor(numbers)
        total = torch.sum
    else:
        import tapegraph as tg

        w, x = tg.param(numbers), tg.tensor(numbers)
        total = tg.sum

    def run() -> tuple[Any, Any]:
        w.grad = None
        y = total(w * x)
        y.backward()
        return y.item(), w.grad

    return run


# What is timed


def problem() -> Problem:
    return Problem([], [], rate=1.0)


def all_by_tapegraph(problem: Problem, *, compiled: bool = False) -> Trainer:
    """Return all of them in one step, by which one checkout is measured against another."""
    ways = ("compiled",) if compiled else ("tapegraph", "drop-in")
    runs = [value_and_gradient(title, how) for title in FUNCTIONS for how in ways]
    if not compiled:
        runs.append(weighted("tapegraph"))

    def step() -> float:
        for run in runs:
            run()
        return 0.0

    return Trainer(step, list)


CONTENDERS = {
    "tapegraph": all_by_tapegraph,
    "tapegraph compiled": partial(all_by_tapegraph, compiled=True),
}


def serving(title: str, how: str) -> Serving:
    """Make what runs again and again in this process."""
    quiet()
    if title in CHOSEN:
        import tapegraph as tg

        tg.set_backend(how)  # type: ignore[arg-type]
        run = CHOSEN[title]()
    else:
        run = weighted(how) if title == WEIGHTED else value_and_gradient(title, how)
    found: list[Any] = []

    def step() -> float:
        found[:] = run()
        return 0.0

    return Serving(how, partial(Trainer, step, lambda: found))


class Timed(Remote):
    """What one such process runs."""

    def __init__(self, title: str, how: str) -> None:
        self.name = how
        self._process = Process(f"{__name__}:serving", title, how)


def measure(rounds: int) -> tuple[dict[str, Figure], dict[str, str]]:
    """Return the ratios, and what is left out and why."""
    figures: dict[str, Figure] = {}
    skipped: dict[str, str] = {}
    for title, (peer, ours) in CONTESTS.items():
        every = [Timed(title, how) for how in (peer, *ours)]
        try:
            for one in every:
                for _ in range(3):  # which record and compile
                    one.step()
            theirs = every[0].state()
            for one in every[1:]:
                for a, b in zip(one.state(), theirs, strict=True):
                    np.testing.assert_allclose(a, b, rtol=1e-9)
            turns = time_in_turns(every, rounds=rounds, warmups=3)
        except Failed as error:
            skipped[title] = str(error)
            continue
        finally:
            for one in every:
                one.end()
        seconds = {name: [turn.cpu for turn in taken] for name, taken in turns.items()}
        figures[f"{title}, {peer}"] = Figure("us", spread([1e6 * s for s in seconds[peer]]))
        for how in ours:
            figures[f"{title}, {how} / {peer}"] = Figure("", ratio(seconds[how], seconds[peer]))
    return figures, skipped
